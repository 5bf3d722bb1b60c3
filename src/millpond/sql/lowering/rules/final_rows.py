"""EMIT ON WINDOW CLOSE without windows: rows come out once the watermark has passed their time.

Law 1: such a view shows the query over the rows whose time is before the watermark, and never changes a row.
So the rows of a relation are held back where they are read (`EmitOnClose`), and the query may only do what
later rows cannot change: select, filter, and OVER in the order of that time, up to the current row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from millpond.operators.emit_on_close import EmitOnClose
from millpond.sql.binding.types import Json
from millpond.sql.lowering.expressions import reads_clock, references, render
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.lowering.time_bounds import NO_WATERMARK, placing_key
from millpond.sql.refusal import NotSupported

_NODES = (
    *("LOGICAL_GET", "LOGICAL_PROJECTION", "LOGICAL_FILTER", "LOGICAL_WINDOW"),
    *("LOGICAL_MATERIALIZED_CTE", "LOGICAL_CTE_REF"),
)
_LATER = ("WINDOW_LEAD", "WINDOW_NTILE", "WINDOW_PERCENT_RANK", "WINDOW_CUME_DIST", "WINDOW_FILL")
_HINT = "write OVER (… ORDER BY the time of WATERMARK FOR … ROWS BETWEEN n PRECEDING AND CURRENT ROW)"


def is_final(planned: Json) -> bool:
    """Does a query only have nodes whose rows later rows cannot change, apart from the orders of OVER?"""
    return all(
        node["type"] in _NODES and not any(map(reads_clock, node.get("expressions") or ()))
        for node in _nodes(planned)
    )


def _nodes(node: Json) -> Iterator[Json]:
    yield node
    for child in node.get("children") or ():
        yield from _nodes(child)


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


def check_over(low: Lowering, source: Relation, call: Json) -> None:
    """Refuse a call of OVER whose value for a row later rows can change."""
    orders = call.get("orders") or []
    first = orders[0]["expression"] if orders else None
    times = {b.column for b in low.shape(source).bounds if b.window == "closed"}
    if first is None or first["expression_class"] != "BOUND_REF":
        _refuse(low, "OVER needs ORDER BY the time column")
    if source.columns[int(first["index"])].name not in times or "DESC" in orders[0]["type"]:
        _refuse(low, "OVER needs ORDER BY the time column")
    offsets = list(call["children"][1:2]) if call["type"] == "WINDOW_LAG" else []
    later = call["type"] in _LATER or (call["arg_orders"] and call["type"] != "WINDOW_AGGREGATE")
    if call["end"] == "EXPR_PRECEDING_ROWS":
        offsets.append(call["end_expr"])
    elif not call["end"].startswith("CURRENT_ROW"):
        later = True
    if later or not all(_not_negative(low, offset) for offset in offsets):
        _refuse(low, "OVER cannot read rows after the current one")


def _not_negative(low: Lowering, node: Json) -> bool:
    """Is an expression a constant of at least 0?"""
    if list(references(node)):
        return False
    (found,) = low.binder.constant(f"select {render(node, ())}").columns[0].to_pylist()
    return found is not None and found >= 0


def _refuse(low: Lowering, why: str) -> NoReturn:
    raise NotSupported(f"with EMIT ON WINDOW CLOSE {why}", at=low.position_of("over"), hint=_HINT)
