"""Reads a table of Delta Lake: the rows of one version, then what each later version changed.

Law: a position is a version and the number of its files that were admitted.  Files of a table never change,
so a split that is read again has the same rows.  A version that retracts rows is admitted in one epoch.
Changes come from the change data feed where a version has one.  Without it they are the rows of the files
that were removed and added, which is the same change, with more rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.arguments.call_errors import checked
from millpond.arguments.schemas import schema_of
from millpond.delta import WEIGHT
from millpond.errors import DataError, InvalidError
from millpond.masking import masked
from millpond.operators.source_traits import KeepsHistory, StoredWithSchema
from millpond.plan.backfill import FROM_NOW
from millpond.secret_references import check_references, resolved
from millpond.sources import parquet_format, schema_fit
from millpond.sources.delta_address import delta_address
from millpond.sources.delta_log import DeltaLog, TableFile, Version, check_readable, partition_column
from millpond.sources.lake_positions import LakePosition, advanced, position_of
from millpond.sources.source import Advance, Poll, Split
from millpond.state.tables.table_spec import TableSpec

CHANGE_TYPE = "_change_type"
_REMOVES = pa.array(["delete", "update_preimage"])
_VERSIONS_PER_POLL = 1_000
_BATCH_ROWS = 1 << 16
_UNPACKED = 3  # about how much larger rows are in memory than in a file


@checked
@dataclass(frozen=True)
class DeltaSource(KeepsHistory, StoredWithSchema):
    """The rows of a Delta table, and its changes.

    `path` is a folder of this machine, or an address such as ``s3://bucket/table``; `options` are those of
    the store, with secrets as ``${env:NAME}``.  With `changes` the source also follows updates and deletes;
    without it a version that removes rows is refused.  By default a source follows them if the table has a
    change data feed.  `schema` names columns to read; by default all.  Needs
    ``pip install "millpond[delta]"``.
    """

    path: str | os.PathLike[str]  # a folder is stored as an absolute path
    changes: bool | None = None
    schema: pa.Schema = None
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    _known: dict[Any, Any] = field(
        default_factory=dict, compare=False, repr=False, metadata={"durable": False}
    )  # what this process has read of the log

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike) or not os.fspath(self.path):
            raise InvalidError("a DeltaSource needs a folder or an address", detail=f"got {self.path!r}")
        object.__setattr__(self, "path", delta_address(self.path))
        options = self.options.items() if isinstance(self.options, dict) else self.options
        object.__setattr__(self, "options", tuple((str(n), str(v)) for n, v in options))
        for _, value in self.options:
            check_references(value)
        if self.schema is not None:
            object.__setattr__(self, "schema", schema_fit.declared(schema_of(self.schema)))
        if self.schema is None or self.changes is None:
            self._look()

    def _look(self) -> None:
        """Take columns and settings that were not given from the table."""
        table = self._log.table()
        settings = table.metadata().configuration
        check_readable(settings, str(self.path))
        if self.schema is not None:
            self._check_columns(table.schema().to_arrow().names)
        else:
            found = schema_fit.inferred(pa.schema(table.schema().to_arrow()))
            object.__setattr__(self, "schema", found)
        if self.changes is None:
            follows = settings.get("delta.enableChangeDataFeed", "").lower() == "true"
            object.__setattr__(self, "changes", follows)

    def _check_columns(self, names: Sequence[str]) -> None:
        """Refuse a table that lacks columns: they would be NULL."""
        missing = [name for name in self.schema.names if name not in names]
        if missing:
            raise InvalidError(
                f"Delta table {masked(str(self.path))!r} has no column {missing[0]!r}",
                detail=f"its columns are {', '.join(names)}",
            )

    @property
    def append_only(self) -> bool:
        return not self.changes

    @property
    def _log(self) -> DeltaLog:
        if "log" not in self._known:
            given = {name: resolved(value) for name, value in self.options}
            if given.get("endpoint", "").startswith("http://"):
                given.setdefault("allow_http", "true")
            self._known["log"] = DeltaLog(str(self.path), given)
        log: DeltaLog = self._known["log"]
        return log

    def table(self, step: str) -> TableSpec | None:
        return None

    # -- in the driver --------------------------------------------------------

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        at = position_of(position, str(self.path))
        offer = _OfferedFiles(max_rows)
        if at is None:
            table = self._log.table()
            self._check_columns(table.schema().to_arrow().names)
            start = table.version()
            at = LakePosition(start, start, 0, False, self._log.etag(start) or "")
        if not at.done:
            offer.add(at, self._files(at), at.files)
        quiet = at
        number = at.version
        while not offer.full and number < at.version + _VERSIONS_PER_POLL:
            number += 1
            version = self._version(number)
            if version is None:
                break
            if number == at.version + 1:
                self._check_same(at)
            quiet = LakePosition(at.start, number, 0, False, version.etag)
            offer.add(quiet, version.files, 0, whole=version.retracts)
        return offer.poll(quiet)

    def _files(self, at: LakePosition) -> Sequence[TableFile]:
        """The files of the version at a position."""
        if at.version == at.start:
            key = ("snapshot", at.start)
            if key not in self._known:
                self._known[key] = self._log.snapshot(at.start)
            files: Sequence[TableFile] = self._known[key]
            return files
        version = self._version(at.version)
        if version is None:
            raise DataError(f"version {at.version} of the Delta table {self.path} is gone")
        return version.files

    def _version(self, number: int) -> Version | None:
        key = ("version", number)
        if key not in self._known:
            found = self._log.version(number, changes=bool(self.changes))
            if found is None:
                return None
            if found.columns is not None:
                self._check_columns(found.columns)
            for old in [k for k in self._known if k[0] == "version" and k[1] < number - _VERSIONS_PER_POLL]:
                del self._known[old]
            self._known[key] = found
        version: Version = self._known[key]
        return version

    def _check_same(self, at: LakePosition) -> None:
        """Refuse another table that has appeared at the same place."""
        etag = self._log.etag(at.version)
        if etag is not None and at.etag and etag != at.etag:
            raise DataError(
                f"another Delta table is at {masked(str(self.path))!r} now",
                detail=f"its version {at.version} is not the one that was read",
                hint="read it as a source of another name",
            )

    def advance(
        self, position: Any, admitted: Sequence[Split], rejects: Sequence[tuple[str, str]]
    ) -> Advance:
        return advanced(position, admitted)

    def history(self, position: Any, seen: pa.Table | None, rows: int) -> Iterator[Split]:
        """The rows of the table at the position: what was admitted adds up to them."""
        at = position_of(position, str(self.path))
        if at is None:
            return
        try:
            if at.version == at.start and not at.done:
                files = list(self._files(at)[: at.files])
            else:
                files = list(self._log.snapshot(at.version if at.done else at.version - 1))
                files += [] if at.done else self._files(at)[: at.files]
        except DataError as error:
            raise InvalidError(error.message, detail=error.detail, hint=f"or {FROM_NOW}") from None
        for number, file in enumerate(files):
            yield _split(file, LakePosition(at.start, at.version, number + 1, False, at.etag))

    # -- in a task ------------------------------------------------------------

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        what = split.what
        if "path" not in what:
            return
        values = dict(what["values"])
        with self._log.opened(what["path"]) as handle:
            file = parquet_format.opened(handle)
            given = parquet_format.with_zones(file.schema_arrow, file.metadata, self.schema)
            held = set(given.names)
            wanted = [n for n in columns if n in held and n not in values]
            if what["has_types"]:
                wanted.append(CHANGE_TYPE)
            for batch in file.iter_batches(_BATCH_ROWS, columns=wanted):
                rows = pa.Table.from_batches([batch])
                rows = rows.cast(pa.schema([given.field(name) for name in rows.column_names]))
                yield self._table(rows, batch.num_rows, columns, values, what)

    def _table(
        self, rows: pa.Table, count: int, columns: Sequence[str], values: dict[str, str | None], what: Any
    ) -> pa.Table:
        """The requested columns; those that a file lacks were added to the table later and are NULL."""
        arrays: list[Any] = []
        for name in columns:
            kind = self.schema.field(name).type
            if name in values:
                arrays.append(partition_column(values[name], kind, count))
            elif name not in rows.column_names:
                arrays.append(pa.nulls(count, kind))
            else:
                column = rows.column(name)
                if not schema_fit.widens(column.type, kind):
                    raise DataError(
                        f"column {name!r} of file {what['path']!r} is {column.type}, and {kind} is wanted",
                        hint="the type of the column has changed: read the table under another name",
                    )
                arrays.append(column.cast(kind))
        fields = [self.schema.field(name) for name in columns]
        if self.changes:
            weights = np.full(count, what["weight"], np.int64)
            if what["has_types"]:
                weights[np.asarray(pc.is_in(rows.column(CHANGE_TYPE), value_set=_REMOVES))] = -1
            arrays.append(pa.array(weights))
            fields.append(pa.field(WEIGHT, pa.int64()))
        if not arrays:
            return rows.select([])  # keeps the number of rows
        return pa.table(arrays, schema=pa.schema(fields))


class _OfferedFiles:
    """Gathers splits until there are enough rows."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._rows = 0
        self._splits: list[Split] = []

    @property
    def full(self) -> bool:
        return self._rows >= self._max_rows

    def add(self, at: LakePosition, files: Sequence[TableFile], first: int, *, whole: bool = False) -> None:
        """The files of a version from a number on; with `whole` all of them belong to one epoch."""
        for number in range(first, len(files)):
            if self.full and not (whole and number > first):
                return
            last = number == len(files) - 1
            to = LakePosition(at.start, at.version, number + 1, last, at.etag)
            self._splits.append(_split(files[number], to, more=not last, with_next=whole and not last))
            self._rows += files[number].rows

    def poll(self, quiet: LakePosition) -> Poll:
        """`quiet` is the last version that was looked at; if it has no rows, the position moves past it."""
        reached = self._splits[-1].what["to"]["version"] if self._splits else None
        if not self.full and not quiet.done and reached != quiet.version:
            to = LakePosition(quiet.start, quiet.version, 0, True, quiet.etag)
            self._splits.append(Split({"to": to.to_json()}, 0, 0))
        return Poll(tuple(self._splits), backlog_rows=self._max_rows if self.full else 0)


def _split(file: TableFile, to: LakePosition, *, more: bool = False, with_next: bool = False) -> Split:
    what = {
        "path": file.path,
        "values": [list(pair) for pair in file.values],
        "weight": file.weight,
        "has_types": file.has_types,
        "to": to.to_json(),
    }
    size = file.size * _UNPACKED
    return Split(
        what,
        file.rows,
        size,
        partition=f"{to.version}/{file.path}",
        with_next=with_next,
        ends=True,
        more=more,
    )
