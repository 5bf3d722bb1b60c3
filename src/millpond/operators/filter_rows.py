"""FilterRows: the rows for which a user's function returns true.

Linear: the function is called for a row and for its retraction, and must return the
same result.  A row on which it fails is an error row with the user's line; all other
rows are processed (law 9).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.kernels.expression_kernel import canonical_rows, error_rows
from millpond.kernels.python_rows import Row, python_rows
from millpond.kernels.user_code import error_text, is_row_fault
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.operators.traits import CarriesOrigin

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FilterRows(CarriesOrigin):
    function: Callable[[Row], Any]  # its result is tested for truth, as in Python

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        return Binding(shape, (HERE,))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed | frozenset(binding.shape.schema.names),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        true, failed, errors = judged(delta, self.function, binding.shape.schema.names)
        return StepResult(delta.filter(pa.array(true & ~failed)), errors=errors)


def judged(
    delta: pa.Table, function: Callable[[Row], Any], names: list[str]
) -> tuple[Bools, Bools, pa.Table | None]:
    """(for which rows it is true, on which it failed, those as error rows)."""
    true = np.zeros(delta.num_rows, np.bool_)
    reasons: dict[int, str] = {}
    for number, row in enumerate(python_rows(canonical_rows(delta.select(names)))):
        try:
            true[number] = bool(function(row))
        except BaseException as error:
            if not is_row_fault(error):
                raise
            reasons[number] = error_text(error, function)
    failed = np.zeros(delta.num_rows, np.bool_)
    if not reasons:
        return true, failed, None
    bad = np.array(sorted(reasons))
    failed[bad] = True
    return true, failed, error_rows(delta.take(pa.array(bad)), [reasons[n] for n in bad.tolist()])
