"""LIMIT inside a view: a maintained top-N."""

from __future__ import annotations

from millpond.flow.keyed_stream import GLOBAL_BUCKETS
from millpond.operators.filter import Filter
from millpond.operators.top_n import TopN
from millpond.ordering import Order
from millpond.sql.bound.relations import BoundTopN
from millpond.sql.bound.words import ALL_ROWS
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.lowering.steps.orders import orders


def lower(low: Lowering, node: BoundTopN) -> Relation:
    n = ALL_ROWS if node.rows is None else node.rows
    source = low.narrowed(low.lower(node.input), node.input.read)
    held, order = orders(low, source, node.orders)
    if not node.orders:
        order = tuple(Order(name) for name in dict.fromkeys(source.names))
    if n == 0:
        return Relation(low.add(Filter("false"), (source.step,), "none"), source.columns)
    whole = TopN((), order, n, node.offset, False)
    step = held.step
    if n < ALL_ROWS:
        first, whole = whole.split(GLOBAL_BUCKETS)
        step = low.add(first, (step,), "top.buckets")
    return Relation(low.add(whole, (step,), "top"), source.columns)
