"""Conditions that bound a rank: TopN maintains the first rows of each partition at the cost of the change.

… WHERE row_number() OVER (PARTITION BY a ORDER BY b) <= 3
… WHERE rank() OVER (PARTITION BY a ORDER BY b) = 1

A rank that only such conditions read is not computed: otherwise a new row would retract all
rows after it and insert them again with another rank that nobody reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.flow.keyed_stream import GLOBAL_BUCKETS
from millpond.operators.top_n import TopN
from millpond.ordering import Order
from millpond.sql.binding.types import Json
from millpond.sql.lowering.expressions import StepColumn, references, render
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.rules import final_rows, window
from millpond.sql.lowering.rules.limit import ALL, orders

_RANKS = {"WINDOW_ROW_NUMBER": False, "WINDOW_RANK": True}  # do equal rows share a rank?
_FLIPPED = {
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_EQUAL": "COMPARE_EQUAL",
}


def lower(
    low: Lowering, node: Json, conditions: Sequence[Json], width: int
) -> tuple[Relation, list[Json]] | None:
    """Lower a window to its first ranks, if these conditions bound its only rank.

    Also return the conditions that still have to be checked.

    The rank is the last column; if it is not read, another column takes its position.
    """
    if len(node["expressions"]) != 1 or node["expressions"][0]["type"] not in _RANKS:
        return None
    (call,) = node["expressions"]
    if call.get("arg_orders") or call.get("filters") or call["exclude_clause"] != "NO_OTHER":
        return None
    bounds = [_bound(low, c, width) for c in conditions]
    last = min((b for b in bounds if b is not None), default=0)
    if not 1 <= last < ALL:
        return None
    ties = _RANKS[call["type"]]
    if ties and not call.get("orders"):
        return None
    rest = [c for c, b in zip(conditions, bounds, strict=True) if b is None or (b > 1 and _is_equal(c))]
    wanted = low.need_also(node, rest)
    below = window.needed_below(low, node, width, [0])
    source = low.lower(node["children"][0])
    if low.final_rows:
        final_rows.check_over(low, source, call)
    source = low.exact(source) if below is None else low.narrowed(source, below)
    held, keys = low.extended(source, call.get("partitions") or [], "part")
    held, order = orders(low, held, call.get("orders") or [], keys)
    keys = list(dict.fromkeys(keys))
    order = order or (Order(source.names[0]),)
    rank = None
    if wanted is None or width in wanted:
        (rank,) = fresh_names([call.get("alias") or "rank"], low.builder.shape(held.step).schema.names)
    whole = TopN(tuple(keys), order, last, 0, ties, rank)
    step = held.step
    if not keys and not ties:
        first, whole = whole.split(GLOBAL_BUCKETS)
        step = low.add(first, (step,), "ranks.buckets")
    found = low.add(whole, (step,), "ranks")
    shown = source.columns[0] if rank is None else StepColumn(rank, "BIGINT")
    return Relation(found, (*source.columns, shown)), rest


def _is_equal(condition: Json) -> bool:
    return bool(condition["type"] == "COMPARE_EQUAL")


def _bound(low: Lowering, condition: Json, place: int) -> int | None:
    """Return the greatest rank that a condition accepts, or None."""
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
