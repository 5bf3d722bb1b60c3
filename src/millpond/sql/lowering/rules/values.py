"""Constant rows that the query itself contains."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millpond.kernels.expressions import storable_text
from millpond.operators.scan import Scan
from millpond.operators.union import Union
from millpond.sources.constant import ConstantSource
from millpond.sql.binding.types import Json, quoted, type_text
from millpond.sql.lowering.expressions import StepColumn, references, render, type_of
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names

NOTHING = StepColumn("nothing", "BOOLEAN")


def lower(low: Lowering, node: Json) -> Relation:
    rows = node["expressions"]
    kinds = [type_text(t) for t in node["expr_types"]]
    names = fresh_names(f"col{n}" for n in range(len(kinds)))
    if any(list(references(e)) for row in rows for e in row):
        return _beside(low, low.lower(node["children"][0]), rows, names, kinds)
    texts = [f"({', '.join(render(e, ()) for e in row)})" for row in rows]
    listed = ", ".join(quoted(n) for n in names)
    return constant(low, f"select * from (values {', '.join(texts)}) as v({listed})", names, kinds)


def _beside(
    low: Lowering, source: Relation, rows: Sequence[Sequence[Json]], names: list[str], kinds: list[str]
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


def lower_nothing(low: Lowering, node: Json) -> Relation:
    """Return one row without values, the input of `select 1`; DuckDB counts it as a column."""
    return constant(low, "select true as nothing", [NOTHING.name], [NOTHING.type])


def lower_empty(low: Lowering, node: Json) -> Relation:
    kinds = [type_text(t) for t in node["return_types"]]
    names = fresh_names(f"col{n}" for n in range(len(kinds)))
    listed = ", ".join(f"CAST(NULL AS {k}) AS {quoted(n)}" for n, k in zip(names, kinds, strict=True))
    return constant(low, f"select {listed} where false", names, kinds)


def lower_function(low: Lowering, node: Json) -> Relation:
    """Lower a table function of constants, such as generate_series."""
    name = node["qname"]["path"][-1]
    given = ", ".join(
        render({"expression_class": "BOUND_CONSTANT", "value": p}, ()) for p in node["parameters"]
    )
    names = fresh_names(node["names"])
    kinds = [type_text(t) for t in node["returned_types"]]
    wanted = [int(c["index"]) for c in node["column_indexes"]]
    listed = ", ".join(quoted(n) for n in names)
    found = constant(low, f"select * from {quoted(name)}({given}) as f({listed})", names, kinds)
    return found.pick([n if n < len(names) else 0 for n in wanted])


def constant(low: Lowering, sql: str, names: list[str], kinds: list[str]) -> Relation:
    """Add a query that reads no relation; its rows are emitted once."""
    rows: pa.Table = low.binder.constant(_stored(sql, names, kinds))
    source = ConstantSource.of(rows)
    step = low.builder.constant(f"{low.name}.values", Scan(source, source.schema, True))
    return Relation(step, tuple(StepColumn(n, k) for n, k in zip(names, kinds, strict=True)))


def _stored(sql: str, names: list[str], kinds: list[str]) -> str:
    listed = ", ".join(
        f"CAST({quoted(n)} AS {storable_text(k.replace('INTERVAL', 'VARCHAR'))}) AS {quoted(n)}"
        for n, k in zip(names, kinds, strict=True)
    )
    return f"select {listed} from ({sql})"


__all__ = ["constant", "lower", "lower_empty", "lower_function", "lower_nothing", "type_of"]
