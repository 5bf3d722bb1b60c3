"""A bounded rank: TopN maintains the first rows of each partition at the cost of the change.

A rank that nobody reads is not computed: otherwise a new row would retract all rows after it and insert
them again with another rank.
"""

from __future__ import annotations

from millpond.flow.keyed_stream import GLOBAL_BUCKETS
from millpond.operators.top_n import TopN
from millpond.ordering import Order
from millpond.sql.bound.relations import BoundFirstRanks
from millpond.sql.lowering.expressions import StepColumn
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.steps import final_rows
from millpond.sql.lowering.steps.orders import orders


def lower(low: Lowering, node: BoundFirstRanks) -> Relation:
    """The rank is the last column; if it is not read, another column takes its position."""
    call = node.call
    source = low.lower(node.input)
    if low.final_rows:
        final_rows.rows_ahead(low, source, call)  # a rank reads none: it only refuses
    below = node.input.read
    source = low.exact(source) if below is None else low.narrowed(source, below)
    held, keys = low.extended(source, call.partitions, "part")
    held, order = orders(low, held, call.orders, keys)
    keys = list(dict.fromkeys(keys))
    order = order or (Order(source.names[0]),)
    rank = None
    if node.read is None or node.input.width in node.read:
        (rank,) = fresh_names([call.alias or "rank"], low.builder.shape(held.step).schema.names)
    whole = TopN(tuple(keys), order, node.last, 0, node.ties, rank)
    step = held.step
    if not keys and not node.ties:
        first, whole = whole.split(GLOBAL_BUCKETS)
        step = low.add(first, (step,), "ranks.buckets")
    found = low.add(whole, (step,), "ranks")
    shown = source.columns[0] if rank is None else StepColumn(rank, "BIGINT")
    return Relation(found, (*source.columns, shown))
