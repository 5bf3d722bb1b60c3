"""Writes the changes of a view to a table of Delta Lake, exactly once.

Law 7: one commit of the table adds the files of a delivery and stores its epoch as the version of an
application transaction, `millpond/<pond>/<sink>`.
The table accepts any version, also a smaller one.  So the sink loads the table, compares the epoch, and
commits through that state of the table, without retries: if anybody has committed since, the commit is
refused, and the sink loads and compares again.
"""

from __future__ import annotations

import datetime
import importlib
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from millpond.arguments.call_errors import checked
from millpond.errors import InvalidError, MillpondError, UnavailableError
from millpond.masking import masked
from millpond.plan.sink_settings import OPERATION, Guarantee, SinkMode, SinkSettings
from millpond.secret_references import check_references, resolved
from millpond.sinks.delivery import Delivery, Part, RefusedRow, SinkBinding, row_text, written_schema
from millpond.sinks.delta_files import add_action, partitions, write_data_file
from millpond.sinks.lake_types import lake_rows, lake_schema
from millpond.sinks.row_changes import DELETE, UPSERT
from millpond.sources.delta_address import delta_address
from millpond.state.store.store import Store, open_store

ATTEMPTS = 10  # commits of other writers that may come between
LOG = "_delta_log"
NO_RETRIES = 0
_OWN_OPTIONS = ("durable", "retries", "timeout", "connect_timeout")  # of the store, unknown to deltalake
# What rows would have to obey; files that are added to a table are checked by nobody.
_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity.start")
NO_PARTITION = "Delta Lake has no partition for an empty text, or for a date outside the years 1 to 9999"
_FIRST_DAY, _LAST_DAY = datetime.date(1, 1, 1), datetime.date(9999, 12, 31)


@checked
@dataclass(frozen=True)
class DeltaSink:
    """A table of Delta Lake.

    `path` is a folder of this machine, or an address such as ``s3://bucket/table``; `options` are those of
    the store, for example ``{"endpoint": "…", "secret_access_key": "${env:KEY}"}``.  The table is created if
    it does not exist; otherwise its columns are checked, and missing ones are added.  Needs
    ``pip install "millpond[delta]"``.
    """

    path: str | os.PathLike[str]  # a folder is stored as an absolute path
    partition_by: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    guarantee: ClassVar[Guarantee] = "exactly_once"
    modes: ClassVar[tuple[SinkMode, ...]] = ("changelog", "append", "upsert")
    columns_by_name: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike) or not os.fspath(self.path):
            raise InvalidError("a DeltaSink needs a folder or an address", detail=f"got {self.path!r}")
        path = delta_address(self.path)
        names = (self.partition_by,) if isinstance(self.partition_by, str) else tuple(self.partition_by)
        options = self.options.items() if isinstance(self.options, dict) else self.options
        pairs = tuple((str(name), str(value)) for name, value in options)
        for name, value in pairs:
            check_references(value)
            if "unsafe_rename" in name.lower() and value.lower() == "true":
                raise InvalidError(
                    "a DeltaSink needs commits that only one writer can win",
                    detail=f"option {name!r} gives them up",
                    hint="leave it out",
                )
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "partition_by", names)
        object.__setattr__(self, "options", pairs)

    def check_view(self, schema: pa.Schema, settings: SinkSettings) -> None:
        """Refuse columns that the table cannot have."""
        _deltalake()
        self.table_schema(schema, settings.mode or self.modes[0])

    def table_schema(self, schema: pa.Schema, mode: SinkMode) -> pa.Schema:
        """The columns of the table for a view with these columns."""
        written = lake_schema(written_schema(schema, mode), "Delta Lake")
        unknown = [n for n in self.partition_by if n not in schema.names]
        if unknown or len(self.partition_by) >= len(schema.names):
            raise InvalidError(
                f"the table cannot be partitioned by {', '.join(self.partition_by)}",
                detail=f"columns of the view are {', '.join(schema.names)}",
                hint="name some of its columns, not all of them",
            )
        for name in self.partition_by:
            kind = written.field(name).type
            t = pa.types
            if not (t.is_string(kind) or t.is_integer(kind) or t.is_boolean(kind) or t.is_date(kind)):
                raise InvalidError(
                    f"the table cannot be partitioned by {name}, a {kind}",
                    hint="partition by texts, whole numbers, booleans or dates",
                )
        # The operation of an upsert is applied, not stored.
        return pa.schema([f for f in written if f.name != OPERATION]) if mode == "upsert" else written

    def open(self, binding: SinkBinding) -> DeltaPublisher | DeltaMerger:
        table = DeltaTarget(self, binding)
        return DeltaMerger(table) if binding.mode == "upsert" else DeltaPublisher(table)

    def prepare(self, part: Part) -> Any:
        """Write the rows of a part as files that no commit names yet."""
        return prepared_files(self, part)

    def store(self) -> Store:
        """The place of the table's files."""
        options: dict[str, Any] = {name: resolved(value) for name, value in self.options}
        return open_store(str(self.path), **options)

    def storage_options(self) -> dict[str, str]:
        """The options with which deltalake opens the same place."""
        found = {name: resolved(value) for name, value in self.options if name not in _OWN_OPTIONS}
        if found.get("endpoint", "").startswith("http://"):
            found.setdefault("allow_http", "true")
        return found


def prepared_files(sink: DeltaSink, part: Part) -> list[dict[str, Any]]:
    store, found = sink.store(), []
    rows = lake_rows(part.rows, "Delta Lake")
    accepted, _ = _sorted_out(rows, sink.partition_by)
    for values, some in partitions(accepted, sink.partition_by):
        name = f"part-{part.epoch:012d}-{part.number:05d}-{secrets.token_hex(16)}.parquet"
        found.append(write_data_file(store, name, values, some))
    return found


class DeltaTarget:
    """A table, and the last epoch that it has of a sink."""

    def __init__(self, sink: DeltaSink, binding: SinkBinding) -> None:
        self._lake = _deltalake()
        self._sink = sink
        self.binding = binding
        self.app = f"millpond/{binding.pond}/{binding.sink}"
        self.schema = sink.table_schema(binding.schema, binding.mode)
        self.partition_by = list(sink.partition_by)
        self._store = sink.store()
        self.table = self._opened()
        self._check()

    # -- the table --------------------------------------------------------------

    def _opened(self) -> Any:
        for _ in range(ATTEMPTS):
            try:
                table = self._load()
                if table is None:
                    table = self._lake.DeltaTable.create(
                        str(self._sink.path),
                        self.schema,
                        mode="error",
                        partition_by=self.partition_by or None,
                        storage_options=self._sink.storage_options(),
                    )
                    self._sync(table)
                missing = [f for f in self.schema if f.name not in self._fields_of(table)]
                if not missing:
                    return table
                fields = [f for f in self._lake.Schema.from_arrow(pa.schema(missing)).fields]
                table.alter.add_columns(fields, commit_properties=self._properties(None))
                self._sync(table)
            except self._lake.exceptions.DeltaError as error:
                failed = error  # another writer may have created or changed the table at the same time
                time.sleep(0.02)
                continue
            except OSError as error:
                raise _unavailable(error) from None
        raise _unavailable(failed)

    def _load(self) -> Any:
        options = self._sink.storage_options()
        try:
            return self._lake.DeltaTable(str(self._sink.path), storage_options=options)
        except self._lake.exceptions.TableNotFoundError:
            return None

    def _fields_of(self, table: Any) -> dict[str, pa.Field]:
        return {f.name: f for f in pa.schema(table.schema().to_arrow())}

    def _check(self) -> None:
        """Refuse a table whose columns or rules are others than those of the files that are added."""
        held = self._fields_of(self.table)
        where = f"table {str(self._sink.path)!r}"
        for wanted in self.schema:
            found = held[wanted.name]
            if lake_schema(pa.schema([found]), "Delta Lake").field(0).type != wanted.type:
                raise InvalidError(
                    f"column {wanted.name!r} of {where} has another type",
                    detail=f"it is {found.type}, and the sink writes {wanted.type}",
                    hint="cast the column in the view, or let the sink create another table",
                )
        strict = [name for name, found in held.items() if not found.nullable]
        if strict:
            raise InvalidError(
                f"column {strict[0]!r} of {where} is NOT NULL",
                hint="a sink writes to columns that may be NULL: ALTER TABLE … DROP NOT NULL",
            )
        metadata = self.table.metadata()
        if list(metadata.partition_columns) != self.partition_by:
            raise InvalidError(
                f"{where} is partitioned by {', '.join(metadata.partition_columns) or 'nothing'}",
                detail=f"the sink is partitioned by {', '.join(self.partition_by) or 'nothing'}",
                hint="give the sink the partition_by of the table",
            )
        self._check_rules(where, metadata.configuration)

    def _check_rules(self, where: str, settings: dict[str, str]) -> None:
        text = self.table.schema().to_json()
        found = [rule for rule in _RULES if f'"{rule}"' in text]
        found += [name for name in settings if name.startswith("delta.constraints.")]
        if settings.get("delta.columnMapping.mode", "none") != "none":
            found.append("delta.columnMapping.mode")
        if found:
            raise InvalidError(
                f"{where} has rules that a sink does not follow",
                detail=f"it has {', '.join(found)}",
                hint="write to a table without constraints, computed columns and column mapping",
            )
        if settings.get("delta.setTransactionRetentionDuration"):
            raise InvalidError(
                f"{where} forgets which epochs it has",
                detail="its setting delta.setTransactionRetentionDuration removes them after a time",
                hint="unset it: without these epochs a delivery that comes again is doubled",
            )
        if self.binding.mode == "upsert" and settings.get("delta.appendOnly", "").lower() == "true":
            raise InvalidError(f"{where} is append-only", hint="use mode append or changelog")

    # -- commits ----------------------------------------------------------------

    def has(self, epoch: int) -> bool:
        """Does the table have this epoch or a later one?"""
        log = f"{LOG}/{self.table.version():020d}.json"
        if self._store.size(log) is None:
            raise UnavailableError(
                "the table was replaced by another one", detail=f"{log} of {self._sink.path} is gone"
            )
        before = self.table.version()
        try:
            self.table.update_incremental()
        except self._lake.exceptions.DeltaError as error:
            raise _unavailable(error) from None
        if self.table.version() != before:
            self._check()
        found = self.table.transaction_version(self.app)
        return found is not None and found >= epoch

    def commit(self, epoch: int, act: Callable[[Any, Any], object]) -> None:
        """Commit once; nothing if the table has the epoch.  `act` gets the table and commit properties."""
        for _ in range(ATTEMPTS):
            if self.has(epoch):
                return
            try:
                act(self.table, self._properties(epoch))
            except (self._lake.exceptions.DeltaError, OSError) as error:
                failed: Exception = error  # also if it is unknown whether it succeeded: the table says it
                continue
            self._sync(self.table)
            return
        if not self.has(epoch):
            raise _unavailable(failed)

    def _properties(self, epoch: int | None) -> Any:
        said = {"millpond.pond": self.binding.pond, "millpond.sink": self.binding.sink}
        marks = None
        if epoch is not None:
            said["millpond.epoch"] = str(epoch)
            marks = [self._lake.Transaction(self.app, epoch)]
        return self._lake.CommitProperties(
            custom_metadata=said, max_commit_retries=NO_RETRIES, app_transactions=marks
        )

    def _sync(self, table: Any) -> None:
        """Make the commits since a state of the table durable, on this machine: deltalake does not."""
        if "://" in str(self._sink.path) or dict(self._sink.options).get("durable") == "false":
            return
        folder = Path(str(self._sink.path)) / LOG
        before = table.version()
        table.update_incremental()
        commits = [folder / f"{number:020d}.json" for number in range(before, table.version() + 1)]
        for path in (*(commit for commit in commits if commit.exists()), folder, folder.parent):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


class DeltaPublisher:
    """Adds files that were prepared, in modes append and changelog."""

    def __init__(self, target: DeltaTarget) -> None:
        self._target = target

    def has(self, delivery: Delivery) -> bool:
        return self._target.has(delivery.epoch)

    def publish(self, delivery: Delivery, prepared: Sequence[Any]) -> Sequence[RefusedRow]:
        target = self._target
        actions = [add_action(file) for part in prepared for file in part]
        if actions:
            target.commit(
                delivery.epoch,
                lambda table, properties: table.create_write_transaction(
                    actions,
                    "append",
                    table.schema(),
                    partition_by=target.partition_by,
                    commit_properties=properties,
                ),
            )
        if not target.partition_by:
            return ()
        _, refused = _sorted_out(lake_rows(delivery.rows, "Delta Lake"), target.partition_by)
        return refused


class DeltaMerger:
    """Merges upserts into the table by key: one commit rewrites the files that have changed rows."""

    def __init__(self, target: DeltaTarget) -> None:
        self._target = target

    def write(self, delivery: Delivery) -> Sequence[RefusedRow]:
        target, found = self._target, delivery.upserts
        put, refused = _sorted_out(lake_rows(found.put, "Delta Lake"), target.partition_by)
        key = list(delivery.binding.key)
        gone = found.deleted
        if refused:  # the row that the table has is no longer true
            keys = lake_rows(found.put, "Delta Lake")
            gone = pa.concat_tables([lake_rows(gone, "Delta Lake"), _others(keys, target.partition_by)])
        deleted = lake_rows(gone, "Delta Lake")
        rows = pa.concat_tables([deleted, put])
        if not rows.num_rows:
            return refused
        operations = [DELETE] * deleted.num_rows + [UPSERT] * put.num_rows
        rows = rows.append_column(OPERATION, pa.array(operations, pa.string()))
        target.commit(delivery.epoch, lambda table, properties: _merge(table, rows, key, properties))
        return refused


def _merge(table: Any, rows: pa.Table, key: Sequence[str], properties: Any) -> None:
    terms = []
    for name in key:
        equal = "IS NOT DISTINCT FROM" if rows.column(name).null_count else "="
        terms.append(f"t.{_quoted(name)} {equal} s.{_quoted(name)}")
    names = [n for n in rows.column_names if n != OPERATION]
    values = {_quoted(name): f"s.{_quoted(name)}" for name in names}
    others = {_quoted(name): f"s.{_quoted(name)}" for name in names if name not in key}
    merge = table.merge(
        rows, " AND ".join(terms), source_alias="s", target_alias="t", commit_properties=properties
    )
    merge = merge.when_matched_delete(predicate=f"s.{OPERATION} = '{DELETE}'")
    if others:
        merge = merge.when_matched_update(others, predicate=f"s.{OPERATION} = '{UPSERT}'")
    merge.when_not_matched_insert(values, predicate=f"s.{OPERATION} = '{UPSERT}'").execute()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _sorted_out(rows: pa.Table, names: Sequence[str]) -> tuple[pa.Table, list[RefusedRow]]:
    """The rows that the table can hold, and the others."""
    refused = _others(rows, names)
    if not refused.num_rows:
        return rows, []
    return rows.filter(pc.invert(_has_no_partition(rows, names))), [
        RefusedRow(row_text(row), NO_PARTITION) for row in _plain_rows(refused)
    ]


def _others(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    return rows.filter(_has_no_partition(rows, names)) if rows.num_rows else rows


def _has_no_partition(rows: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    """Which rows have a value that the log cannot name?  It would read an empty text as NULL."""
    found = pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)])
    for name in names:
        column = rows.column(name)
        if pa.types.is_string(column.type):
            found = pc.or_(found, pc.fill_null(pc.equal(column, ""), False))
        elif pa.types.is_date(column.type):
            outside = pc.or_(pc.less(column, _FIRST_DAY), pc.greater(column, _LAST_DAY))
            found = pc.or_(found, pc.fill_null(outside, False))
    return found


def _plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows for a text; dates that Python does not have as text."""
    columns = [c.cast(pa.string()) if pa.types.is_date(c.type) else c for c in rows.columns]
    found: list[dict[str, Any]] = pa.table(columns, names=rows.column_names).to_pylist()
    return found


def _deltalake() -> Any:
    try:
        return importlib.import_module("deltalake")
    except ImportError:
        raise InvalidError(
            "Delta Lake needs deltalake", hint="install it: pip install 'millpond[delta]'"
        ) from None


def _unavailable(error: Exception) -> MillpondError:
    return UnavailableError("Delta Lake failed", detail=masked(" ".join(str(error).split())))
