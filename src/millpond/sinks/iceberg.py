"""Writes the changes of a view to a table of Apache Iceberg, exactly once.

Law 7: one commit of the catalog adds the files of a delivery and stores its epoch as a property of the table,
`millpond.epoch.<pond>.<sink>`.  Properties stay when snapshots expire.
A commit requires the snapshot that the sink has compared its epoch with, and is sent once: pyiceberg's own
retries would add the files again to a table that another coordinator has changed meanwhile.  In doubt the
sink loads the table and compares again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from millpond.arguments.call_errors import checked
from millpond.errors import InternalError, InvalidError, MillpondError, UnavailableError
from millpond.plan.sink_settings import Guarantee, SinkMode, SinkSettings
from millpond.sinks.delivery import Delivery, Part, SinkBinding, written_schema
from millpond.sinks.lake_types import lake_rows, lake_schema
from millpond.sources.iceberg_catalog import catalog_settings, open_catalog, pyiceberg, unavailable
from millpond.sources.iceberg_files import data_file, described

ATTEMPTS = 10  # commits of other writers that may come between
NEW_TABLE = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.parquet.compression-codec": "zstd",
}
_NAME = re.compile(r"[^.]+(\.[^.]+)+")


@checked
@dataclass(frozen=True)
class IcebergSink:
    """A table of Apache Iceberg.

    `table` is its name with the namespace, as in ``"shop.orders"``.  `catalog` has the settings of
    pyiceberg's catalog, for example ``{"type": "rest", "uri": "https://…", "token": "${env:TOKEN}"}``.  The
    table is created if it does not exist; otherwise its columns are checked, and missing ones are added.
    Needs ``pip install "millpond[iceberg]"``.
    """

    table: str
    catalog: tuple[tuple[str, str], ...] = field(repr=False)
    partition_by: tuple[str, ...] = ()  # of a new table

    guarantee: ClassVar[Guarantee] = "exactly_once"
    modes: ClassVar[tuple[SinkMode, ...]] = ("changelog", "append")
    columns_by_name: ClassVar[bool] = True
    mode_hints: ClassVar[Mapping[str, str]] = {
        "upsert": "write a changelog and merge it with Spark, or use Delta Lake or PostgreSQL: "
        "pyiceberg rewrites a table of a million keys in minutes"
    }

    def __post_init__(self) -> None:
        if not isinstance(self.table, str) or not _NAME.fullmatch(self.table):
            raise InvalidError(
                "an IcebergSink needs the name of a table with its namespace",
                detail=f"got {self.table!r}",
                hint='"shop.orders", for example',
            )
        names = (self.partition_by,) if isinstance(self.partition_by, str) else tuple(self.partition_by)
        object.__setattr__(self, "partition_by", names)
        object.__setattr__(self, "catalog", catalog_settings(self.catalog))

    def check_view(self, schema: pa.Schema, settings: SinkSettings) -> None:
        """Refuse columns that the table cannot have."""
        pyiceberg("pyiceberg")
        self.table_schema(schema, settings.mode or self.modes[0])

    def table_schema(self, schema: pa.Schema, mode: SinkMode) -> pa.Schema:
        """The columns of the table for a view with these columns."""
        written = lake_schema(written_schema(schema, mode), "Iceberg")
        unknown = [n for n in self.partition_by if n not in schema.names]
        if unknown:
            raise InvalidError(
                f"the table cannot be partitioned by {', '.join(self.partition_by)}",
                detail=f"columns of the view are {', '.join(schema.names)}",
            )
        for name in self.partition_by:
            _check_partition(name, written.field(name).type)
        return written

    def open(self, binding: SinkBinding) -> IcebergPublisher:
        try:
            return IcebergPublisher(self, binding)
        except MillpondError:
            raise
        except Exception as error:
            raise unavailable(error) from None

    def prepare(self, part: Part) -> Any:
        """Write the rows of a part as files that no snapshot names yet."""
        arrow_io = pyiceberg("pyiceberg.io.pyarrow")
        catalog = open_catalog(self.catalog)
        try:
            table = catalog.load_table(self.table)
            rows = lake_rows(part.rows, "Iceberg")
            files = list(arrow_io._dataframe_to_data_files(table.metadata, rows, table.io))
        except MillpondError:
            raise
        except Exception as error:
            raise unavailable(error) from None
        finally:
            catalog.close()
        written = sum(file.record_count for file in files)
        if written != part.rows.num_rows:
            raise InternalError(
                "files of Iceberg have other rows than the delivery",
                detail=f"{written} instead of {part.rows.num_rows}",
            )
        return [described(file, table.metadata.default_spec_id) for file in files]


class IcebergPublisher:
    def __init__(self, sink: IcebergSink, binding: SinkBinding) -> None:
        self._sink = sink
        self._binding = binding
        self._schema = sink.table_schema(binding.schema, binding.mode)
        self._epoch_property = f"millpond.epoch.{binding.pond}.{binding.sink}"
        self._raised = pyiceberg("pyiceberg.exceptions")
        self._catalog = open_catalog(sink.catalog)
        try:
            self._table = self._opened()
            self._check()
        except BaseException:
            self._catalog.close()
            raise

    def close(self) -> None:
        self._catalog.close()

    # -- the table --------------------------------------------------------------

    def _opened(self) -> Any:
        for _ in range(ATTEMPTS):
            try:
                table = self._load() or self._create()
                held = {f.name for f in table.schema().fields}
                missing = [f for f in self._schema if f.name not in held]
                if not missing:
                    return table
                with table.update_schema() as update:
                    update.union_by_name(pa.schema(missing))
            except (self._raised.CommitFailedException, self._raised.TableAlreadyExistsError) as error:
                failed: Exception = error  # another writer has created or changed it at the same time
        raise unavailable(failed)

    def _load(self) -> Any:
        try:
            return self._catalog.load_table(self._sink.table)
        except self._raised.NoSuchTableError:
            return None

    def _create(self) -> Any:
        self._catalog.create_namespace_if_not_exists(self._sink.table.rpartition(".")[0])
        new = self._catalog.create_table_transaction(
            self._sink.table, schema=self._schema, properties=NEW_TABLE
        )
        with new as transaction:
            if self._sink.partition_by:
                with transaction.update_spec() as spec:
                    for name in self._sink.partition_by:
                        spec.add_identity(name)
        return self._catalog.load_table(self._sink.table)

    def _check(self) -> None:
        """Refuse a table whose columns are others than those of the files that are added."""
        arrow_io, table = pyiceberg("pyiceberg.io.pyarrow"), self._table
        held = {f.name: f for f in arrow_io.schema_to_pyarrow(table.schema(), include_field_ids=False)}
        for wanted in self._schema:
            found = held[wanted.name]
            if lake_schema(pa.schema([found]), "Iceberg").field(0).type != wanted.type:
                raise InvalidError(
                    f"column {wanted.name!r} of table {self._sink.table!r} has another type",
                    detail=f"it is {found.type}, and the sink writes {wanted.type}",
                    hint="cast the column in the view, or let the sink create another table",
                )
        strict = [f.name for f in table.schema().fields if f.required]
        if strict:
            raise InvalidError(
                f"column {strict[0]!r} of table {self._sink.table!r} is required",
                hint="a sink writes to columns that may be NULL: make it optional",
            )
        names = []
        for one in table.spec().fields:
            name = table.schema().find_column_name(one.source_id)
            names.append(name)
            if str(one.transform) != "identity":
                raise InvalidError(
                    f"table {self._sink.table!r} is partitioned by {one.transform} of {name}",
                    hint="a sink writes to tables that are partitioned by values of columns, or not at all",
                )
            _check_partition(name, held[name].type if name in held else pa.null())
        if self._sink.partition_by and names != list(self._sink.partition_by):
            raise InvalidError(
                f"table {self._sink.table!r} is partitioned by {', '.join(names) or 'nothing'}",
                detail=f"the sink is partitioned by {', '.join(self._sink.partition_by)}",
                hint="leave partition_by out: the sink follows the table",
            )

    # -- deliveries -------------------------------------------------------------

    def has(self, delivery: Delivery) -> bool:
        try:
            self._table = self._catalog.load_table(self._sink.table)
        except Exception as error:
            raise unavailable(error) from None
        return int(self._table.properties.get(self._epoch_property, -1)) >= delivery.epoch

    def publish(self, delivery: Delivery, prepared: Sequence[Any]) -> None:
        files = [file for part in prepared for file in part]
        if not files:
            return
        for _ in range(ATTEMPTS):
            if self.has(delivery):
                return
            if {file["spec_id"] for file in files} != {self._table.metadata.default_spec_id}:
                raise UnavailableError(
                    "the partitions of the table have changed; its files are written again"
                )
            try:
                self._commit(delivery, files)
                return
            except self._raised.CommitFailedException as error:
                failed = error
            except Exception as error:  # it may have succeeded: the table says it
                if self.has(delivery):
                    return
                raise unavailable(error) from None
        raise unavailable(failed)

    def _commit(self, delivery: Delivery, files: Sequence[Mapping[str, Any]]) -> None:
        """One commit against the state of the table that was compared; no retries."""
        binding, table = self._binding, self._table
        said = {"millpond.pond": binding.pond, "millpond.sink": binding.sink}
        transaction = table.transaction()
        snapshot = transaction.update_snapshot(
            snapshot_properties={**said, "millpond.epoch": str(delivery.epoch)}
        )
        merges = table.properties.get("commit.manifest-merge.enabled") == "true"
        with snapshot.merge_append() if merges else snapshot.fast_append() as append:
            for file in files:
                append.append_data_file(data_file(file))
        transaction.set_properties({self._epoch_property: str(delivery.epoch)})
        same = pyiceberg("pyiceberg.table.update").AssertTableUUID(uuid=table.metadata.table_uuid)
        self._catalog.commit_table(table, (*transaction._requirements, same), transaction._updates)


def _check_partition(name: str, kind: pa.DataType) -> None:
    t = pa.types
    number = t.is_integer(kind) or t.is_boolean(kind) or t.is_date(kind) or t.is_timestamp(kind)
    if not (number or t.is_string(kind) or t.is_large_string(kind)):
        raise InvalidError(
            f"the table cannot be partitioned by {name}, a {kind}",
            hint="partition by texts, whole numbers, booleans, dates or timestamps",
        )
