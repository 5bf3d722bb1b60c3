"""Triggered: holds the rows of windows back until the trigger of their window fires.

Law: an epoch first records all of its rows, at the watermark of the epoch before, and asks the trigger of
every window that received some.  Then time moves to the epoch's watermark and clock, and the windows whose
deadline has passed are asked.  A firing releases the rows that its window holds.  A window that expires
with rows that never fired releases them in a last pane.  So every row is released once, or is late because
its window had finished (law 8).

The state of an open window is one row of `windows`: the cells of its trigger and the number of its panes.
Rows that wait are in `rows`.  Deadlines are in a timer wheel for each clock, so an epoch costs the windows
that it touches or that are due (law 5).  All of it is dropped when the watermark has passed the end of the
window by the allowed lateness.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond.delta import HASH, WEIGHT, consolidate, negate, weights, with_weights
from millpond.errors import InvalidError
from millpond.identity import one_chunk
from millpond.kernels.bounds import Bound, among, bucketed_by
from millpond.kernels.event_time import micros
from millpond.kernels.open_windows import Firing, OpenWindows
from millpond.kernels.trigger_deadlines import (
    DueHints,
    due_column,
    is_due,
    placed_hints,
    state_fields,
    wheel,
    wheel_clocks,
    wheel_tables,
    written_hints,
)
from millpond.kernels.triggers import NEVER, PROCESSING, WATERMARK, Bools, Clock, Ints, Trigger, TriggerTime
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, Wake, by_key
from millpond.operators.panes import FIRING, LAST, LATE, PANE, ROWS, TIMING, of_kind, with_panes
from millpond.operators.traits import DependsOnArrival, EndsState
from millpond.operators.window import END, START
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec


@dataclass(frozen=True)
class Triggered(EndsState, DependsOnArrival):
    """Inputs have the columns of their window; windows are those of `key`, START and END."""

    key: tuple[str, ...]
    trigger: Trigger
    watermark: Bound | None = None  # of the time column
    until: Bound | None = None  # windows behind it have expired
    discards: bool = False  # is the number of the pane wanted with the rows?
    owner: str = ""  # the SQL view that has this step: its panes depend on when it was created

    canonical: ClassVar[bool] = True

    @property
    def _window_key(self) -> tuple[str, ...]:
        return (*self.key, START, END)

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        if not shape.append_only:
            self._check_retractions(step)
        schema = stored(shape.schema)
        clocks = wheel_clocks(self.trigger, self.until)
        own = [schema.field(name) for name in self._window_key]
        kept = bucketed_by(self.until)
        tables = [
            TableSpec(
                f"{step}/windows",
                pa.schema([*own, *state_fields(self.trigger, clocks)]),
                self._window_key,
                **kept,
            ),
            TableSpec(f"{step}/rows", schema, self._window_key, rule="weights", **kept),
            TableSpec(f"{step}/late", schema, self._window_key, rule="weights"),
        ]
        tables += wheel_tables(step, clocks, own, self._window_key, START)
        given = Shape(with_panes(schema), shape.append_only, bounds=among(shape.bounds, schema.names))
        return Binding(
            given,
            (by_key(*self._window_key),),
            tuple(tables),
            placed_by=self._window_key,
            extra=clocks,
            wakes=wakes(step, clocks),
        )

    def _check_retractions(self, step: str) -> None:
        """A retraction must find its row among those that were released."""
        if self.discards:
            raise InvalidError(
                "discarding windows need append-only input",
                detail="a pane cannot contain the deletion of a row that an earlier pane contained",
                hint='use mode="retracting"',
                step=step,
            )
        if self.trigger.may_finish:
            raise InvalidError(
                "a trigger that fires for the last time before the end of its window needs append-only input",
                detail="a row that was emitted could be deleted after the last pane",
                hint="use repeatedly(...) around it",
                step=step,
            )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.tables[1].schema.names),)

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        return has_work(binding, self.watermark, self.until, earliest, watermarks, now_us)

    def ends(self, binding: Binding) -> tuple[tuple[str, Bound], ...]:
        return () if self.until is None else tuple((t.name, self.until) for t in binding.tables[:2])

    # -- one epoch ---------------------------------------------------------------------

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is not None and not binding.shape.append_only:
            delta = consolidate(delta)  # a row that comes and goes within an epoch does not count
            delta = delta if delta.num_rows else None
        clocks: tuple[Clock, ...] = binding.extra
        states, rows_spec = binding.tables[:2]
        hints = due_hints(ctx, clocks, self.watermark)
        names = [*self._window_key, HASH]
        touched = [t.select(names) for t in (*(() if delta is None else (delta,)), *hints.tables)]
        drops = () if self.until is None else self.until.drops(ctx.watermark, states, rows_spec)
        if not touched:
            return StepResult(changes=changed(hints.moved), drops=(*drops, *hints.drops))
        every = pa.concat_tables(touched, promote_options="permissive")
        keys = KeySet.of(every, self._window_key, one_chunk(every.column(HASH)).to_numpy())
        found, held = ctx.table(states.name).lookup_one(keys)
        windows = self._windows(keys, held)
        of_row = keys.inverse[: 0 if delta is None else delta.num_rows]
        accepted = ~windows.finished[of_row]
        w = np.zeros(0, np.int64) if delta is None else weights(delta)
        rows = np.bincount(of_row[accepted], np.abs(w[accepted]), len(keys)).astype(np.int64)
        got = np.bincount(of_row[accepted], minlength=len(keys)) > 0
        before = windows.moment(ctx.now_us, marks_before(ctx, self.watermark))
        after = windows.moment(ctx.now_us, marks_after(ctx, self.watermark, clocks))
        waited = windows.waiting.copy()
        windows.on_rows(before, got, rows)
        windows.on_time(before, after, got)
        limit = None if self.until is None else self.until.limit(ctx.watermark)
        if self.until is not None and limit is not None:
            windows.on_expiry(self.until.passed(windows.ends, limit))
        changes, released = self._release(ctx, binding, windows, keys, delta, of_row, accepted, waited)
        live = found | got  # a hint may name a window that is gone
        changes += self._write(ctx, binding, windows, keys, held, found, live, after, hints.moved)
        out = [*released, *self._told(binding, windows, keys)]
        if not accepted.all():
            assert delta is not None
            late = delta.filter(pa.array(~accepted))
            out.append(of_kind(rows_spec.schema, late, LATE, weights(late)))
            changes.append(Change(binding.tables[2].name, with_weights(late, weights(late))))
        return StepResult(
            pa.concat_tables(out) if out else None,
            tuple(changes),
            drops=(*drops, *hints.drops),
            counts={} if accepted.all() else {"late": int(np.count_nonzero(~accepted))},
        )

    def _windows(self, keys: KeySet, held: pa.Table) -> OpenWindows:
        state = {
            name: one_chunk(held.column(name)).to_numpy()
            for name in held.column_names
            if name not in self._window_key
        }
        starts, ends = (micros(keys.columns.column(c))[0] for c in (START, END))
        return OpenWindows(self.trigger, len(keys), starts, ends, state)

    def _release(
        self,
        ctx: Context,
        binding: Binding,
        windows: OpenWindows,
        keys: KeySet,
        delta: pa.Table | None,
        of_row: Ints,
        accepted: Bools,
        waited: Ints,
    ) -> tuple[list[Change], list[pa.Table]]:
        """(changes of the rows that wait, rows that firings release)."""
        spec = binding.tables[1]
        names = spec.schema.names
        changes: list[Change] = []
        out: list[pa.Table] = []
        pane = np.zeros(windows.count, np.int64)
        for firing in reversed(windows.firings):
            pane[firing.window] = firing.pane  # rows belong to the first pane that fires
        opened = np.flatnonzero(windows.released & (waited > 0))
        if len(opened):
            some = KeySet(keys.hashes[opened], keys.columns.take(pa.array(opened)), np.empty(0, np.int64))
            found = ctx.table(spec.name).lookup(some)
            out.append(self._rows(spec, found.table, pane[opened[found.key_index]]))
            changes.append(Change(spec.name, negate(found.table.select([*names, WEIGHT]))))
        if delta is not None:
            now = accepted & windows.released[of_row]
            if now.any():
                out.append(self._rows(spec, delta.filter(pa.array(now)), pane[of_row[now]]))
            later = accepted & ~windows.released[of_row]
            if later.any():
                rows = delta.filter(pa.array(later))
                changes.append(Change(spec.name, with_weights(rows, weights(rows))))
        return changes, out

    def _rows(self, spec: TableSpec, rows: pa.Table, pane: Ints) -> pa.Table:
        kept = rows.select(spec.schema.names)
        if self.discards:
            kept = kept.append_column(PANE, pa.array(pane))
        return of_kind(spec.schema, kept, ROWS, weights(rows))

    def _told(self, binding: Binding, windows: OpenWindows, keys: KeySet) -> Iterator[pa.Table]:
        for firing in windows.firings:
            yield firing_rows(binding.tables[1].schema, keys.columns, firing)

    def _write(
        self,
        ctx: Context,
        binding: Binding,
        windows: OpenWindows,
        keys: KeySet,
        held: pa.Table,
        found: Bools,
        live: Bools,
        at: TriggerTime,
        moved: Iterable[tuple[str, pa.Table]],
    ) -> list[Change]:
        """The new state of windows, and their deadlines."""
        clocks: tuple[Clock, ...] = binding.extra
        spec = binding.tables[0]
        expiry = expiries(windows.ends, self.until, self.watermark)
        columns = dict(windows.state())
        named = keys.columns.append_column(HASH, pa.array(keys.hashes))
        hints = list(moved)
        for clock in clocks:
            due = windows.deadlines(at, clock, expiry)
            known = np.where(found, one_chunk(held.column(due_column(clock))).to_numpy(), NEVER + 1)
            columns[due_column(clock)] = due
            fresh = np.flatnonzero((due != known) & live)
            hints += placed_hints(ctx.step, clock, named, fresh, due, at.time_of(clock))
        table = pa.table(
            [
                *keys.columns.columns,
                *(pa.array(columns[f.name]) for f in list(spec.schema)[len(self._window_key) :]),
            ],
            schema=spec.schema,
        )
        table = table.append_column(HASH, pa.array(keys.hashes))
        rows = with_weights(table, np.ones(len(keys), np.int64)).filter(pa.array(live))
        states = [Change(spec.name, rows)] if rows.num_rows else []
        return [*states, *changed(written_hints(hints))]


def wakes(step: str, clocks: tuple[Clock, ...]) -> tuple[Wake, ...]:
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
    found: dict[Clock, int | None] = {
        WATERMARK: None if watermark is None else watermark.limit(ctx.watermark)
    }
    for clock in clocks:
        if isinstance(clock, float) and clock != WATERMARK and watermark is not None:
            found[clock] = watermark.limit(partial(ctx.watermark_at, share=clock))
    return found


def due_hints(ctx: Context, clocks: tuple[Clock, ...], watermark: Bound | None) -> DueHints:
    marks = marks_after(ctx, watermark, clocks)
    reached = {clock: ctx.now_us if clock == PROCESSING else marks.get(clock) for clock in clocks}
    return DueHints.open(ctx.step, lambda name, end: ctx.table(name, below_bucket=end), reached)


def has_work(
    binding: Binding,
    watermark: Bound | None,
    until: Bound | None,
    earliest: Mapping[str, int],
    watermarks: Mapping[str, int],
    now_us: int,
) -> bool:
    """Whether a deadline has passed, or state has expired."""
    states = binding.tables[0].name
    step = states.rpartition("/")[0]
    if is_due(step, binding.extra, watermark, earliest, watermarks, now_us):
        return True
    return until is not None and until.is_due(states, earliest, watermarks)


def expiries(ends: Ints, until: Bound | None, watermark: Bound | None) -> Ints | None:
    """The watermark at which each window expires."""
    if until is None or watermark is None:
        return None
    found: Ints = until.passed_at(ends, watermark)
    return found


def firing_rows(schema: pa.Schema, windows: pa.Table, firing: Firing) -> pa.Table:
    """One row for each window that fires."""
    rows = windows.take(pa.array(firing.window))
    rows = rows.append_column(PANE, pa.array(firing.pane))
    rows = rows.append_column(TIMING, pa.array(firing.timing.tolist(), pa.string()))
    rows = rows.append_column(LAST, pa.array(firing.last))
    return of_kind(schema, rows, FIRING)
