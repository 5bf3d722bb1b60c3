"""The granularity at which an expression reads a time: days, hours, minutes, seconds, or exact.

Law: an expression has the same result for a time as for the start of its grain, the multiple of the grain
since 1970 (in microseconds) at or before it.  So it is computed only once for each grain that occurs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.identity import one_chunk

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US

_DAYS = "year quarter month week day isoyear yearweek decade century millennium era"
_PARTS = dict.fromkeys([*_DAYS.split(), "dow", "isodow", "doy"], DAY_US)
_PARTS |= {"hour": HOUR_US, "minute": MINUTE_US, "second": SECOND_US}
_NAMES = "dayofmonth dayofweek dayofyear weekday weekofyear dayname monthname last_day"
_FUNCTIONS = {**{name: part for name, part in _PARTS.items() if name not in ("dow", "doy")}}
_FUNCTIONS |= dict.fromkeys(_NAMES.split(), DAY_US)
_BY_PART = frozenset({"date_part", "datepart", "date_trunc", "datetrunc"})
_FORMATS = {
    **dict.fromkeys("aAwudbBmyYjUWVGu", DAY_US),
    **dict.fromkeys("HIp", HOUR_US),
    "M": MINUTE_US,
    "S": SECOND_US,
    "%": DAY_US,
}

_FINE = frozenset({"timestamp", "timestamp_ns"})  # a coarser time is cast to these unchanged
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6}
_FAR_SECONDS = 4 * 10**9  # from 1970: within it no cast overflows, and no time is infinite

Node = dict[str, Any]
Ints = npt.NDArray[np.int64]


def is_plain_time(kind: pa.DataType) -> bool:
    """A timestamp without a zone, of microseconds or coarser."""
    return bool(pa.types.is_timestamp(kind)) and kind.tz is None and kind.unit in _PER_SECOND


@dataclass(frozen=True)
class Grains:
    """The grains that contain some times."""

    begins: pa.Array  # the start of each grain, as a time
    number: Ints | None  # the grain of each time; None if there is only one grain


def grains(column: pa.ChunkedArray, grain_us: int) -> Grains | None:
    """The grains of times without NULL; None if they are unknown, or as many as the times.

    >>> at = pa.chunked_array([[61, 59, 3, 120]], pa.timestamp("s"))
    >>> [begin.minute for begin in grains(at, MINUTE_US).begins.to_pylist()], grains(at, HOUR_US).number
    ([0, 1, 2], None)
    """
    kind = column.type
    step, far = grain_us * _PER_SECOND[kind.unit] // SECOND_US, _FAR_SECONDS * _PER_SECOND[kind.unit]
    if column.null_count or not len(column):
        return None
    ends = pc.min_max(column)
    low, high = ends["min"].value, ends["max"].value
    if low < -far or high > far:
        return None
    first, count = low // step, high // step - low // step + 1
    if count > len(column):
        return None
    if count == 1:
        return Grains(pa.array([first * step]).cast(kind), None)
    number: Ints = one_chunk(column).cast(pa.int64()).to_numpy() // step - first
    there = np.zeros(count, np.bool_)
    there[number] = True
    those = np.flatnonzero(there)
    if len(those) < count:
        number = (np.cumsum(there) - 1)[number]
    return Grains(pa.array((those + first) * step).cast(kind), number)


def grain_us(root: Any) -> int:
    """The grain of a parsed expression over one time column; 0 if it may depend on the exact time."""
    return _grain(root) or 0


def _grain(node: Any) -> int | None:
    """The grain of a node; None if it does not refer to the column."""
    if isinstance(node, dict):
        if node.get("class") == "COLUMN_REF":
            return 0
        found = _of_call(node)
        if found is not None:
            return found
        node = list(node.values())
    if not isinstance(node, list):
        return None
    return min((found for child in node if (found := _grain(child)) is not None), default=None)


def _of_call(node: Node) -> int | None:
    """The grain of a function applied directly to the column, if it is known."""
    if node.get("class") == "CAST":
        is_date = str(node["type_expr"].get("type_name", "")).lower() == "date"
        return DAY_US if is_date and _is_column(node["child"]) else None
    if node.get("class") != "FUNCTION":
        return None
    name, arguments = str(node["function_name"]).lower(), [a["expression"] for a in node["arguments"]]
    if len(arguments) == 1 and _is_column(arguments[0]):
        return _FUNCTIONS.get(name)
    if len(arguments) != 2 or sum(map(_is_column, arguments)) != 1:
        return None
    text = next((_text(one) for one in arguments if not _is_column(one)), None)
    if text is None:
        return None
    if name in _BY_PART and _is_column(arguments[1]):
        return _PARTS.get(text.lower())
    return _of_format(text) if name == "strftime" else None


def _of_format(text: str) -> int | None:
    """The grain of the finest field of a format.

    >>> _of_format("%H:%M") == MINUTE_US, _of_format("%-d.%-m.%Y") == DAY_US, _of_format("%f")
    (True, True, None)
    """
    found = [_FORMATS.get(part) for part in re.findall(r"%-?(.?)", text, re.DOTALL)]
    return None if None in found else min((f for f in found if f is not None), default=DAY_US)


def _is_column(node: Node) -> bool:
    if node["class"] == "CAST" and str(node["type_expr"].get("type_name", "")).lower() in _FINE:
        node = node["child"]
    return bool(node["class"] == "COLUMN_REF")


def _text(node: Node) -> str | None:
    literal = node.get("literal") if node["class"] == "CONSTANT" else None
    return str(literal["text"]) if literal is not None and literal["kind"] == "STRING" else None
