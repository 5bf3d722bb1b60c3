"""CountWindows: windows of a number of rows of a key, in the order in which they arrived.

Law: the rows of a key are numbered from 0 by their origin, so the windows do not depend on tasks (law 3).
A window [start, end) has the rows with these numbers, and starts at a multiple of `step`.  With `closes` the
rows of a window are emitted once, when it is full.  With a timeout it also closes that long after its first
row, by the clock; the next row then starts a window.  Only over append-only input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import HASH, ORIGIN, WEIGHT, concat, negate, weights, with_weights, without_origin
from millpond.errors import InvalidError
from millpond.identity import one_chunk, take
from millpond.kernels.timer_wheel import TimerWheel
from millpond.kernels.trigger_deadlines import AT, WIDTHS
from millpond.kernels.window_assigners import Assigned
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, Wake, by_key
from millpond.operators.traits import DependsOnArrival, FiresByTime
from millpond.operators.window import END, START
from millpond.ordering import Order
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]
NEXT, BASE, NUMBER = "_next", "_base", "_number"


@dataclass(frozen=True)
class CountWindows(FiresByTime, DependsOnArrival):
    key: tuple[str, ...]
    n: int
    step: int
    closes: bool = False  # emit a window when it is full, instead of every row at once
    timeout_us: int | None = None

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        if not shape.append_only:
            raise InvalidError(
                "windows of a number of rows need append-only input",
                detail="a deleted row would renumber the rows after it",
                step=step,
            )
        schema = stored(shape.schema)
        own = [schema.field(name) for name in self.key]
        counts = pa.schema([*own, pa.field(NEXT, pa.int64()), pa.field(BASE, pa.int64())])
        tables = [TableSpec(f"{step}/counts", counts, self.key)]
        if self.closes:
            numbered = pa.schema([*schema, pa.field(NUMBER, pa.int64())])
            tables.append(TableSpec(f"{step}/rows", numbered, self.key, rule="weights"))
        wakes: tuple[Wake, ...] = ()
        if self.timeout_us is not None:
            hints = pa.schema([*own, pa.field(BASE, pa.int64()), pa.field(AT, pa.timestamp("us"))])
            tables += _wheel(step).tables(hints, self.key, (Order(BASE), Order(AT)))
            wakes = tuple(Wake(name, width, 0) for name, width in _wheel(step).names)
        output = pa.schema([*schema, pa.field(START, pa.int64()), pa.field(END, pa.int64())])
        return Binding(
            Shape(output, append_only=True),
            (by_key(*self.key),),
            tuple(tables),
            placed_by=self.key,
            wakes=wakes,
        )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        own = frozenset(binding.shape.schema.names) - {START, END} if self.closes else needed - {START, END}
        return (own | {*self.key, ORIGIN},)

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        step = binding.tables[0].name.rpartition("/")[0]
        return self.timeout_us is not None and _wheel(step).is_due(earliest, now_us)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        counts = binding.tables[0]
        due, moved, drops = self._due(ctx)
        touched = [t.select([*self.key, HASH]) for t in (delta, due) if t is not None]
        if not touched:
            return StepResult(changes=moved, drops=drops)
        every = pa.concat_tables(touched, promote_options="permissive")
        keys = KeySet.of(every, self.key, one_chunk(every.column(HASH)).to_numpy())
        _, stored = ctx.table(counts.name).lookup_one(keys)
        before, base = (one_chunk(stored.column(c)).to_numpy() for c in (NEXT, BASE))
        number = np.zeros(0, np.int64)
        after = before.copy()
        rows = None
        if delta is not None:
            key = keys.inverse[: delta.num_rows]
            rows, key = self._in_order(delta, key)
            starts = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
            sizes = np.diff(np.append(starts, len(key)))
            number = before[key] + np.arange(len(key)) - np.repeat(starts, sizes)
            after[key[starts]] += sizes
        ended = self._timed_out(keys, due, delta, before, base)
        changes: list[Change] = []
        out: pa.Table | None
        if not self.closes:
            assert rows is not None
            out = _with_windows(rows, self._windows(number, base[key]))
            new_base = base
        else:
            out, new_base, changes = self._close(ctx, binding, keys, rows, number, before, after, base, ended)
        columns = [*keys.columns.columns, pa.array(after), pa.array(new_base)]
        table = pa.table(columns, schema=counts.schema).append_column(HASH, pa.array(keys.hashes))
        changes.append(Change(counts.name, with_weights(table, np.ones(len(keys), np.int64))))
        changes += self._hints(ctx, table, base, new_base, before, after)
        return StepResult(out if out is not None and out.num_rows else None, (*changes, *moved), drops=drops)

    def _in_order(self, delta: pa.Table, key: Ints) -> tuple[pa.Table, Ints]:
        """Single rows by key and origin."""
        w = weights(delta)
        origin = np.arange(delta.num_rows)
        if ORIGIN in delta.column_names:
            origin = one_chunk(delta.column(ORIGIN)).to_numpy()
        order = np.repeat(np.lexsort((origin, key)), w[np.lexsort((origin, key))])
        rows = without_origin(delta).take(pa.array(order))
        hidden = [n for n in (WEIGHT, HASH) if n in rows.column_names]
        return rows.drop_columns(hidden), key[order]

    def _windows(self, number: Ints, base: Ints) -> Assigned:
        """The windows of numbered rows."""
        if self.timeout_us is not None:
            start = base + (number - base) // self.n * self.n
            return Assigned(np.arange(len(number)), start, start + self.n)
        last = number // self.step * self.step
        count = np.maximum((self.n - (number - last) + self.step - 1) // self.step, 0)
        row = np.repeat(np.arange(len(number)), count)
        back = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        start = last[row] - back * self.step
        return Assigned(row, start, start + self.n).some(start >= 0)

    def _close(
        self,
        ctx: Context,
        binding: Binding,
        keys: KeySet,
        rows: pa.Table | None,
        number: Ints,
        before: Ints,
        after: Ints,
        base: Ints,
        ended: npt.NDArray[np.bool_],
    ) -> tuple[pa.Table | None, Ints, list[Change]]:
        """(rows of windows that close, where the next window of each key begins, changes)."""
        spec = binding.tables[1]
        names = spec.schema.names
        stored = ctx.table(spec.name).lookup(keys)
        old = stored.table.select([*names, WEIGHT])
        parts = [old]
        if rows is not None:
            fresh = with_weights(
                rows.append_column(NUMBER, pa.array(number)), np.ones(rows.num_rows, np.int64)
            )
            parts.append(fresh.select([*names, WEIGHT]))
        every = concat(parts)
        mine = KeySet.of(every, self.key)
        of_key = _positions(keys, mine)[mine.inverse]
        numbers = one_chunk(every.column(NUMBER)).to_numpy()
        pairs = self._windows(numbers, base[of_key])
        key = of_key[pairs.row]
        full = (pairs.end <= after[key]) & (pairs.end > before[key])
        # A window that timed out ends before the rows of this epoch; they start the next one.
        late = ended[key] & (pairs.start == base[key]) & (numbers[pairs.row] < before[key])
        ends = np.where(late, before[key], pairs.end)
        if ended.any():
            base = np.where(ended, before, base)
            again = self._windows(numbers, base[of_key])
            key = of_key[again.row]
            full = (again.end <= after[key]) & (again.end > before[key])
            closing = [Assigned(pairs.row, pairs.start, ends).some(late), again.some(full)]
        else:
            closing = [pairs.some(full)]
        out = [_with_windows(every.select([n for n in names if n != NUMBER]), one) for one in closing]
        if self.timeout_us is None:
            keep_from = np.maximum((after - self.n) // self.step + 1, 0) * self.step
            next_base = base
        else:
            next_base = base + (after - base) // self.n * self.n
            keep_from = next_base
        stays = numbers >= keep_from[of_key]
        fresh_rows = np.arange(every.num_rows) >= old.num_rows
        changes = [
            every.filter(pa.array(stays & fresh_rows)),
            negate(every.filter(pa.array(~stays & ~fresh_rows))),
        ]
        return concat(out), next_base, [Change(spec.name, rows) for rows in changes if rows.num_rows]

    # -- timeouts ----------------------------------------------------------------------

    def _due(self, ctx: Context) -> tuple[pa.Table | None, tuple[Change, ...], tuple[tuple[str, int], ...]]:
        if self.timeout_us is None:
            return None, (), ()
        wheel = _wheel(ctx.step)
        opened = wheel.open(lambda name, end: ctx.table(name, below_bucket=end), ctx.now_us)
        later = () if opened.later is None else tuple(wheel.placed(opened.later, ctx.now_us))
        rows = opened.rows if opened.rows is not None and opened.rows.num_rows else None
        return rows, tuple(Change(name, table) for name, table in later), opened.drops

    def _timed_out(
        self, keys: KeySet, due: pa.Table | None, delta: pa.Table | None, before: Ints, base: Ints
    ) -> npt.NDArray[np.bool_]:
        """The keys whose open window has timed out."""
        closed = np.zeros(len(keys), np.bool_)
        if due is not None:
            key = keys.inverse[0 if delta is None else delta.num_rows :]
            hinted = one_chunk(due.column(BASE)).to_numpy()
            closed[key[hinted == base[key]]] = True
        return closed & (before > base)

    def _hints(
        self, ctx: Context, table: pa.Table, base: Ints, new_base: Ints, before: Ints, after: Ints
    ) -> list[Change]:
        """Deadlines of windows that this epoch began."""
        if self.timeout_us is None:
            return []
        begun = np.flatnonzero((after > new_base) & ((new_base != base) | (before == base)))
        if not len(begun):
            return []
        due = -(-(ctx.now_us + self.timeout_us) // 1000) * 1000
        rows = table.take(pa.array(begun)).select([*self.key, BASE, HASH])
        rows = rows.append_column(AT, pa.array(np.full(len(begun), due)).cast(pa.timestamp("us")))
        rows = with_weights(rows, np.ones(len(begun), np.int64))
        return [Change(name, some) for name, some in _wheel(ctx.step).placed(rows, ctx.now_us)]


def _wheel(step: str) -> TimerWheel:
    return TimerWheel(f"{step}/due", WIDTHS, WIDTHS[1:], AT)


def _with_windows(rows: pa.Table, pairs: Assigned) -> pa.Table:
    some = rows.select([n for n in rows.column_names if n != WEIGHT])
    some = pa.table([take(one_chunk(c), pairs.row) for c in some.columns], schema=some.schema)
    some = some.append_column(START, pa.array(pairs.start)).append_column(END, pa.array(pairs.end))
    return with_weights(some, np.ones(some.num_rows, np.int64))


def _positions(keys: KeySet, asked: KeySet) -> Ints:
    """The numbers of these keys among all keys."""
    if not keys.columns.num_columns:
        return np.zeros(len(asked), np.int64)
    both = pa.concat_tables([keys.columns, asked.columns.cast(keys.columns.schema)])
    every = KeySet.of(both, both.column_names, np.concatenate([keys.hashes, asked.hashes]))
    positions = np.empty(len(every), np.int64)
    positions[every.inverse[: len(keys)]] = np.arange(len(keys))
    indices: Ints = positions[every.inverse[len(keys) :]]
    return indices
