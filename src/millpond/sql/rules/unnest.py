"""UNNEST: one row for each element of a list."""

from __future__ import annotations

from millpond.operators.unnest import Unnest
from millpond.sql.expressions import Column, render, type_of
from millpond.sql.lowering import Lowering
from millpond.sql.relation import Relation, fresh_names
from millpond.sql.types import Json, as_stored, type_text


def lower(low: Lowering, node: Json) -> Relation:
    source = low.lower(node["children"][0])
    held = low.exact(source) if source.columns else source
    taken = low.builder.shape(held.step).schema.names
    names = fresh_names(["element"] * len(node["expressions"]), taken)
    parts = tuple(
        (name, as_stored(render(e["child"], held.columns), type_of(e["child"])))
        for name, e in zip(names, node["expressions"], strict=True)
    )
    step = low.add(Unnest(parts), (held.step,), "unnest")
    kinds = [type_text(e["return_type"]) for e in node["expressions"]]
    return Relation(step, (*held.columns, *(Column(n, k) for n, k in zip(names, kinds, strict=True))))


def lower_function(low: Lowering, node: Json) -> Relation:
    """A function in FROM: its arguments come first among the columns, what is taken along after them."""
    source = low.lower(node["children"][0])
    taken = [type_text(t) for t in node["input_table_types"]]
    held = low.exact(source)
    given = [
        c.sql if c.type == kind else f"CAST({c.sql} AS {kind})"
        for c, kind in zip(held.columns[: len(taken)], taken, strict=True)
    ]
    name = node["qname"]["path"][-1]
    lists = list(given) if name == "unnest" else [f"{name}({', '.join(given)})"]
    if node.get("source_ordinality") == "WITH_ORDINALITY":
        longest = ", ".join(f"COALESCE(len({text}), 0)" for text in lists)
        lists.insert(int(node["ordinality_idx"]), f"range(1, greatest({longest}, 0) + 1)")
    names = fresh_names(node["names"], held.names)
    step = low.add(Unnest(tuple(zip(names, lists, strict=True))), (held.step,), "unnest")
    kinds = [type_text(t) for t in node["returned_types"]]
    made = [Column(n, k) for n, k in zip(names, kinds, strict=True)]
    picked = [made[int(c["index"])] for c in node["column_indexes"]]
    return Relation(step, (*picked, *(held.columns[int(n)] for n in node.get("projected_input") or [])))
