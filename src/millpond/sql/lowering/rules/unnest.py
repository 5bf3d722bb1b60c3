"""UNNEST: returns one row for each element of a list."""

from __future__ import annotations

from millpond.operators.unnest import Unnest
from millpond.sql.binding.types import as_stored
from millpond.sql.bound.relations import BoundListFunction, BoundRelation, BoundUnnest
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names


def lower(low: Lowering, node: BoundUnnest) -> Relation:
    held = _source_rows(low, node.input)
    taken = low.builder.shape(held.step).schema.names
    names = fresh_names(["element"] * len(node.lists), taken)
    parts = tuple(
        (name, as_stored(render(e.list, held.columns), e.list.type))
        for name, e in zip(names, node.lists, strict=True)
    )
    step = low.add(Unnest(parts), (held.step,), "unnest")
    elements = [StepColumn(name, e.type) for name, e in zip(names, node.lists, strict=True)]
    return Relation(step, (*held.columns, *elements))


def lower_function(low: Lowering, node: BoundListFunction) -> Relation:
    held = _source_rows(low, node.input)
    given = [
        c.sql if c.type == kind else f"CAST({c.sql} AS {kind})"
        for c, kind in zip(held.columns[: len(node.argument_types)], node.argument_types, strict=True)
    ]
    lists = list(given) if node.name == "unnest" else [f"{node.name}({', '.join(given)})"]
    if node.ordinality is not None:
        longest = ", ".join(f"COALESCE(len({text}), 0)" for text in lists)
        lists.insert(node.ordinality, f"range(1, greatest({longest}, 0) + 1)")
    names = fresh_names(node.names, low.builder.shape(held.step).schema.names)
    step = low.add(Unnest(tuple(zip(names, lists, strict=True))), (held.step,), "unnest")
    made = [StepColumn(n, k) for n, k in zip(names, node.types, strict=True)]
    return Relation(step, (*(made[n] for n in node.columns), *(held.columns[n] for n in node.passed)))


def _source_rows(low: Lowering, node: BoundRelation) -> Relation:
    """Return the rows whose lists are unnested, with only the columns that are read if that is known."""
    source = low.lower(node)
    if node.read is not None:
        return low.narrowed(source, node.read)
    return low.exact(source) if source.columns else source
