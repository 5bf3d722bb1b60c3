"""Drops ORDER BY, except for LIMIT: a view has no order; its readers can sort."""

from __future__ import annotations

from millpond.sql.bound.relations import BoundLimit, BoundOrder, BoundRelation, BoundTopN


def drop_orders(node: BoundRelation) -> BoundRelation:
    if isinstance(node, BoundOrder):
        return drop_orders(node.input)
    if isinstance(node, BoundLimit):
        orders = node.input.orders if isinstance(node.input, BoundOrder) else ()
        return BoundTopN(input=drop_orders(node.input), orders=orders, rows=node.rows, offset=node.offset)
    return node.with_inputs([drop_orders(one) for one in node.inputs])
