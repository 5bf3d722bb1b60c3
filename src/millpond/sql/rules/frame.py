"""The frame of a window call, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from millpond.sql.expressions import Column, render
from millpond.sql.types import Json

_EXCLUDE = {
    "NO_OTHER": "",
    "CURRENT_ROW": " EXCLUDE CURRENT ROW",
    "GROUP": " EXCLUDE GROUP",
    "TIES": " EXCLUDE TIES",
}


@dataclass(frozen=True)
class Frame:
    unit: str  # ROWS, RANGE or GROUPS
    start: str
    end: str
    exclude: str  # as the binder names it

    @property
    def rows(self) -> bool:
        """Does it count rows, so that it matters which of two peers comes first?"""
        return self.unit == "ROWS"

    @property
    def excludes_peers(self) -> bool:
        return self.exclude in ("GROUP", "TIES")

    @property
    def text(self) -> str:
        return f"{self.unit} BETWEEN {self.start} AND {self.end}{_EXCLUDE[self.exclude]}"

    def all(self) -> Frame:
        """The same frame with nothing excluded."""
        return replace(self, exclude="NO_OTHER")


def frame_of(call: Json, columns: Sequence[Column]) -> Frame:
    """The frame of a bound call; the one of SQL where the user wrote none.

    ROWS up to the current row or the ends of the partition, without all peers of the row, is
    the same as RANGE: nothing is cut but the group that is excluded.
    """
    start, end, exclude = str(call["start"]), str(call["end"]), str(call["exclude_clause"])
    unit = next((u for u in ("ROWS", "RANGE", "GROUPS") if start.endswith(u) or end.endswith(u)), "RANGE")
    counted = "EXPR" in start or "EXPR" in end
    if unit == "ROWS" and not counted and exclude in ("GROUP", "TIES"):
        unit = "RANGE"
    low_edge = _edge(start, call.get("start_expr"), unit, columns)
    high_edge = _edge(end, call.get("end_expr"), unit, columns)
    return Frame(unit, low_edge, high_edge, exclude)


def _edge(word: str, node: Json | None, unit: str, columns: Sequence[Column]) -> str:
    if word.startswith("UNBOUNDED"):
        return word.replace("_", " ")
    if word.startswith("CURRENT_ROW"):
        return "CURRENT ROW"
    assert node is not None
    side = "PRECEDING" if "PRECEDING" in word else "FOLLOWING"
    if unit == "RANGE":  # the binder wrote order - offset, or order + offset
        while node["expression_class"] == "BOUND_FUNCTION" and node["qname"]["path"][-1] == "__cast":
            node = node["children"][0]
        node = node["children"][1]
    return f"{render(node, columns)} {side}"
