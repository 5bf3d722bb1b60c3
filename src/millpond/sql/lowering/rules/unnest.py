"""UNNEST: returns one row for each element of a list."""

from __future__ import annotations

from millpond.operators.unnest import Unnest
from millpond.sql.binding.types import Json, as_stored, type_text
from millpond.sql.lowering.expressions import StepColumn, references, render, type_of
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.rules.node_width import width_of


def lower(low: Lowering, node: Json) -> Relation:
    wanted = low.needed(node)
    if wanted is not None:
        width = width_of(low, node["children"][0])
        wanted = frozenset(n for n in wanted if n < width).union(*map(references, node["expressions"]))
    held = _held(low, node["children"][0], wanted)
    taken = low.builder.shape(held.step).schema.names
    names = fresh_names(["element"] * len(node["expressions"]), taken)
    parts = tuple(
        (name, as_stored(render(e["child"], held.columns), type_of(e["child"])))
        for name, e in zip(names, node["expressions"], strict=True)
    )
    step = low.add(Unnest(parts), (held.step,), "unnest")
    kinds = [type_text(e["return_type"]) for e in node["expressions"]]
    return Relation(step, (*held.columns, *(StepColumn(n, k) for n, k in zip(names, kinds, strict=True))))


def lower_function(low: Lowering, node: Json) -> Relation:
    """Lower a function in FROM: its arguments are the first input columns; columns passed on follow."""
    taken = [type_text(t) for t in node["input_table_types"]]
    along = [int(n) for n in node.get("projected_input") or []]
    wanted = low.needed(node)
    if wanted is not None:
        first = len(node["column_indexes"])
        wanted = frozenset(range(len(taken))).union(along[n - first] for n in wanted if n >= first)
    held = _held(low, node["children"][0], wanted)
    given = [
        c.sql if c.type == kind else f"CAST({c.sql} AS {kind})"
        for c, kind in zip(held.columns[: len(taken)], taken, strict=True)
    ]
    name = node["qname"]["path"][-1]
    lists = list(given) if name == "unnest" else [f"{name}({', '.join(given)})"]
    if node.get("source_ordinality") == "WITH_ORDINALITY":
        longest = ", ".join(f"COALESCE(len({text}), 0)" for text in lists)
        lists.insert(int(node["ordinality_idx"]), f"range(1, greatest({longest}, 0) + 1)")
    names = fresh_names(node["names"], low.builder.shape(held.step).schema.names)
    step = low.add(Unnest(tuple(zip(names, lists, strict=True))), (held.step,), "unnest")
    kinds = [type_text(t) for t in node["returned_types"]]
    made = [StepColumn(n, k) for n, k in zip(names, kinds, strict=True)]
    picked = [made[int(c["index"])] for c in node["column_indexes"]]
    return Relation(step, (*picked, *(held.columns[n] for n in along)))


def _held(low: Lowering, node: Json, wanted: frozenset[int] | None) -> Relation:
    """Return the rows whose lists are unnested, with only the columns in `wanted` if that is known."""
    if wanted is not None:
        low.need(node, wanted)
        return low.narrowed(low.lower(node), wanted)
    source = low.lower(node)
    return low.exact(source) if source.columns else source
