"""Filter: the rows where a condition is true.

Linear: a row and its retraction meet the same condition.  NULL is not true; a
row whose condition fails is an error row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from millpond.operators.kernel import compile_predicate, keep
from millpond.operators.operator import HERE, Binding, Context, Inputs, Result, Shape


@dataclass(frozen=True)
class Filter:
    predicate: str  # SQL over the input's columns
    functions: tuple[Any, ...] = ()  # in Python, that the text calls

    canonical: ClassVar[bool] = True
    carries_origin: ClassVar[bool] = True
    by_piece: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        bound = compile_predicate(shape.schema, self.predicate, append_only=shape.append_only, step=step)
        return Binding(shape, (HERE,), extra=bound)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed | frozenset(binding.extra.needs),)

    def looks_at(self, binding: Binding, index: int) -> frozenset[str]:
        return frozenset(binding.extra.needs)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        (delta,) = inputs
        if delta is None:
            return Result()
        found = keep(delta, binding.extra)
        return Result(found.rows, errors=found.errors)
