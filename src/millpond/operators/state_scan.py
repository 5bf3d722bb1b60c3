"""StateScan: the rows that a table holds, as if they came in now.

Stands in a backfill for a step that ran long before: what a table holds at an
epoch is the sum of all deltas that the step ever gave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from millpond.errors import InternalError
from millpond.operators.operator import Binding, Context, Inputs, Result, Shape
from millpond.state.table_spec import TableSpec


@dataclass(frozen=True)
class StateScan:
    """Rows of a table of the epoch that a backfill starts from, read by hash range."""

    table: TableSpec
    shape: Shape

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        return Binding(self.shape, ())

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return ()

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        raise InternalError("a scan has no inputs to apply", step=ctx.step)
