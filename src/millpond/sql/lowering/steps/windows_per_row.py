"""Limits how many windows a row can be in, and warns where it can be in none."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.errors import InvalidError
from millpond.kernels import slices
from millpond.kernels.window_assigners import Cumulating, Sliding, WindowAssigner
from millpond.operators.assign_windows import AssignWindows
from millpond.operators.window import Hop
from millpond.plan.nodes import Node
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.refusal import NotSupported


def check_windows_per_row(low: Lowering, kind: str, windows: WindowAssigner, *, sliced: bool) -> None:
    try:
        slices.check_windows_per_row(windows, None, sliced=sliced)
    except InvalidError as error:
        raise NotSupported(error.message, at=low.position_of(kind), hint=error.hint) from error


def check_used(low: Lowering, nodes: Iterable[Node]) -> None:
    """Refuse steps that repeat each row too often, after windows that share slices need them no more."""
    for node in nodes:
        operator = node.operator
        if isinstance(operator, Hop):
            windows = Sliding(operator.size_us, operator.slide_us, operator.offset_us)
            check_windows_per_row(low, "hop", windows, sliced=False)
        elif isinstance(operator, AssignWindows):
            kind = "cumulate" if isinstance(operator.windows, Cumulating) else "hop"
            check_windows_per_row(low, kind, operator.windows, sliced=False)


def gap_warnings(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return a warning about windows that slide further than they are long, each one once."""
    if any(_leaves_gaps(node.operator) for node in nodes):
        return ("the slide of HOP is above its size: rows between two windows are in none, and are counted",)
    return ()


def _leaves_gaps(operator: object) -> bool:
    if isinstance(operator, Hop):
        return operator.slide_us > operator.size_us
    return isinstance(operator, AssignWindows) and operator.windows.leaves_gaps
