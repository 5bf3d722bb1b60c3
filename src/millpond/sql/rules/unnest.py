"""UNNEST: one row for each element of a list."""

from __future__ import annotations

from millpond.operators.unnest import Unnest
from millpond.sql.expressions import Column, render
from millpond.sql.lowering import Lowering
from millpond.sql.relation import Relation, fresh_names
from millpond.sql.types import Json, quoted, type_text


def lower(low: Lowering, node: Json) -> Relation:
    source = low.lower(node["children"][0])
    held = low.exact(source) if source.columns else source
    taken = low.builder.shape(held.step).schema.names
    names = fresh_names(["element"] * len(node["expressions"]), taken)
    parts = tuple(
        (name, render(e["child"], held.columns)) for name, e in zip(names, node["expressions"], strict=True)
    )
    step = low.add(Unnest(parts), (held.step,), "unnest")
    kinds = [type_text(e["return_type"]) for e in node["expressions"]]
    return Relation(step, (*held.columns, *(Column(n, k) for n, k in zip(names, kinds, strict=True))))


def lower_function(low: Lowering, node: Json) -> Relation:
    """The same in FROM: the lists come first among the columns, what is taken along after them."""
    source = low.lower(node["children"][0])
    count = len(node["input_table_types"])
    held = low.exact(source)
    names = fresh_names(node["names"], held.names)
    parts = tuple((n, quoted(c.name)) for n, c in zip(names, held.columns[:count], strict=True))
    step = low.add(Unnest(parts), (held.step,), "unnest")
    kinds = [type_text(t) for t in node["returned_types"]]
    made = [Column(n, k) for n, k in zip(names, kinds, strict=True)]
    picked = [made[int(c["index"])] for c in node["column_indexes"]]
    return Relation(step, (*picked, *(held.columns[int(n)] for n in node.get("projected_input") or [])))
