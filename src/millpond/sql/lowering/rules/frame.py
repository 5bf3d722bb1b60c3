"""Renders the frame of a window call as SQL text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from millpond.sql.binding.types import Json
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


def frame_of(call: Json, columns: Sequence[StepColumn]) -> WindowFrame:
    """Return the frame of a bound call, or SQL's default frame if the user wrote none.

    ROWS up to the current row or the ends of the partition, with EXCLUDE GROUP or TIES, is the
    same as RANGE: it splits no group of peers except the excluded one.
    """
    start, end, exclude = str(call["start"]), str(call["end"]), str(call["exclude_clause"])
    unit = next((u for u in ("ROWS", "RANGE", "GROUPS") if start.endswith(u) or end.endswith(u)), "RANGE")
    counted = "EXPR" in start or "EXPR" in end
    if unit == "ROWS" and not counted and exclude in ("GROUP", "TIES"):
        unit = "RANGE"
    low_edge = _edge(start, call.get("start_expr"), unit, columns)
    high_edge = _edge(end, call.get("end_expr"), unit, columns)
    return WindowFrame(unit, low_edge, high_edge, exclude)


def _edge(word: str, node: Json | None, unit: str, columns: Sequence[StepColumn]) -> str:
    if word.startswith("UNBOUNDED"):
        return word.replace("_", " ")
    if word.startswith("CURRENT_ROW"):
        return "CURRENT ROW"
    assert node is not None
    side = "PRECEDING" if "PRECEDING" in word else "FOLLOWING"
    if unit == "RANGE":  # the binder has written order - offset, or order + offset
        while node["expression_class"] == "BOUND_FUNCTION" and node["qname"]["path"][-1] == "__cast":
            node = node["children"][0]
        node = node["children"][1]
    return f"{render(node, columns)} {side}"
