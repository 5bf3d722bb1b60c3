"""Parameters that clients send, in text or binary, as Python values.

Law: a parameter becomes a typed value, never part of a text.
"""

from __future__ import annotations

import datetime
import json
import re
import struct
import uuid
import zoneinfo
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from millpond.errors import InvalidError
from millpond.server.pgwire.binary_format import EPOCH_US
from millpond.server.pgwire.messages import Fields, ProtocolError
from millpond.sql.binding.types import UTC
from millpond.sql.pg_catalog import pg_types as pg

_DAY_ZERO = datetime.date(2000, 1, 1)
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
            return _binary_array(data) if form else array_of(_text(data), element, zone)
        return _from_binary(data, found) if form else from_text(_text(data), found, zone)
    except InvalidError:
        raise
    except (ValueError, ArithmeticError, struct.error, OverflowError) as error:
        shown = repr(data[:60]) if form else repr(data[:60].decode(errors="replace"))
        raise InvalidValueError(
            f"invalid input for type {found.name}: {shown}", detail=str(error) or type(error).__name__
        ) from None


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidValueError("a value is not UTF-8", detail=str(error)) from None


# -- text --------------------------------------------------------------------------


def from_text(text: str, kind: pg.PgType, zone: str = UTC) -> Any:
    if kind == pg.TIMESTAMPTZ:
        return _moment_in_zone(text, zone)
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


def _moment(text: str) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(_iso(text))
    return found.replace(tzinfo=None)


def _moment_in_zone(text: str, zone: str) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(_iso(text))
    if found.tzinfo is not None or zone == UTC:
        return found.replace(tzinfo=found.tzinfo or datetime.UTC).astimezone(datetime.UTC)
    return _instant(found, zoneinfo.ZoneInfo(zone))


def _instant(local: datetime.datetime, zone: datetime.tzinfo) -> datetime.datetime:
    """The instant of a local time: the later one of two, and a skipped one by the offset before.

    >>> berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    >>> [_instant(datetime.datetime(2024, *at), berlin).hour for at in ((10, 27, 2, 30), (3, 31, 2, 30))]
    [1, 1]
    """
    early, late = (local.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    before, after = early.utcoffset(), late.utcoffset()
    assert before is not None and after is not None
    return (early if after > before else late).astimezone(datetime.UTC)


def _iso(text: str) -> str:
    """`2024-01-01 10:00:00.5 +02` as Python reads it."""
    text = re.sub(r"\s+(?=[+-]\d\d)", "", text.strip())
    return re.sub(r"([+-]\d\d)(\d\d)$", r"\1:\2", text) if re.search(r":\d\d.*[+-]\d{4}$", text) else text


_UNITS = {
    "year": 365 * 86400, "mon": 30 * 86400, "month": 30 * 86400, "week": 7 * 86400, "day": 86400,
    "hour": 3600, "minute": 60, "min": 60, "second": 1, "sec": 1,
}  # fmt: skip


def _interval(text: str) -> datetime.timedelta:
    rest, total = text.strip().lower(), datetime.timedelta()
    for count, unit in re.findall(
        r"([+-]?\d+(?:\.\d+)?)\s*(year|month|mon|week|day|hour|minute|min|second|sec)s?\b", rest
    ):
        total += datetime.timedelta(seconds=float(count) * _UNITS[unit])
    clock = re.search(r"([+-]?)(\d+):(\d\d)(?::(\d\d(?:\.\d+)?))?\s*$", rest)
    if clock is not None:
        more = datetime.timedelta(hours=int(clock[2]), minutes=int(clock[3]), seconds=float(clock[4] or 0))
        total += -more if clock[1] == "-" else more
    elif not re.search(r"\d\s*[a-z]", rest) and rest not in ("0",):
        raise ValueError("not an interval")
    return total


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
    pg.DATE: lambda text: datetime.date.fromisoformat(text.strip()),
    pg.TIME: lambda text: datetime.time.fromisoformat(text.strip()),
    pg.TIMESTAMP: _moment,
    pg.INTERVAL: _interval,
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
            return _DAY_ZERO + datetime.timedelta(days=int.from_bytes(data, "big", signed=True))
        case pg.TIME | pg.TIMETZ:
            us = int.from_bytes(data[:8], "big", signed=True)
            return (_ZERO + datetime.timedelta(microseconds=us)).time()
        case pg.TIMESTAMP:
            return _ZERO + datetime.timedelta(microseconds=int.from_bytes(data, "big", signed=True))
        case pg.TIMESTAMPTZ:
            us = int.from_bytes(data, "big", signed=True) + EPOCH_US
            return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=us)
        case pg.INTERVAL:
            us, days, months = struct.unpack("!qii", data)
            return datetime.timedelta(days=days + 30 * months, microseconds=us)
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
    number = 0
    for group in groups:
        number = number * 10_000 + group
    found = Decimal(number).scaleb(4 * (weight - len(groups) + 1))
    quantum = Decimal(1).scaleb(-scale)
    found = found.quantize(quantum) if abs(found) < Decimal(10) ** (27 - scale) else found
    return -found if sign else found


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
