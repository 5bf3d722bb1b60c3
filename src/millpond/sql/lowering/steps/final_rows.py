"""EMIT ON WINDOW CLOSE without windows: rows come out once the watermark has passed their time.

Law 1: such a view shows the query over the rows whose time is before the watermark, and never changes a row.
So the rows of a relation are held back where they are read (`EmitOnClose`), and the query may only do what
later rows cannot change: select, filter, and OVER in the order of that time, up to the current row.
"""

from __future__ import annotations

from typing import NoReturn

from millpond.operators.emit_on_close import EmitOnClose
from millpond.sql.bound.clock import reads_clock
from millpond.sql.bound.expressions import BoundExpression, Reference, WindowCall, references
from millpond.sql.bound.relations import (
    BoundCte,
    BoundCteReference,
    BoundFilter,
    BoundFirstRanks,
    BoundGet,
    BoundListFunction,
    BoundPick,
    BoundProject,
    BoundRelation,
    BoundTableFunction,
    BoundTimeWindow,
    BoundWindow,
    nodes_of,
)
from millpond.sql.lowering.expressions import render
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.lowering.time_bounds import NO_WATERMARK, placing_key
from millpond.sql.refusal import NotSupported

_NODES = (
    *(BoundGet, BoundTableFunction, BoundListFunction, BoundTimeWindow),
    *(BoundProject, BoundPick, BoundFilter, BoundWindow, BoundFirstRanks, BoundCte, BoundCteReference),
)
_LATER = ("WINDOW_LEAD", "WINDOW_NTILE", "WINDOW_PERCENT_RANK", "WINDOW_CUME_DIST", "WINDOW_FILL")
_HINT = "write OVER (… ORDER BY the time of WATERMARK FOR … ROWS BETWEEN n PRECEDING AND CURRENT ROW)"


def is_final(query: BoundRelation) -> bool:
    """Does a query only have nodes whose rows later rows cannot change, apart from the orders of OVER?"""
    return all(
        isinstance(node, _NODES) and not any(map(reads_clock, node.expressions)) for node in nodes_of(query)
    )


def held(low: Lowering, source: Relation) -> Relation:
    """Hold back the rows of a relation until the watermark has passed their time."""
    shape = low.shape(source)
    bound = next((b for b in shape.bounds if not b.window), None)
    if bound is None:
        raise NotSupported(NO_WATERMARK, hint="read TUMBLE, HOP or SESSION over rows with WATERMARK FOR")
    low.closed = True
    operator = EmitOnClose(placing_key(shape), bound)
    step = low.builder.add(None, operator, (source.step,), f"{low.name}.hold")
    return Relation(step, source.columns)


def check_over(low: Lowering, source: Relation, call: WindowCall) -> None:
    """Refuse a call of OVER whose value for a row later rows can change."""
    first = call.orders[0].expression if call.orders else None
    times = {b.column for b in low.shape(source).bounds if b.window == "closed"}
    if not isinstance(first, Reference):
        _refuse(low, "OVER needs ORDER BY the time column")
    if source.columns[first.index].name not in times or call.orders[0].descending:
        _refuse(low, "OVER needs ORDER BY the time column")
    offsets = list(call.arguments[1:2]) if call.kind == "WINDOW_LAG" else []
    later = call.kind in _LATER or bool(call.own_orders and call.kind != "WINDOW_AGGREGATE")
    if call.end.word == "EXPR_PRECEDING_ROWS" and call.end.offset is not None:
        offsets.append(call.end.offset)
    elif not call.end.word.startswith("CURRENT_ROW"):
        later = True
    if later or not all(_not_negative(low, offset) for offset in offsets):
        _refuse(low, "OVER cannot read rows after the current one")


def _not_negative(low: Lowering, node: BoundExpression) -> bool:
    """Is an expression a constant of at least 0?"""
    if list(references(node)):
        return False
    (found,) = low.binder.constant(f"select {render(node, ())}").columns[0].to_pylist()
    return found is not None and found >= 0


def _refuse(low: Lowering, why: str) -> NoReturn:
    raise NotSupported(f"with EMIT ON WINDOW CLOSE {why}", at=low.position_of("over"), hint=_HINT)
