"""Hold: rows of windows are kept back until their window is over.

Law: after an epoch the output is the input restricted to the rows whose bounded
column lies behind the limit; each of them is given once, in the epoch in which
its window ended, and nothing is ever taken back.  What is built on it sees whole
windows, so it gives each of them once as well.

The state is what is still open, in buckets by the end of the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from millpond.delta import WEIGHT, concat, consolidate, negate, weights, with_weights
from millpond.operators.bounds import Bound, closed, kept_by
from millpond.operators.event_time import micros
from millpond.operators.operator import Binding, Change, Context, Inputs, Result, Shape, by_key
from millpond.operators.watermark import stored
from millpond.state.table_spec import TableSpec


@dataclass(frozen=True)
class Hold:
    """Rows lie by `key`, as the next step wants them."""

    key: tuple[str, ...]
    until: Bound

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        schema = stored(shape.schema)
        table = TableSpec(f"{step}/open", schema, self.key, rule="weights", **kept_by(self.until))
        given = replace(shape, schema=schema, append_only=True, bounds=closed(shape.bounds, self.until))
        return Binding(given, (by_key(*self.key),), (table,), placed_by=self.key, extra=shape.append_only)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.shape.schema.names),)

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        first, limit = earliest.get(binding.tables[0].name), self.until.limit(watermarks.get)
        return first is not None and limit is not None and first <= limit // self.until.width_us

    def ends(self, binding: Binding) -> tuple[tuple[str, Bound], ...]:
        return ((binding.tables[0].name, self.until),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        (delta,) = inputs
        (spec,) = binding.tables
        limit = self.until.limit(ctx.watermark)
        if limit is None:
            return Result(changes=() if delta is None else (Change(spec.name, delta),))
        names = [*spec.schema.names, WEIGHT]
        waiting = ctx.table(spec.name, below_bucket=limit // self.until.width_us + 1).scan().select(names)
        ended, _ = self._apart(waiting, limit)
        parts = [ended]
        changes = []
        if delta is not None:
            fresh, still = self._apart(delta, limit)
            parts.append(with_weights(fresh, weights(fresh)).select(names))
            changes.append(still)
        # What ended in a bucket that is not over leaves it; other buckets are dropped whole.
        open_from = self.until.first_open(limit)
        if ended.num_rows and not self.until.grid:
            changes.append(negate(ended.filter(pa.array(spec.buckets(ended) >= open_from))))
        out = concat(parts)
        if not binding.extra:
            out = consolidate(out)  # rows that came and went while their window was open
        kept = [Change(spec.name, rows) for rows in changes if rows.num_rows]
        return Result(out if out.num_rows else None, tuple(kept), drops=self.until.drops(ctx.watermark, spec))

    def _apart(self, rows: pa.Table, limit: int) -> tuple[pa.Table, pa.Table]:
        """(rows of windows that are over, the others)."""
        at, _ = micros(rows.column(self.until.column))
        over = self.until.over(at, limit)
        return rows.filter(pa.array(over)), rows.filter(pa.array(~over))
