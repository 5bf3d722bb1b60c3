"""StateScan: emits the rows of a table as if they arrived now.

In a backfill it replaces a step that has run before: the content of a table at an
epoch is the sum of all deltas that the step ever emitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from millpond.errors import InternalError
from millpond.operators.operator import Binding, Context, Inputs, Shape, StepResult
from millpond.state.tables.table_spec import TableSpec


@dataclass(frozen=True)
class StateScan:
    """Rows of a table at the epoch that a backfill starts from, read by hash range."""

    table: TableSpec
    shape: Shape

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        return Binding(self.shape, ())

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return ()

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        raise InternalError("a scan has no inputs to apply", step=ctx.step)
