"""The rows of a request's body: JSON, NDJSON, CSV or an Arrow stream, in the columns of a table.

Law 9: a row that does not fit refuses the whole request, with its number and the reason.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError, nearest
from millpond.server.http.caller import parsed_json, unsupported
from millpond.server.http.response_formats import ARROW, CSV, JSON, MEDIA_TYPES, NDJSON
from millpond.sources.csv_records import CsvMarks, records_of
from millpond.sources.json_values import parse_values
from millpond.sources.text_format import CsvLines, CsvOptions, JsonLines, parse_records

_NAMES = {"application/jsonl": NDJSON, "application/ndjson": NDJSON, "application/arrow": ARROW}


def rows_in(raw: bytes, media: str, schema: pa.Schema, table: str) -> pa.Table:
    """The rows of a body.

    >>> schema = pa.schema([("k", pa.string()), ("n", pa.int64())])
    >>> rows_in(b'[{"k": "a", "n": 1}]', "application/json", schema, "t").to_pylist()
    [{'k': 'a', 'n': 1}]
    >>> rows_in(b"n,k\\n1,a\\n", "text/csv", schema, "t").to_pylist()
    [{'n': 1, 'k': 'a'}]
    """
    kind = rows_format(media)
    if kind == JSON:
        return _objects(_listed(parsed_json(raw)), schema, table)
    if kind == NDJSON:
        lines = [line for line in raw.split(b"\n") if line.strip()]
        return _objects([parsed_json(line) for line in lines], schema, table)
    if kind == CSV:
        return _csv(raw, schema, table)
    return _arrow(raw)


def rows_format(media: str) -> str:
    """The format of a body, by its media type.

    >>> rows_format("application/jsonl")
    'application/x-ndjson'
    """
    kind = _NAMES.get(media, media)
    if kind not in MEDIA_TYPES:
        raise unsupported(media, MEDIA_TYPES)
    return kind


def _listed(value: Any) -> list[Any]:
    """A row, a list of rows, or an object with the field rows."""
    if isinstance(value, dict):
        if value.keys() == {"rows"} and isinstance(value["rows"], list):
            return list(value["rows"])
        return [value]
    if isinstance(value, list):
        return value
    raise InvalidError("rows are an object or a list of objects", detail=f"got {type(value).__name__}")


def _objects(rows: list[Any], schema: pa.Schema, table: str) -> pa.Table:
    named: dict[str, None] = {}
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise InvalidError(f"row {number} is not an object of its columns", detail=f"got {row!r}"[:200])
        named.update(dict.fromkeys(row))
    used = _used(named, schema, table)
    lines = [json.dumps(row).encode() for row in rows]
    good, bad = parse_values(JsonLines(used), lines)
    if bad:
        raise _bad_row(bad[0][0] + 1, bad[0][1], len(bad), table)
    return pa.concat_tables(good) if good else used.empty_table()


def _csv(raw: bytes, schema: pa.Schema, table: str) -> pa.Table:
    records = records_of(raw.removeprefix(b"\xef\xbb\xbf"), CsvMarks())
    head = records[0].data if records else b""
    try:
        names = next(csv.reader([head.decode()]), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidError("the first line of CSV has the names of the columns", detail=str(error)) from None
    if len(set(names)) != len(names) or not names:
        raise InvalidError("the first line of CSV has the names of the columns", detail=f"got {names}"[:200])
    used = _used(names, schema, table)
    good, bad = parse_records(CsvLines(used, names, CsvOptions(multiline=True)), records[1:])
    if bad:
        (record, reason), *_ = bad
        raise _bad_row(records.index(record), reason, len(bad), table)
    return pa.concat_tables(good) if good else used.empty_table()


def _arrow(raw: bytes) -> pa.Table:
    try:
        return pa.ipc.open_stream(raw).read_all()
    except (pa.ArrowException, OSError) as error:
        raise InvalidError("the body is not an Arrow stream", detail=str(error)[:200]) from error


def _used(names: Iterable[str], schema: pa.Schema, table: str) -> pa.Schema:
    """The columns that rows have, in their order; an unknown one is refused."""
    found = []
    for name in names:
        if name not in schema.names:
            raise InvalidError(
                f"table {table!r} has no column {name!r}",
                detail=f"columns are {', '.join(schema.names)}",
                hint=nearest(name, schema.names),
            )
        found.append(schema.field(name).with_nullable(True))
    return pa.schema(found)


def _bad_row(number: int, reason: str, count: int, table: str) -> InvalidError:
    return InvalidError(
        f"row {number} does not fit table {table!r}",
        detail=reason if count == 1 else f"{reason}; {count} rows do not fit",
        hint="nothing was written",
    )
