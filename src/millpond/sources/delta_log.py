"""The log of a Delta table: which files the table has at a version, and which changes a version made.

Law 9: what cannot be read exactly is refused: deletion vectors, column mapping, unknown features.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from millpond.errors import DataError, InvalidError, UnavailableError
from millpond.masking import masked

LOG = "_delta_log"
# Features of tables that do not change how data files are read; deletion vectors are found file by file.
_FEATURES = frozenset(
    ["timestampNtz", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck", "columnMapping"]
)


@dataclass(frozen=True)
class TableFile:
    """A data file, and what it does to the table."""

    path: str
    size: int
    rows: int
    values: tuple[tuple[str, str | None], ...]  # of the partition columns
    weight: int = 1  # -1: its rows are removed
    has_types: bool = False  # a file of the change data feed, whose rows say what they do


@dataclass(frozen=True)
class Version:
    """What one commit changed."""

    number: int
    files: tuple[TableFile, ...]
    etag: str  # of the commit; another table at the same place has others
    columns: tuple[str, ...] | None = None  # of the table, if this version changed them

    @property
    def retracts(self) -> bool:
        return any(file.weight < 0 or file.has_types for file in self.files)


class DeltaLog:
    """The log of one table."""

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        self.path = path
        self._options = dict(options)
        self._lake = library()
        address = path if "://" in path else f"file://{path}"
        handler = importlib.import_module("deltalake.fs").DeltaStorageHandler
        try:
            self.files = fs.PyFileSystem(handler(address, self._options))
        except (OSError, ValueError) as error:
            raise self._away(error) from None

    def table(self, version: int | None = None) -> Any:
        """The table at a version; InvalidError if there is none."""
        try:
            return self._lake.DeltaTable(self.path, version=version, storage_options=self._options)
        except self._lake.exceptions.TableNotFoundError:
            raise InvalidError(f"there is no Delta table at {masked(self.path)!r}") from None
        except (self._lake.exceptions.DeltaError, OSError) as error:
            if version is not None and "log" in str(error).lower():
                raise self._gone(version) from None
            raise self._away(error) from None

    def snapshot(self, version: int) -> tuple[TableFile, ...]:
        """The files of the table at a version, by name."""
        table = self.table(version)
        check_readable(table.metadata().configuration, self.path)
        if pa.table(table.deletion_vectors()).num_rows:
            raise _deleted_rows(self.path, version)
        found = []
        actions = pa.table(table.get_add_actions())
        kinds = {f.name: f.type for f in actions.schema.field("partition").type} if _has(actions) else {}
        for action in actions.to_pylist():
            values = tuple((n, as_text(v, kinds[n])) for n, v in (action.get("partition") or {}).items())
            found.append(
                self._file(action["path"], action["size_bytes"], action["num_records"], values, 1, False)
            )
        return tuple(sorted(found, key=lambda file: file.path))

    def version(self, number: int, *, changes: bool) -> Version | None:
        """What a version changed; None if it does not exist yet."""
        data = self._commit(number)
        if data is None:
            return None
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
        by_kind: dict[str, list[Any]] = {}
        for action in actions:
            for kind, content in action.items():
                by_kind.setdefault(kind, []).append(content)
        for protocol in by_kind.get("protocol", []):
            unknown = set(protocol.get("readerFeatures") or ()) - _FEATURES
            if unknown:
                raise _unreadable(self.path, f"version {number} uses {', '.join(sorted(unknown))}")
        columns: tuple[str, ...] | None = None
        for metadata in by_kind.get("metaData", []):
            columns = tuple(f["name"] for f in json.loads(metadata["schemaString"])["fields"])
            check_readable(metadata.get("configuration") or {}, self.path)
        removed = [a for a in by_kind.get("remove", []) if a.get("dataChange", True)]
        added = [a for a in by_kind.get("add", []) if a.get("dataChange", True)]
        if removed and not changes:
            raise InvalidError(
                f"version {number} of the Delta table removes rows, and its source only appends",
                detail=f"table {masked(self.path)!r}, {len(removed)} files removed",
                hint="read its changes: changes=True, in SQL changes = 'true'",
            )
        feed = by_kind.get("cdc", []) if changes else []
        if feed:
            files = [self._changed(action, 1, has_types=True) for action in feed]
        else:
            for action in (*removed, *added):
                if action.get("deletionVector"):
                    raise _deleted_rows(self.path, number)
            files = [self._changed(a, -1) for a in self._with_values(removed, number)]
            files += [self._changed(a, 1) for a in added]
        etag = hashlib.blake2b(data, digest_size=12).hexdigest()
        return Version(number, tuple(files), etag, columns)

    def etag(self, number: int) -> str | None:
        """Of a commit; None if its file is gone."""
        data = self._commit(number, or_gone=True)
        return None if data is None else hashlib.blake2b(data, digest_size=12).hexdigest()

    def _commit(self, number: int, *, or_gone: bool = False) -> bytes | None:
        data = self._bytes(f"{LOG}/{number:020d}.json")
        if data is None and not or_gone:
            last = self._bytes(f"{LOG}/_last_checkpoint")
            if last is not None and int(json.loads(last)["version"]) >= number:
                raise self._gone(number)
        return data

    def _bytes(self, name: str) -> bytes | None:
        try:
            with self.files.open_input_stream(name) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._away(error) from None

    def _with_values(self, removed: list[Any], number: int) -> list[Any]:
        """Removed files with their partition values, which a commit may leave out."""
        if all(action.get("partitionValues") is not None for action in removed):
            return removed
        held = {file.path: dict(file.values) for file in self.snapshot(number - 1)}
        return [{**a, "partitionValues": held.get(unquote(a["path"]), {})} for a in removed]

    def _changed(self, action: Any, weight: int, has_types: bool = False) -> TableFile:
        stats = action.get("stats")
        rows = json.loads(stats).get("numRecords") if stats else None
        values = tuple((action.get("partitionValues") or {}).items())
        return self._file(action["path"], action.get("size") or 0, rows, values, weight, has_types)

    def _file(
        self,
        path: str,
        size: int,
        rows: int | None,
        values: tuple[tuple[str, str | None], ...],
        weight: int,
        has_types: bool,
    ) -> TableFile:
        name = unquote(path)
        if "://" in name or name.startswith("/"):
            raise _unreadable(self.path, f"its file {name!r} belongs to another table")
        if rows is None:
            with self.opened(name) as handle:
                rows = pq.read_metadata(handle).num_rows
        return TableFile(name, size, rows, values, weight, has_types)

    def opened(self, name: str) -> pa.NativeFile:
        """A data file, for random access."""
        try:
            return self.files.open_input_file(name)
        except FileNotFoundError:
            raise DataError(
                f"file {name!r} of the Delta table is gone",
                detail=f"table {masked(self.path)!r} still needs it for a version that was not read",
                hint="VACUUM removes files that a source has not read yet: restore it, or read the table "
                "again under another name",
            ) from None
        except OSError as error:
            raise self._away(error) from None

    def _gone(self, number: int) -> DataError:
        return DataError(
            f"version {number} of the Delta table is no longer in its log",
            detail=f"table {masked(self.path)!r} has removed old commits that were not read yet",
            hint="raise delta.logRetentionDuration, and read the table again under another name",
        )

    def _away(self, error: Exception) -> UnavailableError:
        said = " ".join(str(error).split())
        return UnavailableError(f"Delta table {masked(self.path)!r} cannot be read", detail=masked(said))


def check_readable(settings: Mapping[str, str], path: str) -> None:
    if settings.get("delta.columnMapping.mode", "none") != "none":
        raise _unreadable(path, "it uses column mapping")


def as_text(value: Any, kind: pa.DataType) -> str | None:
    """A partition value as the log writes it."""
    if value is None:
        return None
    if pa.types.is_boolean(kind):
        return str(value).lower()
    return str(pa.scalar(value, kind).cast(pa.string()).as_py())


def partition_column(text: str | None, kind: pa.DataType, rows: int) -> pa.Array:
    """A column with the value of a partition.

    >>> partition_column("7", pa.int32(), 2).to_pylist(), partition_column("", pa.int32(), 1).to_pylist()
    ([7, 7], [None])
    """
    if not text:
        return pa.nulls(rows, kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        plain = pa.scalar(text.removesuffix("Z")).cast(pa.timestamp("us"))
        return pa.repeat(pa.scalar(plain.value, pa.timestamp("us", "UTC")).cast(kind), rows)
    return pa.repeat(pa.scalar(text).cast(kind), rows)


def library() -> Any:
    try:
        return importlib.import_module("deltalake")
    except ImportError:
        raise InvalidError(
            "Delta Lake needs deltalake", hint="install it: pip install 'millpond[delta]'"
        ) from None


def _has(actions: pa.Table) -> bool:
    return "partition" in actions.column_names and pa.types.is_struct(actions.schema.field("partition").type)


def _deleted_rows(path: str, version: int) -> InvalidError:
    return _unreadable(path, f"version {version} has deletion vectors", "REORG TABLE … APPLY (PURGE)")


def _unreadable(path: str, why: str, hint: str | None = None) -> InvalidError:
    return InvalidError(f"Delta table {masked(path)!r} cannot be read", detail=why, hint=hint)
