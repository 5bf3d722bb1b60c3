"""One row as a DataRow message.

Law: it gives the bytes that `RowEncoder` gives.  Encoding by column costs a few hundred microseconds however
few rows there are, so the common types of a single row are written value by value.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond.server.pgwire.binary_format import EPOCH_DAYS, EPOCH_US, binary_column, numeric
from millpond.sql.copy.text_format import text_column
from millpond.sql.pg_catalog import pg_types as pg
from millpond.sql.pg_catalog.pg_types import column_type
from millpond.state.runs.cells import Cell, ScaledInt

Encode = Callable[[Cell], bytes]
_NULL = struct.pack("!i", -1)
_EPOCH = datetime.datetime(1970, 1, 1)
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # what datetime can show
_LAST_DAY = 100_000_000  # beyond it are infinities and what does not count from 2000
_length = struct.Struct("!i").pack


class SingleRowEncoder:
    """Encodes rows of one shape, one at a time."""

    def __init__(self, types: Sequence[str], formats: Sequence[int]) -> None:
        self._encoders = [_encoder(kind, form) for kind, form in zip(types, formats, strict=True)]
        self._count = struct.pack("!H", len(self._encoders))

    def message(self, cells: Sequence[Cell]) -> bytes:
        parts = [self._count]
        for encode, cell in zip(self._encoders, cells, strict=True):
            if cell is None:
                parts.append(_NULL)
            else:
                data = encode(cell)
                parts += (_NULL,) if data is None else (_length(len(data)), data)
        body = b"".join(parts)
        return b"D" + _length(len(body) + 4) + body


def _encoder(kind: str, form: int) -> Callable[[Cell], bytes | None]:
    shown = column_type(kind)

    def by_column(values: pa.Array) -> bytes | None:
        found: bytes | None = (binary_column if form else text_column)(values, kind, shown)[0].as_py()
        return found

    quick = None if shown.is_array else (_BINARY if form else _TEXT).get(shown.type)

    def by_value(cell: Cell) -> bytes | None:
        if isinstance(cell, pa.Array):
            return by_column(cell)
        found = None if quick is None else quick(cell)
        return by_column(_array(cell, kind)) if found is None else found

    return by_value


_ARROW: dict[pg.PgType, pa.DataType] = {
    pg.FLOAT4: pa.float32(), pg.FLOAT8: pa.float64(), pg.DATE: pa.int32(), pg.TIMESTAMP: pa.int64(),
    pg.TIMESTAMPTZ: pa.int64(), pg.BYTEA: pa.binary(), pg.TEXT: pa.binary(), pg.UUID: pa.binary(),
}  # fmt: skip
_SEEN_AS: dict[pg.PgType, pa.DataType] = {
    pg.DATE: pa.date32(), pg.TIMESTAMP: pa.timestamp("us"), pg.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    pg.TEXT: pa.string(), pg.UUID: pa.string(),
}  # fmt: skip


def _array(cell: Cell, kind: str) -> pa.Array:
    """A cell as an array with one row."""
    shown = column_type(kind).type
    made = pa.array([cell], _ARROW[shown])
    return made.view(_SEEN_AS[shown]) if shown in _SEEN_AS else made


def _same(cell: Any) -> bytes:
    found: bytes = cell
    return found


def _whole_text(cell: Any) -> bytes:
    return b"%d" % cell


def _decimal(cell: ScaledInt | int) -> Decimal:
    if isinstance(cell, int):
        return Decimal(cell)
    mantissa, scale = cell
    digits = tuple(map(int, str(abs(mantissa))))
    return Decimal((mantissa < 0, digits, -scale))


def _decimal_text(cell: ScaledInt | int) -> bytes:
    if isinstance(cell, int):
        return b"%d" % cell
    mantissa, scale = cell
    if not scale:
        return b"%d" % mantissa
    digits = b"%0*d" % (scale + 1, abs(mantissa))
    return (b"-" if mantissa < 0 else b"") + digits[:-scale] + b"." + digits[-scale:]


def _instant(suffix: str) -> Callable[[Any], bytes | None]:
    def write(cell: Any) -> bytes | None:
        if not _FIRST_US <= cell <= _LAST_US:
            return None
        shown = (_EPOCH + datetime.timedelta(microseconds=cell)).isoformat(" ")
        return ((shown.rstrip("0") if "." in shown else shown) + suffix).encode()

    return write


def _integer(layout: str) -> Callable[[Any], bytes]:
    return struct.Struct(layout).pack


_days, _micros = struct.Struct("!i").pack, struct.Struct("!q").pack
_TEXT: dict[pg.PgType, Callable[[Any], bytes | None]] = {
    pg.BOOL: lambda cell: b"t" if cell else b"f",
    pg.INT2: _whole_text,
    pg.INT4: _whole_text,
    pg.INT8: _whole_text,
    pg.TEXT: _same,
    pg.UUID: _same,
    pg.NUMERIC: _decimal_text,
    pg.TIMESTAMP: _instant(""),
    pg.TIMESTAMPTZ: _instant("+00"),
}
_BINARY: dict[pg.PgType, Callable[[Any], bytes | None]] = {
    pg.BOOL: lambda cell: b"\1" if cell else b"\0",
    pg.INT2: _integer("!h"),
    pg.INT4: _integer("!i"),
    pg.INT8: _integer("!q"),
    pg.FLOAT4: _integer("!f"),
    pg.FLOAT8: _integer("!d"),
    pg.TEXT: _same,
    pg.BYTEA: _same,
    pg.UUID: lambda cell: bytes.fromhex(cell.decode().replace("-", "")),
    pg.NUMERIC: lambda cell: numeric(_decimal(cell)),
    pg.DATE: lambda cell: _days(cell - EPOCH_DAYS) if abs(cell) < _LAST_DAY else None,
    pg.TIMESTAMP: lambda cell: _micros(cell - EPOCH_US) if abs(cell) < _LAST_US else None,
    pg.TIMESTAMPTZ: lambda cell: _micros(cell - EPOCH_US) if abs(cell) < _LAST_US else None,
}
