"""Unnest: for each row, one row for every element of its lists.

Linear.  Lists of one row are unnested in parallel, the shorter ones padded with
NULL; a row whose lists are all empty or NULL produces no rows.  A row whose
expression fails is an error row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.column_names import check_names
from millpond.delta import weights
from millpond.errors import InvalidError
from millpond.identity import one_chunk, take
from millpond.kernels.expression_kernel import project
from millpond.kernels.expressions import bind
from millpond.kernels.python_function import CallsPythonFunctions
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult

_LIST = "list.{}"


@dataclass(frozen=True)
class Unnest(CallsPythonFunctions):
    """All columns of the input, and the elements of these lists: (name, SQL expression)."""

    lists: tuple[tuple[str, str], ...]
    functions: tuple[Any, ...] = ()  # Python functions that the SQL calls

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        check_names([*shape.schema.names, *(name for name, _ in self.lists)], step)
        bound = tuple(
            (name, bind(shape.schema, sql, name=name, append_only=shape.append_only, step=step))
            for name, sql in self.lists
        )
        for name, expression in bound:
            if not _is_list(expression.type):
                raise InvalidError(
                    f"{name!r} is not a list",
                    detail=f"it is {expression.type}",
                    hint="unnest takes lists",
                    step=step,
                )
        fields = [*shape.schema, *(pa.field(name, e.type.value_type) for name, e in bound)]
        output = Shape(pa.schema(fields), shape.append_only, bounds=shape.bounds)
        return Binding(output, (HERE,), extra=bound)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        own = {name for name, _ in binding.extra}
        used = {column for _, e in binding.extra for column in e.needs}
        return ((needed - own) | frozenset(used),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        own = [(n, bind(_schema(delta), f'"{n}"')) for n in _visible(delta, binding)]
        projected = project(delta, [*own, *((_LIST.format(name), e) for name, e in binding.extra)])
        rows = projected.rows
        arrays = [one_chunk(rows.column(_LIST.format(name))) for name, _ in binding.extra]
        lengths = [pc.list_value_length(a).fill_null(0).to_numpy().astype(np.int64) for a in arrays]
        times = np.maximum.reduce(lengths)
        origin = np.repeat(np.arange(rows.num_rows), times)
        positions = np.arange(len(origin)) - np.repeat(np.cumsum(times) - times, times)
        columns = [take(one_chunk(rows.column(n)), origin) for n, _ in own]
        for array, length in zip(arrays, lengths, strict=True):
            columns.append(_elements(array, length, origin, positions))
        names = [*(n for n, _ in own), *(name for name, _ in binding.extra)]
        out = pa.table([*columns, pa.array(weights(rows)[origin])], names=[*names, "_w"])
        return StepResult(out, errors=projected.errors)


def _elements(array: pa.Array, length: np.ndarray, origin: np.ndarray, positions: np.ndarray) -> pa.Array:
    """The place-th element of the list of each origin; NULL beyond its end."""
    flat = array.flatten()
    starts = np.cumsum(length) - length
    inside = positions < length[origin]
    where = np.where(inside, starts[origin] + positions, 0)
    return pc.take(flat, pa.array(where, mask=~inside))


def _visible(delta: pa.Table, binding: Binding) -> list[str]:
    return [n for n in delta.column_names if n in binding.shape.schema.names]


def _schema(delta: pa.Table) -> pa.Schema:
    return pa.schema([f for f in delta.schema if not f.name.startswith("_")])


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
