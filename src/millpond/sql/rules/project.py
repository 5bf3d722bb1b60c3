"""Expressions over rows."""

from __future__ import annotations

from millpond.sql.lowering import Lowering
from millpond.sql.relation import Relation
from millpond.sql.types import Json


def lower(low: Lowering, node: Json) -> Relation:
    return low.project(low.lower(node["children"][0]), node["expressions"])
