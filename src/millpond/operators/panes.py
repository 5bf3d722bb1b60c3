"""Panes: the columns with which firings of windows travel between the steps of a windowed stream.

A triggered step returns three kinds of rows in one table: `rows` that a firing released, one row for each
`firing`, and `late` rows that came after the last firing of their window.  `PickPanes` selects one kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.delta import HASH, WEIGHT
from millpond.kernels.bounds import among
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult

PANE = "pane"
TIMING = "pane_timing"
LAST = "pane_last"
KIND = "pane_kind"
PANE_FIELDS = (pa.field(PANE, pa.int64()), pa.field(TIMING, pa.string()), pa.field(LAST, pa.bool_()))
PANE_COLUMNS = (PANE, TIMING, LAST)

RowKind = Literal["rows", "firing", "late"]
ROWS, FIRING, LATE = 0, 1, 2
_NUMBERS: dict[RowKind, int] = {"rows": ROWS, "firing": FIRING, "late": LATE}


def with_panes(schema: pa.Schema) -> pa.Schema:
    """The schema of a triggered step's output, for rows of this schema."""
    return pa.schema([*schema, *PANE_FIELDS, pa.field(KIND, pa.int8())])


def of_kind(schema: pa.Schema, rows: pa.Table, kind: int, weights: np.ndarray | None = None) -> pa.Table:
    """Rows of one kind as part of a triggered step's output; columns that they lack are NULL."""
    full = with_panes(schema)
    columns = [
        rows.column(f.name) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type) for f in full
    ]
    columns[-1] = pa.array(np.full(rows.num_rows, kind, np.int8))
    if weights is None:
        weights = np.ones(rows.num_rows, np.int64)
    return pa.table(columns, schema=full).append_column(WEIGHT, pa.array(weights))


@dataclass(frozen=True)
class PickPanes:
    """One kind of rows of a triggered step, with some of its columns; `key` says how they are placed."""

    kind: RowKind
    columns: tuple[str, ...]
    key: tuple[str, ...]

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        schema = pa.schema([shape.schema.field(name) for name in self.columns])
        append_only = shape.append_only or self.kind == "firing"
        bounds = () if self.kind == "late" else among(shape.bounds, self.columns)
        return Binding(Shape(schema, append_only, bounds=bounds), (HERE,), placed_by=self.key)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.shape.schema.names) | {KIND},)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        mine = delta.filter(pc.equal(delta.column(KIND), _NUMBERS[self.kind]))
        if not mine.num_rows:
            return StepResult()
        hidden = [name for name in (WEIGHT, HASH) if name in mine.column_names]
        return StepResult(mine.select([*self.columns, *hidden]))
