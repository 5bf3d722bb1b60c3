"""Session: groups rows of a key that follow each other within a gap, over time bounded by a watermark.

Law: each row is emitted with the start and the end of its session: the first
time in it, and the last time plus the gap.  A row that arrives between two
sessions merges them; their rows are retracted and emitted again.

Once the watermark has passed the end of a session, no row can extend it.  So rows
are stored in buckets by the end of their session and dropped with them.  An epoch
costs the open sessions of the keys that it touches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond.delta import HASH, WEIGHT, concat, consolidate, negate, weights, with_weights
from millpond.errors import InvalidError
from millpond.identity import one_chunk
from millpond.kernels.bounds import Bound, bucketed_by
from millpond.kernels.event_time import check_time, micros, without_time
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.traits import EndsState
from millpond.operators.window import END, START
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

LEAST_WIDTH_US = 1_000_000


@dataclass(frozen=True)
class SessionWindow(EndsState):
    key: tuple[str, ...]
    time: str
    gap_us: int

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        kind = check_time(shape.schema, self.time, step)
        bound = next((b for b in shape.bounds if b.column == self.time), None)
        if bound is None:
            raise InvalidError(
                "sessions need a watermark", hint=f"set one for {self.time!r} where rows come in", step=step
            )
        schema = pa.schema([*stored(shape.schema), pa.field(START, kind), pa.field(END, kind)])
        width = max(self.gap_us // 4, LEAST_WIDTH_US)
        end = Bound(END, bound.marks, width, window="open", by=step)
        rows = TableSpec(f"{step}/rows", schema, self.key, rule="weights", **bucketed_by(end))
        output = Shape(schema, append_only=False, key=shape.key, bounds=(end,))
        return Binding(output, (by_key(*self.key),), (rows,), placed_by=self.key, extra=end)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.shape.schema.names) - {START, END},)

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        end: Bound = binding.extra
        return end.is_due(binding.tables[0].name, earliest, watermarks)

    def ends(self, binding: Binding) -> tuple[tuple[str, Bound], ...]:
        return ((binding.tables[0].name, binding.extra),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        (spec,) = binding.tables
        end: Bound = binding.extra
        drops = end.drops(ctx.watermark, spec)
        if delta is None:
            return StepResult(drops=drops)
        _, usable = micros(delta.column(self.time))
        delta, errors = without_time(delta, usable, self.time)
        names = [n for n in spec.schema.names if n not in (START, END)]
        keys = KeySet.of(delta, self.key, one_chunk(delta.column(HASH)).to_numpy())
        stored = ctx.table(spec.name).lookup(keys).table.select([*spec.schema.names, WEIGHT])
        fresh = with_weights(delta, weights(delta)).select([*names, WEIGHT])
        whole = consolidate(concat([stored.select([*names, WEIGHT]), fresh]))
        out = consolidate(concat([self._windowed(whole, spec), negate(stored)]))
        if not out.num_rows:
            return StepResult(errors=errors, drops=drops)
        return StepResult(out, (Change(spec.name, out),), errors, drops)

    def _windowed(self, rows: pa.Table, spec: TableSpec) -> pa.Table:
        """Assign sessions to all rows of some keys."""
        kind = spec.schema.field(START).type
        numbers = KeySet.of(rows, self.key).inverse
        at, _ = micros(rows.column(self.time))
        order = np.lexsort((at, numbers))
        key, when = numbers[order], at[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (key[1:] != key[:-1]) | (when[1:] - when[:-1] > self.gap_us)
        positions = np.flatnonzero(begins)
        length = np.diff(np.append(positions, len(order)))
        first, last = np.empty_like(when), np.empty_like(when)
        first[order] = np.repeat(when[positions], length)
        last[order] = np.repeat(when[positions + length - 1], length)
        columns = [rows.column(n) for n in spec.schema.names if n not in (START, END)]
        columns += [pa.array(first).cast(kind), pa.array(last + self.gap_us).cast(kind)]
        return with_weights(pa.table(columns, schema=spec.schema), weights(rows))
