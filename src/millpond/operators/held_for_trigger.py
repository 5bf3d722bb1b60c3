"""What the operators that hold rows back for a trigger share: their tables, deadlines and time.

Law: a window has one row in `windows`, and its rows wait in `rows`, in buckets by the bound behind which
windows have expired.  Deadlines are in a timer wheel for each clock, so an epoch opens only the buckets that
are due (law 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import pyarrow as pa

from millpond.kernels.bounds import Bound, bucketed_by
from millpond.kernels.open_windows import Firing
from millpond.kernels.trigger_deadlines import (
    DueHints,
    is_due,
    state_fields,
    wheel,
    wheel_clocks,
    wheel_tables,
)
from millpond.kernels.triggers import PROCESSING, WATERMARK, Clock, Ints, Trigger
from millpond.operators.operator import Binding, Change, Context, Shape, Wake, by_key
from millpond.operators.panes import FIRING, LAST, PANE, TIMING, of_kind
from millpond.operators.traits import DependsOnArrival, EndsState
from millpond.operators.window import END, START
from millpond.ordering import Order
from millpond.state.tables.table_spec import TableSpec


class HoldsForTrigger(EndsState, DependsOnArrival):
    """An operator with these fields that holds the rows of windows back until their trigger fires."""

    trigger: Trigger
    watermark: Bound | None
    until: Bound | None

    def _binding(
        self,
        step: str,
        shape: Shape,
        rows: pa.Schema,
        key: tuple[str, ...],
        order: tuple[Order, ...] = (),
        *,
        of_window: tuple[pa.Field, ...] = (),
        of_row: tuple[pa.Field, ...] = (),
    ) -> Binding:
        """Windows are stored by `key` and `order`; `of_window` and `of_row` are more columns of the state."""
        clocks = wheel_clocks(self.trigger, self.until)
        own = [rows.field(name) for name in dict.fromkeys((*key, START, END))]
        states = pa.schema([*own, *state_fields(self.trigger, clocks), *of_window])
        bucketing = bucketed_by(self.until)
        tables = (
            TableSpec(f"{step}/windows", states, key, order, **bucketing),
            TableSpec(f"{step}/rows", pa.schema([*rows, *of_row]), key, rule="weights", **bucketing),
            TableSpec(f"{step}/late", rows, key, rule="weights"),
            *wheel_tables(step, clocks, own, key, START),
        )
        return Binding(
            shape, (by_key(*key),), tables, placed_by=key, extra=clocks, wakes=_wakes(step, clocks)
        )

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        """Whether a deadline has passed, or state has expired."""
        windows = binding.tables[0].name
        step = windows.rpartition("/")[0]
        if is_due(step, binding.extra, self.watermark, earliest, watermarks, now_us):
            return True
        return self.until is not None and self.until.is_due(windows, earliest, watermarks)

    def ends(self, binding: Binding) -> tuple[tuple[str, Bound], ...]:
        return () if self.until is None else tuple((t.name, self.until) for t in binding.tables[:2])


def _wakes(step: str, clocks: tuple[Clock, ...]) -> tuple[Wake, ...]:
    """Make an epoch due when a deadline on the clock comes, even without input."""
    if PROCESSING not in clocks:
        return ()
    return tuple(Wake(name, width, 0) for name, width in wheel(step, PROCESSING).names)


def changed(written: Iterable[tuple[str, pa.Table]]) -> tuple[Change, ...]:
    return tuple(Change(name, rows) for name, rows in written)


def marks_before(ctx: Context, watermark: Bound | None) -> dict[Clock, int | None]:
    return {WATERMARK: None if watermark is None else watermark.limit(ctx.watermark_before)}


def marks_after(ctx: Context, watermark: Bound | None, clocks: tuple[Clock, ...]) -> dict[Clock, int | None]:
    """The watermark after this epoch's rows, on each clock."""
    times: dict[Clock, int | None] = {
        WATERMARK: None if watermark is None else watermark.limit(ctx.watermark)
    }
    for clock in clocks:
        if isinstance(clock, float) and clock != WATERMARK and watermark is not None:
            times[clock] = watermark.limit(partial(ctx.watermark_at, share=clock))
    return times


def due_hints(
    ctx: Context, clocks: tuple[Clock, ...], watermark: Bound | None, window: tuple[str, ...]
) -> DueHints:
    watermarks = marks_after(ctx, watermark, clocks)
    reached = {clock: ctx.now_us if clock == PROCESSING else watermarks.get(clock) for clock in clocks}
    return DueHints.open(ctx.step, lambda name, end: ctx.table(name, below_bucket=end), reached, window)


def expiries(ends: Ints, until: Bound | None, watermark: Bound | None) -> Ints | None:
    """The watermark at which each window expires."""
    if until is None or watermark is None:
        return None
    ends_at: Ints = until.passed_at(ends, watermark)
    return ends_at


def firing_rows(schema: pa.Schema, windows: pa.Table, firing: Firing) -> pa.Table:
    """One row for each window that fires."""
    rows = windows.take(pa.array(firing.window))
    rows = rows.append_column(PANE, pa.array(firing.pane))
    rows = rows.append_column(TIMING, pa.array(firing.timing.tolist(), pa.string()))
    rows = rows.append_column(LAST, pa.array(firing.last))
    return of_kind(schema, rows, FIRING)
