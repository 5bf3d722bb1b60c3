"""Parameters that clients send, in text or binary, as Python values.

Law: a parameter becomes a typed value, never part of a text.
"""

from __future__ import annotations

import datetime
import json
import re
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import duckdb

from millpond.errors import InvalidError
from millpond.server.pgwire import temporal_values as temporal
from millpond.server.pgwire.messages import Fields, ProtocolError
from millpond.sql.binding.types import UTC
from millpond.sql.pg_catalog import pg_types as pg

_ZERO = datetime.datetime(2000, 1, 1)


class InvalidValueError(InvalidError):
    """A parameter or a field of COPY is not a value of its type."""


def value_of(data: bytes | None, oid: int, form: int, zone: str = UTC) -> Any:
    """Decode a parameter of a type; an instant without an offset is a time of the zone.

    >>> value_of(b"42", 23, 0), value_of(bytes([0, 0, 0, 42]), 23, 1), value_of(b"{1,NULL}", 1007, 0)
    (42, 42, [1, None])
    """
    if data is None:
        return None
    element = pg.ELEMENTS.get(oid)
    found = element or pg.BY_OID.get(oid) or pg.TEXT
    try:
        if element is not None:
            items = _binary_array(data) if form else array_of(_text(data), element, zone)
            return _typed_array(items, element)
        return _from_binary(data, found) if form else from_text(_text(data), found, zone)
    except InvalidError:
        raise
    except (ValueError, ArithmeticError, struct.error, OverflowError) as error:
        shown = repr(data[:60]) if form else repr(data[:60].decode(errors="replace"))
        raise InvalidValueError(
            f"invalid input for type {found.name}: {shown}", detail=str(error) or type(error).__name__
        ) from None


def _typed_array(items: list[Any], element: pg.PgType) -> Any:
    """The items as they are, or as one value if an item is a text with a type."""
    if not any(isinstance(item, duckdb.Value) for item in items):
        return items
    shown = [item.object if isinstance(item, duckdb.Value) else _said(item) for item in items]
    return duckdb.Value(shown, duckdb.sqltype(f"{element.sql}[]"))


def _said(item: Any) -> str | None:
    return None if item is None else item.isoformat(" ") if hasattr(item, "hour") else str(item)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidValueError("a value is not UTF-8", detail=str(error)) from None


# -- text --------------------------------------------------------------------------


def from_text(text: str, kind: pg.PgType, zone: str = UTC) -> Any:
    if kind == pg.TIMESTAMPTZ:
        return temporal.timestamptz(text, zone)
    read = _READ.get(kind)
    return text if read is None else read(text)


def _bool(text: str) -> bool:
    word = text.strip().lower()
    if word in ("t", "true", "yes", "on", "1", "y"):
        return True
    if word in ("f", "false", "no", "off", "0", "n"):
        return False
    raise ValueError("neither true nor false")


def _bytea(text: str) -> bytes:
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])
    found = re.sub(rb"\\(\\|[0-7]{3})", _octal, text.encode())
    return found


def _octal(match: re.Match[bytes]) -> bytes:
    return b"\\" if match[1] == b"\\" else bytes([int(match[1], 8)])


def _integer(bits: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        found = int(text)
        if not -(1 << bits - 1) <= found < 1 << bits - 1:
            raise ValueError("out of range")
        return found

    return read


def _number(text: str) -> Any:
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        raise ValueError("not a number") from None


_READ: dict[pg.PgType, Callable[[str], Any]] = {
    pg.BOOL: _bool,
    pg.BYTEA: _bytea,
    pg.INT2: _integer(16),
    pg.INT4: _integer(32),
    pg.INT8: _integer(64),
    pg.OID: _integer(64),
    pg.FLOAT4: float,
    pg.FLOAT8: float,
    pg.NUMERIC: _number,
    pg.DATE: temporal.date,
    pg.TIME: lambda text: datetime.time.fromisoformat(text.strip()),
    pg.TIMESTAMP: temporal.timestamp,
    pg.INTERVAL: temporal.interval,
    pg.UUID: lambda text: uuid.UUID(text.strip()),
}


def array_of(text: str, element: pg.PgType, zone: str = UTC) -> list[Any]:
    """Read `{a,"b c",NULL}`, also nested.

    >>> array_of('{a,"b,c",NULL,"NULL"}', pg.TEXT)
    ['a', 'b,c', None, 'NULL']
    """
    found, at = _array(text.strip(), 0, element, 0, zone)
    if at != len(text.strip()):
        raise ValueError("there is more after the array")
    return found


DEPTH_MAX = 6
_GROUPS_MAX = 400  # of a binary numeric: far beyond what any type here holds


def _array(text: str, at: int, element: pg.PgType, depth: int, zone: str) -> tuple[list[Any], int]:
    if text[at : at + 1] != "{" or depth > DEPTH_MAX:
        raise ValueError("an array begins with {, and has at most six dimensions")
    at += 1
    found: list[Any] = []
    if text[at : at + 1] == "}":
        return found, at + 1
    while True:
        if text[at : at + 1] == "{":
            inner, at = _array(text, at, element, depth + 1, zone)
            found.append(inner)
        elif text[at : at + 1] == '"':
            word = re.compile(r'"((?:[^"\\]|\\.)*)"', re.S).match(text, at)
            if word is None:
                raise ValueError("a quote is never closed")
            found.append(from_text(re.sub(r"\\(.)", r"\1", word[1], flags=re.S), element, zone))
            at = word.end()
        else:
            plain = re.compile(r"[^,{}\"]*").match(text, at)
            assert plain is not None
            bare = plain[0].strip()
            if not bare:
                raise ValueError("a value is missing in the array")
            found.append(None if bare.upper() == "NULL" else from_text(bare, element, zone))
            at = plain.end()
        sign, at = text[at : at + 1], at + 1
        if sign == "}":
            return found, at
        if sign != ",":
            raise ValueError("the array is never closed")


# -- binary ------------------------------------------------------------------------


def _from_binary(data: bytes, kind: pg.PgType) -> Any:
    sizes = {pg.BOOL: 1, pg.INT2: 2, pg.INT4: 4, pg.OID: 4, pg.INT8: 8, pg.FLOAT4: 4, pg.FLOAT8: 8,
             pg.DATE: 4, pg.TIME: 8, pg.TIMESTAMP: 8, pg.TIMESTAMPTZ: 8, pg.INTERVAL: 16, pg.UUID: 16,
             pg.TIMETZ: 12}  # fmt: skip
    wanted = sizes.get(kind)
    if wanted is not None and len(data) != wanted:
        raise ValueError(f"it has {len(data)} bytes, not {wanted}")
    match kind:
        case pg.BOOL:
            return data != b"\0"
        case pg.INT2 | pg.INT4 | pg.INT8:
            return int.from_bytes(data, "big", signed=True)
        case pg.OID | pg.REGCLASS | pg.REGPROC:
            return int.from_bytes(data, "big")
        case pg.FLOAT4:
            return struct.unpack("!f", data)[0]
        case pg.FLOAT8:
            return struct.unpack("!d", data)[0]
        case pg.BYTEA:
            return data
        case pg.DATE:
            return temporal.binary_date(data)
        case pg.TIME | pg.TIMETZ:
            us = int.from_bytes(data[:8], "big", signed=True)
            found = (_ZERO + datetime.timedelta(microseconds=us)).time()
            if kind == pg.TIME:
                return found
            west = datetime.timedelta(seconds=int.from_bytes(data[8:], "big", signed=True))
            return found.replace(tzinfo=datetime.timezone(-west))
        case pg.TIMESTAMP | pg.TIMESTAMPTZ:
            return temporal.binary_timestamp(data, kind.sql)
        case pg.INTERVAL:
            return temporal.binary_interval(data)
        case pg.UUID:
            return uuid.UUID(bytes=data)
        case pg.NUMERIC:
            return _numeric(Fields(data))
        case pg.JSONB:
            if data[:1] != b"\x01":
                raise ValueError("this version of jsonb is not known")
            return _text(data[1:])
        case pg.JSON:
            json.loads(data)
            return _text(data)
        case pg.VARBIT:
            size = struct.unpack("!i", data[:4])[0]
            return "".join(f"{byte:08b}" for byte in data[4:])[:size]
    return _text(data)


def _numeric(fields: Fields) -> Any:
    count, weight, sign, scale = fields.int16(), fields.int16(), fields.count(), fields.int16()
    if sign == 0xC000:
        return Decimal("NaN")
    if sign in (0xD000, 0xF000):
        return Decimal("Infinity") if sign == 0xD000 else Decimal("-Infinity")
    groups = [fields.int16() for _ in range(count)]
    fields.end()
    if sign not in (0, 0x4000) or any(not 0 <= g < 10_000 for g in groups):
        raise ValueError("a digit or the sign is wrong")
    if max(count, abs(weight), abs(scale)) > _GROUPS_MAX:
        raise ValueError("a numeric has at most 38 digits")
    number = 0
    for group in groups:
        number = number * 10_000 + group
    exponent = 4 * (weight - count + 1) + scale  # of the number, in units of its last digit
    number = number * 10**exponent if exponent >= 0 else number // 10**-exponent
    return Decimal((int(sign != 0), tuple(map(int, str(number))), -scale))  # exact, whatever the context


def _binary_array(data: bytes) -> list[Any]:
    fields = Fields(data)
    dimensions, _, oid = fields.int32(), fields.int32(), fields.uint32()
    if dimensions == 0:
        return []
    if not 0 < dimensions <= DEPTH_MAX:
        raise ProtocolError("an array has at most six dimensions")
    sizes = [(fields.int32(), fields.int32())[0] for _ in range(dimensions)]
    found = _elements(fields, sizes, oid)
    fields.end()
    return found


def _elements(fields: Fields, sizes: list[int], oid: int) -> list[Any]:
    if len(sizes) > 1:
        return [_elements(fields, sizes[1:], oid) for _ in range(sizes[0])]
    found = []
    for _ in range(sizes[0]):
        size = fields.int32()
        found.append(None if size == -1 else value_of(fields.take(size), oid, 1))
    return found
