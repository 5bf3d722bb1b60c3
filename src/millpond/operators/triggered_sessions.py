"""TriggeredSessions: holds the rows of windows that merge back until the trigger of their window fires.

Law: like `triggered`, for windows of a key that merge when they overlap.  A merged window continues with the
states of its parts: numbers of rows add up, and it starts at pane 0 unless it has the bounds of one
of its parts.  Rows that its parts have emitted stay as they are until it fires; then they are retracted from
the windows of the parts, and emitted in the merged one.  They are retracted at the latest when the window of
the part expires, because later steps then drop its state.  A window that merges with a finished one is
finished, and its rows that were never emitted are late (law 8).

All rows of an open window are stored, with the window in which each was emitted, unless panes discard
what they have emitted.  Only over append-only input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond.delta import HASH, WEIGHT, concat, negate, weights, with_weights
from millpond.errors import InvalidError
from millpond.identity import one_chunk, take
from millpond.kernels.bounds import Bound, among
from millpond.kernels.event_time import micros
from millpond.kernels.open_windows import CELLS, ENDED, FINISHED, FIRED, WAITING, OpenWindows
from millpond.kernels.trigger_deadlines import due_column, placed_hints, written_hints
from millpond.kernels.triggers import (
    NEVER,
    WATERMARK,
    Bools,
    Cells,
    Clock,
    Ints,
    Trigger,
    TriggerTime,
    merged,
)
from millpond.kernels.window_merging import Merge, MergedWindows, merge_by
from millpond.operators.held_for_trigger import (
    HoldsForTrigger,
    changed,
    due_hints,
    expiries,
    firing_rows,
    marks_after,
    marks_before,
)
from millpond.operators.merge_windows import open_rows
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult
from millpond.operators.panes import KIND, LATE, PANE, ROWS, of_kind, with_panes
from millpond.operators.window import END, START
from millpond.ordering import Order
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet, RowsByKey
from millpond.state.tables.table_spec import TableSpec

OLDEST = "_oldest"  # the least end of a part whose rows are still emitted in its own window, or NEVER
SHOWN_START, SHOWN_END = "_shown_start", "_shown_end"  # the window in which a row was emitted, or NULL
NOWHERE = np.iinfo(np.int64).min


@dataclass(frozen=True)
class TriggeredSessions(HoldsForTrigger):
    """Inputs have the columns of the window that each row has by itself."""

    key: tuple[str, ...]
    trigger: Trigger
    watermark: Bound | None = None  # of the time column
    until: Bound | None = None  # windows behind it have expired
    discards: bool = False  # do panes contain only what is new?
    merge: Merge | None = None  # a user's function, instead of merging where windows overlap
    owner: str = ""  # the SQL view that has this step: its panes depend on when it was created

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        if not shape.append_only:
            raise InvalidError(
                "sessions with a trigger need append-only input",
                detail="a deleted row could split a session that was emitted",
                hint="leave the trigger out: then sessions follow every change",
                step=step,
            )
        schema = stored(shape.schema)
        kind = schema.field(START).type
        output = Shape(with_panes(schema), self.discards, bounds=among(shape.bounds, (END,)))
        return self._binding(
            step,
            output,
            schema,
            self.key,
            (Order(START),),
            of_window=(pa.field(OLDEST, pa.int64()),),
            of_row=(pa.field(SHOWN_START, kind), pa.field(SHOWN_END, kind)),
        )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.tables[1].schema.names) - {SHOWN_START, SHOWN_END},)

    # -- one epoch ---------------------------------------------------------------------

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        clocks: tuple[Clock, ...] = binding.extra
        states, rows_spec = binding.tables[:2]
        hints = due_hints(ctx, clocks, self.watermark, (*self.key, START))
        drops = () if self.until is None else self.until.drops(ctx.watermark, states, rows_spec)
        names = [*self.key, HASH]
        touched = [t.select(names) for t in (*(() if delta is None else (delta,)), *hints.tables)]
        if not touched:
            return StepResult(changes=changed(hints.moved), drops=(*drops, *hints.drops))
        every = pa.concat_tables(touched, promote_options="permissive")
        keys = KeySet.of(every, self.key, one_chunk(every.column(HASH)).to_numpy())
        opened = open_rows(ctx.table(states.name).lookup(keys), self.until, ctx)
        count = 0 if delta is None else delta.num_rows
        work = _Merging.of(keys, opened, delta, keys.inverse[:count], self.merge)
        windows = self._windows(work, opened.table)
        each = None if delta is None else weights(delta)
        rows = np.bincount(work.of_row, each, windows.count).astype(np.int64)
        got = (rows > 0) & ~windows.finished
        before = windows.moment(ctx.now_us, marks_before(ctx, self.watermark))
        after = windows.moment(ctx.now_us, marks_after(ctx, self.watermark, clocks))
        dead = windows.finished.copy()
        windows.on_rows(before, got, rows)
        windows.on_time(before, after, got)
        limit = None if self.until is None else self.until.limit(ctx.watermark)
        if self.until is not None and limit is not None:
            windows.on_expiry(self.until.passed(windows.ends, limit))
        oldest = self._oldest(work, opened.table, windows, dead)
        recalls = np.zeros(windows.count, np.bool_)
        if self.until is not None and limit is not None:
            recalls = self.until.passed(oldest, limit)
        out, changes = self._move(ctx, binding, work, windows, delta, dead, recalls)
        oldest = np.where(recalls, NEVER, oldest)
        changes += self._write(ctx, binding, work, windows, opened.table, after, hints.moved, oldest)
        shown = work.table(self.key, rows_spec)
        out += [firing_rows(_plain(rows_spec), shown, firing) for firing in windows.firings]
        late_rows = [t for t in out if t.column(KIND)[0].as_py() == LATE]
        late = sum(t.num_rows for t in late_rows)
        late_spec = binding.tables[2]
        changes += [Change(late_spec.name, t.select([*late_spec.schema.names, WEIGHT])) for t in late_rows]
        return StepResult(
            pa.concat_tables(out) if out else None,
            tuple(changes),
            drops=(*drops, *hints.drops),
            counts={"late": late} if late else {},
        )

    def _windows(self, work: _Merging, stored_windows: pa.Table) -> OpenWindows:
        """The merged windows with the states of their parts."""
        count = len(work.merged.key)
        into = work.merged.into[: stored_windows.num_rows]
        own = (*self.key, START, END)
        state = {
            f: one_chunk(stored_windows.column(f)).to_numpy()
            for f in stored_windows.column_names
            if f not in own
        }
        cells = Cells(stored_windows.num_rows, {c.name: state[c.name] for c in self.trigger.cells(CELLS)})
        at_end = micros(stored_windows.column(END))[0] == work.merged.end[into]
        windows_merged = dict(merged(self.trigger, CELLS, cells, into, count, at_end).columns)
        same = work.same
        for name in (FIRED, ENDED):
            windows_merged[name] = np.zeros(count, np.int64)
            windows_merged[name][into[same]] = state[name][same]
        for name in (FINISHED, WAITING):
            windows_merged[name] = np.bincount(into, state[name], count).astype(np.int64)
        return OpenWindows(self.trigger, count, work.merged.start, work.merged.end, windows_merged)

    def _oldest(self, work: _Merging, stored_windows: pa.Table, windows: OpenWindows, dead: Bools) -> Ints:
        """Of each window the least end of a part whose rows are still emitted in the window of the part."""
        oldest = np.full(windows.count, NEVER)
        if self.discards or not stored_windows.num_rows:
            return oldest
        into = work.merged.into[: stored_windows.num_rows]
        before = one_chunk(stored_windows.column(OLDEST)).to_numpy()
        ends = micros(stored_windows.column(END))[0]
        emitted = ~work.same & (one_chunk(stored_windows.column(FIRED)).to_numpy() > 0)
        np.minimum.at(oldest, into, np.where(emitted, np.minimum(ends, before), before))
        return np.where(windows.released | dead, NEVER, oldest)

    def _move(
        self,
        ctx: Context,
        binding: Binding,
        work: _Merging,
        windows: OpenWindows,
        delta: pa.Table | None,
        dead: Bools,
        recalls: Bools,
    ) -> tuple[list[pa.Table], list[Change]]:
        """(rows that are emitted, retracted or late; changes of the rows that are stored)."""
        spec = binding.tables[1]
        parts: list[pa.Table] = []  # rows as they are stored, before this epoch
        numbers: list[Ints] = []  # of the window of each, after it
        waiting = work.stored_rows(ctx, spec, self.key, windows.released | recalls)
        if waiting is not None:
            parts.append(waiting[0])
            numbers.append(waiting[1])
        old = 0 if waiting is None else waiting[0].num_rows
        if delta is not None:
            fresh = with_weights(delta, weights(delta))
            nowhere = pa.nulls(delta.num_rows, spec.schema.field(SHOWN_START).type)
            for name in (SHOWN_START, SHOWN_END):
                fresh = fresh.append_column(spec.schema.field(name), nowhere)
            parts.append(fresh.select([*spec.schema.names, WEIGHT]))
            numbers.append(work.of_row)
        if not parts:
            return [], []
        rows, window = concat(parts), np.concatenate(numbers)
        start, end = windows.starts[window], windows.ends[window]
        was = _shown(rows)
        unseen = was[0] == NOWHERE
        late = dead[window] & unseen
        fires = windows.released[window] & ~dead[window]
        elsewhere = ~unseen & ((was[0] != start) | (was[1] != end))
        moves = fires & elsewhere
        back = recalls[window] & elsewhere & ~fires
        pane = np.zeros(windows.count, np.int64)
        for firing in reversed(windows.firings):
            pane[firing.window] = firing.pane
        enter = np.flatnonzero(moves | (fires & unseen))
        out = [
            self._out(spec, rows, np.flatnonzero(late), start, end, LATE, 1),
            self._out(spec, rows, np.flatnonzero(moves | back), was[0], was[1], ROWS, -1),
            self._out(spec, rows, enter, start, end, ROWS, 1, pane[window]),
        ]
        keeps = ~late & ~(fires if self.discards else np.zeros(len(fires), np.bool_))
        seen_start = np.where(fires, start, np.where(back, NOWHERE, was[0]))
        seen_end = np.where(fires, end, np.where(back, NOWHERE, was[1]))
        after = _in_windows(spec, rows, start, end, seen_start, seen_end).filter(pa.array(keeps))
        before = rows.slice(0, old)
        change = [after, *([negate(before)] if old else [])]
        return [t for t in out if t.num_rows], [Change(spec.name, t) for t in change if t.num_rows]

    def _out(
        self,
        spec: TableSpec,
        rows: pa.Table,
        which: Ints,
        start: Ints,
        end: Ints,
        kind: int,
        sign: int,
        pane: Ints | None = None,
    ) -> pa.Table:
        some = rows.take(pa.array(which))
        some = _in_windows(spec, some, start[which], end[which])
        if pane is not None and self.discards:
            some = some.append_column(PANE, pa.array(pane[which]))
        return of_kind(_plain(spec), some, kind, sign * weights(some))

    def _write(
        self,
        ctx: Context,
        binding: Binding,
        work: _Merging,
        windows: OpenWindows,
        stored_windows: pa.Table,
        at: TriggerTime,
        moved: Iterable[tuple[str, pa.Table]],
        oldest: Ints,
    ) -> list[Change]:
        """The states of windows, the end of those that merged, and deadlines."""
        clocks: tuple[Clock, ...] = binding.extra
        spec = binding.tables[0]
        expiry = expiries(windows.ends, self.until, self.watermark)
        recall = expiries(oldest, self.until, self.watermark)
        named = work.table(self.key, spec).append_column(HASH, pa.array(work.keys.hashes[work.merged.key]))
        columns = {**dict(windows.state()), OLDEST: oldest}
        hints = list(moved)
        for clock in clocks:
            due = windows.deadlines(at, clock, expiry)
            if clock == WATERMARK and recall is not None:
                due = np.minimum(due, np.where(oldest < NEVER, recall, NEVER))
            known = np.full(windows.count, NEVER + 1)
            same = np.flatnonzero(work.same)
            known[work.merged.into[same]] = one_chunk(stored_windows.column(due_column(clock))).to_numpy()[
                same
            ]
            columns[due_column(clock)] = due
            fresh = np.flatnonzero(due != known)
            hints += placed_hints(ctx.step, clock, named, fresh, due, at.time_of(clock))
        rest = [f for f in spec.schema if f.name not in (*self.key, START, END)]
        table = pa.table(
            [*(named.column(c) for c in (*self.key, START, END)), *(pa.array(columns[f.name]) for f in rest)],
            schema=spec.schema,
        ).append_column(HASH, named.column(HASH))
        written = [with_weights(table, np.ones(windows.count, np.int64))]
        gone = np.flatnonzero(~work.same)
        if len(gone):
            ended = stored_windows.take(pa.array(gone)).select(spec.schema.names)
            ended = ended.append_column(HASH, pa.array(work.keys.hashes[work.known_key[gone]]))
            # A row is replaced only by one with its key and start, in its bucket.
            old = [work.known_key[gone], work.known_start[gone]]
            new = [work.merged.key, windows.starts]
            if spec.time is not None:
                old, new = [*old, spec.buckets(ended)], [*new, spec.buckets(table)]
            replaced = _positions(np.column_stack(old), np.column_stack(new)) >= 0
            tombs = ended.filter(pa.array(~replaced))
            if tombs.num_rows:
                written.append(with_weights(tombs, np.zeros(tombs.num_rows, np.int64)))
        return [
            Change(spec.name, pa.concat_tables(written)),
            *changed(written_hints(hints, (*self.key, START))),
        ]


@dataclass(frozen=True)
class _Merging:
    """The open windows of some keys, and the windows of new rows, merged."""

    keys: KeySet
    known_key: Ints  # of each window that was there: its key and start
    known_start: Ints
    merged: MergedWindows  # of those that were there, then those of new rows
    same: Bools  # of each window that was there: has it the bounds of its merged window?
    of_row: Ints  # the merged window of each new row

    @staticmethod
    def of(
        keys: KeySet, opened: RowsByKey, delta: pa.Table | None, key_of_row: Ints, merge: Merge | None
    ) -> _Merging:
        stored_windows = opened.table
        starts, ends = (micros(stored_windows.column(c))[0] for c in (START, END))
        key, start, end = opened.key_index.astype(np.int64), starts, ends
        if delta is not None:
            key = np.concatenate([key, key_of_row])
            start = np.concatenate([start, micros(delta.column(START))[0]])
            end = np.concatenate([end, micros(delta.column(END))[0]])
        merged_windows = merge_by(merge, key, start, end)
        into = merged_windows.into[: stored_windows.num_rows]
        same = (starts == merged_windows.start[into]) & (ends == merged_windows.end[into])
        return _Merging(
            keys,
            key[: stored_windows.num_rows],
            starts,
            merged_windows,
            same,
            merged_windows.into[stored_windows.num_rows :],
        )

    def stored_rows(
        self, ctx: Context, spec: TableSpec, key: tuple[str, ...], released: Bools
    ) -> tuple[pa.Table, Ints] | None:
        """Stored rows whose window merged or fires, and the numbers of their windows."""
        into = self.merged.into[: len(self.known_key)]
        changes = ~self.same | released[into]
        if not changes.any():
            return None
        which = np.unique(self.known_key[changes])
        some = KeySet(self.keys.hashes[which], self.keys.columns.take(pa.array(which)), np.empty(0, np.int64))
        stored = ctx.table(spec.name).lookup(some)
        if not stored.table.num_rows:
            return None
        mine = np.column_stack([which[stored.key_index], micros(stored.table.column(START))[0]])
        windows = np.column_stack([self.known_key, self.known_start])
        position = _positions(mine, windows)
        moved = (position >= 0) & changes[position]
        rows = stored.table.select([*spec.schema.names, WEIGHT]).filter(pa.array(moved))
        return (rows, into[position[moved]]) if rows.num_rows else None

    def table(self, key: tuple[str, ...], spec: TableSpec) -> pa.Table:
        """The merged windows as rows: key, start, end."""
        kind = spec.schema.field(START).type
        columns = [take(one_chunk(self.keys.columns.column(c)), self.merged.key) for c in key]
        columns += [pa.array(values).cast(kind) for values in (self.merged.start, self.merged.end)]
        return pa.table(columns, names=[*key, START, END])


def _plain(spec: TableSpec) -> pa.Schema:
    return pa.schema([f for f in spec.schema if f.name not in (SHOWN_START, SHOWN_END)])


def _shown(rows: pa.Table) -> tuple[Ints, Ints]:
    """The window in which each row was emitted; NOWHERE if in none."""
    shown = []
    for name in (SHOWN_START, SHOWN_END):
        column = one_chunk(rows.column(name))
        values = micros(rows.column(name))[0]
        shown.append(np.where(column.is_valid().to_numpy(zero_copy_only=False), values, NOWHERE))
    return shown[0], shown[1]


def _in_windows(
    spec: TableSpec,
    rows: pa.Table,
    start: Ints,
    end: Ints,
    shown_start: Ints | None = None,
    shown_end: Ints | None = None,
) -> pa.Table:
    """Rows with other windows."""
    bounds = {START: start, END: end, SHOWN_START: shown_start, SHOWN_END: shown_end}
    for name, values in bounds.items():
        if values is not None:
            field = spec.schema.field(name)
            column = pa.array(values, mask=values == NOWHERE).cast(field.type)
            rows = rows.set_column(rows.column_names.index(name), field, column)
    return rows


def _positions(rows: Ints, windows: Ints) -> Ints:
    """Of each row the number of the equal window, or -1."""
    both, inverse = np.unique(np.concatenate([windows, rows]), axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    position = np.full(len(both), -1, np.int64)
    position[inverse[: len(windows)]] = np.arange(len(windows))
    return position[inverse[len(windows) :]]
