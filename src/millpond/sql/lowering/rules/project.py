"""Projections: expressions over rows."""

from __future__ import annotations

from millpond.sql.binding.types import Json
from millpond.sql.lowering.expressions import reads_stamp, references
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.lowering.rules import as_of_now, stamp, time_window

NOBODY_READS: Json = {
    "expression_class": "BOUND_CONSTANT", "type": "VALUE_CONSTANT", "alias": "",
    "value": {"type": {"id": "BOOLEAN", "type_info": None}, "is_null": True, "value": None},
}  # fmt: skip


def lower(low: Lowering, node: Json) -> Relation:
    as_of_now.check(low, node)
    if time_window.is_marked(node["expressions"]):
        below = low.lower(node["children"][0])
        return time_window.lower(low, below, node["expressions"], low.needed(node))
    expressions = read(low, node)
    return over(low, low.lower(node["children"][0]), expressions)


def over(low: Lowering, source: Relation, expressions: list[Json]) -> Relation:
    if any(reads_stamp(e) for e in expressions):
        source, expressions = stamp.selected(low, source, expressions)
    return low.project(source, expressions)


def read(low: Lowering, node: Json) -> list[Json]:
    """Return the expressions of a projection, with a constant in place of those that are not read.

    Record the columns that the others read from the node below.
    """
    wanted = low.needed(node)
    found = list(node["expressions"])
    if wanted is not None:
        found = [
            e if n in wanted or e["expression_class"] == "BOUND_REF" else NOBODY_READS
            for n, e in enumerate(found)
        ]
        low.need(node["children"][0], (r for n in wanted for r in references(found[n])))
    else:
        low.need(node["children"][0], (r for e in found for r in references(e)))
    return found
