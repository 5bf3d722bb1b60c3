"""FlatMap: a user's function from one row to any number of rows.

Linear: the rows that the function returns have the weight of the input row, so it
must return the same rows when the row is retracted.  A row on which it fails is an
error row with the user's line; all other rows are processed (law 9).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millpond.column_names import check_names
from millpond.delta import ORIGIN, WEIGHT, weights
from millpond.identity import one_chunk, take
from millpond.kernels.expression_kernel import canonical_rows, error_rows, visible
from millpond.kernels.python_rows import (
    NOT_ARROW,
    Row,
    Values,
    arrow_values,
    python_rows,
    row_values,
)
from millpond.kernels.user_code import error_text, is_row_fault
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.operators.traits import CarriesOrigin

_NOT_ROWS = (str, dict)  # iterable, but not meant as rows


@dataclass(frozen=True)
class FlatMap(CarriesOrigin):
    function: Callable[[Row], Any]  # returns an iterable of rows: dicts, tuples, dataclasses
    schema: pa.Schema  # of the rows it returns
    one: bool = False  # it returns one row, not an iterable of them

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        check_names(self.schema.names, step)
        return Binding(Shape(self.schema, shape.append_only), (HERE,), extra=tuple(shape.schema.names))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.extra) | (needed & {ORIGIN}),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        names = tuple(self.schema.names)
        made: list[Values] = []
        origin: list[int] = []  # the input row of each output row
        failed: dict[int, str] = {}
        for number, row in enumerate(python_rows(canonical_rows(visible(delta)))):
            try:
                values = self._call(row, names)
            except BaseException as error:
                if not is_row_fault(error):
                    raise
                failed[number] = error_text(error, self.function)
                continue
            made += values
            origin += [number] * len(values)
        try:
            columns = self._columns(made)
        except NOT_ARROW:
            good = self._fitting(made, origin, failed)
            columns = self._columns([made[i] for i in good])
            origin = [origin[i] for i in good]
        schema = self.schema.append(pa.field(WEIGHT, pa.int64()))
        from_row = np.array(origin, np.int64)
        out = pa.table([*columns, pa.array(weights(delta)[from_row])], schema=schema)
        if ORIGIN in delta.column_names:
            out = out.append_column(ORIGIN, take(one_chunk(delta.column(ORIGIN)), from_row))
        errors = None
        if failed:
            bad = sorted(failed)
            errors = error_rows(delta.take(pa.array(bad)), [failed[number] for number in bad])
        return StepResult(out, errors=errors)

    def _call(self, row: Row, names: tuple[str, ...]) -> list[Values]:
        """All rows the function returns for one row; if a generator fails midway, none of them count."""
        values: list[Values] = []
        result = self.function(row)
        if self.one:
            if result is None:
                raise TypeError("must return a row, returned None; filter() and flat_map() leave rows out")
            return [
                result if type(result) is tuple and len(result) == len(names) else row_values(result, names)
            ]
        if result is None or isinstance(result, _NOT_ROWS):
            raise TypeError(f"must return an iterable of rows, returned {type(result).__name__}")
        for item in result:
            # Test the plain case first: checking for a Mapping costs as much as everything else.
            values.append(
                item if type(item) is tuple and len(item) == len(names) else row_values(item, names)
            )
        return values

    def _columns(self, made: list[Values]) -> list[pa.Array]:
        return [arrow_values([row[i] for row in made], field.type) for i, field in enumerate(self.schema)]

    def _fitting(self, made: list[Values], origin: list[int], failed: dict[int, str]) -> list[int]:
        """The rows whose values fit the declared types; if one does not, its input row fails."""
        for row_number, row in zip(origin, made, strict=True):
            if row_number in failed:
                continue
            for value, field in zip(row, self.schema, strict=True):
                try:
                    arrow_values([value], field.type)
                except NOT_ARROW as error:
                    failed[row_number] = (
                        f"column {field.name!r} must be {field.type}: {error_text(error, self.function)}"
                    )
                    break
        return [i for i, row_number in enumerate(origin) if row_number not in failed]
