"""Filter: the rows where a condition is true.

Linear: a row and its retraction are tested by the same condition.  NULL is not
true; a row whose condition fails is an error row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from millpond.kernels.expression_kernel import compile_predicate, keep
from millpond.kernels.python_function import CallsPythonFunctions
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.operators.traits import AppliesByBatch, CarriesOrigin, NamesColumnsRead


@dataclass(frozen=True)
class Filter(CarriesOrigin, AppliesByBatch, NamesColumnsRead, CallsPythonFunctions):
    predicate: str  # SQL over the input's columns
    functions: tuple[Any, ...] = ()  # Python functions that the SQL calls

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        bound = compile_predicate(shape.schema, self.predicate, append_only=shape.append_only, step=step)
        return Binding(shape, (HERE,), extra=bound)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed | frozenset(binding.extra.needs),)

    def looks_at(self, binding: Binding, index: int) -> frozenset[str]:
        return frozenset(binding.extra.needs)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        kept = keep(delta, binding.extra)
        return StepResult(kept.rows, errors=kept.errors)
