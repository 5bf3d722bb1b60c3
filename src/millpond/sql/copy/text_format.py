"""The text format: columns as PostgreSQL writes their values."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.kernels.postgres.text_output import time_text, timestamp_text
from millpond.kernels.time_zones import local_times
from millpond.sql.pg_catalog import pg_types as pg
from millpond.sql.pg_catalog.pg_types import ColumnType
from millpond.sql.result import bignum, converter

_PLAIN = pa.large_binary()


def text_column(values: pa.Array, kind: str, shown: ColumnType) -> pa.Array:
    """The text of each value as bytes; NULL stays NULL."""
    if shown.is_array:
        return _array(values, kind, shown)
    return pc.cast(_scalars(values, kind, shown), _PLAIN)


def _scalars(values: pa.Array, kind: str, shown: ColumnType) -> pa.Array:
    text = _in_range(pc.cast(_text(values, kind, shown), pa.string()), shown)
    if shown.type not in (pg.TIMESTAMP, pg.TIMESTAMPTZ, pg.DATE) or not len(values):
        return text
    if _begins_before_christ(values):
        text = pa.array([None if v is None else _year_bc(v) for v in text.to_pylist()], pa.string())
    found = infinities(values)
    if found is None:
        return text
    return pc.if_else(found[0], "infinity", pc.if_else(found[1], "-infinity", text))


_BEYOND = re.compile(r"<value out of range: (-?\d+)>(.*)")


def _in_range(text: pa.Array, shown: ColumnType) -> pa.Array:
    """The texts with what Arrow does not write: 24:00:00, and years after 32767."""
    if shown.type not in (pg.TIME, pg.TIMESTAMP, pg.TIMESTAMPTZ):
        return text
    if not pc.any(pc.starts_with(text, "<")).as_py():
        return text
    write = time_text if shown.type == pg.TIME else timestamp_text
    found = [None if v is None else _BEYOND.fullmatch(v) for v in text.to_pylist()]
    shown_again = (
        v if m is None else f"{write(int(m[1]))}{m[2]}" for v, m in zip(text.to_pylist(), found, strict=True)
    )
    return pa.array(list(shown_again), pa.string())


_DAY_ONE = -719_162  # 0001-01-01
_TICKS = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


def _begins_before_christ(values: pa.Array) -> bool:
    per_day = 1 if pa.types.is_date32(values.type) else 86_400 * _TICKS[values.type.unit]
    first = pc.min(values.view(pa.int32() if per_day == 1 else pa.int64())).as_py()
    return first is not None and first < _DAY_ONE * per_day


def _year_bc(text: str) -> str:
    """
    >>> _year_bc("-0043-03-15"), _year_bc("0000-01-01 10:00:00"), _year_bc("0001-01-01")
    ('0044-03-15 BC', '0001-01-01 10:00:00 BC', '0001-01-01')
    """
    if not re.match(r"-\d|0000-", text):
        return text
    year, rest = re.split(r"(?<=\d)-", text, maxsplit=1)
    return f"{1 - int(year):04}-{rest} BC"


def infinities(values: pa.Array) -> tuple[pa.Array, pa.Array] | None:
    """Which dates or timestamps are infinity, and which minus infinity; None if none is."""
    numbers = values.view(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    last = (1 << numbers.type.bit_width - 1) - 1
    seen = pc.min_max(numbers).as_py()
    if seen["max"] is None or (seen["max"] < last and seen["min"] > -last):
        return None
    return pc.equal(numbers, last), pc.equal(numbers, -last)


def _text(values: pa.Array, kind: str, shown: ColumnType) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    match shown.type:
        case pg.TEXT if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            return values
        case pg.BOOL:
            return pc.if_else(values, "t", "f")
        case pg.FLOAT4 | pg.FLOAT8:
            return _float(values)
        case pg.NUMERIC:
            return _numeric(values, kind)
        case pg.TIMESTAMP | pg.TIME:
            return _without_zeros(_micros(values))
        case pg.TIMESTAMPTZ if values.type.tz != "UTC":
            local, offsets = local_times(pc.cast(values, pa.timestamp("us", values.type.tz), safe=False))
            return pc.binary_join_element_wise(_without_zeros(pc.cast(local, pa.string())), offsets, "")
        case pg.TIMESTAMPTZ:
            naive = pa.Array.from_buffers(
                pa.timestamp(values.type.unit), len(values), values.buffers(), offset=values.offset
            )
            return pc.binary_join_element_wise(_without_zeros(_micros(naive)), "+00", "")
        case pg.BYTEA:
            found = [None if v is None else "\\x" + v.hex() for v in values.to_pylist()]
            return pa.array(found, pa.string())
        case pg.INTERVAL:
            return pa.array([interval_text(v) for v in values.to_pylist()], pa.string())
        case pg.JSON if kind.upper() != "JSON":
            return _json(values, kind)
        case pg.VARBIT:
            bits = converter("BIT")
            assert bits is not None
            return pa.array([None if v is None else bits(v) for v in values.to_pylist()], pa.string())
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return values
    if pa.types.is_integer(values.type) or pa.types.is_date(values.type):
        return pc.cast(values, pa.string())
    return pa.array([None if v is None else str(v) for v in values.to_pylist()], pa.string())


def _float(values: pa.Array) -> pa.Array:
    text = pc.cast(values, pa.string())
    finite = pc.fill_null(pc.is_finite(values), True)
    if pc.all(finite).as_py() is not False:
        return text
    named = pa.array(
        [
            None
            if v is None
            else "NaN"
            if math.isnan(v)
            else "Infinity"
            if v == math.inf
            else "-Infinity"
            if v == -math.inf
            else "0"
            for v in values.to_pylist()
        ],
        pa.string(),
    )
    return pc.if_else(finite, text, named)


def _numeric(values: pa.Array, kind: str) -> pa.Array:
    if pa.types.is_integer(values.type):
        return pc.cast(values, pa.string())
    if pa.types.is_decimal(values.type) and values.type.scale == 0:
        return pc.cast(values, pa.string())
    if isinstance(values.type, pa.BaseExtensionType):
        return pa.array([None if v is None else str(bignum(v)) for v in values.storage.to_pylist()])
    text = pc.cast(values, pa.string())
    if pc.any(pc.match_substring(text, "E")).as_py():
        return pa.array([None if v is None else f"{v:f}" for v in values.to_pylist()], pa.string())
    return text


def _micros(values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(values.type) and values.type.unit != "us":
        values = pc.cast(values, pa.timestamp("us"), safe=False)
    elif pa.types.is_time64(values.type) and values.type.unit != "us":
        values = pc.cast(values, pa.time64("us"), safe=False)
    return pc.cast(values, pa.string())


def _without_zeros(text: pa.Array) -> pa.Array:
    """`10:00:00.500000` is written `10:00:00.5`, and `10:00:00.000000` without a fraction."""
    return pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".") if _has_fraction(text) else text


def _has_fraction(text: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring(text, ".")).as_py())


def interval_text(value: Any) -> str | None:
    """An interval in PostgreSQL's own style.

    >>> interval_text((14, 3, 3_723_500_000_000))
    '1 year 2 mons 3 days 01:02:03.5'
    >>> interval_text((-1, 1, 1_000))
    '-1 mons +1 day 00:00:00.000001'
    """
    if value is None:
        return None
    if isinstance(value, str):
        return value.replace("month", "mon")
    months, days, nanoseconds = value
    parts: list[str] = []
    years, months = _cut(months, 12)
    plus = ""  # behind a negative part, a positive one has its sign
    for count, unit in ((years, "year"), (months, "mon"), (days, "day")):
        if count:
            parts.append(f"{plus if count > 0 else ''}{count} {unit}{'' if count == 1 else 's'}")
            plus = "+" if count < 0 else ""
    us = nanoseconds // 1000 if nanoseconds >= 0 else -(-nanoseconds // 1000)
    if us or not parts:
        sign, us = ("-", -us) if us < 0 else (plus, us)
        hours, us = divmod(us, 3_600_000_000)
        minutes, us = divmod(us, 60_000_000)
        seconds, us = divmod(us, 1_000_000)
        fraction = f".{us:06d}".rstrip("0") if us else ""
        parts.append(f"{sign}{hours:02d}:{minutes:02d}:{seconds:02d}{fraction}")
    return " ".join(parts)


def _cut(count: int, size: int) -> tuple[int, int]:
    whole = int(count / size)
    return whole, count - whole * size


def _json(values: pa.Array, kind: str) -> pa.Array:
    convert = converter(kind)
    found: list[str | None] = []
    for value in values.to_pylist(maps_as_pydicts="lossy"):
        if value is None:
            found.append(None)
            continue
        made = value if convert is None else convert(value)
        found.append(json.dumps(made, default=_json_value, ensure_ascii=False))
    return pa.array(found, pa.string())


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, tuple) and len(value) == 3:
        return interval_text(value)
    return str(value)


_SPECIAL = r'[{}",\\\s]'


def _array(values: pa.Array, kind: str, shown: ColumnType) -> pa.Array:
    """Lists as `{a,"b c",NULL}`."""
    offsets, inner, valid = flattened(values)
    text = _scalars(inner, kind[: kind.rindex("[")], ColumnType(shown.type))
    special = pc.or_(
        pc.match_substring_regex(text, _SPECIAL),
        pc.or_(pc.equal(text, ""), pc.equal(pc.utf8_upper(text), "NULL")),
    )
    if pc.any(special).as_py():
        escaped = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
        text = pc.if_else(special, around('"', escaped, '"'), text)
    text = pc.fill_null(text, "NULL")
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pc.cast(text, pa.large_string()))
    found = around("{", pc.binary_join(lists, pa.scalar(",", pa.large_string())), "}")
    found = pc.cast(found, _PLAIN)
    return found if valid is None else pc.if_else(valid, found, pa.scalar(None, _PLAIN))


def around(before: str, text: pa.Array, after: str) -> pa.Array:
    """Each text between two others."""
    sides = [pa.scalar(side, text.type) for side in (before, after, "")]
    return pc.binary_join_element_wise(sides[0], text, sides[1], sides[2])


def flattened(values: pa.Array) -> tuple[np.ndarray, pa.Array, pa.Array | None]:
    """The offsets of lists, their values one after the other, and which lists are not NULL (None: all)."""
    valid = values.is_valid() if values.null_count else None
    if pa.types.is_fixed_size_list(values.type):
        values = pc.cast(values, pa.list_(values.type.value_type))
    inner = values.flatten()
    sizes = np.asarray(pc.fill_null(pc.list_value_length(values), 0)).astype(np.int64)
    return np.concatenate(([0], np.cumsum(sizes))), inner, valid
