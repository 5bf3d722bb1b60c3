"""Reads ORC files by stripes.

Law 9: a stripe that cannot be decoded becomes one error row; the other stripes are read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
from pyarrow import orc

from millpond.sources.file_format import BadFileError, FileFacts, FileRange, bad_rows, fetching
from millpond.sources.folder import Folder, Found
from millpond.sources.schema_fit import fit, misfit


class OrcFormat:
    def infer(self, folder: Folder, file: Found) -> pa.Schema:
        return _open(folder, file).schema

    def look(self, folder: Folder, file: Found, schema: pa.Schema) -> FileFacts:
        found = _open(folder, file)
        reason = misfit(found.schema, schema)
        if reason is not None:
            raise BadFileError(reason)
        stripes = max(1, found.nstripes)
        return FileFacts(
            _etag(file), 0, found.nstripes, found.nrows, (found.nrows / stripes, file.size / stripes)
        )

    def cut(self, folder: Folder, file: Found, facts: FileFacts, first: int, rows: int) -> FileRange:
        each, size = facts.parts
        last = min(facts.end, first + max(1, int(rows // max(1.0, each))))
        return FileRange(first, last, round((last - first) * each), round((last - first) * size) * 4)

    def rows_from(self, facts: FileFacts, first: int) -> int:
        each: float = facts.parts[0]
        return round((facts.end - first) * each)

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
        found = _open(folder, file)
        required = [f.name for f in schema if not f.nullable and f.name not in columns]
        names = [*columns, *required] or schema.names[:1]
        for number in range(piece.first, piece.last):
            try:
                batch = found.read_stripe(number, columns=names)
                table = fit(pa.Table.from_batches([batch]), schema, names)
            except (pa.ArrowException, OSError) as error:
                row = json.dumps({"path": file.path, "stripe": number}, ensure_ascii=False)
                yield bad_rows([row], [f"{file.path}: stripe {number} cannot be read: {error}"])
                continue
            yield table.select(list(columns))


def _open(folder: Folder, file: Found) -> orc.ORCFile:
    with fetching(file):
        handle = folder.open(file.path)
    try:
        return orc.ORCFile(handle)
    except (pa.ArrowException, OSError) as error:
        raise BadFileError(f"it is not an ORC file: {error}") from error


def _etag(file: Found) -> str:
    return f"{file.size}-{file.mtime_us}"
