"""DISTINCT, and DISTINCT ON as the first row of each key."""

from __future__ import annotations

from millpond.operators.top_n import TopN
from millpond.ordering import Order
from millpond.sql.bound.relations import BoundDistinct
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.lowering.steps.distinct_rows import distinct_rows
from millpond.sql.lowering.steps.normalized import normalized
from millpond.sql.lowering.steps.orders import orders
from millpond.sql.passes.normalize_intervals import all_normalized


def lower(low: Lowering, node: BoundDistinct) -> Relation:
    source = low.lower(node.input)
    if node.targets is None:
        source = normalized(low, low.exact(source))
        low.keyed((c.type for c in source.columns), "DISTINCT")
        return distinct_rows(low, source, "distinct")
    read = node.input.read
    source = low.exact(source) if read is None else low.narrowed(source, read)
    low.keyed((c.type for c in source.columns), "DISTINCT")
    held, keys = low.extended(source, all_normalized(node.targets), "on")
    held, order = orders(low, held, node.orders, keys)
    rank = TopN(tuple(dict.fromkeys(keys)), order or (Order(source.names[0]),), 1)
    return Relation(low.add(rank, (held.step,), "first"), source.columns)
