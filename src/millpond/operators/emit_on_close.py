"""EmitOnClose: emits the rows of a window when the window closes.

Law: after an epoch the output is the input restricted to the rows whose bounded
column is behind the limit.  Each of them is emitted once, in the epoch in which
its window ended, and is never retracted.  Later steps see complete windows, so they
emit each window once as well.

The state is the rows of open windows, in buckets by the end of the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from millpond.delta import WEIGHT, concat, consolidate, negate, weights, with_weights
from millpond.kernels.bounds import Bound, bucketed_by, closed
from millpond.kernels.event_time import micros
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.traits import EndsState
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table_spec import TableSpec


@dataclass(frozen=True)
class EmitOnClose(EndsState):
    """Rows are placed by `key`, as the next step requires."""

    key: tuple[str, ...]
    until: Bound

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        schema = stored(shape.schema)
        table = TableSpec(f"{step}/open", schema, self.key, rule="weights", **bucketed_by(self.until))
        output = replace(shape, schema=schema, append_only=True, bounds=closed(shape.bounds, self.until))
        return Binding(output, (by_key(*self.key),), (table,), placed_by=self.key, extra=shape.append_only)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.shape.schema.names),)

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        first, limit = earliest.get(binding.tables[0].name), self.until.limit(watermarks.get)
        return first is not None and limit is not None and first <= limit // self.until.width_us

    def ends(self, binding: Binding) -> tuple[tuple[str, Bound], ...]:
        return ((binding.tables[0].name, self.until),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        (spec,) = binding.tables
        limit = self.until.limit(ctx.watermark)
        if limit is None:
            return StepResult(changes=() if delta is None else (Change(spec.name, delta),))
        names = [*spec.schema.names, WEIGHT]
        waiting = ctx.table(spec.name, below_bucket=limit // self.until.width_us + 1).scan().select(names)
        ended, _ = self._apart(waiting, limit)
        parts = [ended]
        changes = []
        if delta is not None:
            fresh, still = self._apart(delta, limit)
            parts.append(with_weights(fresh, weights(fresh)).select(names))
            changes.append(still)
        # Rows that ended in a bucket that is still open are removed; other buckets are dropped entirely.
        open_from = self.until.first_open(limit)
        if ended.num_rows and not self.until.grid:
            changes.append(negate(ended.filter(pa.array(spec.buckets(ended) >= open_from))))
        out = concat(parts)
        if not binding.extra:
            out = consolidate(out)  # rows that were inserted and retracted while their window was open
        changed = [Change(spec.name, rows) for rows in changes if rows.num_rows]
        return StepResult(
            out if out.num_rows else None, tuple(changed), drops=self.until.drops(ctx.watermark, spec)
        )

    def _apart(self, rows: pa.Table, limit: int) -> tuple[pa.Table, pa.Table]:
        """(rows of closed windows, the others)."""
        at, _ = micros(rows.column(self.until.column))
        closed = self.until.passed(at, limit)
        return rows.filter(pa.array(closed)), rows.filter(pa.array(~closed))
