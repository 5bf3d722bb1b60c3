"""Reads a table, source or view."""

from __future__ import annotations

from millpond.sql.bound.relations import BoundGet
from millpond.sql.lowering.expressions import StepColumn
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.lowering.steps import final_rows
from millpond.sql.lowering.steps.stamp import stamped


def lower(low: Lowering, node: BoundGet) -> Relation:
    source = low.relations[node.table]
    for name in source.stamped:
        if any(n < len(source.columns) and source.columns[n].name == name for n in node.columns):
            source = stamped(low, source, name)
    if any(c.name.startswith("_") for c in source.columns):
        source = low.exact(source)  # steps treat such names as hidden columns
    if low.final_rows:
        source = final_rows.held_back(low, source)
    nothing = StepColumn(source.columns[0].name, source.columns[0].type)  # only counted, never read
    return Relation(
        source.step, tuple(nothing if n >= len(source.columns) else source.columns[n] for n in node.columns)
    )
