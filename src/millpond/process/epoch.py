"""Runs one process step of one task in one epoch: rows and due timers in, output rows and changes out.

Law: the state of all touched keys is fetched in one lookup per table before user
code runs, and written as one change per table after it (law 5).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import HASH, WEIGHT
from millpond.identity import one_chunk
from millpond.kernels.expression_kernel import error_rows, join_errors
from millpond.kernels.keyed_rows import some_keys
from millpond.kernels.watchdog import limited
from millpond.operators.operator import Binding, Change, Context, StepResult
from millpond.process.batch import Batch, Failure, Swift
from millpond.process.broadcast_handle import BroadcastHandle
from millpond.process.bytecode_facts import always_set, columns_read, never_emptied
from millpond.process.cell import Shared
from millpond.process.columns import ColumnHandle
from millpond.process.context import ProcessContext
from millpond.process.control import run_control
from millpond.process.declaration import Declared, ProcessFacts
from millpond.process.feed import RowFeed
from millpond.process.handle import Handle, Home, Times
from millpond.process.handles import handle_of, sweep
from millpond.process.lanes.allowed import allowed
from millpond.process.lanes.lane_inputs import keeps_lanes
from millpond.process.lanes.rounds import rounds
from millpond.process.lanes.run import is_tried
from millpond.process.lanes.run import run as run_lanes
from millpond.process.outputs import MAIN, OutputColumns, Outputs, check_fits, columns
from millpond.process.result import appended, replaced
from millpond.process.row_order import Ordered, plain_rows
from millpond.process.spec import sweep_name, sweep_wheel
from millpond.process.timers import NEVER, DueTimers, Timers, open_due
from millpond.process.value_handle import ValueHandle
from millpond.state.tables.table import KeySet

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class _TooNarrow(Exception):
    """User code failed on rows from which some columns were left out."""


class Epoch:
    """The state of one call of `apply`."""

    def __init__(self, declared: Declared, ctx: Context, binding: Binding) -> None:
        self.op = declared
        self.ctx = ctx
        self.binding = binding
        self.facts: ProcessFacts = binding.extra
        self.specs = {t.name: t for t in binding.tables}
        self.before = self._bound(ctx.watermark_before)
        self.limits = {"event": self._bound(ctx.watermark), "processing": ctx.now_us}
        self.timed = declared.code.has("on_timer")
        self.vectorized = ctx.vectorize_user_code  # if false, nothing is inferred from bytecode
        self.broadcasts: dict[str, BroadcastHandle] = {
            s.name: BroadcastHandle(s, ctx.step, ctx.table(f"{ctx.step}/{s.name}", everywhere=True))
            for s in declared.states
            if s.kind == "broadcast"
        }
        self.parts: dict[str, list[OutputColumns]] = {side: [] for side in declared.schemas}
        self.changes: list[Change] = []
        self.drops: list[tuple[str, int]] = []
        self.errors: list[pa.Table] = []

    def _bound(self, ask: Any) -> int:
        bound = ask(self.facts.watermark) if self.facts.watermark is not None else None
        return NEVER if bound is None else int(bound)

    def run(self, delta: pa.Table | None, control: pa.Table | None) -> StepResult:
        try:
            with no_collection():
                return self._run(delta, control)
        except _TooNarrow:
            return StepResult(needs_full_rows=True)

    def _run(self, delta: pa.Table | None, control: pa.Table | None) -> StepResult:
        opened = self._open_timers()
        swept = self._open_sweeps()
        rows = None if delta is None else plain_rows(delta)
        keys = self._keys(rows, [*(o.due for o in opened.values()), *swept.values()])
        ordered = self._ordered(rows, keys)
        if control is not None:
            self._run_control(control)
        if len(keys):
            self._process(keys, ordered, opened, swept)
        for handle in self.broadcasts.values():
            self.changes += handle.change(self.ctx.h_min, self.ctx.h_max)
        return StepResult(
            self._given(keys),
            tuple(c for c in self.changes if c.rows.num_rows),
            join_errors(*self.errors) if self.errors else None,
            tuple(self.drops),
        )

    def _given(self, keys: KeySet) -> pa.Table | None:
        schema = self.binding.shape.schema
        if not self.op.latest:
            return appended(schema, self.op.schemas, self.parts)
        table = self.ctx.table(f"{self.ctx.step}/out")
        delta, changes = replaced(schema, self.op.schema, self.parts, keys, table)
        self.changes += changes
        return delta

    # -- due timers and expired state ----------------------------------------------

    def _open_timers(self) -> dict[str, DueTimers]:
        if not self.timed:
            return {}
        timers = {}
        for clock in ("event", "processing"):
            if self.limits[clock] > NEVER:
                opened = open_due(self.ctx, self.ctx.step, clock, self.limits[clock])
                self.changes += opened.moved
                self.drops += opened.drops
                timers[clock] = opened
        return timers

    def _open_sweeps(self) -> dict[str, pa.Table]:
        """By state, the entries whose time to live ended in buckets that have passed completely."""
        sweeps = {}
        for state in self.op.states:
            if state.ttl is None or (bound := self.limits[state.ttl.clock]) == NEVER:
                continue
            wheel = sweep_wheel(self.ctx.step, state.name)
            passed = wheel.open(lambda name, end: self.ctx.table(name, below_bucket=end), bound)
            self.drops += passed.drops
            if passed.rows is not None:
                sweeps[state.name] = passed.rows
        return sweeps

    # -- keys and rows ------------------------------------------------------------------

    def _keys(self, rows: pa.Table | None, due: Sequence[pa.Table]) -> KeySet:
        parts = [t for t in (rows, *due) if t is not None and t.num_rows]
        names = list(self.op.key)
        if not parts:
            return KeySet(np.empty(0, np.uint64), pa.table({}), np.empty(0, np.int64))
        hashes = np.concatenate([one_chunk(t.column(HASH)).to_numpy() for t in parts])
        if not names:
            empty = pa.table({"": pa.nulls(len(hashes))}).select([])
            return KeySet.of(empty, [], hashes)
        if len(parts) == 1:
            return KeySet.of(parts[0].select(names), names, hashes)
        schema = pa.schema([self._key_schema().field(n) for n in names])
        return KeySet.of(pa.concat_tables([t.select(names).cast(schema) for t in parts]), names, hashes)

    def _key_schema(self) -> pa.Schema:
        shared = {f"{self.ctx.step}/{name}" for name in self.broadcasts}
        return next(t.schema for t in self.binding.tables if t.name not in shared)

    def _ordered(self, rows: pa.Table | None, keys: KeySet) -> Ordered:
        if rows is None or not rows.num_rows:
            return Ordered(pa.table({}), np.empty(0, np.int64), np.empty(0, np.int64))
        shown = [n for n in self.facts.columns if n in rows.column_names]
        return Ordered.of(rows, keys.inverse[: rows.num_rows], self.facts.time, shown)

    # -- the control stream ------------------------------------------------------------

    def _run_control(self, control: pa.Table) -> None:
        outputs = Outputs(self.op.schemas, latest=False)
        ctx = self._context(pa.table({}), None, outputs, Times(self.before, self.ctx.now_us))
        errors = run_control(control, self.op, self.broadcasts, ctx, outputs, self.ctx.step)
        if self.ctx.task != 0:  # one task reports the rows and errors
            return
        if errors is not None:
            self.errors.append(errors)
        if not self.op.latest:
            for side, output in outputs.items():
                if output.items:
                    self.parts[side].append(OutputColumns(columns(output.items, output.schema)))

    # -- running user code ----------------------------------------------------------------

    def _process(
        self,
        keys: KeySet,
        rows: Ordered,
        opened: Mapping[str, DueTimers],
        swept: Mapping[str, pa.Table],
    ) -> None:
        done = self._in_lanes(keys, rows)
        if done is None:
            self._by_key(keys, rows, opened, swept)
        elif not done.all():
            numbers = np.flatnonzero(~done)
            places = np.flatnonzero(~done[rows.keys])
            left = Ordered(rows.rows, rows.order[places], np.searchsorted(numbers, rows.keys[places]))
            before = {side: len(parts) for side, parts in self.parts.items()}
            self._by_key(some_keys(keys, numbers, self.op.key), left, opened, swept)
            for side, parts in self.parts.items():
                parts[before[side] :] = [replace(p, keys=numbers[p.keys]) for p in parts[before[side] :]]

    def _in_lanes(self, keys: KeySet, rows: Ordered) -> Bools | None:
        """Run as many keys as possible in lanes; returns which, or None if user code does not allow it."""
        if self.timed or not self.vectorized or not all(keeps_lanes(state) for state in self.op.states):
            return None
        if not is_tried(self.op.code) or not allowed(self.op.code):
            return None
        some = rounds(np.searchsorted(rows.keys, np.arange(len(keys) + 1)))
        if not len(some.keys):
            return None
        mine = keys if len(some.keys) == len(keys) else some_keys(keys, np.sort(some.keys), self.op.key)
        states = [
            (s, ColumnHandle(s, self.ctx.table(f"{self.ctx.step}/{s.name}"), mine)) for s in self.op.states
        ]
        result = run_lanes(self.op.code, states, self.op.schema, rows, some)
        if result is None:
            return None
        self.changes += result.changes
        self.parts[MAIN].append(result.part(self.op.latest))
        done = np.zeros(len(keys), np.bool_)
        done[some.keys] = True
        return done

    def _by_key(
        self,
        keys: KeySet,
        rows: Ordered,
        opened: Mapping[str, DueTimers],
        swept: Mapping[str, pa.Table],
    ) -> None:
        """Run user code key by key and row by row."""
        starts = np.searchsorted(rows.keys, np.arange(len(keys) + 1)).tolist()
        times = None
        if self.facts.time is not None:
            times = rows.times(self.facts.time) if len(rows.keys) else []

        def batch(some: pa.Table) -> Batch:
            return self._batch(keys, some, times, starts, opened)

        names = rows.rows.column_names
        read = columns_read(self.op.code, names) if self.vectorized else None
        first = batch(rows.columns(names if read is None else [n for n in names if n in read] or names[:1]))
        with limited(first, self.op.timeout_us, f"step {self.ctx.step!r}"):
            again = first.fast(range(len(keys)))
        skip = np.zeros(len(keys), np.bool_)
        skip[sorted(again)] = True
        self._take(first, skip, keys, swept)
        if again:
            if len(rows.keys) and len(names) < len(self.facts.columns):
                raise _TooNarrow
            second = batch(rows.some(np.flatnonzero(skip[rows.keys])))
            with limited(second, self.op.timeout_us, f"step {self.ctx.step!r}"):
                second.careful(sorted(again))
            self._take(second, ~skip, keys, swept)
            self._report_failures(second.failures, rows, keys)

    def _batch(
        self,
        keys: KeySet,
        rows: pa.Table,
        times: list[int] | None,
        starts: list[int],
        opened: Mapping[str, DueTimers],
    ) -> Batch:
        clocks = Times(self.before, self.ctx.now_us)
        handles = self._handles(keys, clocks)
        timers = None
        if self.timed:
            timers = Timers(self.ctx.step, self.ctx.table(f"{self.ctx.step}/timers"), keys, self.limits)
            for found in opened.values():
                timers.load(found.due)
        code = self.op.code
        outputs = Outputs(self.op.schemas, self.op.latest)
        ctx = self._context(keys.columns, timers, outputs, clocks)
        ctx.row_times = times
        return Batch(
            self.ctx.step,
            self.ctx.epoch,
            code,
            code.bound({**handles, **self.broadcasts}),
            self._swift(handles, starts),
            list(handles.values()),
            timers,
            ctx,
            clocks,
            RowFeed(rows),
            times,
            starts,
            self.limits,
            self.before,
            outputs,
            self._fits,
        )

    def _handles(self, keys: KeySet, clocks: Times) -> dict[str, Handle]:
        handles: dict[str, Handle] = {}
        for state in self.op.keyed_states:
            table = self.ctx.table(f"{self.ctx.step}/{state.name}")
            swept = None
            if state.ttl is not None:
                swept = self.specs[sweep_name(self.ctx.step, state.name, state.sweep_tier)]
            home = Home(state, self.ctx.step, table, swept, keys, clocks, lambda n: _key_text(keys, n))
            handles[state.name] = handle_of(home)
        return handles

    def _swift(self, handles: Mapping[str, Handle], starts: list[int]) -> Swift:
        """Make cells for the states that can have one."""
        never_empty = never_emptied(self.op.code) if self.vectorized else frozenset[str]()
        always = always_set(self.op.code) if self.vectorized and not self.timed else frozenset[str]()
        shared: dict[str, Shared] = {}
        ready = np.diff(starts) > 0
        awaited = []
        for name, handle in handles.items():
            if not isinstance(handle, ValueHandle):
                continue
            both = handle.shared(name not in never_empty, name in always)
            if both is None:
                continue
            shared[name] = both
            if handle.shows_default and name not in always:
                awaited.append(both.values)
                ready &= handle.found
        cells = {name: both.cell for name, both in shared.items()}
        return Swift(
            self.op.code.bound({**handles, **self.broadcasts, **cells}),
            list(shared.values()),
            [handle for name, handle in handles.items() if name not in shared],
            awaited,
            ready.tolist(),
        )

    def _context(
        self, key_columns: pa.Table, timers: Timers | None, outputs: Outputs, clocks: Times
    ) -> ProcessContext:
        return ProcessContext(
            epoch=self.ctx.epoch,
            now_us=self.ctx.now_us,
            times=clocks,
            aware=self.facts.aware,
            key_columns=key_columns,
            timers=timers,
            emit=_emit(outputs, self.op.latest),
        )

    # -- results --------------------------------------------------------------------------

    def _fits(self, side: str, item: Any) -> None:
        if item is None and self.op.latest and side == MAIN:
            return
        check_fits(item, self.op.schemas[side])

    def _take(self, batch: Batch, skip: Bools, keys: KeySet, swept: Mapping[str, pa.Table]) -> None:
        # Expired state is removed after the rows ran: rows from before its expiry still read it.
        batch.times.event = batch.times.here = self.limits["event"]
        batch.times.processing = self.limits["processing"]
        for state, handle in zip(self.op.keyed_states, batch.handles, strict=True):
            if state.name in swept:
                sweep(state, handle, swept[state.name], keys)
            self.changes += handle.changes(skip)
        if batch.timers is not None:
            self.changes += batch.timers.changes(skip)
        for side, output in batch.outputs.items():
            self.parts[side] += output.parts

    def _report_failures(self, failures: Sequence[Failure], ordered: Ordered, keys: KeySet) -> None:
        rows = [f for f in failures if f.place >= 0]
        if rows:
            bad = ordered.some(np.array([f.place for f in rows]))
            self.errors.append(error_rows(bad, [f.reason for f in rows]))
        fired = [f for f in failures if f.place < 0]
        if fired:
            bad = keys.columns.take(pa.array([f.key for f in fired]))
            if not self.op.key:
                bad = pa.table({WEIGHT: np.ones(len(fired), np.int64)})
            self.errors.append(error_rows(bad, [f"timer {f.timer!r}: {f.reason}" for f in fired]))


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Pause Python's garbage collector: scanning millions of live rows takes a fifth of the time."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _emit(outputs: Outputs, latest: bool) -> Callable[[str, Any], None]:
    """The function behind `ctx.emit` and `ctx.remove`.

    It has no reference to the context, so both are freed without garbage collection.
    """

    def emit(side: str, item: Any) -> None:
        if item is None and side == MAIN and not latest:
            raise TypeError("remove() takes back the latest row of a key: pass latest=True to process()")
        outputs.find(side).items.append(item)

    return emit


def _key_text(keys: KeySet, number: int) -> str:
    row = keys.columns.slice(number, 1).to_pylist()
    shown = ", ".join(f"{name}={value!r}" for name, value in row[0].items()) if row else ""
    return f"key {shown}" if shown else "the only key"
