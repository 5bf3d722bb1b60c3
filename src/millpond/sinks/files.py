"""Writes files of Parquet, JSON or CSV to a folder or a bucket, exactly once.

Law 7: a delivery writes one file for each partition.  The name of a file follows from the sink and the epoch,
its rows from the delivery, and it is put complete and only if absent.  So a repeated delivery, also one of a
zombie, changes nothing.  A delivery with several files is whole once its record is there: it names them all.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from millpond.arguments.call_errors import checked
from millpond.errors import InvalidError
from millpond.masking import masked
from millpond.plan.sink_settings import Guarantee, SinkMode
from millpond.secret_references import resolved
from millpond.sinks.delivery import Delivery, RefusedRow, SinkBinding, row_text
from millpond.sinks.json_rows import json_lines, json_text
from millpond.sources.partition_folders import NO_VALUE
from millpond.state.store.store import MissingError, Store, open_store

FileFormat = Literal["parquet", "json", "csv"]
POND, SINK, EPOCH = b"millpond.pond", b"millpond.sink", b"millpond.epoch"  # in the metadata of Parquet files
RECORDS = "_millpond"  # the folder of records; readers of folders ignore names that begin with _
_SEGMENT_MAX = 200  # bytes of a folder name
_ESCAPED = re.compile(r"[\x00-,/:-@\[-^`{-}\x7f-\x9f]|\s")  # of ASCII, all but letters, digits, and - . _ ~
_WRITERS = 4  # files of one delivery that are written at the same time


@checked
@dataclass(frozen=True)
class FilesSink:
    """Files ``epoch-<epoch>-<pond>-<sink>.<format>`` below a path.

    `path` is a folder of this machine, or an address such as ``s3://bucket/prefix``.  With `partition_by` the
    files are in folders ``column=value``, and do not contain these columns.  `options` are those of the
    store, for example ``{"endpoint": "…", "secret_access_key": "${env:KEY}"}``.
    """

    path: str | os.PathLike[str]  # a folder is stored as an absolute path
    format: FileFormat = "parquet"
    partition_by: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    guarantee: ClassVar[Guarantee] = "exactly_once"
    modes: ClassVar[tuple[SinkMode, ...]] = ("changes", "append", "changelog")
    columns_by_name: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike) or not os.fspath(self.path):
            raise InvalidError("a FilesSink needs a folder or an address", detail=f"got {self.path!r}")
        if self.format not in get_args(FileFormat):
            raise InvalidError(
                f"no format named {self.format!r}", detail=f"there are {', '.join(get_args(FileFormat))}"
            )
        path = os.fspath(self.path)
        if masked(path) != path:
            raise InvalidError(
                "the address of a sink must not contain credentials",
                detail=f"got {masked(path)}; addresses are stored in the catalog",
                hint='pass them as options, for example secret_access_key="${env:KEY}"',
            )
        if "://" not in path:
            path = str(Path(path).expanduser().absolute())
        names = (self.partition_by,) if isinstance(self.partition_by, str) else tuple(self.partition_by)
        options = self.options.items() if isinstance(self.options, dict) else self.options
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "partition_by", names)
        object.__setattr__(self, "options", tuple((str(k), str(v)) for k, v in options))

    def open(self, binding: SinkBinding) -> FilesWriter:
        unknown = [n for n in self.partition_by if n not in binding.schema.names]
        if unknown or len(self.partition_by) >= len(binding.schema.names):
            raise InvalidError(
                f"files cannot be partitioned by {', '.join(self.partition_by)}",
                detail=f"columns of the view are {', '.join(binding.schema.names)}",
                hint="name some of its columns, not all of them",
            )
        options: dict[str, Any] = {name: resolved(value) for name, value in self.options}
        return FilesWriter(self, binding, open_store(str(self.path), **options))


@dataclass(frozen=True)
class WrittenFile:
    name: str  # below the path of the sink
    rows: pa.Table = field(repr=False)


class FilesWriter:
    def __init__(self, sink: FilesSink, binding: SinkBinding, store: Store) -> None:
        self._sink = sink
        self._binding = binding
        self._store = store

    def write(self, delivery: Delivery) -> Sequence[RefusedRow]:
        if not delivery.rows.num_rows:
            return ()
        if not self._sink.partition_by:
            self._put(delivery, WrittenFile(self._name(delivery), delivery.rows))
            return ()
        record = f"{RECORDS}/{quote(self._binding.sink, safe='')}/{self._name(delivery, '')}"
        found = _record(self._store, record)
        if found is None:
            files, refused = self._partitioned(delivery)
            with ThreadPoolExecutor(_WRITERS, f"write-{self._binding.sink}") as pool:
                list(pool.map(lambda file: self._put(delivery, file), files))
            content = {"epoch": delivery.epoch, "files": [f.name for f in files]}
            content["refused"] = [[r.row, r.reason] for r in refused]
            self._store.put_new(record, json.dumps(content).encode())
            return refused
        return [RefusedRow(row, reason) for row, reason in found["refused"]]

    def _name(self, delivery: Delivery, suffix: str | None = None) -> str:
        ending = f".{self._sink.format}" if suffix is None else suffix
        sink = quote(self._binding.sink, safe="")
        return f"epoch-{delivery.epoch:016d}-{self._binding.pond}-{sink}{ending}"

    def _put(self, delivery: Delivery, file: WrittenFile) -> None:
        """Put a file; if it is there already, it has the same rows."""
        metadata = {
            POND: self._binding.pond.encode(),
            SINK: self._binding.sink.encode(),
            EPOCH: str(delivery.epoch).encode(),
        }
        self._store.put_new(file.name, _encoded(file.rows, self._sink.format, metadata))

    def _partitioned(self, delivery: Delivery) -> tuple[list[WrittenFile], list[RefusedRow]]:
        """The files of a delivery, and the rows whose values are too long for the name of a folder."""
        files, refused = [], []
        for values, rows in _groups(delivery.rows, self._sink.partition_by):
            pairs = zip(self._sink.partition_by, values, strict=True)
            folders = [f"{_escaped(name)}={_folder(value)}" for name, value in pairs]
            reason = ""
            if max(len(folder.encode()) for folder in folders) > _SEGMENT_MAX:
                reason = f"a value of {', '.join(self._sink.partition_by)} is too long for a folder"
            elif NO_VALUE in values:
                reason = f"{NO_VALUE!r} stands for NULL in names of folders"
            if reason:
                refused += [RefusedRow(row_text(row), reason) for row in rows.to_pylist()]
                continue
            kept = rows.drop_columns(list(self._sink.partition_by))
            files.append(WrittenFile("/".join([*folders, self._name(delivery)]), kept))
        return files, refused


def committed_files(path: str, **options: Any) -> list[str]:
    """The files of all deliveries that are whole, of sinks that partition; names are below the path."""
    store, found = open_store(path, **options), []
    for record in store.list(RECORDS):
        found += json.loads(store.get(record))["files"]
    return found


def _record(store: Store, name: str) -> Any:
    try:
        return json.loads(store.get(name))
    except MissingError:
        return None


def _groups(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The rows of each combination of values, in the order in which the combinations come first."""
    columns = [rows.column(name).to_pylist() for name in names]
    places: dict[tuple[tuple[str, bool], ...], list[int]] = {}
    for place, values in enumerate(zip(*columns, strict=True)):
        places.setdefault(tuple((_folder(v), v == NO_VALUE) for v in values), []).append(place)
    for some in places.values():
        yield tuple(column[some[0]] for column in columns), rows.take(pa.array(some, pa.int64()))


def _folder(value: Any) -> str:
    """A value as part of the name of a folder, as Hive and Spark write it.

    >>> _folder("a/b c"), _folder(None), _folder(7), _folder("")
    ('a%2Fb%20c', '__HIVE_DEFAULT_PARTITION__', '7', '__HIVE_DEFAULT_PARTITION__')
    >>> _folder("Zürich")
    'Zürich'
    """
    text = "" if value is None else value if isinstance(value, str) else json_text(value).strip('"')
    return _escaped(text) or NO_VALUE


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: quote(found[0], safe=""), text)


def _encoded(rows: pa.Table, kind: FileFormat, metadata: dict[bytes, bytes]) -> bytes:
    if kind == "json":
        return json_lines(rows)
    body = io.BytesIO()
    if kind == "csv":
        pyarrow.csv.write_csv(_as_text(rows), body)
    else:
        pq.write_table(rows.replace_schema_metadata({**(rows.schema.metadata or {}), **metadata}), body)
    return body.getvalue()


def _as_text(rows: pa.Table) -> pa.Table:
    """The rows with nested and binary values as JSON text, since CSV has neither."""
    columns = []
    for column in rows.columns:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        odd = pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        if odd or pa.types.is_fixed_size_binary(kind) or isinstance(kind, pa.BaseExtensionType):
            texts = [None if v is None else json_text(v).strip('"') for v in column.to_pylist()]
            column = pa.chunked_array([pa.array(texts, pa.string())])
        elif pa.types.is_decimal(kind) or pa.types.is_duration(kind):
            column = pc.cast(column, pa.string()) if pa.types.is_decimal(kind) else column.cast(pa.int64())
        columns.append(column)
    return pa.table(columns, names=rows.column_names)
