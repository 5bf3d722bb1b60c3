"""Branch and Arm: send each row to the branch of the first condition that is true.

Linear: Branch adds the number of the branch to each row, and each Arm selects the
rows of one number.  A condition is evaluated once, and only for the rows that no
earlier one took; a row on which it fails is an error row and enters no branch
(law 9).  The branches are disjoint, and together with the errors they are the input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millpond.column_names import check_names
from millpond.delta import concat
from millpond.identity import one_chunk
from millpond.kernels.expression_kernel import join_errors, project
from millpond.kernels.expressions import Expression, compile_predicate
from millpond.kernels.python_rows import Row
from millpond.operators.filter_rows import judged
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.operators.traits import CarriesOrigin

Predicate = str | Callable[[Row], Any]  # SQL, or Python per row

NUMBER = pa.int32()


@dataclass(frozen=True)
class Branch(CarriesOrigin):
    predicates: tuple[Predicate, ...]
    column: str  # the number of the branch; the last one, after all predicates, takes the rest

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        conditions = tuple(
            compile_predicate(shape.schema, predicate, append_only=shape.append_only, step=step)
            if isinstance(predicate, str)
            else None
            for predicate in self.predicates
        )
        schema = shape.schema.append(pa.field(self.column, NUMBER))
        check_names(schema.names, step)
        return Binding(replace(shape, schema=schema), (HERE,), extra=conditions)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        asked = set(needed - {self.column})
        for condition in binding.extra:
            asked |= set(self._names(binding) if condition is None else condition.needs)
        return (frozenset(asked),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (rest,) = inputs
        if rest is None:
            return StepResult()
        ways: list[pa.Table] = []
        errors: pa.Table | None = None
        for number, (predicate, condition) in enumerate(zip(self.predicates, binding.extra, strict=True)):
            if not rest.num_rows:
                break
            if condition is not None:
                taken, rest, bad = _asked(rest, condition, self.column)
            else:
                assert not isinstance(predicate, str)
                true, failed, bad = judged(rest, predicate, self._names(binding))
                taken, rest = rest.filter(pa.array(true & ~failed)), rest.filter(pa.array(~true & ~failed))
            ways.append(self._numbered(taken, number))
            errors = join_errors(errors, bad)
        ways.append(self._numbered(rest, len(self.predicates)))
        return StepResult(concat(ways), errors=errors)

    def _names(self, binding: Binding) -> list[str]:
        return [name for name in binding.shape.schema.names if name != self.column]

    def _numbered(self, rows: pa.Table, number: int) -> pa.Table:
        return rows.append_column(
            pa.field(self.column, NUMBER), pa.array(np.full(rows.num_rows, number, np.int32))
        )


def _asked(rows: pa.Table, condition: Expression, name: str) -> tuple[pa.Table, pa.Table, pa.Table | None]:
    """(the rows where the condition is true, those where it is false or NULL, errors)."""
    visible = [(c, _passed(rows, c)) for c in rows.column_names if not c.startswith("_")]
    evaluated = project(rows, [*visible, (name, condition)])
    true = one_chunk(evaluated.rows.column(name)).fill_null(False).to_numpy(zero_copy_only=False)
    back = evaluated.rows.select(rows.column_names)
    return back.filter(pa.array(true)), back.filter(pa.array(~true)), evaluated.errors


def _passed(rows: pa.Table, column: str) -> Expression:
    return Expression("", rows.schema.field(column).type, (column,), column)


@dataclass(frozen=True)
class Arm(CarriesOrigin):
    """One arm of a branch, without the column that has its number."""

    column: str
    number: int

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        schema = pa.schema([field for field in shape.schema if field.name != self.column])
        return Binding(replace(shape, schema=schema), (HERE,))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed | {self.column},)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        mine = one_chunk(delta.column(self.column)).to_numpy() == self.number
        return StepResult(delta.filter(pa.array(mine)).drop_columns([self.column]))
