"""Constant rows that the query itself contains."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.operators.union import Union
from millpond.sql.binding.types import quoted
from millpond.sql.bound.expressions import BoundExpression, references
from millpond.sql.bound.relations import BoundEmpty, BoundOneRow, BoundTableFunction, BoundValues
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.steps.constant_rows import constant

NOTHING = StepColumn("nothing", "BOOLEAN")


def lower(low: Lowering, node: BoundValues) -> Relation:
    rows, kinds = node.rows, list(node.types)
    names = fresh_names(f"col{n}" for n in range(len(kinds)))
    if any(list(references(e)) for row in rows for e in row):
        return _beside(low, low.lower(node.input), rows, names, kinds)
    texts = [f"({', '.join(render(e, ()) for e in row)})" for row in rows]
    listed = ", ".join(quoted(n) for n in names)
    return constant(low, f"select * from (values {', '.join(texts)}) as v({listed})", names, kinds)


def _beside(
    low: Lowering,
    source: Relation,
    rows: Sequence[Sequence[BoundExpression]],
    names: list[str],
    kinds: list[str],
) -> Relation:
    """Compute rows from the columns of another relation: each of them once per row there."""
    parts = []
    for row in rows:
        wanted = [
            (n, f"CAST({render(e, source.columns)} AS {k})", k)
            for n, e, k in zip(names, row, kinds, strict=True)
        ]
        parts.append(low.compute(source, wanted, "row"))
    if len(parts) == 1:
        return parts[0]
    return Relation(low.add(Union(), tuple(p.step for p in parts), "rows"), parts[0].columns)


def lower_one_row(low: Lowering, node: BoundOneRow) -> Relation:
    return constant(low, "select true as nothing", [NOTHING.name], [NOTHING.type])


def lower_empty(low: Lowering, node: BoundEmpty) -> Relation:
    kinds = list(node.types)
    names = fresh_names(f"col{n}" for n in range(len(kinds)))
    listed = ", ".join(f"CAST(NULL AS {k}) AS {quoted(n)}" for n, k in zip(names, kinds, strict=True))
    return constant(low, f"select {listed} where false", names, kinds)


def lower_function(low: Lowering, node: BoundTableFunction) -> Relation:
    given = ", ".join(render(p, ()) for p in node.parameters)
    names = fresh_names(node.names)
    listed = ", ".join(quoted(n) for n in names)
    sql = f"select * from {quoted(node.name)}({given}) as f({listed})"
    found = constant(low, sql, names, list(node.types))
    return found.pick([n if n < len(names) else 0 for n in node.columns])
