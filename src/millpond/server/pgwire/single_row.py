"""One row as a DataRow message.

Law: it gives the bytes that `RowEncoder` gives.  Encoding by column costs a few hundred microseconds however
few rows there are, so the common types of a single row are written value by value.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from millpond.server.pgwire.binary_format import EPOCH_DAYS, EPOCH_US, binary_column, numeric
from millpond.sql.copy.text_format import text_column
from millpond.sql.pg_catalog import pg_types as pg
from millpond.sql.pg_catalog.pg_types import column_type

Encode = Callable[[pa.Array], bytes | None]
_NULL = struct.pack("!i", -1)
_EPOCH = datetime.datetime(1970, 1, 1)
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # what datetime can show


class SingleRowEncoder:
    """Encodes rows of one shape, one at a time."""

    def __init__(self, types: Sequence[str], formats: Sequence[int]) -> None:
        self._encoders = [_encoder(kind, form) for kind, form in zip(types, formats, strict=True)]
        self._count = struct.pack("!H", len(self._encoders))

    def message(self, columns: Sequence[pa.Array]) -> bytes:
        parts = [self._count]
        for encode, values in zip(self._encoders, columns, strict=True):
            data = encode(values)
            if data is None:
                parts.append(_NULL)
            else:
                parts += (struct.pack("!i", len(data)), data)
        body = b"".join(parts)
        return b"D" + struct.pack("!i", len(body) + 4) + body


def _encoder(kind: str, form: int) -> Encode:
    shown = column_type(kind)

    def by_column(values: pa.Array) -> bytes | None:
        found: bytes | None = (binary_column if form else text_column)(values, kind, shown)[0].as_py()
        return found

    quick = None if shown.is_array else (_BINARY if form else _TEXT).get(shown.type)
    if quick is None:
        return by_column
    write, stores = quick

    def by_value(values: pa.Array) -> bytes | None:
        if not stores(values.type):
            return by_column(values)
        scalar = values[0]
        if not scalar.is_valid:
            return None
        found = write(scalar)
        return by_column(values) if found is None else found

    return by_value


def _text(scalar: Any) -> bytes:
    return str(scalar.as_py()).encode()


def _instant(suffix: str) -> Callable[[Any], bytes | None]:
    def write(scalar: Any) -> bytes | None:
        if not _FIRST_US <= scalar.value <= _LAST_US:
            return None
        shown = (_EPOCH + datetime.timedelta(microseconds=scalar.value)).isoformat(" ")
        return ((shown.rstrip("0") if "." in shown else shown) + suffix).encode()

    return write


def _is_us(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit == "us"


def _whole(layout: str) -> Callable[[Any], bytes]:
    pack = struct.Struct(layout).pack
    return lambda scalar: pack(scalar.as_py())


_TEXT: dict[pg.PgType, tuple[Callable[[Any], bytes | None], Callable[[pa.DataType], bool]]] = {
    pg.BOOL: (lambda scalar: b"t" if scalar.as_py() else b"f", pa.types.is_boolean),
    pg.INT2: (_text, pa.types.is_integer),
    pg.INT4: (_text, pa.types.is_integer),
    pg.INT8: (_text, pa.types.is_integer),
    pg.TEXT: (_text, pa.types.is_string),
    pg.UUID: (_text, pa.types.is_string),
    pg.NUMERIC: (lambda scalar: f"{scalar.as_py():f}".encode(), pa.types.is_decimal),
    pg.TIMESTAMP: (_instant(""), _is_us),
    pg.TIMESTAMPTZ: (_instant("+00"), _is_us),
}
_BINARY: dict[pg.PgType, tuple[Callable[[Any], bytes | None], Callable[[pa.DataType], bool]]] = {
    pg.BOOL: (lambda scalar: b"\1" if scalar.as_py() else b"\0", pa.types.is_boolean),
    pg.INT2: (_whole("!h"), pa.types.is_integer),
    pg.INT4: (_whole("!i"), pa.types.is_integer),
    pg.INT8: (_whole("!q"), pa.types.is_integer),
    pg.FLOAT4: (_whole("!f"), pa.types.is_floating),
    pg.FLOAT8: (_whole("!d"), pa.types.is_floating),
    pg.TEXT: (_text, pa.types.is_string),
    pg.NUMERIC: (lambda scalar: numeric(scalar.as_py()), pa.types.is_decimal),
    pg.DATE: (lambda scalar: struct.pack("!i", scalar.value - EPOCH_DAYS), pa.types.is_date32),
    pg.TIMESTAMP: (lambda scalar: struct.pack("!q", scalar.value - EPOCH_US), _is_us),
    pg.TIMESTAMPTZ: (lambda scalar: struct.pack("!q", scalar.value - EPOCH_US), _is_us),
}
