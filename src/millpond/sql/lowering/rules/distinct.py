"""DISTINCT, and DISTINCT ON as the first row of each key."""

from __future__ import annotations

from millpond.operators.top_n import TopN
from millpond.ordering import Order
from millpond.sql.binding.types import Json
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.lowering.rules.aggregate import distinct_rows
from millpond.sql.lowering.rules.limit import orders


def lower(low: Lowering, node: Json) -> Relation:
    if node["distinct_type"] == "DISTINCT":
        source = low.exact(low.lower(node["children"][0]))
        low.keyed((c.type for c in source.columns), "DISTINCT")
        return distinct_rows(low, source, "distinct")
    targets = node["distinct_targets"]
    by = (node.get("order_by") or {}).get("orders") or []
    wanted = low.need_also(node, [*targets, *(o["expression"] for o in by)])
    if wanted is not None:
        low.need(node["children"][0], wanted)
    source = low.narrowed(low.lower(node["children"][0]), wanted)
    source = low.exact(source) if wanted is None else source
    low.keyed((c.type for c in source.columns), "DISTINCT")
    held, keys = low.extended(source, targets, "on")
    held, order = orders(low, held, by, keys)
    rank = TopN(tuple(dict.fromkeys(keys)), order or (Order(source.names[0]),), 1)
    return Relation(low.add(rank, (held.step,), "first"), source.columns)
