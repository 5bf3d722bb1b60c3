"""Shard: distributes rows over a fixed number of shards, for state that belongs to no key.

Linear.  The shard of a row depends on its columns alone, so it is the same
at any parallelism, and a row is retracted from the shard it was sent to (law 3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond import hashing
from millpond.errors import InvalidError
from millpond.kernels.expression_kernel import canonical_rows, visible
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.operators.traits import CarriesOrigin

SHARD = "shard"
SHARDS_MAX = 32768


@dataclass(frozen=True)
class Shard(CarriesOrigin):
    """Adds the column `shard`, from 0 to n - 1, by the hash of all plain columns or of some."""

    n: int
    by: tuple[str, ...] = ()

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        if isinstance(self.n, bool) or not isinstance(self.n, int) or not 1 <= self.n <= SHARDS_MAX:
            raise InvalidError(
                f"the number of shards must be a whole number from 1 to {SHARDS_MAX}",
                detail=f"got {self.n!r}",
                hint="for example 16",
                step=step,
            )
        if SHARD in shape.schema.names:
            raise InvalidError(
                f"the rows already have a column {SHARD!r}",
                hint="rename it with select(), or key_by() it",
                step=step,
            )
        by = self.by or tuple(f.name for f in shape.schema if not pa.types.is_nested(f.type))
        if not by:
            raise InvalidError("the rows have no plain column to deal them by", step=step)
        schema = shape.schema.append(pa.field(SHARD, pa.int32()))
        return Binding(replace(shape, schema=schema), (HERE,), extra=by)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return ((needed - {SHARD}) | frozenset(binding.extra if SHARD in needed else ()),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None or any(name not in delta.column_names for name in binding.extra):
            return StepResult(delta)
        rows = canonical_rows(visible(delta))
        hashes = hashing.hash_columns([rows.column(name) for name in binding.extra], delta.num_rows)
        shards = pa.array((hashes % np.uint64(self.n)).astype(np.int32))
        return StepResult(delta.append_column(pa.field(SHARD, pa.int32()), shards))
