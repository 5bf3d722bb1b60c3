"""Reads a table of Apache Iceberg: the rows of one snapshot, then the files that each later snapshot appends.

Law: a position is a snapshot and the number of its files that were admitted.  Data files never change, so a
split that is read again has the same rows.
A snapshot that rewrites files without changing rows (`replace`) is passed over.  One that removes or
overwrites rows is refused, as are delete files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from millpond.arguments.call_errors import checked
from millpond.arguments.schemas import schema_of
from millpond.errors import DataError, InvalidError, MillpondError
from millpond.operators.source_traits import KeepsHistory, StoredWithSchema
from millpond.plan.backfill import FROM_NOW
from millpond.sources import schema_fit
from millpond.sources.iceberg_catalog import catalog_settings, open_catalog, pyiceberg, unavailable
from millpond.sources.iceberg_files import data_file, described
from millpond.sources.lake_positions import LakePosition, advanced, position_of
from millpond.sources.source import Advance, Poll, Split
from millpond.state.tables.table_spec import TableSpec

_NAME = re.compile(r"[^.]+(\.[^.]+)+")
_SNAPSHOTS_PER_POLL = 1_000
_UNPACKED = 3  # about how much larger rows are in memory than in a file


@checked
@dataclass(frozen=True)
class IcebergSource(KeepsHistory, StoredWithSchema):
    """The rows of an Iceberg table that is only appended to.

    `table_name` is the table with its namespace, as in ``"shop.orders"``; `catalog` has the settings of
    pyiceberg's catalog, with secrets as ``${env:NAME}``.  `schema` names columns to read; by default all.
    Needs ``pip install "millpond[iceberg]"``.
    """

    table_name: str
    catalog: tuple[tuple[str, str], ...] = field(repr=False)
    schema: pa.Schema = None
    _known: dict[tuple[int, bool], Any] = field(
        default_factory=dict, compare=False, repr=False, metadata={"durable": False}
    )  # files of snapshots that this process has looked at, and of one that it began with

    append_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.table_name, str) or not _NAME.fullmatch(self.table_name):
            raise InvalidError(
                "an IcebergSource needs the name of a table with its namespace",
                detail=f"got {self.table_name!r}",
                hint='"shop.orders", for example',
            )
        object.__setattr__(self, "catalog", catalog_settings(self.catalog))
        if self.schema is not None:
            object.__setattr__(self, "schema", schema_fit.declared(schema_of(self.schema)))
        else:
            with _LoadedTable(self) as table:
                arrow = pyiceberg("pyiceberg.io.pyarrow").schema_to_pyarrow(
                    table.schema(), include_field_ids=False
                )
            object.__setattr__(self, "schema", schema_fit.inferred(arrow))

    def table(self, step: str) -> TableSpec | None:
        return None

    # -- in the driver --------------------------------------------------------

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        at = position_of(position, self.table_name)
        with _LoadedTable(self) as table:
            current = table.current_snapshot()
            if current is None:
                return Poll(backlog_rows=0)
            if at is None:
                at = LakePosition(current.snapshot_id, current.snapshot_id, 0, False)
            elif at.done and at.version == current.snapshot_id:
                return Poll(backlog_rows=0)
            splits: list[Split] = []
            rows = 0
            for snapshot in [at, *self._following(table, at, current)[:_SNAPSHOTS_PER_POLL]]:
                files = [] if snapshot.done else self._files(table, snapshot)
                for number in range(snapshot.files, len(files)):
                    if rows >= max_rows:
                        return Poll(tuple(splits), backlog_rows=max_rows)
                    last = number == len(files) - 1
                    splits.append(_split(files[number], snapshot, number + 1, last))
                    rows += files[number]["record_count"]
                if not files and not snapshot.done:
                    to = LakePosition(snapshot.start, snapshot.version, 0, True)
                    splits.append(Split({"to": to.to_json()}, 0, 0))
            return Poll(tuple(splits), backlog_rows=0)

    def _following(self, table: Any, at: LakePosition, current: Any) -> list[LakePosition]:
        """The snapshots after a position, the oldest first."""
        found, snapshot = [], current
        while snapshot is not None and snapshot.snapshot_id != at.version:
            found.append(LakePosition(at.start, snapshot.snapshot_id, 0, False))
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.metadata.snapshot_by_id(parent)
        if snapshot is None:
            raise DataError(
                f"snapshot {at.version} is not in the history of table {self.table_name!r}",
                detail="it has expired, or the table was rolled back or replaced",
                hint="read the table under another name; keep snapshots until they are read",
            )
        return found[::-1]

    def _files(self, table: Any, at: LakePosition) -> list[dict[str, Any]]:
        """The files of the first snapshot, or those that a later one appends, by name."""
        key = at.version, at.version == at.start
        if key not in self._known:
            if len(self._known) > _SNAPSHOTS_PER_POLL:
                self._known.clear()
            found = self._all_files(table, at.version) if key[1] else self._added(table, at)
            self._known[key] = sorted(found, key=lambda file: str(file["file_path"]))
        files: list[dict[str, Any]] = self._known[key]
        return files

    def _all_files(self, table: Any, snapshot: int) -> list[dict[str, Any]]:
        found = []
        for task in table.scan(snapshot_id=snapshot).plan_files():
            if task.delete_files:
                raise InvalidError(
                    f"table {self.table_name!r} has delete files",
                    detail=f"{len(task.delete_files)} of them in snapshot {snapshot}",
                    hint="a source reads tables without them: compact the table first",
                )
            found.append(described(task.file, task.file.spec_id))
        return found

    def _added(self, table: Any, at: LakePosition) -> list[dict[str, Any]]:
        snapshot = table.metadata.snapshot_by_id(at.version)
        operation = snapshot.summary.operation.value if snapshot.summary else "unknown"
        if operation == "replace":
            return []
        if operation != "append":
            raise InvalidError(
                f"snapshot {at.version} of table {self.table_name!r} does not only append rows",
                detail=f"its operation is {operation}",
                hint="a source reads tables that are only appended to: write a changelog, or use Delta Lake",
            )
        manifests = pyiceberg("pyiceberg.manifest")
        found = []
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id != at.version:
                continue
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                if entry.status == manifests.ManifestEntryStatus.ADDED and entry.snapshot_id == at.version:
                    found.append(described(entry.data_file, manifest.partition_spec_id))
        return found

    def advance(
        self, position: Any, admitted: Sequence[Split], rejects: Sequence[tuple[str, str]]
    ) -> Advance:
        return advanced(position, admitted)

    def history(self, position: Any, seen: pa.Table | None, rows: int) -> Iterator[Split]:
        """All files that were admitted."""
        at = position_of(position, self.table_name)
        if at is None:
            return
        try:
            with _LoadedTable(self) as table:
                first = LakePosition(at.start, at.start, 0, False)
                files = list(self._files(table, first))
                if at.version == at.start:
                    files = files if at.done else files[: at.files]
                else:
                    reached = table.metadata.snapshot_by_id(at.version)
                    if reached is None or table.metadata.snapshot_by_id(at.start) is None:
                        raise DataError(f"snapshots of table {self.table_name!r} that were read have expired")
                    for later in self._following(table, first, reached):
                        some = self._files(table, later)
                        whole = later.version != at.version or at.done
                        files += some if whole else some[: at.files]
        except DataError as error:
            raise InvalidError(error.message, detail=error.detail, hint=f"or {FROM_NOW}") from None
        for number, file in enumerate(files):
            yield _split(file, at, number + 1, False)

    # -- in a task ------------------------------------------------------------

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        if "file" not in split.what:
            return
        arrow_io, expressions = pyiceberg("pyiceberg.io.pyarrow"), pyiceberg("pyiceberg.expressions")
        file = data_file(split.what["file"])
        file.spec_id = split.what["file"]["spec_id"]
        task = pyiceberg("pyiceberg.table").FileScanTask(file)
        with _LoadedTable(self) as table:
            names = list(columns) or self.schema.names[:1]
            lacking = [name for name in names if name not in table.schema().column_names]
            if lacking:
                raise DataError(
                    f"table {self.table_name!r} has no column {lacking[0]!r} any more",
                    hint="read the table under another name",
                )
            scan = arrow_io.ArrowScan(
                table.metadata, table.io, table.schema().select(*names), expressions.AlwaysTrue()
            )
            for batch in scan.to_record_batches([task]):
                rows = pa.Table.from_batches([batch])
                reason = schema_fit.misfit(rows.schema, pa.schema([self.schema.field(n) for n in names]))
                if reason is not None:
                    raise DataError(f"table {self.table_name!r} has changed: {reason}")
                yield schema_fit.fit(rows, self.schema, columns)


class _LoadedTable:
    """The table as it is now, while a block runs; errors of the catalog become errors of Millpond."""

    def __init__(self, source: IcebergSource) -> None:
        self._source = source

    def __enter__(self) -> Any:
        self._catalog = open_catalog(self._source.catalog)
        try:
            return self._catalog.load_table(self._source.table_name)
        except Exception as error:
            self._catalog.close()
            if isinstance(error, pyiceberg("pyiceberg.exceptions").NoSuchTableError):
                raise InvalidError(f"there is no Iceberg table {self._source.table_name!r}") from None
            raise unavailable(error) from None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._catalog.close()
        if isinstance(error, FileNotFoundError):
            raise DataError(
                f"a file of table {self._source.table_name!r} is gone",
                detail=str(error),
                hint="keep snapshots until they are read",
            ) from error
        if isinstance(error, Exception) and not isinstance(error, MillpondError):
            raise unavailable(error) from error


def _split(file: dict[str, Any], at: LakePosition, files: int, last: bool) -> Split:
    to = LakePosition(at.start, at.version, files, last)
    partition = f"{at.version}/{file['file_path']}"
    size = file["file_size_in_bytes"] * _UNPACKED
    what = {"file": file, "to": to.to_json()}
    return Split(what, file["record_count"], size, partition=partition, ends=True, more=not last)
