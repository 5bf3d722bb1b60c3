"""Expressions over rows."""

from __future__ import annotations

from millpond.sql.lowering import Lowering
from millpond.sql.relation import Relation
from millpond.sql.rules import time_window
from millpond.sql.types import Json


def lower(low: Lowering, node: Json) -> Relation:
    if time_window.is_marked(node["expressions"]):
        return time_window.lower(low, low.lower(node["children"][0]), node["expressions"])
    return low.project(low.lower(node["children"][0]), node["expressions"])
