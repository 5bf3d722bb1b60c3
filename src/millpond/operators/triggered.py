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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond.delta import HASH, WEIGHT, consolidate, negate, weights, with_weights
from millpond.errors import InvalidError
from millpond.identity import one_chunk
from millpond.kernels.bounds import Bound, among
from millpond.kernels.event_time import micros
from millpond.kernels.open_windows import OpenWindows
from millpond.kernels.trigger_deadlines import due_column, placed_hints, written_hints
from millpond.kernels.triggers import NEVER, Bools, Clock, Ints, Trigger, TriggerTime
from millpond.operators.held_for_trigger import (
    HoldsForTrigger,
    changed,
    due_hints,
    expiries,
    firing_rows,
    marks_after,
    marks_before,
)
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult
from millpond.operators.panes import LATE, PANE, ROWS, of_kind, with_panes
from millpond.operators.window import END, START
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec


@dataclass(frozen=True)
class Triggered(HoldsForTrigger):
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
        output = Shape(with_panes(schema), shape.append_only, bounds=among(shape.bounds, schema.names))
        return self._binding(step, output, schema, self._window_key)

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

    # -- one epoch ---------------------------------------------------------------------

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is not None and not binding.shape.append_only:
            delta = consolidate(delta)  # a row that comes and goes within an epoch does not count
            delta = delta if delta.num_rows else None
        clocks: tuple[Clock, ...] = binding.extra
        states, rows_spec = binding.tables[:2]
        hints = due_hints(ctx, clocks, self.watermark, self._window_key)
        names = [*self._window_key, HASH]
        touched = [t.select(names) for t in (*(() if delta is None else (delta,)), *hints.tables)]
        drops = () if self.until is None else self.until.drops(ctx.watermark, states, rows_spec)
        if not touched:
            return StepResult(changes=changed(hints.moved), drops=(*drops, *hints.drops))
        every = pa.concat_tables(touched, promote_options="permissive")
        keys = KeySet.of(every, self._window_key, one_chunk(every.column(HASH)).to_numpy())
        is_found, stored_states = ctx.table(states.name).lookup_one(keys)
        windows = self._windows(keys, stored_states)
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
        live = is_found | got  # a hint may name a window that is gone
        changes += self._write(ctx, binding, windows, keys, stored_states, is_found, live, after, hints.moved)
        out = [*released, *self._fired_rows(binding, windows, keys)]
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

    def _windows(self, keys: KeySet, stored_states: pa.Table) -> OpenWindows:
        state = {
            name: one_chunk(stored_states.column(name)).to_numpy()
            for name in stored_states.column_names
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
            stored = ctx.table(spec.name).lookup(some)
            out.append(self._rows(spec, stored.table, pane[opened[stored.key_index]]))
            changes.append(Change(spec.name, negate(stored.table.select([*names, WEIGHT]))))
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
        stored_rows = rows.select(spec.schema.names)
        if self.discards:
            stored_rows = stored_rows.append_column(PANE, pa.array(pane))
        return of_kind(spec.schema, stored_rows, ROWS, weights(rows))

    def _fired_rows(self, binding: Binding, windows: OpenWindows, keys: KeySet) -> Iterator[pa.Table]:
        for firing in windows.firings:
            yield firing_rows(binding.tables[1].schema, keys.columns, firing)

    def _write(
        self,
        ctx: Context,
        binding: Binding,
        windows: OpenWindows,
        keys: KeySet,
        stored_states: pa.Table,
        is_found: Bools,
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
            known = np.where(
                is_found, one_chunk(stored_states.column(due_column(clock))).to_numpy(), NEVER + 1
            )
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
        return [*states, *changed(written_hints(hints, self._window_key))]
