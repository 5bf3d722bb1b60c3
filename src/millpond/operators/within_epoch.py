"""WithinEpoch: an operator over the rows of one epoch alone, without state.

Law: all rows of a key arrive in one epoch, and no later epoch brings others.  Then the output of the
operator over an empty table is its output, and nothing needs to be stored.  The panes of discarding windows
are such keys.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from millpond import hashing
from millpond.delta import HASH
from millpond.errors import InternalError
from millpond.operators.operator import Binding, Context, Inputs, Operator, Shape, StepResult, by_key
from millpond.operators.traits import DependsOnArrival, PreparesInput
from millpond.state.tables.table import Table


@dataclass(frozen=True)
class WithinEpoch(DependsOnArrival):
    operator: Operator
    placed: tuple[str, ...]  # the columns by which rows are placed: all rows of a key have the same values

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        inner = self.operator.bind(step, inputs)
        shape = Shape(inner.shape.schema, append_only=True, bounds=inner.shape.bounds)
        return Binding(shape, tuple(by_key(*self.placed) for _ in inputs), placed_by=self.placed, extra=inner)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        inner: Binding = binding.extra
        return tuple(asked | set(self.placed) for asked in self.operator.requires(inner, needed))

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        inner: Binding = binding.extra
        inputs_in = tuple(
            None if delta is None else self._prepared(inner, index, delta)
            for index, delta in enumerate(inputs)
        )
        if all(delta is None for delta in inputs_in):
            return StepResult()
        result = self.operator.apply(_WithoutState(ctx, inner), inner, inputs_in)
        out = result.out
        if out is not None and HASH in out.column_names:
            out = out.drop_columns([HASH])
        return StepResult(out, errors=result.errors, counts=result.counts)

    def _prepared(self, inner: Binding, index: int, delta: pa.Table) -> pa.Table:
        rows = delta.drop_columns([HASH]) if HASH in delta.column_names else delta
        if isinstance(self.operator, PreparesInput):
            return self.operator.prepare(inner, index, rows)
        key = inner.placements[index].key
        hashes = hashing.hash_columns([rows.column(k) for k in key], rows.num_rows)
        return rows.append_column(HASH, pa.array(hashes))


class _WithoutState:
    """The context of a step whose tables are empty."""

    def __init__(self, ctx: Context, binding: Binding) -> None:
        self._ctx = ctx
        self._binding = binding

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def table(
        self,
        name: str,
        *,
        everywhere: bool = False,
        buckets: Collection[int] | None = None,
        below_bucket: int | None = None,
    ) -> Table:
        spec = next(t for t in self._binding.tables if t.name == name)
        return Table(spec, [], _no_file)


def _no_file(name: str) -> Any:
    raise InternalError("a step without state opened a file", detail=name)
