"""ORDER BY and LIMIT inside a view: a maintained top-N."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.flow.keyed_stream import GLOBAL_BUCKETS
from millpond.operators.filter import Filter
from millpond.operators.top_n import TopN
from millpond.ordering import Order
from millpond.sql.binding.types import Json
from millpond.sql.lowering.expressions import type_of
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.refusal import NotSupported

ALL = 2**31 - 1


def lower_order(low: Lowering, node: Json) -> Relation:
    """Drop an ORDER BY without LIMIT: a view has no order; its readers can sort."""
    if (wanted := low.needed(node)) is not None:
        low.need(node["children"][0], wanted)
    return low.lower(node["children"][0])


def lower(low: Lowering, node: Json) -> Relation:
    n, offset = _constant(node["limit_val"], "LIMIT"), _constant(node["offset_val"], "OFFSET") or 0
    child = node["children"][0]
    by: Sequence[Json] = ()
    if child["type"] == "LOGICAL_ORDER_BY":
        by, child = child["orders"], child["children"][0]
    wanted = low.need_also(node, [o["expression"] for o in by])
    if wanted is not None:
        low.need(child, wanted)
    return top(low, low.narrowed(low.lower(child), wanted), by, ALL if n is None else n, offset)


def top(
    low: Lowering, source: Relation, by: Sequence[Json], n: int, offset: int, ties: bool = False
) -> Relation:
    held, order = orders(low, source, by)
    if not by:
        order = tuple(Order(name) for name in dict.fromkeys(source.names))
    if n == 0:
        return Relation(low.add(Filter("false"), (source.step,), "none"), source.columns)
    whole = TopN((), order, n, offset, ties)
    step = held.step
    if not ties and n < ALL:
        first, whole = whole.split(GLOBAL_BUCKETS)
        step = low.add(first, (step,), "top.buckets")
    return Relation(low.add(whole, (step,), "top"), source.columns)


def orders(
    low: Lowering, source: Relation, by: Sequence[Json], keys: Sequence[str] = ()
) -> tuple[Relation, tuple[Order, ...]]:
    """Add the columns to order by to the relation, and return the order; the step also keeps `keys`."""
    low.keyed((type_of(o["expression"]) for o in by), "ORDER BY with LIMIT")
    held, names = low.extended(source, [_ranked(o["expression"]) for o in by], "by", keys)
    found = tuple(
        Order(name, descending=o["type"] == "DESCENDING", nulls_first=o["null_order"] == "NULLS FIRST")
        for name, o in zip(names, by, strict=True)
    )
    return held, found


def _ranked(node: Json) -> Json:
    """Return an expression whose stored form has the right order: an ENUM is stored as text."""
    if not type_of(node).startswith("ENUM"):
        return node
    kind = {"id": "INTEGER", "type_info": None}
    return {
        "expression_class": "BOUND_FUNCTION", "type": "BOUND_FUNCTION", "return_type": kind,
        "qname": {"path": ["enum_code"]}, "children": [node],
    }  # fmt: skip


def _constant(value: Json, what: str) -> int | None:
    if value["type"] == "UNSET":
        return None
    if value["type"] != "CONSTANT_VALUE":
        raise NotSupported(f"{what} in a materialized view must be a number", hint="write it as a constant")
    return int(value["constant_integer"])
