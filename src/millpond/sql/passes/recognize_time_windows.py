"""Recognizes TUMBLE, HOP, CUMULATE, CALENDAR and SESSION by the marks that `text/time_windows.py` writes."""

from __future__ import annotations

from millpond.sql.bound.relations import BoundProject, BoundRelation, BoundTimeWindow, rebuilt
from millpond.sql.text.time_windows import KIND


def recognize_time_windows(relation: BoundRelation) -> BoundRelation:
    return rebuilt(relation, _recognized)


def _recognized(node: BoundRelation) -> BoundRelation:
    if isinstance(node, BoundProject) and any(e.alias == KIND for e in node.outputs):
        return BoundTimeWindow(input=node.input, outputs=node.outputs)
    return node
