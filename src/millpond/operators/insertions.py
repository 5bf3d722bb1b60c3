"""Insertions: the rows that an epoch adds to a changing input, without those that it takes away.

Law: rows that are inserted and retracted in one epoch cancel out first, so the output never depends on how a
change was split.  The output is append-only: what becomes of a retraction is up to another step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from millpond import delta as deltas
from millpond.kernels.bounds import among
from millpond.operators.operator import Binding, Context, Inputs, Shape, StepResult, by_key


@dataclass(frozen=True)
class Insertions:
    """Rows with some columns of the input, placed by `key`."""

    key: tuple[str, ...]
    columns: tuple[str, ...]

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        schema = pa.schema([shape.schema.field(name) for name in self.columns])
        timed = shape.time in self.columns
        output = Shape(
            schema,
            True,
            None,
            shape.time if timed else None,
            shape.watermark if timed else None,
            among(shape.bounds, self.columns),
        )
        return Binding(output, (by_key(*self.key),), placed_by=self.key)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(self.columns),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        net = net_change(delta, self.columns)
        added = net.filter(pa.array(deltas.weights(net) > 0))
        return StepResult(added if added.num_rows else None)


def net_change(delta: pa.Table, columns: tuple[str, ...]) -> pa.Table:
    """The change of rows with these columns in one epoch, consolidated."""
    return deltas.consolidate(deltas.with_weights(delta.select(list(columns)), deltas.weights(delta)))
