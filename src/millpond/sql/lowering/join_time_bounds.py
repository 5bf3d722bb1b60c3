"""Reads from the conditions of a join how far apart in time its two rows can be.

b.ts BETWEEN a.ts AND a.ts + INTERVAL '10 minutes'    0 <= b.ts - a.ts <= 10 minutes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millpond.plan.expiry import TimeDistance
from millpond.sql.binding.types import Json
from millpond.sql.lowering.expressions import conjuncts

_FLIPPED = {
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_EQUAL": "COMPARE_EQUAL",
    "COMPARE_NOT_DISTINCT_FROM": "COMPARE_NOT_DISTINCT_FROM",
}
_SAME = ("COMPARE_EQUAL", "COMPARE_NOT_DISTINCT_FROM")  # a column with a bound is never NULL
_UP = ("COMPARE_LESSTHAN", "COMPARE_LESSTHANOREQUALTO", *_SAME)  # left <= right
_DOWN = ("COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO", *_SAME)
_DAY_US = 86_400_000_000


def spans(conditions: Sequence[Json], names: Sequence[str], width: int) -> Iterator[TimeDistance]:
    """Yield the time distances that these ANDed conditions imply.

    Conditions refer to columns by position; the first `width` columns are those of the left side.
    """
    for condition in conjuncts(conditions):
        how = condition.get("type")
        if how not in _FLIPPED or len(condition["children"]) != 2:
            continue
        one, two = (_moved(c) for c in condition["children"])
        if one is None or two is None:
            continue
        if one[0] >= width > two[0]:
            one, two, how = two, one, _FLIPPED[str(how)]
        if not one[0] < width <= two[0]:
            continue
        apart = one[1] - two[1]  # left + one <= right + two: right - left >= one - two
        yield TimeDistance(
            names[one[0]],
            names[two[0]],
            apart if how in _UP else None,
            apart if how in _DOWN else None,
        )


def comparison(left: Json, right: Json, how: str) -> Json:
    """Build one condition from two sides and a comparison."""
    return {"expression_class": "BOUND_FUNCTION", "type": how, "children": [left, right]}


def _moved(node: Json) -> tuple[int, int] | None:
    """Return (column, microseconds) for a column plus or minus constant intervals; None for anything else."""
    if node["expression_class"] == "BOUND_REF":
        return int(node["index"]), 0
    if node["expression_class"] != "BOUND_FUNCTION" or len(node.get("children") or ()) != 2:
        return None
    word = node["qname"]["path"][-1]
    one, two = node["children"]
    if word == "+" and _interval(one) is not None:
        one, two = two, one
    by, found = _interval(two), _moved(one)
    if word not in ("+", "-") or by is None or found is None:
        return None
    return found[0], found[1] + (by if word == "+" else -by)


def _interval(node: Json) -> int | None:
    """Return the microseconds of a constant interval; None if it has months, whose length varies."""
    if node["expression_class"] != "BOUND_CONSTANT" or node["value"]["type"]["id"] != "INTERVAL":
        return None
    value = node["value"]["value"]
    if node["value"]["is_null"] or value["months"]:
        return None
    return int(value["days"]) * _DAY_US + int(value["micros"])
