"""Renders the frame of a window call as SQL text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from millpond.sql.bound.expressions import BoundFunction, Cast, FrameEdge, WindowCall
from millpond.sql.lowering.expressions import StepColumn, render

_EXCLUDE = {
    "NO_OTHER": "",
    "CURRENT_ROW": " EXCLUDE CURRENT ROW",
    "GROUP": " EXCLUDE GROUP",
    "TIES": " EXCLUDE TIES",
}


@dataclass(frozen=True)
class WindowFrame:
    unit: str  # ROWS, RANGE or GROUPS
    start: str
    end: str
    exclude: str  # the binder's name

    @property
    def rows(self) -> bool:
        """Does the frame count rows, so that the order of peers matters?"""
        return self.unit == "ROWS"

    @property
    def excludes_peers(self) -> bool:
        return self.exclude in ("GROUP", "TIES")

    @property
    def text(self) -> str:
        return f"{self.unit} BETWEEN {self.start} AND {self.end}{_EXCLUDE[self.exclude]}"

    def all(self) -> WindowFrame:
        """Return the same frame without EXCLUDE."""
        return replace(self, exclude="NO_OTHER")


def frame_of(call: WindowCall, columns: Sequence[StepColumn]) -> WindowFrame:
    """Return the frame of a bound call, or SQL's default frame if the user wrote none.

    ROWS up to the current row or the ends of the partition, with EXCLUDE GROUP or TIES, is the
    same as RANGE: it splits no group of peers except the excluded one.
    """
    start, end, exclude = call.start.word, call.end.word, call.exclude
    unit = next((u for u in ("ROWS", "RANGE", "GROUPS") if start.endswith(u) or end.endswith(u)), "RANGE")
    counted = "EXPR" in start or "EXPR" in end
    if unit == "ROWS" and not counted and exclude in ("GROUP", "TIES"):
        unit = "RANGE"
    return WindowFrame(unit, _edge(call.start, unit, columns), _edge(call.end, unit, columns), exclude)


def _edge(edge: FrameEdge, unit: str, columns: Sequence[StepColumn]) -> str:
    word, node = edge.word, edge.offset
    if word.startswith("UNBOUNDED"):
        return word.replace("_", " ")
    if word.startswith("CURRENT_ROW"):
        return "CURRENT ROW"
    assert node is not None
    side = "PRECEDING" if "PRECEDING" in word else "FOLLOWING"
    if unit == "RANGE":  # the binder has written order - offset, or order + offset
        while isinstance(node, Cast):
            node = node.argument
        assert isinstance(node, BoundFunction)
        node = node.arguments[1]
    return f"{render(node, columns)} {side}"
