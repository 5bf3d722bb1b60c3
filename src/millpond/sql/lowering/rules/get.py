"""Reads a table, source or view."""

from __future__ import annotations

from millpond.sql.binding.types import Json
from millpond.sql.lowering.expressions import StepColumn
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.lowering.rules import final_rows, stamp, unnest, values
from millpond.sql.refusal import refuse

_LISTS = ("unnest", "range", "generate_series")  # functions that return one row per element


def lower(low: Lowering, node: Json) -> Relation:
    data = node.get("function_data") or {}
    table = data.get("table") if isinstance(data, dict) else None
    if table is None:
        if not node["children"] and node.get("parameters"):
            return values.lower_function(low, node)
        if node["children"] and node["qname"]["path"][-1] in _LISTS:
            return unnest.lower_function(low, node)
        refuse(node, "is a function that reads rows, and is not supported here")
    source = low.relations[table]
    wanted = [int(c["index"]) for c in node["column_indexes"]]
    for name in source.stamped:
        if any(n < len(source.columns) and source.columns[n].name == name for n in wanted):
            source = stamp.lower(low, source, name)
    if any(c.name.startswith("_") for c in source.columns):
        source = low.exact(source)  # steps treat such names as hidden columns
    if low.final_rows:
        source = final_rows.held(low, source)
    nothing = StepColumn(source.columns[0].name, source.columns[0].type)  # only counted, never read
    return Relation(
        source.step, tuple(nothing if n >= len(source.columns) else source.columns[n] for n in wanted)
    )
