"""Reads Parquet files by row groups.

The etag is a hash of the footer, which has the offset, size and statistics of every column chunk.
Law 9: a row group that cannot be decoded becomes one error row with the number of lost rows; the other row
groups are read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millpond.sources.file_format import ERROR, BadFileError, FileFacts, FileRange, bad_rows, fetching
from millpond.sources.folder import Folder, Found
from millpond.sources.schema_fit import fit, misfit
from millpond.strict_json import dumps

ENCODED = pa.dictionary(pa.int32(), pa.string())
_MAGIC = b"PAR1"
_BATCH_ROWS = 1 << 16
_ENCODED_BYTES = 8  # per row, at most, if a text column is worth reading as a dictionary
_TAIL_BYTES = 64 << 10  # read first; most footers are smaller


class ParquetFormat:
    def infer(self, folder: Folder, file: Found) -> pa.Schema:
        return _schema(_footer(folder, file))

    def look(self, folder: Folder, file: Found, schema: pa.Schema) -> FileFacts:
        footer = _footer(folder, file)
        meta = _metadata(footer)
        reason = misfit(with_zones(_schema(footer), meta, schema), schema)
        if reason is not None:
            raise BadFileError(reason)
        groups = [meta.row_group(g) for g in range(meta.num_row_groups)]
        parts = tuple((g.num_rows, g.total_byte_size) for g in groups)
        return FileFacts(_etag(footer), 0, meta.num_row_groups, meta.num_rows, parts, _earliest(meta, schema))

    def cut(self, folder: Folder, file: Found, facts: FileFacts, first: int, rows: int) -> FileRange:
        last, taken, size = first, 0, 0
        while last < facts.end and (last == first or taken + facts.parts[last][0] <= rows):
            taken += facts.parts[last][0]
            size += facts.parts[last][1]
            last += 1
        return FileRange(first, last, taken, size)

    def rows_from(self, facts: FileFacts, first: int) -> int:
        return sum(rows for rows, _ in facts.parts[first:])

    def etag(self, folder: Folder, file: Found) -> str:
        return _etag(_footer(folder, file))

    def read(
        self,
        folder: Folder,
        file: Found,
        piece: FileRange,
        schema: pa.Schema,
        columns: Sequence[str],
        texts: Collection[str] = (),
    ) -> Iterator[pa.Table]:
        if piece.first == piece.last:
            return
        meta = _metadata(_footer(folder, file))
        groups = list(range(piece.first, piece.last))
        required = [f.name for f in schema if not f.nullable and _may_lack(meta, groups, f.name)]
        names = [*columns, *(c for c in required if c not in columns)]
        # Texts are decoded from the dictionary in one pass, which is faster even if they become texts again.
        numbered = [n for n in names if _is_text(schema.field(n).type) and _is_encoded(meta, groups, n)]
        encoded = [name for name in numbered if name in texts]
        with folder.open(file.path) as handle:
            source = opened(handle, meta, read_dictionary=numbered, pre_buffer=not folder.local)
            try:
                tables = [_decode(source, groups, schema, names, encoded)]
            except BadFileError:
                tables = list(_one_by_one(source, handle, file, groups, schema, names, encoded))
        for table in tables:
            if ERROR in table.column_names:
                yield table
            else:
                yield from _without_nulls(table, file, columns, required)


def opened(handle: Any, meta: pq.FileMetaData | None = None, **options: Any) -> pq.ParquetFile:
    """A file; its times in INT96 are in microseconds, as Spark writes them: nanoseconds end in 2262."""
    return pq.ParquetFile(handle, metadata=meta, coerce_int96_timestamp_unit="us", **options)


def with_zones(given: pa.Schema, meta: pq.FileMetaData, wanted: pa.Schema) -> pa.Schema:
    """The columns of a file; those in INT96, which say nothing about a zone, with the one that is wanted."""
    columns = [meta.schema.column(number) for number in range(meta.num_columns)]
    for name in (c.path for c in columns if c.physical_type == "INT96"):
        if name in given.names and name in wanted.names and pa.types.is_timestamp(wanted.field(name).type):
            place = given.get_field_index(name)
            given = given.set(place, pa.field(name, pa.timestamp("us", wanted.field(name).type.tz)))
    return given


def _footer(folder: Folder, file: Found) -> bytes:
    """The footer with its length and magic bytes."""
    with fetching(file), folder.open(file.path) as handle:
        size = handle.size()
        tail = handle.read_at(min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
        if size < 12 or tail[-4:] != _MAGIC:
            raise BadFileError(f"not a parquet file: {size} bytes that do not end in {_MAGIC.decode()}")
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if length + 4 > size:
            raise BadFileError(f"the footer says it has {length} bytes, the file has {size}")
        if length > len(tail):
            tail = handle.read_at(length, size - length)
    return bytes(tail[-length:])


def _metadata(footer: bytes) -> pq.FileMetaData:
    try:
        return pq.read_metadata(pa.BufferReader(_MAGIC + footer))
    except (pa.ArrowException, OSError) as error:
        raise BadFileError(f"the footer cannot be read: {_line(error)}") from error


def _schema(footer: bytes) -> pa.Schema:
    meta = _metadata(footer)
    try:
        return opened(pa.BufferReader(_MAGIC + footer), meta).schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise BadFileError(f"the schema cannot be read: {_line(error)}") from error


def _earliest(meta: pq.FileMetaData, schema: pa.Schema) -> dict[str, int]:
    """The least time of each column of times, as far as the statistics of all row groups tell it."""
    found: dict[str, int] = {}
    for number in range(meta.num_columns):
        column = meta.schema.column(number)
        unit = _units(column)
        if unit is None or column.path not in schema.names:
            continue
        chunks = [meta.row_group(g).column(number) for g in range(meta.num_row_groups)]
        known = [c.statistics for c in chunks if c.statistics is None or c.statistics.num_values]
        if all(s is not None and s.has_min_max for s in known) and known:
            least = min(int(s.min_raw) for s in known)
            found[column.path] = least * unit[0] // unit[1]
    return found


def _units(column: pq.ColumnSchema) -> tuple[int, int] | None:
    """Microseconds in one unit of a column of times, as a fraction; None for other columns."""
    kind = json.loads(column.logical_type.to_json())
    if column.physical_type != "INT64" or kind.get("Type") != "Timestamp":
        return None
    return {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}.get(kind["timeUnit"])


def _etag(footer: bytes) -> str:
    return hashlib.blake2b(footer, digest_size=12).hexdigest()


def _decode(
    source: pq.ParquetFile,
    groups: Sequence[int],
    schema: pa.Schema,
    names: Sequence[str],
    encoded: Collection[str],
) -> pa.Table:
    try:
        rows = _rows(source, groups, names)
        return fit(rows, _with_encoded(schema, rows.schema, encoded), names)
    except pa.ArrowMemoryError:
        raise  # not an error of the file
    except (pa.ArrowException, OSError) as error:  # Arrow reports bad pages as either
        raise BadFileError(_line(error)) from error


def _rows(source: pq.ParquetFile, groups: Sequence[int], names: Sequence[str]) -> pa.Table:
    """Read row groups in batches: one large column would grow by doubling, with a copy each time."""
    if not names:
        return source.read_row_groups(groups, columns=names, use_threads=False)
    batches = list(source.iter_batches(_BATCH_ROWS, row_groups=groups, columns=names, use_threads=False))
    return pa.Table.from_batches(batches, None if batches else source.schema_arrow)


def _one_by_one(
    source: pq.ParquetFile,
    handle: pa.NativeFile,
    file: Found,
    groups: Sequence[int],
    schema: pa.Schema,
    names: Sequence[str],
    encoded: Collection[str],
) -> Iterator[pa.Table]:
    """Every row group that can be decoded, and an error row for each that cannot."""
    for group in groups:
        try:
            yield _decode(source, [group], schema, names, encoded)
        except BadFileError as error:
            meta = source.metadata.row_group(group)
            _check_reachable(handle, file, meta)
            row = json.dumps({"path": file.path, "row_group": group}, ensure_ascii=False)
            yield bad_rows([row], [f"{meta.num_rows} rows cannot be decoded: {error}"])


def _check_reachable(handle: pa.NativeFile, file: Found, meta: pq.RowGroupMetaData) -> None:
    """Raise UnavailableError if the bytes cannot be fetched: the file is not bad, and a retry may help."""
    with fetching(file):
        for number in range(meta.num_columns):
            chunk = meta.column(number)
            offsets = [chunk.data_page_offset]
            if chunk.has_dictionary_page:
                offsets.append(chunk.dictionary_page_offset)
            handle.read_at(chunk.total_compressed_size, min(offsets))


def _is_encoded(meta: pq.FileMetaData, groups: Sequence[int], name: str) -> bool:
    """Is a column dictionary-encoded and small in all of these row groups?"""
    for group in groups:
        row_group = meta.row_group(group)
        chunks = [row_group.column(number) for number in range(row_group.num_columns)]
        for chunk in (c for c in chunks if c.path_in_schema == name):
            small = chunk.total_uncompressed_size <= _ENCODED_BYTES * row_group.num_rows
            if not chunk.has_dictionary_page or not small:
                return False
    return True


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _with_encoded(schema: pa.Schema, given: pa.Schema, names: Collection[str]) -> pa.Schema:
    """The wanted schema, with columns left dictionary-encoded where that is the only difference."""
    kept = {name for name in names if given.field(name).type == ENCODED}
    return pa.schema([field.with_type(ENCODED) if field.name in kept else field for field in schema])


def _may_lack(meta: pq.FileMetaData, groups: Sequence[int], name: str) -> bool:
    """Can a column have NULLs in these row groups, according to the statistics?"""
    for group in groups:
        row_group = meta.row_group(group)
        for number in range(row_group.num_columns):
            chunk = row_group.column(number)
            if chunk.path_in_schema != name and not chunk.path_in_schema.startswith(f"{name}."):
                continue
            known = chunk.statistics
            if known is None or not known.has_null_count or known.null_count:
                return True
    return False


def _without_nulls(
    rows: pa.Table, file: Found, columns: Sequence[str], required: Sequence[str]
) -> Iterator[pa.Table]:
    """Turn rows that lack a required value into error rows, whichever columns are read."""
    for name in required:
        lacks = rows.column(name).is_null()
        bad = rows.filter(lacks).to_pylist()
        if bad:
            shown = [dumps({"path": file.path, **row}) for row in bad]
            yield bad_rows(shown, [f"column {name!r} is NULL"] * len(bad))
            rows = rows.filter(pc.invert(lacks))
    yield rows.select(list(columns))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
