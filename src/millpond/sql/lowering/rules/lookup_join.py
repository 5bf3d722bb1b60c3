"""FOR SYSTEM_TIME AS OF PROCTIME() on the right of LEFT JOIN; inner ones are among `rules/inner_joins.py`."""

from __future__ import annotations

from typing import NoReturn

from millpond.sql.bound.relations import BoundAsOfNow, BoundLookupJoin
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.lowering.steps.lookup_join import looked_up
from millpond.sql.refusal import NotSupported
from millpond.sql.text.as_of_now import MARK


def lower(low: Lowering, node: BoundLookupJoin) -> Relation:
    left, right = low.lower(node.left), low.lower(node.right)
    read = node.sides_read
    left, right = left.reading(read[0]), low.narrowed(right, read[1])
    return looked_up(low, left, right, node.pairs, node.rest, "left").pick(node.places)


def refuse_alone(low: Lowering, node: BoundAsOfNow) -> NoReturn:
    """Refuse a table as of now that is not read by such a join."""
    in_view = low.position_of(MARK) is None  # then the position refers to the text of the view
    raise NotSupported(
        "FOR SYSTEM_TIME AS OF PROCTIME() is for the right side of JOIN and LEFT JOIN",
        at=None if in_view else node.at,
        hint="write orders JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() AS r ON orders.k = r.k",
    )
