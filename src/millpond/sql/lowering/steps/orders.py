"""Orders of rows, as columns of a step."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.ordering import Order
from millpond.sql.bound.expressions import BoundExpression, BoundFunction, SortItem
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation


def orders(
    low: Lowering, source: Relation, by: Sequence[SortItem], keys: Sequence[str] = ()
) -> tuple[Relation, tuple[Order, ...]]:
    """Add the columns to order by to the relation, and return the order; the step also keeps `keys`."""
    low.keyed((o.expression.type for o in by), "ORDER BY with LIMIT")
    held, names = low.extended(source, [_ranked(o.expression) for o in by], "by", keys)
    found = tuple(
        Order(name, descending=o.descending, nulls_first=o.nulls_first)
        for name, o in zip(names, by, strict=True)
    )
    return held, found


def _ranked(node: BoundExpression) -> BoundExpression:
    """Return an expression whose stored form has the right order: ENUM and INTERVAL are stored as text."""
    if node.type == "INTERVAL":  # months have 30 days
        return BoundFunction("epoch_us", (node,), type="BIGINT")
    if not node.type.startswith("ENUM"):
        return node
    return BoundFunction("enum_code", (node,), type="INTEGER")
