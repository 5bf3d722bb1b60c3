"""Reads Avro files, each as one range.

Law 9: a record that does not fit becomes an error row; if a block cannot be read, the records before it are
read, and the rest of the file is one error row.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from millpond.sources import avro_messages
from millpond.sources.file_format import BadFileError, FileFacts, FileRange, bad_rows, fetching
from millpond.sources.folder import Folder, Found
from millpond.sources.python_values import table_of
from millpond.sources.schema_fit import inferred

_ROW_BYTES = 50  # assumed
_BATCH_ROWS = 10_000
_HEAD_BYTES = 1 << 20


class AvroFormat:
    def infer(self, folder: Folder, file: Found) -> pa.Schema:
        """The columns of a flat schema; others must be declared."""
        text, data = _schema_and_data(folder, file)
        found = avro_messages.read_file(data) if avro_messages.is_flat(text) else None
        if found is None:
            raise BadFileError("its schema has nested types: declare the columns")
        return inferred(found.schema)

    def look(self, folder: Folder, file: Found, schema: pa.Schema) -> FileFacts:
        names = [f["name"] for f in json.loads(_schema(_bytes(folder, file, _HEAD_BYTES))).get("fields", [])]
        for wanted in schema.names:
            if wanted not in names:
                raise BadFileError(f"column {wanted!r} is missing, columns are {', '.join(names)}")
        return FileFacts(_etag(file), 0, 1, None, max(1, file.size // _ROW_BYTES))

    def cut(self, folder: Folder, file: Found, facts: FileFacts, first: int, rows: int) -> FileRange:
        return FileRange(0, 1, facts.parts, file.size * 4)

    def rows_from(self, facts: FileFacts, first: int) -> int:
        return 0 if first >= facts.end else int(facts.parts)

    def etag(self, folder: Folder, file: Found) -> str:
        return _etag(file)

    def read(
        self,
        folder: Folder,
        file: Found,
        piece: FileRange,
        schema: pa.Schema,
        columns: Sequence[str],
        texts: Collection[str] = (),
    ) -> Iterator[pa.Table]:
        text, data = _schema_and_data(folder, file)
        if avro_messages.is_flat(text):
            found = avro_messages.read_file(data)
            fast = None if found is None else avro_messages.fitted(found, schema)
            if fast is not None:
                yield fast.select(list(columns))
                return
        yield from _records(file, data, text, schema, columns)


def _records(
    file: Found, data: bytes, text: str, schema: pa.Schema, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """The rows of a file, record by record."""
    records = _reader(data)
    done = 0
    while True:
        failed: Exception | None = None
        batch: list[Any] = []
        try:
            for record in islice(records, _BATCH_ROWS):
                batch.append(record)
        except Exception as error:  # of many kinds
            failed = error
        rows = {n: record for n, record in enumerate(batch) if isinstance(record, dict)}
        fit, unfit = avro_messages.column_values(rows, schema, text)
        numbers = sorted(fit)
        table, _, wrong = table_of([fit[n] for n in numbers], schema)
        yield table.select(list(columns))
        others = {n: "it is no record" for n in range(len(batch)) if n not in rows}
        bad = sorted({**others, **unfit, **{numbers[n]: reason for n, reason in wrong}}.items())
        if bad:
            shown = [json.dumps(batch[n], default=str, ensure_ascii=False) for n, _ in bad]
            yield bad_rows(shown, [f"{file.path}, record {done + n}: {reason}" for n, reason in bad])
        done += len(batch)
        if failed is not None:
            row = json.dumps({"path": file.path}, ensure_ascii=False)
            yield bad_rows([row], [f"nothing behind record {done} can be read: {failed}"])
            return
        if len(batch) < _BATCH_ROWS:
            return


def _reader(data: bytes) -> Any:
    fastavro = avro_messages.library("fastavro")
    try:
        return fastavro.reader(io.BytesIO(data))
    except Exception as error:  # of many kinds
        raise BadFileError(f"it is not an Avro file: {error}") from error


def _schema(data: bytes) -> str:
    return json.dumps(_reader(data).writer_schema)


def _schema_and_data(folder: Folder, file: Found) -> tuple[str, bytes]:
    data = _bytes(folder, file, None)
    return _schema(data), data


def _bytes(folder: Folder, file: Found, size: int | None) -> bytes:
    with fetching(file), folder.open(file.path) as handle:
        found: bytes = handle.read() if size is None else handle.read(size)
        return found


def _etag(file: Found) -> str:
    return f"{file.size}-{file.mtime_us}"
