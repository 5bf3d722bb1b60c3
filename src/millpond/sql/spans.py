"""Conditions of a join that speak of time: how far apart the two rows of a pair may be.

b.ts BETWEEN a.ts AND a.ts + INTERVAL '10 minutes'    0 <= b.ts - a.ts <= 10 minutes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millpond.plan.expiry import Span
from millpond.sql.expressions import conjuncts
from millpond.sql.types import Json

_FLIPPED = {
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_EQUAL": "COMPARE_EQUAL",
    "COMPARE_NOT_DISTINCT_FROM": "COMPARE_NOT_DISTINCT_FROM",
}
_SAME = ("COMPARE_EQUAL", "COMPARE_NOT_DISTINCT_FROM")  # what has a bound is never NULL
_UP = ("COMPARE_LESSTHAN", "COMPARE_LESSTHANOREQUALTO", *_SAME)  # left <= right
_DOWN = ("COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO", *_SAME)
_DAY_US = 86_400_000_000


def spans(conditions: Sequence[Json], names: Sequence[str], width: int) -> Iterator[Span]:
    """What conditions that must all hold say; columns by place, `width` of them those of the left."""
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
        yield Span(
            names[one[0]],
            names[two[0]],
            apart if how in _UP else None,
            apart if how in _DOWN else None,
        )


def comparison(left: Json, right: Json, how: str) -> Json:
    """A condition whose sides stand apart, as one."""
    return {"expression_class": "BOUND_FUNCTION", "type": how, "children": [left, right]}


def _moved(node: Json) -> tuple[int, int] | None:
    """(column, microseconds) of a column that is moved by constant intervals, if it is no more than that."""
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
    """The length of a constant interval; months have none."""
    if node["expression_class"] != "BOUND_CONSTANT" or node["value"]["type"]["id"] != "INTERVAL":
        return None
    value = node["value"]["value"]
    if node["value"]["is_null"] or value["months"]:
        return None
    return int(value["days"]) * _DAY_US + int(value["micros"])
