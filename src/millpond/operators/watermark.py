"""Watermark: event time that only moves on, and the rows that come too late for it.

Law 8: late data is never lost silently.  Rows pass through unchanged as long as
their time is not below the bound that the last epoch committed; the others go
to the table "<step>/late" and are counted.  The engine keeps the bound: the
highest time seen (`observe`) minus the delay, and never lower than it was.

Only over append-only input: a retraction of a row that was on time could come
after the bound, and the steps below have already let go of what it takes back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.delta import HASH, ORIGIN, without_origin
from millpond.errors import InvalidError
from millpond.operators.bounds import Bound
from millpond.operators.event_time import check_time, micros, without_time
from millpond.operators.operator import HERE, Binding, Change, Context, Inputs, Result, Shape
from millpond.state.table_spec import TableSpec

LEAST_WIDTH_US = 1_000_000  # of the buckets in which rows by this time are kept


@dataclass(frozen=True)
class Watermark:
    """No row is expected more than `delay_us` behind the latest one seen."""

    time: str
    delay_us: int

    canonical: ClassVar[bool] = True
    carries_origin: ClassVar[bool] = True
    by_piece: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        check_time(shape.schema, self.time, step)
        if not shape.append_only:
            raise InvalidError(
                "a watermark needs append-only input",
                detail="the input can retract rows, and a late retraction would meet no row",
                hint="set the watermark where rows come in, before aggregates, joins and upsert tables",
                step=step,
            )
        if self.delay_us < 0:
            raise InvalidError(
                "the delay of a watermark cannot be negative", detail=f"got {self.delay_us} us", step=step
            )
        late = TableSpec(f"{step}/late", stored(shape.schema), key=(self.time,), rule="weights")
        bounds: tuple[Bound, ...] = ()
        if pa.types.is_timestamp(shape.schema.field(self.time).type):
            bounds = (Bound(self.time, ((step, 0),), max(self.delay_us, LEAST_WIDTH_US)),)
        given = replace(shape, time=self.time, watermark=step, bounds=bounds)
        return Binding(given, (HERE,), (late,))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        # A late row is kept whole, for whoever wants to look at it.
        return (frozenset(binding.shape.schema.names) | (needed & {ORIGIN}),)

    def suffices(self, binding: Binding, needed: frozenset[str]) -> frozenset[str]:
        """The columns that are enough as long as no row `wants_whole`."""
        return needed | {self.time}

    def looks_at(self, binding: Binding, index: int) -> frozenset[str]:
        return frozenset({self.time})

    def wants_whole(self, delta: pa.Table, bound: int | None) -> bool:
        """Is one of these rows late, or without a time?"""
        ends = _ends(delta.column(self.time))
        return ends is None or (bound is not None and ends[0] < bound)

    def observe(self, delta: pa.Table) -> int | None:
        """The highest event time of these rows in microseconds, if any has one."""
        ends = _ends(delta.column(self.time))
        if ends is not None:
            return ends[1]
        at, usable = micros(delta.column(self.time))
        return int(at[usable].max()) if usable.any() else None

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        (delta,) = inputs
        if delta is None:
            return Result()
        bound = ctx.watermark_before(ctx.step)
        if not self.wants_whole(delta, bound):
            return Result(delta)
        at, usable = micros(delta.column(self.time))
        delta, errors = without_time(delta, usable, self.time)
        if bound is None:
            return Result(delta, errors=errors)
        late = at[usable] < bound
        count = int(np.count_nonzero(late))
        if not count:
            return Result(delta, errors=errors)
        rows = delta.filter(pa.array(late))
        rows = without_origin(rows)
        if HASH in rows.column_names:  # of another key than the table's
            rows = rows.drop_columns([HASH])
        return Result(
            delta.filter(pa.array(~late)),
            (Change(binding.tables[0].name, rows),),
            errors,
            counts={"late": count},
        )


def _ends(column: pa.ChunkedArray) -> tuple[int, int] | None:
    """The first and the last time of a column in microseconds, where every row has one."""
    if column.null_count or not len(column):
        return None
    ends = pc.min_max(column)
    at, usable = micros(pa.chunked_array([pa.repeat(ends[end], 1) for end in ("min", "max")]))
    return (int(at[0]), int(at[1])) if usable.all() else None


def stored(schema: pa.Schema) -> pa.Schema:
    """The schema as a state table keeps it: encodings are a matter of the wire."""
    fields = []
    for field in schema:
        kind = field.type
        if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            field = field.with_type(kind.value_type)
        fields.append(field)
    return pa.schema(fields)
