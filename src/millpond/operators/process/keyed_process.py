"""KeyedProcess: a user's Python per key, with state, timers and side outputs.

Law: the outcome of an epoch is a function of the state before it and of the
rows it admits (law 3): rows of a key come in the order of (event time, origin),
timers in the order of their times, both whatever the parallelism.  It costs
the keys touched and what is touched of them (law 5): their state is fetched in
one lookup per table before the loop, and written as one change after it.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import HASH, ORIGIN, WEIGHT, concat, with_weights
from millpond.delta import weights as weights_of
from millpond.errors import InvalidError
from millpond.identity import equal_rows, one_chunk
from millpond.operators.event_time import micros
from millpond.operators.flat_map import python_rows
from millpond.operators.kernel import canonical_rows, error_rows, join_errors, visible
from millpond.operators.map import check_names
from millpond.operators.operator import (
    BROADCAST,
    Binding,
    Change,
    Context,
    Inputs,
    Result,
    Shape,
    Wake,
    by_key,
)
from millpond.operators.process import in_order
from millpond.operators.process.batch import Batch, Failure, Output
from millpond.operators.process.broadcast_handle import BroadcastHandle
from millpond.operators.process.context import ProcessContext
from millpond.operators.process.function import Code
from millpond.operators.process.handle import Handle, Home, Times
from millpond.operators.process.in_order import plain_rows
from millpond.operators.process.list_handle import ListHandle
from millpond.operators.process.map_handle import MapHandle
from millpond.operators.process.outputs import NOT_ARROW, check_fits, columns, misfits
from millpond.operators.process.spec import ENTRY, POSITION, SWEEPS, StateSpec, sweep_name
from millpond.operators.process.timers import (
    NEVER,
    Opened,
    Timers,
    due_tables,
    is_due,
    open_due,
    set_table,
    wakes,
)
from millpond.operators.process.value_handle import LivingValueHandle, ValueHandle, with_result
from millpond.operators.process.watchdog import limited
from millpond.operators.python_values import python_values
from millpond.operators.user_code import FATAL, told
from millpond.operators.watermark import stored
from millpond.state.table import KeySet
from millpond.state.table_spec import TableSpec

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MAIN = ""
OUTPUT = "output"  # the column that tells to which output a row belongs, in a step with side outputs


@dataclass(frozen=True)
class Facts:
    """What `bind` worked out."""

    columns: tuple[str, ...]  # of the input
    control: tuple[str, ...]
    time: str | None
    watermark: str | None
    aware: bool  # has the time column a zone?


@dataclass(frozen=True)
class KeyedProcess:
    key: tuple[str, ...]
    code: Code
    states: tuple[StateSpec, ...]
    schema: pa.Schema  # of the rows it gives
    sides: tuple[tuple[str, pa.Schema], ...] = ()
    latest: bool = False  # the newest row of each key is its only one
    timeout_us: int | None = 60_000_000  # for one call

    canonical: ClassVar[bool] = True

    # -- before any row ------------------------------------------------------------

    def meaning(self) -> Any:
        """What must stay the same for the state to stand: code, states and outputs may change."""
        return (self.key, self.latest)

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        shape, *others = inputs
        self._check(step, shape, others)
        key = pa.schema([stored(shape.schema).field(name) for name in self.key])
        tables: list[TableSpec] = []
        woken: list[Wake] = []
        for state in self.states:
            self._check_ttl(step, state, shape)
            tables.append(state.table(step, key))
            sweeps = state.sweeps(step, key)
            tables += sweeps
            if state.ttl is not None and state.ttl.clock == "processing":
                woken += [Wake(t.name, t.bucket_width or 1, 1) for t in sweeps]
        if self.code.has("on_timer"):
            tables += [set_table(step, key), *due_tables(step, key)]
            woken += wakes(step)
        aware = (
            shape.time is not None and getattr(shape.schema.field(shape.time).type, "tz", None) is not None
        )
        control = tuple(others[0].schema.names) if others else ()
        facts = Facts(tuple(shape.schema.names), control, shape.time, shape.watermark, aware)
        given = self.given(key)
        check_names(given.names, step)
        placements = (by_key(*self.key), *(BROADCAST for _ in others))
        if not self.latest:
            return Binding(
                Shape(given, append_only=True), placements, tuple(tables), wakes=tuple(woken), extra=facts
            )
        out = TableSpec(f"{step}/out", given, self.key)
        return Binding(
            Shape(given, append_only=False, key=self.key),
            placements,
            (*tables, out),
            view=out.name,
            placed_by=self.key,
            wakes=tuple(woken),
            extra=facts,
        )

    def given(self, key: pa.Schema) -> pa.Schema:
        """All columns of all outputs; of one row per key, the key first."""
        if self.latest:
            return pa.schema([*key, *(f for f in self.schema if f.name not in self.key)])
        if not self.sides:
            return self.schema
        fields = [pa.field(OUTPUT, pa.string())]
        for side, schema in ((MAIN, self.schema), *self.sides):
            fields += [f.with_name(side_column(side, f.name)) for f in schema]
        return pa.schema(fields)

    def _check(self, step: str, shape: Shape, others: Sequence[Shape]) -> None:
        for name in self.key:
            if name not in shape.schema.names:
                raise InvalidError(
                    f"there is no column {name!r}",
                    detail=f"columns are {', '.join(shape.schema.names)}",
                    step=step,
                )
        if not shape.append_only:
            raise InvalidError(
                "process needs append-only input",
                detail="rows of this stream can be taken back; user code cannot undo what it did",
                hint="put process before aggregates, joins and tables, or use apply() on all rows of a key",
                step=step,
            )
        if others and not self.code.has("on_control"):
            raise InvalidError(
                "a control stream needs an on_control method", hint="write the step as a class", step=step
            )
        if others and not others[0].append_only and not self.code.has("on_control_removed"):
            raise InvalidError(
                "rows of the control stream can be taken back",
                detail="it is a table, or made of one",
                hint="define on_control_removed(self, row, ctx) as well: an update removes the old row first",
                step=step,
            )
        if not others and any(s.kind == "broadcast" for s in self.states):
            raise InvalidError(
                "a broadcast state needs a control stream", hint="pass control=stream to process()", step=step
            )
        if self.latest and self.sides:
            raise InvalidError(
                "latest=True gives one row per key, and side outputs are rows besides",
                hint="leave out one of them",
                step=step,
            )
        names = [s.name for s in self.states]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise InvalidError(
                f"state {twice!r} is declared twice", hint="give one of them another name", step=step
            )

    def _check_ttl(self, step: str, state: StateSpec, shape: Shape) -> None:
        if state.ttl is not None and state.ttl.clock == "event" and shape.watermark is None:
            raise InvalidError(
                f"state {state.name!r} lives by event time, but the stream has none",
                hint='pass event_time= to pond.stream(), or clock="processing" to the state',
                step=step,
            )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        facts: Facts = binding.extra
        found = [frozenset([*facts.columns, ORIGIN])]
        if len(binding.placements) > 1:
            found.append(frozenset([*facts.control, ORIGIN]))
        return tuple(found)

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        facts: Facts = binding.extra
        event = watermarks.get(facts.watermark, NEVER) if facts.watermark is not None else NEVER
        bounds = {"event": event, "processing": now_us}
        step = binding.tables[0].name.rpartition("/")[0] if binding.tables else ""
        if any(is_due(step, clock, earliest, bound) for clock, bound in bounds.items()):
            return True
        return any(
            (earliest[name] + 1) * width <= bounds[state.ttl.clock]
            for state in self.states
            if state.ttl is not None
            for tier, width in enumerate(SWEEPS)
            if (name := sweep_name(step, state.name, tier)) in earliest
        )

    # -- one epoch -------------------------------------------------------------------

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        epoch = _Epoch(self, ctx, binding)
        return epoch.run(inputs[0], inputs[1] if len(inputs) > 1 else None)


def side_column(side: str, column: str) -> str:
    return f"{side or 'main'}.{column}"


class _Epoch:
    """One step of one task; lives for one call of `apply`."""

    def __init__(self, operator: KeyedProcess, ctx: Context, binding: Binding) -> None:
        self.op = operator
        self.ctx = ctx
        self.binding = binding
        self.facts: Facts = binding.extra
        self.specs = {t.name: t for t in binding.tables}
        self.before = self._bound(ctx.watermark_before)
        self.limits = {"event": self._bound(ctx.watermark), "processing": ctx.now_us}
        self.timed = operator.code.has("on_timer")
        self.broadcasts: dict[str, BroadcastHandle] = {
            s.name: BroadcastHandle(s, ctx.step, ctx.table(f"{ctx.step}/{s.name}", everywhere=True))
            for s in operator.states
            if s.kind == "broadcast"
        }
        self.schemas = {MAIN: operator.schema, **dict(operator.sides)}
        self.changes: list[Change] = []
        self.drops: list[tuple[str, int]] = []
        self.errors: list[pa.Table] = []

    def _bound(self, ask: Any) -> int:
        found = ask(self.facts.watermark) if self.facts.watermark is not None else None
        return NEVER if found is None else int(found)

    def run(self, delta: pa.Table | None, control: pa.Table | None) -> Result:
        with no_collection():
            return self._run(delta, control)

    def _run(self, delta: pa.Table | None, control: pa.Table | None) -> Result:
        opened = self._open_timers()
        swept = self._open_sweeps()
        rows = None if delta is None else plain_rows(delta)
        keys = self._keys(rows, [*(o.due for o in opened.values()), *swept.values()])
        ordered, row_keys = self._ordered(rows, keys)
        self.ordered = ordered
        out = {side: Output() for side in self.schemas}
        if control is not None:
            self._hear(control, out)
        if len(keys):
            self._process(keys, ordered, row_keys, opened, swept, out)
        for handle in self.broadcasts.values():
            self.changes += handle.change(self.ctx.h_min, self.ctx.h_max)
        result = self._result(keys, out)
        return Result(
            result,
            tuple(c for c in self.changes if c.rows.num_rows),
            join_errors(*self.errors) if self.errors else None,
            tuple(self.drops),
        )

    # -- what is due ---------------------------------------------------------------

    def _open_timers(self) -> dict[str, Opened]:
        if not self.timed:
            return {}
        found = {}
        for clock in ("event", "processing"):
            if self.limits[clock] > NEVER:
                opened = open_due(self.ctx, self.ctx.step, clock, self.limits[clock])
                self.changes += opened.moved
                self.drops += opened.drops
                found[clock] = opened
        return found

    def _open_sweeps(self) -> dict[str, pa.Table]:
        """By state, where lives ended in buckets that are wholly over."""
        found = {}
        for state in self.op.states:
            if state.ttl is None or (bound := self.limits[state.ttl.clock]) == NEVER:
                continue
            parts = []
            for tier, width in enumerate(SWEEPS):
                name, over = sweep_name(self.ctx.step, state.name, tier), bound // width
                table = self.ctx.table(name, below_bucket=over)
                if table.runs:
                    parts.append(table.scan())
                    self.drops.append((name, over))
            if parts:
                found[state.name] = pa.concat_tables(parts)
        return found

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
        schema = pa.schema([self.specs_key().field(n) for n in names])
        return KeySet.of(pa.concat_tables([t.select(names).cast(schema) for t in parts]), names, hashes)

    def specs_key(self) -> pa.Schema:
        shared = {f"{self.ctx.step}/{name}" for name in self.broadcasts}
        return next(t.schema for t in self.binding.tables if t.name not in shared)

    def _ordered(self, rows: pa.Table | None, keys: KeySet) -> tuple[pa.Table | None, Ints]:
        """The rows by key, event time and origin; and the key of each."""
        if rows is None or not rows.num_rows:
            return None, np.empty(0, np.int64)
        inverse = keys.inverse[: rows.num_rows]
        order = in_order.by_key(rows, inverse, self.facts.time)
        shown = rows.select([n for n in self.facts.columns if n in rows.column_names])
        return canonical_rows(shown).take(pa.array(order)), inverse[order]

    # -- the control stream ------------------------------------------------------------

    def _hear(self, control: pa.Table, out: dict[str, Output]) -> None:
        """Every task hears all of it; one of them tells what came of it."""
        w = weights_of(control)
        shown = visible(control.drop_columns([n for n in (ORIGIN,) if n in control.column_names]))
        rank = in_order.came(control.drop_columns([n for n in (WEIGHT,) if n in control.column_names]))
        order = np.lexsort((rank, w > 0))
        rows = shown.take(pa.array(order))
        talks = self.ctx.task == 0
        heard = {side: Output() for side in out}

        def emit(side: str, item: Any) -> None:
            _output(heard, side).items.append(item)

        ctx = self._context(pa.table({}), None, emit)
        calls = self.op.code.bound({**self._unused(), **self.broadcasts})
        failed: dict[int, str] = {}
        for handle in self.broadcasts.values():
            handle.listen(True)
        with self._limit(ctx):
            for place, (row, weight) in enumerate(zip(python_rows(rows), w[order].tolist(), strict=True)):
                method = "on_control" if weight > 0 else "on_control_removed"
                saved = {name: handle.save() for name, handle in self.broadcasts.items()}
                ctx.calls += 1
                try:
                    found = calls[method](row, ctx)
                    for item in _rows_given(found):
                        check_fits(item, self.op.schema)
                        heard[MAIN].items.append(item)
                except FATAL:
                    raise
                except Exception as error:
                    failed[place] = told(error, self.op.code.where(method))
                    for name, handle in self.broadcasts.items():
                        handle.restore(saved[name])
        for handle in self.broadcasts.values():
            handle.listen(False)
        if not talks:
            return
        for side, output in heard.items():
            out[side].items += output.items
            out[side].keys += [-1] * len(output.items)
        if failed:
            bad = sorted(failed)
            self.errors.append(error_rows(rows.take(pa.array(bad)), [failed[n] for n in bad]))

    def _unused(self) -> dict[str, Any]:
        """Keyed states where there is no key."""
        return {s.name: _NoKey(s.name) for s in self.op.states if s.kind != "broadcast"}

    # -- keys through user code -----------------------------------------------------------

    def _process(
        self,
        keys: KeySet,
        ordered: pa.Table | None,
        row_keys: Ints,
        opened: Mapping[str, Opened],
        swept: Mapping[str, pa.Table],
        out: dict[str, Output],
    ) -> None:
        rows = [] if ordered is None else python_rows(ordered)
        starts = np.searchsorted(row_keys, np.arange(len(keys) + 1)).tolist()
        times = None
        if self.facts.time is not None:
            times = [] if ordered is None else micros(ordered.column(self.facts.time))[0].tolist()

        def batch(outputs: dict[str, Output]) -> Batch:
            return self._batch(keys, rows, times, starts, opened, outputs)

        first = batch({side: Output() for side in self.schemas})
        with self._limit(first.ctx):
            again = set(first.fast(range(len(keys))))
        again |= self._misfits(first.outputs, again)
        skip = np.zeros(len(keys), np.bool_)
        skip[sorted(again)] = True
        self._take(first, skip, out, keys, swept)
        if again:
            if ordered is not None:  # lists and dicts inside the rows may have been changed
                rows = python_rows(ordered)
            second = batch({side: Output() for side in self.schemas})
            with self._limit(second.ctx):
                second.careful(sorted(again))
            self._take(second, ~skip, out, keys, swept)
            self._tell(second.failures, ordered, keys)

    def _batch(
        self,
        keys: KeySet,
        rows: list[Any],
        times: list[int] | None,
        starts: list[int],
        opened: Mapping[str, Opened],
        outputs: dict[str, Output],
    ) -> Batch:
        clocks = Times(self.before, self.ctx.now_us)
        handles = self._handles(keys, clocks)
        timers = None
        if self.timed:
            timers = Timers(self.ctx.step, self.ctx.table(f"{self.ctx.step}/timers"), keys, self.limits)
            for found in opened.values():
                timers.load(found.due)

        def emit(side: str, item: Any) -> None:
            if item is None and side == MAIN and not self.op.latest:
                raise TypeError("remove() takes back the latest row of a key: pass latest=True to process()")
            output = _output(outputs, side)
            output.items.append(item)
            output.keys.append(ctx.at)

        ctx = self._context(keys.columns, timers, emit, clocks)
        ctx.row_times = times
        return Batch(
            self.ctx.step,
            self.ctx.epoch,
            self.op.code,
            self.op.code.bound({**handles, **self.broadcasts}),
            list(handles.values()),
            timers,
            ctx,
            clocks,
            rows,
            times,
            starts,
            self.limits,
            self.before,
            outputs,
            self._fits,
        )

    def _handles(self, keys: KeySet, clocks: Times) -> dict[str, Handle]:
        found: dict[str, Handle] = {}
        for state in self.op.states:
            if state.kind == "broadcast":
                continue
            table = self.ctx.table(f"{self.ctx.step}/{state.name}")
            sweep = None
            if state.ttl is not None:
                sweep = self.specs[sweep_name(self.ctx.step, state.name, state.sweep_tier)]
            home = Home(state, self.ctx.step, table, sweep, keys, clocks, lambda n: _key_text(keys, n))
            if state.kind == "list":
                handle: Handle = ListHandle(home)
            elif state.kind == "map":
                handle = MapHandle(home)
            else:
                kind = ValueHandle if state.ttl is None else LivingValueHandle
                results = state.adds is not None and state.adds.result is not None
                handle = (with_result(kind) if results else kind)(home)
            found[state.name] = handle
        return found

    def _sweep(self, state: StateSpec, handle: Any, over: pa.Table, keys: KeySet) -> None:
        """Let go of what no longer lives; what was renewed since lives on."""
        if not over.num_rows:
            return
        numbers = _numbers(keys, over, self.op.key).tolist()
        if state.kind == "value":
            for number in sorted(set(numbers)):
                handle.sweep(number)
        elif state.kind == "list":
            places: dict[int, set[int]] = {}
            for number, position in zip(numbers, python_values(over.column(POSITION)), strict=True):
                places.setdefault(number, set()).add(position)
            for number, positions in sorted(places.items()):
                handle.sweep(number, sorted(positions, reverse=True))
        else:
            for number, entry in zip(numbers, python_values(over.column(ENTRY)), strict=True):
                handle.sweep(number, entry)

    def _context(
        self, key_columns: pa.Table, timers: Timers | None, emit: Any, clocks: Times | None = None
    ) -> ProcessContext:
        return ProcessContext(
            epoch=self.ctx.epoch,
            now_us=self.ctx.now_us,
            times=clocks or Times(self.before, self.ctx.now_us),
            aware=self.facts.aware,
            key_columns=key_columns,
            timers=timers,
            emit=emit,
        )

    def _limit(self, ctx: ProcessContext) -> contextlib.AbstractContextManager[None]:
        if self.op.timeout_us is None:
            return contextlib.nullcontext()
        return limited(ctx, self.op.timeout_us / 1e6, f"step {self.ctx.step!r}")

    # -- what came of it ------------------------------------------------------------------

    def _fits(self, side: str, item: Any) -> None:
        if item is None and self.op.latest and side == MAIN:
            return
        check_fits(item, self.schemas[side])

    def _misfits(self, outputs: Mapping[str, Output], again: set[int]) -> set[int]:
        """The keys of rows that do not fit their output."""
        found = set()
        for side, output in outputs.items():
            items, owners = output.items, output.keys
            if self.op.latest:
                there = [n for n, item in enumerate(items) if item is not None]
                items, owners = [items[n] for n in there], [owners[n] for n in there]
            if not items:
                continue
            try:
                output.columns = columns(items, self.schemas[side])
            except NOT_ARROW:
                for number in misfits(items, self.schemas[side]):
                    found.add(owners[number])
        return found - again

    def _take(
        self, batch: Batch, skip: Bools, out: dict[str, Output], keys: KeySet, swept: Mapping[str, pa.Table]
    ) -> None:
        # What ended is let go of after the rows: those of before its end still saw it.
        batch.times.event = batch.times.here = self.limits["event"]
        batch.times.processing = self.limits["processing"]
        keyed = [s for s in self.op.states if s.kind != "broadcast"]
        for state, handle in zip(keyed, batch.handles, strict=True):
            if state.name in swept:
                self._sweep(state, handle, swept[state.name], keys)
            self.changes += handle.changes(skip)
        if batch.timers is not None:
            self.changes += batch.timers.changes(skip)
        whole = not skip.any()
        for side, output in batch.outputs.items():
            if whole and not out[side].items:
                out[side] = output
                continue
            mine = out[side]
            mine.columns = None
            for item, key in zip(output.items, output.keys, strict=True):
                if not skip[key]:
                    mine.items.append(item)
                    mine.keys.append(key)

    def _tell(self, failures: Sequence[Failure], ordered: pa.Table | None, keys: KeySet) -> None:
        rows = [f for f in failures if f.place >= 0]
        if rows:
            assert ordered is not None
            bad = ordered.take(pa.array([f.place for f in rows]))
            self.errors.append(error_rows(bad, [f.reason for f in rows]))
        fired = [f for f in failures if f.place < 0]
        if fired:
            bad = keys.columns.take(pa.array([f.key for f in fired]))
            if not self.op.key:
                bad = pa.table({WEIGHT: np.ones(len(fired), np.int64)})
            self.errors.append(error_rows(bad, [f"timer {f.timer!r}: {f.reason}" for f in fired]))

    def _result(self, keys: KeySet, out: Mapping[str, Output]) -> pa.Table | None:
        if self.op.latest:
            return self._replaced(keys, out[MAIN])
        if not self.op.sides:
            main = out[MAIN]
            return (
                pa.table(columns(main.items, self.op.schema), schema=self.op.schema) if main.items else None
            )
        parts = []
        given = self.binding.shape.schema
        for side, output in out.items():
            if not output.items:
                continue
            schema = self.schemas[side]
            made = {side_column(side, f.name): c for f, c in zip(schema, self._made(out, side), strict=True)}
            made[OUTPUT] = pa.array([side] * len(output.items), pa.string())
            length = len(output.items)
            arrays = [made[f.name] if f.name in made else pa.nulls(length, f.type) for f in given]
            parts.append(pa.table(arrays, schema=given))
        return pa.concat_tables(parts) if parts else None

    def _made(self, out: Mapping[str, Output], side: str) -> list[pa.Array]:
        output = out[side]
        return output.columns or columns(output.items, self.schemas[side])

    def _replaced(self, keys: KeySet, main: Output) -> pa.Table | None:
        """One row per key: the newest given takes the place of the one before."""
        last = {key: item for item, key in zip(main.items, main.keys, strict=True) if key >= 0}
        if not last:
            return None
        spec = self.specs[f"{self.ctx.step}/out"]
        schema = self.binding.shape.schema
        numbers = np.array(sorted(last))
        there = np.array([last[int(n)] is not None for n in numbers])
        items = [last[int(n)] for n in numbers[there]]
        place = pa.array(np.cumsum(there) - 1, mask=~there)
        key = keys.columns.take(pa.array(numbers))
        # Whatever a row says of its key, it is this one.
        made = dict(zip(self.op.schema.names, columns(items, self.op.schema), strict=True))
        given = [
            one_chunk(key.column(f.name)) if f.name in self.op.key else made[f.name].take(place)
            for f in schema
        ]
        fresh = pa.table(given, schema=schema)
        asked = KeySet(keys.hashes[numbers], key, np.empty(0, np.int64))
        found, old = self.ctx.table(spec.name).lookup_one(asked)
        same = equal_rows(given, [one_chunk(old.column(n)) for n in schema.names], len(numbers))
        moved = np.where(there, ~(same & found), found)
        written = fresh.append_column(HASH, pa.array(asked.hashes)).append_column(
            WEIGHT, pa.array(there.astype(np.int64))
        )
        self.changes.append(Change(spec.name, written.filter(pa.array(moved)), True))
        gone, come = old.filter(pa.array(found & moved)), fresh.filter(pa.array(there & moved))
        return concat(
            [
                with_weights(gone, np.full(gone.num_rows, -1, np.int64)),
                with_weights(come, np.ones(come.num_rows, np.int64)),
            ]
        )


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Rows by the million are not garbage: looking through them again and again takes a fifth of the time."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


class _NoKey:
    """A keyed state in on_control, where there is no key."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def __getattr__(self, attribute: str) -> Any:
        raise TypeError(f"state {self._name!r} belongs to a key, and on_control has none")

    def __setattr__(self, attribute: str, value: Any) -> None:
        raise TypeError(f"state {self._name!r} belongs to a key, and on_control has none")


def _output(outputs: Mapping[str, Output], side: str) -> Output:
    try:
        return outputs[side]
    except KeyError:
        known = ", ".join(s for s in outputs if s) or "none"
        raise ValueError(f"no side output {side!r}; declared are {known}") from None


def _rows_given(found: Any) -> list[Any]:
    if found is None:
        return []
    return list(found) if isinstance(found, list) or hasattr(found, "send") else [found]


def _numbers(keys: KeySet, rows: pa.Table, key: tuple[str, ...]) -> Ints:
    """The number of each row's key among the keys, which hold all of them."""
    if not key:
        return np.zeros(rows.num_rows, np.int64)
    both = pa.concat_tables([keys.columns, rows.select(list(key)).cast(keys.columns.schema)])
    hashes = np.concatenate([keys.hashes, one_chunk(rows.column(HASH)).to_numpy()])
    together = KeySet.of(both, list(key), hashes)
    place = np.empty(len(together), np.int64)
    place[together.inverse[: len(keys)]] = np.arange(len(keys))
    return place[together.inverse[len(keys) :]]


def _key_text(keys: KeySet, number: int) -> str:
    row = keys.columns.slice(number, 1).to_pylist()
    shown = ", ".join(f"{name}={value!r}" for name, value in row[0].items()) if row else ""
    return f"key {shown}" if shown else "the only key"
