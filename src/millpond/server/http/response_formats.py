"""The rows of a result as the body of a response: JSON, NDJSON, CSV or an Arrow stream.

Law: rows are encoded by column, a batch at a time, and a batch is made only when the client has taken the one
before it; so a slow client holds its own result, and nothing else.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from starlette.responses import Response, StreamingResponse

from millpond.column_names import distinct_names
from millpond.server.http.http_errors import NotAcceptableError
from millpond.sinks.json_encoding import column_texts
from millpond.sinks.json_rows import json_text
from millpond.sql.result import Result, converter, rows_of

JSON, NDJSON, CSV, ARROW = (
    "application/json",
    "application/x-ndjson",
    "text/csv",
    "application/vnd.apache.arrow.stream",
)
MEDIA_TYPES = (JSON, NDJSON, CSV, ARROW)
_NAMES = {
    "application/jsonl": NDJSON,
    "application/ndjson": NDJSON,
    "application/arrow": ARROW,
    "*/*": JSON,
    "application/*": JSON,
    "text/*": CSV,
}
BATCH_ROWS = 4_096  # rows of one piece of JSON or CSV
ARROW_BATCH_ROWS = 65_536
_CSV_SPECIAL = re.compile(r'[",\r\n]|^\s|\s$')


def accepted(header: str | None) -> str:
    """The media type to answer with, by an Accept header.

    >>> accepted(None), accepted("text/html, text/csv;q=0.9"), accepted("*/*;q=0.1, application/x-ndjson")
    ('application/json', 'text/csv', 'application/x-ndjson')
    """
    if header is None or not header.strip():
        return JSON
    offers: list[tuple[float, int, str]] = []
    for place, part in enumerate(header.split(",")):
        name, *options = (word.strip().lower() for word in part.split(";"))
        known = name if name in MEDIA_TYPES else _NAMES.get(name)
        weight = next((_quality(o[2:]) for o in options if o.startswith("q=")), 1.0)
        if known is not None and weight > 0:
            offers.append((-weight, place, known))
    if not offers:
        raise NotAcceptableError(
            "the answer is in none of the formats of Accept",
            detail=f"Accept is {header[:100]!r}",
            hint=f"accept {', '.join(MEDIA_TYPES)} or */*",
        )
    return min(offers)[2]


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def response_of(result: Result, media: str, facts: Mapping[str, Any] | None = None) -> Response:
    """The rows of a result, or its status, as a response; `facts` are further fields of a JSON answer."""
    headers = {} if result.epoch is None else {"Millpond-Epoch": str(result.epoch)}
    if media == JSON:
        return StreamingResponse(json_document(result, facts or {}), 200, headers, JSON)
    encode = {NDJSON: ndjson, CSV: csv_text, ARROW: arrow_stream}[media]
    return StreamingResponse(encode(result), 200, headers, media)


def json_document(result: Result, facts: Mapping[str, Any]) -> Iterator[bytes]:
    """One object: the status, the columns, the rows as objects, the epoch and the warnings."""
    names = distinct_names(result.columns)
    table = result.arrow() if result.columns else None
    about = {
        **facts,
        "status": result.status,
        "epoch": result.epoch,
        "warnings": result.warnings,
        "columns": [{"name": name, "type": kind} for name, kind in zip(names, result.types, strict=True)],
    }
    yield json_text(about)[:-1].encode() + b',"rows":['
    first = True
    if table is not None:
        for texts in row_texts(table, names, result.types):
            yield (b"" if first else b",\n") + ",\n".join(texts).encode()
            first = False
    yield b"]}\n"


def ndjson(result: Result) -> Iterator[bytes]:
    """One object per line."""
    if not result.columns:
        yield json_text({"status": result.status, "epoch": result.epoch}).encode() + b"\n"
        return
    for texts in row_texts(result.arrow(), distinct_names(result.columns), result.types):
        yield ("\n".join(texts) + "\n").encode()


def row_texts(table: pa.Table, names: Sequence[str], types: Sequence[str]) -> Iterator[list[str]]:
    """The rows as JSON objects, a batch at a time; none is empty.

    >>> list(row_texts(pa.table({"k": ["a"], "n": [None]}), ["k", "n"], ["VARCHAR", "INTEGER"]))
    [['{"k":"a","n":null}']]
    """
    template = "{" + ",".join(json_text(name).replace("%", "%%") + ":%s" for name in names) + "}"
    converts = [converter(kind) for kind in types]
    for start in range(0, table.num_rows, BATCH_ROWS):
        batch = table.slice(start, BATCH_ROWS)
        columns = [_texts(column, convert) for column, convert in zip(batch.columns, converts, strict=True)]
        yield [template % values for values in zip(*columns, strict=True)]


def _texts(column: pa.ChunkedArray, convert: Callable[[Any], Any] | None) -> list[str]:
    if convert is None:
        return column_texts(column)
    values = column.to_pylist(maps_as_pydicts="lossy")
    return ["null" if v is None else json_text(convert(v)) for v in values]


def csv_text(result: Result) -> Iterator[bytes]:
    """A header and the rows; NULL is empty, and an empty text is quoted."""
    if not result.columns:
        yield f"status\r\n{result.status}\r\n".encode()
        return
    yield _csv_lines([result.columns])
    table, converts = result.arrow(), [converter(kind) for kind in result.types]
    for start in range(0, table.num_rows, BATCH_ROWS):
        rows = rows_of(table.slice(start, BATCH_ROWS), converts)
        yield _csv_lines([[csv_value(value) for value in row] for row in rows])


def csv_value(value: Any) -> Any:
    """
    >>> csv_value(None), csv_value(True), csv_value([1, None]), csv_value("a")
    (None, 'true', '[1,null]', 'a')
    """
    if value is None or isinstance(value, str):
        return value
    text = json_text(value)
    return text[1:-1] if text.startswith('"') and "\\" not in text else text


def _csv_lines(rows: Sequence[Sequence[Any]]) -> bytes:
    lines = (",".join("" if value is None else _csv_cell(value) for value in row) for row in rows)
    return "".join(f"{line}\r\n" for line in lines).encode()


def _csv_cell(text: str) -> str:
    """
    >>> _csv_cell("a"), _csv_cell(""), _csv_cell('say "x", y')
    ('a', '""', '"say ""x"", y"')
    """
    if text and not _CSV_SPECIAL.search(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def arrow_stream(result: Result) -> Iterator[bytes]:
    """An Arrow IPC stream; a statement without rows has no columns."""
    table = result.arrow() if result.columns else pa.table({})
    sink = _Pieces()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), table.schema) as writer:
        yield sink.taken()
        for batch in table.to_batches(max_chunksize=ARROW_BATCH_ROWS):
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()


class _Pieces(io.RawIOBase):
    """A file whose content is taken piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)
