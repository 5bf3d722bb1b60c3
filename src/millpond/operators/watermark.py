"""Watermark: tracks event time and separates late rows.

Law 8: late data is never lost silently.  Rows pass through unchanged if their
time is not below the watermark that the last epoch committed; the others are
written to the table "<step>/late" and counted.  The engine stores the watermark
(`engine.task.settled_watermarks`), by partition and by the strategy of the step.  It never falls.

Only over append-only input: a retraction of an on-time row could arrive after the
watermark has passed, when later steps have already dropped the state it refers to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.delta import HASH, ORIGIN, without_origin
from millpond.errors import InvalidError
from millpond.kernels.bounds import Bound
from millpond.kernels.event_time import Ints, check_time, micros, without_time
from millpond.kernels.expression_kernel import compile_predicate, keep
from millpond.kernels.expressions import Expression
from millpond.kernels.watermark_strategies import Bounded, Custom, NewestOf, Strategy
from millpond.operators.operator import HERE, Binding, Change, Context, Inputs, Shape, StepResult
from millpond.operators.traits import (
    AppliesByBatch,
    CarriesOrigin,
    MayNeedFullRows,
    NamesColumnsRead,
    SetsWatermark,
)
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table_spec import TableSpec

LEAST_WIDTH_US = 1_000_000  # of the buckets in which rows are stored by this time


@dataclass(frozen=True)
class Watermark(CarriesOrigin, AppliesByBatch, NamesColumnsRead, MayNeedFullRows, SetsWatermark):
    """Expects no row more than `delay_us` behind the latest one seen, or what another strategy says."""

    time: str
    delay_us: int
    strategy: Strategy | None = None  # if not `Bounded(delay_us)`
    idle_us: int | None = None
    drift_us: int | None = None
    punctuation: str | None = None  # SQL: rows that only say which time was reached, and go no further
    learns: bool = False
    follows: Bound | None = None  # of the rows before: the watermark that `Inherited` takes over
    heartbeats: Bound | None = None  # of another stream: its watermark says how far this one has come

    canonical: ClassVar[bool] = True

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
        if self.idle_us is not None and self.idle_us <= 0:
            raise InvalidError(
                "the time after which a partition is idle must be positive",
                detail=f"got {self.idle_us} us",
                step=step,
            )
        if self.drift_us is not None and self.drift_us < 0:
            raise InvalidError(
                "the drift of partitions cannot be negative", detail=f"got {self.drift_us} us", step=step
            )
        rule = self.rule
        if isinstance(rule, Custom) and isinstance(rule.function, NewestOf):
            check_time(shape.schema, rule.function.column, step)
        late = TableSpec(f"{step}/late", stored(shape.schema), key=(self.time,), rule="weights")
        bounds: tuple[Bound, ...] = ()
        if pa.types.is_timestamp(shape.schema.field(self.time).type):
            bounds = (Bound(self.time, ((step, 0),), max(self.delay_us, LEAST_WIDTH_US)),)
        output = replace(shape, time=self.time, watermark=step, bounds=bounds)
        return Binding(output, (HERE,), (late,), extra=self._split_by(shape, step))

    def _split_by(self, shape: Shape, step: str) -> tuple[Expression, Expression] | None:
        """The conditions for punctuations and for all other rows."""
        if self.punctuation is None:
            return None
        compile_predicate(shape.schema, self.punctuation, append_only=True, step=step)  # for its errors
        says = f"coalesce(({self.punctuation}), false)"
        one, other = (
            compile_predicate(shape.schema, sql, append_only=True, step=step) for sql in (says, f"not {says}")
        )
        return one, other

    @property
    def rule(self) -> Strategy:
        return Bounded(self.delay_us) if self.strategy is None else self.strategy

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        # A late row is stored with all its columns, so that users can inspect it.
        return (frozenset(binding.shape.schema.names) | (needed & {ORIGIN}),)

    def suffices(self, binding: Binding, needed: frozenset[str]) -> frozenset[str]:
        """The columns that are enough while no row `requires_full_rows`."""
        return needed | self.looks_at(binding, 0)

    def looks_at(self, binding: Binding, index: int) -> frozenset[str]:
        read = frozenset({self.time})
        return read if binding.extra is None else read | frozenset(binding.extra[0].needs)

    def requires_full_rows(self, delta: pa.Table, bound: int | None) -> bool:
        """Whether one of these rows is late or has no time."""
        ends = _ends(delta.column(self.time))
        return ends is None or (bound is not None and ends[0] < bound)

    def observe(self, delta: pa.Table) -> int | None:
        """The highest event time of these rows in microseconds, if any has one."""
        ends = _ends(delta.column(self.time))
        if ends is not None:
            return ends[1]
        at, usable = micros(delta.column(self.time))
        return int(at[usable].max()) if usable.any() else None

    def times(self, delta: pa.Table) -> Ints:
        at, usable = micros(delta.column(self.time))
        return at if usable.all() else at[usable]

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        if binding.extra is None:
            return self._without_late(ctx, binding, delta)
        says, others = binding.extra
        reached, rest = keep(delta, says).rows, keep(delta, others)
        result = self._without_late(ctx, binding, rest.rows)
        errors = [e for e in (rest.errors, result.errors) if e is not None]
        return replace(result, errors=pa.concat_tables(errors) if errors else None, reached=reached)

    def _without_late(self, ctx: Context, binding: Binding, delta: pa.Table) -> StepResult:
        bound = ctx.watermark_before(ctx.step)
        if not self.requires_full_rows(delta, bound):
            return StepResult(delta)
        at, usable = micros(delta.column(self.time))
        delta, errors = without_time(delta, usable, self.time)
        if bound is None:
            return StepResult(delta, errors=errors)
        late = at[usable] < bound
        count = int(np.count_nonzero(late))
        if not count:
            return StepResult(delta, errors=errors)
        seen = delta.select([n for n in (self.time, ORIGIN) if n in delta.column_names])
        rows = delta.filter(pa.array(late))
        rows = without_origin(rows)
        if HASH in rows.column_names:  # of another key than the table's
            rows = rows.drop_columns([HASH])
        return StepResult(
            delta.filter(pa.array(~late)),
            (Change(binding.tables[0].name, rows),),
            errors,
            counts={"late": count},
            seen=seen,
        )


def _ends(column: pa.ChunkedArray) -> tuple[int, int] | None:
    """The earliest and the latest time of a column in microseconds, if every row has one."""
    if column.null_count or not len(column):
        return None
    ends = pc.min_max(column)
    at, usable = micros(pa.chunked_array([pa.repeat(ends[end], 1) for end in ("min", "max")]))
    return (int(at[0]), int(at[1])) if usable.all() else None
