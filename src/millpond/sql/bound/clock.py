"""now() and proctime() in a bound plan.

The binder's clock functions are macros that cast a marked text to a time (`binding/now.py`), so its own
clock cannot get into a plan.  The reader turns the cast into `CurrentTime`.
"""

from __future__ import annotations

from typing import NoReturn

from millpond.sql.bound.expressions import BoundExpression, Cast, CurrentTime, Reference, mapped
from millpond.sql.refusal import NotSupported

CLOCK = "now() cannot stand here: a materialized view compares it with columns in WHERE, and nothing else"
STAMP = "proctime() cannot stand here: a materialized view selects it, and compares it with columns in WHERE"
CLOCK_HINT = "write WHERE ts > now() - INTERVAL '1 hour'; proctime() is the time at which a row came"


def is_clock(node: BoundExpression) -> bool:
    """Is this now() or proctime(), or a cast of it?"""
    return isinstance(node, CurrentTime) or (isinstance(node, Cast) and is_clock(node.argument))


def is_stamp(node: BoundExpression) -> bool:
    """Is this proctime(), the processing time that is stored in the row?"""
    return isinstance(node, CurrentTime) and node.stamp


def reads_clock(node: BoundExpression) -> bool:
    return isinstance(node, CurrentTime) or any(map(reads_clock, node.children))


def reads_stamp(node: BoundExpression) -> bool:
    return is_stamp(node) or any(map(reads_stamp, node.children))


def with_stamp(node: BoundExpression, place: int) -> BoundExpression:
    """Return the expression with proctime() replaced by a reference to a column."""
    if is_stamp(node):
        return Reference(place, type=node.type, alias=node.alias, at=node.at)
    return mapped(node, lambda child: with_stamp(child, place))


def refuse_clock(node: BoundExpression) -> NoReturn:
    """Refuse now() or proctime() where it cannot be turned into a valid interval."""
    inner = node
    while isinstance(inner, Cast):
        inner = inner.argument
    if is_stamp(inner):
        raise NotSupported(
            "proctime() can only be selected, be the time of a window, or be compared with columns in WHERE",
            at=node.at,
            hint="put it into the rows first: FROM (SELECT *, proctime() AS p FROM …)",
        )
    raise NotSupported(
        "now() can only be compared with columns, in conditions that must all hold",
        at=node.at,
        hint=CLOCK_HINT,
    )
