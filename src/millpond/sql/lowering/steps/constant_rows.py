"""Constant rows: emitted once, when the view starts."""

from __future__ import annotations

import pyarrow as pa

from millpond.kernels.storable_types import storable_text
from millpond.operators.scan import Scan
from millpond.operators.union import Union
from millpond.sources.constant import ConstantSource
from millpond.sql.binding.types import quoted
from millpond.sql.lowering.expressions import StepColumn
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation


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


def with_nothing(low: Lowering, rows: Relation) -> Relation:
    """Return the rows and one more row whose values are all NULL."""
    listed = ", ".join(f"CAST(NULL AS {c.type}) AS {quoted(c.name)}" for c in rows.columns)
    nothing = constant(low, f"select {listed}", rows.names, [c.type for c in rows.columns])
    schema = low.builder.shape(rows.step).schema
    if low.builder.shape(nothing.step).schema != schema:
        nothing = low.compute(
            nothing, [(c.name, f"CAST({quoted(c.name)} AS {c.type})", c.type) for c in rows.columns]
        )
    return Relation(low.add(Union(), (rows.step, nothing.step), "always"), rows.columns)
