"""MapBatches: a user's function from Arrow table to Arrow table.

Linear if the function is: it may change, drop and add rows, but its result for
a row must not depend on the other rows.  It is called separately for the rows of
each weight, so it needs to know nothing about retractions: its result for a
retracted row is retracted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond.column_names import check_names
from millpond.delta import weights, with_weights
from millpond.errors import InvalidError
from millpond.kernels.expression_kernel import canonical_rows, visible
from millpond.kernels.user_code import conformed, error_text, is_row_fault, name_of
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult


@dataclass(frozen=True)
class MapBatches:
    function: Callable[[pa.Table], pa.Table]
    schema: pa.Schema  # of the function's result

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        check_names(self.schema.names, step)
        return Binding(Shape(self.schema, shape.append_only), (HERE,), extra=tuple(shape.schema.names))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.extra),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        w = weights(delta)
        rows = canonical_rows(visible(delta))
        if not len(w) or (w == w[0]).all():
            return StepResult(self._weighted(ctx, rows, int(w[0]) if len(w) else 1))
        apart = np.unique(w).tolist()
        return StepResult(
            pa.concat_tables([self._weighted(ctx, rows.filter(pa.array(w == each)), each) for each in apart])
        )

    def _weighted(self, ctx: Context, rows: pa.Table, weight: int) -> pa.Table:
        returned = self._call(ctx, rows)
        return with_weights(returned, np.full(returned.num_rows, weight))

    def _call(self, ctx: Context, rows: pa.Table) -> pa.Table:
        try:
            returned = self.function(rows)
        except BaseException as error:
            if not is_row_fault(error):
                raise
            raise InvalidError(
                f"{name_of(self.function)} failed on a batch of {rows.num_rows} rows",
                detail=error_text(error, self.function),
                hint="fix the function; use a flat map where single bad rows should not stop the others",
                step=ctx.step,
                epoch=ctx.epoch,
            ) from error
        return conformed(returned, self.schema, self.function, ctx.step, ctx.epoch)
