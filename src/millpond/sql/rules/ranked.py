"""Ranks below a bound: the first rows of each partition, kept by TopN at the cost of the change.

… WHERE row_number() OVER (PARTITION BY a ORDER BY b) <= 3
… WHERE rank() OVER (PARTITION BY a ORDER BY b) = 1
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.flow.stream import GLOBAL_BUCKETS
from millpond.operators.top_n import TopN
from millpond.ordering import Order
from millpond.sql.expressions import Column, references, render
from millpond.sql.lowering import Lowering
from millpond.sql.relation import Relation, fresh_names
from millpond.sql.rules import window
from millpond.sql.rules.limit import ALL, orders
from millpond.sql.types import Json

_RANKS = {"WINDOW_ROW_NUMBER": False, "WINDOW_RANK": True}  # are equal rows one rank?
_FLIPPED = {
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_EQUAL": "COMPARE_EQUAL",
}


def lower(low: Lowering, node: Json, conditions: Sequence[Json], width: int) -> Relation | None:
    """The window with its first ranks only, if these conditions bound its one rank."""
    if len(node["expressions"]) != 1 or node["expressions"][0]["type"] not in _RANKS:
        return None
    (call,) = node["expressions"]
    if call.get("arg_orders") or call.get("filters") or call["exclude_clause"] != "NO_OTHER":
        return None
    bounds = [b for c in conditions if (b := _bound(low, c, width)) is not None]
    if not bounds or not 1 <= min(bounds) < ALL:
        return None
    _, below = window.read_below(low, node, width)
    source = low.lower(node["children"][0])
    source = low.exact(source) if below is None else low.narrowed(source, below)
    held, keys = low.extended(source, call.get("partitions") or [], "part")
    held, order = orders(low, Relation(held.step, held.columns), call.get("orders") or [])
    keys = list(dict.fromkeys(keys))
    ties = _RANKS[call["type"]]
    if not order:
        if ties:
            return None
        order = (Order(source.names[0]),)
    (rank,) = fresh_names([call.get("alias") or "rank"], low.builder.shape(held.step).schema.names)
    whole = TopN(tuple(keys), order, min(bounds), 0, ties, rank)
    step = held.step
    if not keys and not ties:
        first, whole = whole.split(GLOBAL_BUCKETS)
        step = low.add(first, (step,), "ranks.buckets")
    found = low.add(whole, (step,), "ranks")
    return Relation(found, (*source.columns, Column(rank, "BIGINT")))


def _bound(low: Lowering, condition: Json, place: int) -> int | None:
    """The greatest rank that a condition lets through."""
    if condition["type"] not in (*_FLIPPED, *_FLIPPED.values()):
        return None
    one, two = condition["children"]
    how = condition["type"]
    if not list(references(one)):
        one, two, how = two, one, _FLIPPED.get(how, "")
    if list(references(two)) or one["expression_class"] != "BOUND_REF" or int(one["index"]) != place:
        return None
    value = low.binder.constant(f"select {render(two, ())} as v").column(0)[0].as_py()
    if not isinstance(value, int):
        return None
    if how == "COMPARE_LESSTHAN":
        return value - 1
    return value if how in ("COMPARE_LESSTHANOREQUALTO", "COMPARE_EQUAL") else None
