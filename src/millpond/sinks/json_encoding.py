"""Rows as JSON objects, encoded column by column.

Law: the texts are those of `json_rows`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa

from millpond.identity import one_chunk
from millpond.plan.sink_settings import EPOCH, NUMBER, OPERATION
from millpond.sinks.json_rows import json_text
from millpond.sinks.row_encoding import ChangeId, Unencodable


class JsonEncoding:
    def __init__(self, schema: pa.Schema) -> None:
        self._names = schema.names
        self._template = ",".join(json_text(name).replace("%", "%%") + ":%s" for name in schema.names)

    def encoded(self, rows: pa.Table) -> list[bytes | Unencodable]:
        columns = [column_texts(rows.column(name)) for name in self._names]
        return [(self._template % values).encode() for values in zip(*columns, strict=True)]

    def row(self, row: bytes) -> bytes:
        return b"{" + row + b"}"

    def logged(self, row: bytes, operation: str, change: ChangeId) -> bytes:
        more = f',"{OPERATION}":"{operation}","{EPOCH}":{change.epoch},"{NUMBER}":{change.number}}}'
        return b"{" + row + more.encode()

    def event(self, before: bytes | None, after: bytes | None, operation: str, change: ChangeId) -> bytes:
        old, new = (b"null" if row is None else b"{" + row + b"}" for row in (before, after))
        about = f'{_source(change.pond, change.sink)},"epoch":{change.epoch},"n":{change.number}}}'
        rest = f',"source":{about},"op":"{operation}","ts_ms":null,"transaction":null}}'
        return b'{"before":' + old + b',"after":' + new + rest.encode()


@lru_cache(maxsize=64)
def _source(pond: str, sink: str) -> str:
    """The beginning of the object that says where an event comes from."""
    return json_text({"connector": "millpond", "name": pond, "table": sink})[:-1]


def column_texts(column: pa.ChunkedArray) -> list[str]:
    """Each value as JSON.

    >>> column_texts(pa.chunked_array([["a", None]])), column_texts(pa.chunked_array([[1.5, float("inf")]]))
    (['"a"', 'null'], ['1.5', '"Infinity"'])
    """
    array = one_chunk(column)
    kind = array.type
    if pa.types.is_integer(kind):
        values = array.cast(pa.string()).to_pylist()
        return ["null" if v is None else v for v in values] if array.null_count else values
    if pa.types.is_timestamp(kind) and kind.unit == "ns":  # Python's times have microseconds
        texts = array.cast(pa.string()).to_pylist()
        return ["null" if v is None else json_text(v.replace(" ", "T")) for v in texts]
    values = array.to_pylist()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ["null" if v is None else encode_basestring(v) for v in values]
    if pa.types.is_boolean(kind):
        return ["null" if v is None else "true" if v else "false" for v in values]
    if pa.types.is_floating(kind):
        return [_float(v) for v in values]
    return [json_text(v) for v in values]


def _float(value: float | None) -> str:
    if value is None:
        return "null"
    return float.__repr__(value) if math.isfinite(value) else json_text(value)


def key_texts(columns: Sequence[pa.ChunkedArray]) -> list[bytes | None]:
    """The values of one column as plain text, without quotes; NULL is None."""
    (column,) = columns
    return [_text(value) for value in one_chunk(column).to_pylist()]


def _text(value: Any) -> bytes | None:
    """
    >>> _text("a"), _text(7), _text(None), _text(b"raw")
    (b'a', b'7', None, b'raw')
    """
    if value is None or isinstance(value, bytes):
        return value
    text = value if isinstance(value, str) else json_text(value)
    return text.strip('"').encode() if not isinstance(value, str) else text.encode()
