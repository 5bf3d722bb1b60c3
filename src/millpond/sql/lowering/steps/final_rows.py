"""EMIT ON WINDOW CLOSE without windows: rows come out once the watermark has passed their time.

Law 1: such a view shows the query over the rows whose time is before the watermark, and never changes a row.
So the rows of a relation are held back where they are read (`EmitOnClose`), and the query may only do what
later rows cannot change: select, filter, unnest, and OVER in the order of that time, up to the current row or
a fixed number of rows after it.  A row whose frame reads n rows ahead is shown when n rows of its partition
follow it: every row that comes out later is behind those.
"""

from __future__ import annotations

from typing import NoReturn

from millpond.operators.emit_on_close import EmitOnClose
from millpond.sql.bound.clock import reads_clock
from millpond.sql.bound.expressions import (
    BoundExpression,
    Constant,
    FrameEdge,
    Reference,
    WindowCall,
    references,
)
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
    BoundUnnest,
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
    *(BoundProject, BoundPick, BoundFilter, BoundUnnest, BoundWindow, BoundFirstRanks),
    *(BoundCte, BoundCteReference),
)
_LATER = ("WINDOW_NTILE", "WINDOW_PERCENT_RANK", "WINDOW_CUME_DIST", "WINDOW_FILL")
_COUNTED = {"EXPR_PRECEDING_ROWS": 0, "EXPR_FOLLOWING_ROWS": 1}  # the end of a frame -> of its offset
_HINT = "write OVER (… ORDER BY the time of WATERMARK FOR … ROWS BETWEEN n PRECEDING AND m FOLLOWING)"


def is_final(query: BoundRelation) -> bool:
    """Does a query only have nodes whose rows later rows cannot change, apart from the orders of OVER?"""
    return all(
        isinstance(node, _NODES) and not any(map(reads_clock, node.expressions)) for node in nodes_of(query)
    )


def held_back(low: Lowering, source: Relation) -> Relation:
    """Hold back the rows of a relation until the watermark has passed their time."""
    shape = low.shape(source)
    bound = next((b for b in shape.bounds if not b.window), None)
    if bound is None:
        raise NotSupported(NO_WATERMARK, hint="read TUMBLE, HOP or SESSION over rows with WATERMARK FOR")
    low.closed = True
    operator = EmitOnClose(placing_key(shape), bound)
    step = low.builder.add(None, operator, (source.step,), f"{low.name}.hold")
    return Relation(step, source.columns)


def rows_ahead(low: Lowering, source: Relation, call: WindowCall) -> int:
    """Return how many rows after the current one a call of OVER reads; refuse it if that has no limit."""
    first = call.orders[0].expression if call.orders else None
    times = {b.column for b in low.shape(source).bounds if b.window == "closed"}
    if not isinstance(first, Reference):
        _refuse(low, "OVER needs ORDER BY the time column")
    if source.columns[first.index].name not in times or call.orders[0].descending:
        _refuse(low, "OVER needs ORDER BY the time column")
    ahead: int | None = None
    end = call.end
    if call.kind in ("WINDOW_LAG", "WINDOW_LEAD"):
        ahead = _constant(low, call.arguments[1]) if len(call.arguments) > 1 else 1
        ahead = -ahead if ahead is not None and call.kind == "WINDOW_LAG" else ahead
    elif call.kind in _LATER:
        pass
    elif end.word in _COUNTED and end.offset is not None:
        offset = _constant(low, end.offset)
        ahead = None if offset is None or offset < 0 else offset * _COUNTED[end.word]
    elif end.word.startswith("CURRENT_ROW"):
        ahead = 0
    if ahead is None or (call.own_orders and call.kind != "WINDOW_AGGREGATE"):
        _refuse(low, "OVER cannot read all rows after the current one")
    return max(ahead, 0)


def call_of_row_ahead(call: WindowCall, ahead: int) -> WindowCall:
    """Return a call that is NULL where fewer than `ahead` rows follow the current one."""
    return WindowCall(
        kind="WINDOW_LEAD",
        name="",
        arguments=(
            Constant("BOOLEAN", True, type="BOOLEAN"),
            Constant("BIGINT", ahead, type="BIGINT"),
        ),
        partitions=call.partitions,
        orders=call.orders,
        own_orders=(),
        filter=None,
        start=FrameEdge("UNBOUNDED_PRECEDING"),
        end=FrameEdge("CURRENT_ROW_RANGE"),
        exclude="NO_OTHER",
        type="BOOLEAN",
        alias="complete",
    )


def _constant(low: Lowering, node: BoundExpression) -> int | None:
    """Return the value of a constant; None of one that is NULL, and of an expression over columns."""
    if list(references(node)):
        return None
    (found,) = low.binder.constant(f"select {render(node, ())}").columns[0].to_pylist()
    return None if found is None else int(found)


def _refuse(low: Lowering, why: str) -> NoReturn:
    raise NotSupported(f"with EMIT ON WINDOW CLOSE {why}", at=low.position_of("over"), hint=_HINT)
