"""SlidingAggregate: aggregates of overlapping windows that are emitted when they close, from shared slices.

Law: the output equals `Aggregate` over the windows of every row, restricted to closed windows; each window is
emitted once.  An epoch costs the slices of its rows and, if windows close, the slices that enter and leave
them and the rows that it emits.  It does not depend on the number of windows of a row (law 5).

State, by key:

* *slices*: the accumulators of each slice, until no window that is still open or was the last to close
  contains it;
* *totals*: the sums of the last window that closed, of keys that have rows in it; each epoch that closes
  windows writes all of them into a new bucket and drops the older one;
* *blocks*: with min or max, the extremes of longer stretches of slices.  An extreme cannot be taken back, so
  it is computed from the values within the window: blocks in its middle, slices near its ends.

Rows behind the watermark whose slice is in the last closed window are added to its totals as well: they count
in the windows that are still open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing, tuning
from millpond.column_names import check_names
from millpond.delta import HASH, WEIGHT
from millpond.errors import InternalError, InvalidError
from millpond.identity import one_chunk, take
from millpond.kernels.accumulated import Accumulated, joined, stored_fields
from millpond.kernels.accumulators import Accumulator, Extremum
from millpond.kernels.aggregate_feeds import Agg, AggregateFeed
from millpond.kernels.aggregate_functions import aggregate_function
from millpond.kernels.bounds import Bound
from millpond.kernels.closing_windows import NEVER, ClosedWindows, KeySlices, closed_windows
from millpond.kernels.expression_kernel import error_rows, join_errors
from millpond.kernels.range_extremes import best_of_ranges
from millpond.kernels.slices import Slicing, slicing_of
from millpond.kernels.window_assigners import WindowAssigner
from millpond.operators.aggregate import Aggregate
from millpond.operators.assign_slices import SLICE
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.traits import EndsState, PreAggregatesByBatch
from millpond.ordering import Order
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]
Kinds = tuple[Accumulator | None, ...]
AT = "_at"  # the end of the window whose totals these are


@dataclass(frozen=True)
class SlidingAggregate(PreAggregatesByBatch, EndsState):
    key: tuple[str, ...]  # without the window
    aggs: tuple[Agg, ...]
    windows: WindowAssigner
    until: Bound  # a window is closed when its end is not above the limit
    shown: tuple[str, ...]  # the key columns of the output, in order: those of `key` and of the window
    start: str | None  # the names of the window's columns among them
    end: str | None
    time: pa.DataType  # their type

    canonical: ClassVar[bool] = True

    @property
    def _slicing(self) -> Slicing:
        found = slicing_of(self.windows)
        assert found is not None
        return found

    @property
    def _by_slice(self) -> Aggregate:
        """Makes partial rows by key and slice."""
        feed = AggregateFeed("rows", tuple(range(len(self.aggs))))
        return Aggregate((*self.key, SLICE), self.aggs, (feed,))

    # -- declaration -----------------------------------------------------------------

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        schema = stored(shape.schema)
        self._check(step, schema)
        kinds = self._kinds(step, schema)
        if not shape.append_only and any(isinstance(kind, Extremum) for kind in kinds):
            raise InvalidError("min and max of slices need append-only rows", step=step)
        own = [schema.field(k) for k in self.key]
        window = {name: pa.field(name, self.time) for name in (self.start, self.end) if name is not None}
        visible = [pa.field(a.name, kind.visible) for a, kind in zip(self.aggs, kinds, strict=True)]
        keys = [window[name] if name in window else schema.field(name) for name in self.shown]
        shape = Shape(
            pa.schema([*keys, *visible]),
            append_only=True,
            key=self.shown,
            time=self.end or self.start,
            watermark=self.until.named(step),
            bounds=self._bounds(step),
        )
        return Binding(
            shape, (by_key(*self.key),), self._tables(step, own, kinds), placed_by=self.key, extra=kinds
        )

    def _check(self, step: str, schema: pa.Schema) -> None:
        check_names([a.name for a in self.aggs], step)
        wanted = [*self.key, *(a.argument for a in self.aggs if a.argument is not None)]
        if missing := [name for name in wanted if name not in schema.names]:
            raise InvalidError(
                f"no column named {missing[0]!r}",
                detail=f"columns are {', '.join(n for n in schema.names if n != SLICE)}",
                step=step,
            )
        if twice := [a.name for a in self.aggs if a.name in self.shown]:
            raise InvalidError(
                f"column {twice[0]!r} is both a key and an aggregate", hint="choose another name", step=step
            )

    def _kinds(self, step: str, schema: pa.Schema) -> tuple[Accumulator, ...]:
        return tuple(
            aggregate_function(
                a.function, None if a.argument is None else schema.field(a.argument).type, step=step
            )
            for a in self.aggs
        )

    def _tables(
        self, step: str, own: Sequence[pa.Field], kinds: Sequence[Accumulator]
    ) -> tuple[TableSpec, ...]:
        slicing = self._slicing
        at = pa.field(SLICE, pa.int64())
        width = slicing.step_us * -(-slicing.size_us // (slicing.step_us * tuning.SLICE_BUCKETS))
        slices = TableSpec(
            f"{step}/slices",
            pa.schema([*own, at, *stored_fields(self._stored(kinds))]),
            key=self.key,
            order=(Order(SLICE),),
            time=SLICE,
            bucket_width=width,
        )
        totals = TableSpec(
            f"{step}/totals",
            pa.schema([*own, pa.field(AT, pa.int64()), *stored_fields(self._linear(kinds))]),
            key=self.key,
            time=AT,
            bucket_width=slicing.step_us,
        )
        if not self._has_extremes(kinds):
            return slices, totals
        extremes = self._extremes(kinds)
        blocks = TableSpec(
            f"{step}/blocks",
            pa.schema([*own, at, *stored_fields(extremes)]),
            key=self.key,
            order=(Order(SLICE),),
            time=SLICE,
            bucket_width=max(width, self._block_us),
        )
        return slices, totals, blocks

    def _bounds(self, step: str) -> tuple[Bound, ...]:
        """Later windows end above the limit; off the grid a bound says "not below"."""
        windows = self.windows
        watermarks = self.until.moved(0 if windows.on_grid else -1)
        end = Bound("", watermarks, windows.width_us, windows.on_grid, "closed", by=step)
        found = []
        if self.end is not None:
            found.append(_of(end, self.end, watermarks))
        if self.start is not None and windows.span_us is not None:
            found.append(_of(end, self.start, end.moved(windows.span_us)))
        return tuple(found)

    # Accumulators that are stored: count(*) is the number of rows, which every group has.

    def _stored(self, kinds: Sequence[Accumulator]) -> Kinds:
        return tuple(None if a.argument is None else k for a, k in zip(self.aggs, kinds, strict=True))

    def _linear(self, kinds: Sequence[Accumulator]) -> Kinds:
        return tuple(None if isinstance(kind, Extremum) else kind for kind in self._stored(kinds))

    def _extremes(self, kinds: Sequence[Accumulator]) -> Kinds:
        return tuple(kind if isinstance(kind, Extremum) else None for kind in kinds)

    def _has_extremes(self, kinds: Sequence[Accumulator]) -> bool:
        return any(isinstance(kind, Extremum) for kind in kinds)

    @property
    def _block_us(self) -> int:
        """The length of a block: a window has about as many blocks as a block has slices."""
        slicing = self._slicing
        return slicing.width_us * max(2, math.isqrt(slicing.size_us // slicing.width_us))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset({*self.key, SLICE, *(a.argument for a in self.aggs if a.argument is not None)}),)

    # -- the sender's side -------------------------------------------------------------

    def prepare(self, binding: Binding, index: int, delta: pa.Table) -> pa.Table:
        return self._placed(self.shrunk(binding, index, delta))

    def shrinks(self, binding: Binding, index: int, part: pa.Table) -> bool:
        return self._by_slice.shrinks(binding, index, _without_hash(part))

    def shrunk(self, binding: Binding, index: int, delta: pa.Table) -> pa.Table:
        return self._by_slice.shrunk(binding, index, _without_hash(delta))

    def united(self, binding: Binding, index: int, parts: pa.Table) -> pa.Table:
        return self._placed(self._by_slice.united(binding, index, parts))

    def _placed(self, rows: pa.Table) -> pa.Table:
        """The partial rows with the hash of their key, which does not include the slice."""
        rows = rows.drop_columns([HASH])
        hashes = hashing.hash_columns([rows.column(k) for k in self.key], rows.num_rows)
        return rows.append_column(HASH, pa.array(hashes))

    # -- time ----------------------------------------------------------------------------

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        limit = self.until.limit(watermarks.get)
        if limit is None:
            return False
        slices, totals = binding.tables[:2]
        assert slices.bucket_width is not None
        if totals.name in earliest:
            return bool(self._slicing.closed(limit) // self._slicing.step_us > earliest[totals.name])
        return slices.name in earliest and limit > earliest[slices.name] * slices.bucket_width

    def ends(self, binding: Binding) -> tuple[tuple[str, Bound], ...]:
        slicing = self._slicing
        found = []
        for table in binding.tables:
            assert table.time is not None and table.bucket_width is not None
            after = slicing.step_us if table.time == AT else slicing.size_us + slicing.step_us
            found.append((table.name, Bound(table.time, self.until.moved(after), table.bucket_width)))
        return tuple(found)

    # -- the owner's side ---------------------------------------------------------------

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (fresh,) = inputs
        kinds: tuple[Accumulator, ...] = binding.extra
        limit = self.until.limit(ctx.watermark)
        # A backfill raises watermarks when all rows are read: there, state says what has closed.
        before = None if ctx.backfilling else self.until.limit(ctx.watermark_before)
        since = None if before is None else int(self._slicing.closed(before))
        until = None if limit is None else int(self._slicing.closed(limit))
        changes = [] if fresh is None else self._touched(ctx, binding, kinds, fresh)
        if until is None or (since is not None and until <= since):
            if fresh is not None and since is not None:
                changes += self._behind(ctx, binding, kinds, fresh, since)
            return StepResult(changes=tuple(changes))
        closing = _Closing(self, ctx, binding, kinds, since, until)
        return closing.result(fresh, changes)

    def _touched(
        self, ctx: Context, binding: Binding, kinds: tuple[Accumulator, ...], fresh: pa.Table
    ) -> list[Change]:
        """Add partial rows to the slices, and to the blocks, that they touch."""
        changes = [_merged(ctx, binding.tables[0], self.key, fresh, self._stored(kinds))]
        if len(binding.tables) > 2:
            start = self._block_of(_micros(fresh))
            rows = fresh.set_column(fresh.column_names.index(SLICE), SLICE, pa.array(start))
            changes.append(_merged(ctx, binding.tables[2], self.key, rows, self._extremes(kinds)))
        return changes

    def _block_of(self, start: Any) -> Any:
        offset = self._slicing.offset_us
        return (start - offset) // self._block_us * self._block_us + offset

    def _behind(
        self, ctx: Context, binding: Binding, kinds: tuple[Accumulator, ...], fresh: pa.Table, since: int
    ) -> list[Change]:
        """Add rows of slices that are in the last closed window to its totals."""
        entered = self._slicing.first(_micros(fresh)) <= since
        if not entered.any():
            return []
        totals = binding.tables[1]
        rows = fresh.filter(pa.array(entered))
        rows = rows.drop_columns([SLICE]).append_column(AT, pa.array(np.full(rows.num_rows, since)))
        return [_merged(ctx, totals, self.key, rows, self._linear(kinds))]


@dataclass(frozen=True)
class _Closing:
    """One epoch in which windows close, in one task."""

    step: SlidingAggregate
    ctx: Context
    binding: Binding
    kinds: tuple[Accumulator, ...]
    since: int | None  # the end of the last window that closed before
    until: int  # and of the last one that closes now

    def result(self, fresh: pa.Table | None, changes: list[Change]) -> StepResult:
        step, slices, totals = self.step, self.binding.tables[0], self.binding.tables[1]
        stored = self.ctx.table(totals.name).scan()
        moving = self._moving()
        parts = [stored, moving, *self._segments(), *([] if fresh is None else [fresh])]
        keys, places = _numbered(parts, step.key)
        linear = step._linear(self.kinds)
        nothing = KeySlices(*(np.zeros(0, np.int64),) * 2, Accumulated.of(moving.slice(0, 0), linear))
        since = np.full(len(keys), NEVER if self.since is None else self.since, np.int64)
        at = one_chunk(stored.column(AT)).to_numpy()
        if self.since is None:
            since[places[0]] = at
        elif (at != self.since).any():
            raise InternalError(
                "totals are not those of the last window that closed",
                detail=f"they are of {int(at.min())} to {int(at.max())}, and {self.since} closed last",
                step=self.ctx.step,
                epoch=self.ctx.epoch,
            )
        found = closed_windows(
            step._slicing,
            KeySlices(places[0], at, Accumulated.of(stored, linear)),
            KeySlices(places[1], _micros(moving), Accumulated.of(moving, linear)),
            nothing
            if fresh is None
            else KeySlices(places[-1], _micros(fresh), Accumulated.of(fresh, linear)),
            since,
            self.until,
        )
        extremes = self._extremes(found, parts[2:], places[2:])
        out, errors = self._output(found, keys, extremes)
        changes = [*self._without_consumed(moving, changes), *self._last_totals(found, keys)]
        drops = [
            (slices.name, self._first_needed(slices)),
            (totals.name, self.until // step._slicing.step_us),
        ]
        if len(self.binding.tables) > 2:
            blocks = self.binding.tables[2]
            drops.append((blocks.name, self._first_needed(blocks)))
        return StepResult(out, tuple(c for c in changes if c.rows.num_rows), errors, tuple(drops))

    def _first_needed(self, table: TableSpec) -> int:
        """The first bucket that a later epoch may read."""
        bound = dict(self.step.ends(self.binding))[table.name]
        limit = bound.limit(self.ctx.watermark)
        assert limit is not None
        return bound.first_open(limit)

    # -- reading -----------------------------------------------------------------------

    def _moving(self) -> pa.Table:
        """The stored slices that enter or leave the windows that close."""
        slicing, spec = self.step._slicing, self.binding.tables[0]
        if self.since is None:
            return self._between(spec, ((None, self.until),))
        leaving = (slicing.start(self.since), slicing.start(self.until))
        return self._between(spec, (leaving, (max(leaving[1], self.since), self.until)))

    def _between(self, spec: TableSpec, ranges: Sequence[tuple[int | None, int]]) -> pa.Table:
        """The stored rows whose slice starts in one of these ranges."""
        width = spec.bucket_width
        assert width is not None
        nonempty = [(low, high) for low, high in ranges if low is None or low < high]
        count = sum(_MANY if low is None else (high - low) // width + 2 for low, high in nonempty)
        if count <= _MANY and not any(low is None for low, _ in nonempty):
            buckets = {
                b for low, high in nonempty for b in range((low or 0) // width, (high - 1) // width + 1)
            }
            table = self.ctx.table(spec.name, buckets=buckets)
        elif self.ctx.backfilling:
            table = self.ctx.table(spec.name)  # buckets may be merged there
        else:
            table = self.ctx.table(spec.name, below_bucket=(max(h for _, h in nonempty) - 1) // width + 1)
        rows = table.scan()
        start = _micros(rows)
        wanted = np.zeros(len(start), np.bool_)
        for low, high in nonempty:
            wanted |= (start < high) & (start >= (NEVER if low is None else low))
        return rows if wanted.all() else rows.filter(pa.array(wanted))

    def _segments(self) -> list[pa.Table]:
        """Stored slices and blocks of which each window that closes is made, for min and max."""
        if len(self.binding.tables) < 3:
            return []
        slicing, (slices, _, blocks) = self.step._slicing, self.binding.tables
        if self.since is None:
            return [self._between(slices, ((None, self.until),))]
        # All windows contain the time from the start of the last one to the end of the first one.
        low, high = slicing.start(self.since + slicing.step_us), self.until
        core = (slicing.start(self.until), self.since + slicing.step_us)
        size = self.step._block_us
        core = (self.step._block_of(core[0] + size - 1), self.step._block_of(core[1]))
        if core[0] >= core[1]:
            return [self._between(slices, ((low, high),))]
        return [self._between(slices, ((low, core[0]), (core[1], high))), self._between(blocks, (core,))]

    # -- computing ---------------------------------------------------------------------

    def _extremes(
        self, found: ClosedWindows, parts: Sequence[pa.Table], places: Sequence[Ints]
    ) -> dict[int, pa.Array]:
        """The least or greatest value of each stretch, by aggregate."""
        if len(self.binding.tables) < 3:
            return {}
        wanted = self.step._extremes(self.kinds)
        key, start = np.concatenate(places), np.concatenate([_micros(part) for part in parts])
        values = joined([Accumulated.of(part, wanted) for part in parts])
        times = np.unique(start)
        width = len(times) + 1
        code = key * width + np.searchsorted(times, start)
        order = np.argsort(code, kind="stable")
        code = code[order]
        first, last = self.step._slicing.start(found.first), found.first
        low = np.searchsorted(code, found.key * width + np.searchsorted(times, first))
        high = np.searchsorted(code, found.key * width + np.searchsorted(times, last))
        return {
            number: best_of_ranges(
                take(values.fields[number]["value"], order), low, high, largest=kind.largest
            )
            for number, kind in enumerate(wanted)
            if isinstance(kind, Extremum)
        }

    def _output(
        self, found: ClosedWindows, keys: KeySet, extremes: Mapping[int, pa.Array]
    ) -> tuple[pa.Table | None, pa.Table | None]:
        if not len(found.end):
            return None, None
        step, schema = self.step, self.binding.shape.schema
        key = found.key[found.stretch]
        columns: dict[str, Any] = {}
        for name in step.shown:
            if name == step.end:
                columns[name] = pa.array(found.end).cast(step.time)
            elif name == step.start:
                columns[name] = pa.array(step._slicing.start(found.end)).cast(step.time)
            else:
                columns[name] = take(one_chunk(keys.columns.column(name)), key)
        errors = None
        rows = found.sums.rows
        for number, (agg, kind) in enumerate(zip(step.aggs, self.kinds, strict=True)):
            fields = {"n": rows} if agg.argument is None else found.sums.fields[number]
            values = extremes[number] if number in extremes else kind.finish(fields, rows)
            columns[agg.name] = take(one_chunk(values), found.stretch)
            failed = None if number in extremes else kind.fails(fields)
            if failed is not None and failed[found.stretch].any():
                bad = pa.table(
                    {name: columns[name] for name in step.shown} or {WEIGHT: np.ones(len(key), np.int64)}
                )
                bad = bad.filter(pa.array(failed[found.stretch]))
                errors = join_errors(errors, error_rows(bad, [f"{agg.name}: {kind.reason}"] * bad.num_rows))
        return pa.table([columns[f.name] for f in schema], schema=schema), errors

    # -- writing -----------------------------------------------------------------------

    def _last_totals(self, found: ClosedWindows, keys: KeySet) -> list[Change]:
        """The totals of the last window, of all keys that have rows in it."""
        totals = self.binding.tables[1]
        which = found.key[found.still]
        columns = {name: take(one_chunk(keys.columns.column(name)), which) for name in self.step.key}
        columns[AT] = np.full(len(which), self.until, np.int64)
        columns |= found.sums.take(found.still).columns()
        rows = pa.table([columns[f.name] for f in totals.schema], schema=totals.schema)
        rows = rows.append_column(WEIGHT, pa.array(np.ones(len(which), np.int64)))
        return [Change(totals.name, rows.append_column(HASH, pa.array(keys.hashes[which])), presorted=True)]

    def _without_consumed(self, moving: pa.Table, changes: Sequence[Change]) -> list[Change]:
        """In a backfill: removes slices that no open window contains, so that none is counted again."""
        if not self.ctx.backfilling:
            return list(changes)
        slices, first = self.binding.tables[0], self.step._slicing.start(self.until)
        unconsumed = [
            Change(c.table, c.rows.filter(pa.array(_micros(c.rows) >= first)), c.presorted)
            if c.table == slices.name
            else c
            for c in changes
        ]
        gone = moving.filter(pa.array(_micros(moving) < first)).select([*slices.schema.names, HASH])
        closed = gone.append_column(WEIGHT, pa.array(np.zeros(gone.num_rows, np.int64)))
        return [*unconsumed, Change(slices.name, closed)]


_MANY = 4096  # buckets beyond which all earlier ones are read instead of naming each


def _merged(ctx: Context, spec: TableSpec, key: Sequence[str], fresh: pa.Table, kinds: Kinds) -> Change:
    """Partial rows added to the stored rows of the same identity: key, and slice if the table has one."""
    assert spec.time is not None
    keys = KeySet.of(fresh, key, one_chunk(fresh.column(HASH)).to_numpy())
    start = one_chunk(fresh.column(spec.time)).to_numpy()
    buckets = frozenset(np.unique(spec.bucket_of(fresh.column(spec.time))).tolist())
    table = ctx.table(spec.name, buckets=buckets)
    if spec.order and not ctx.backfilling:  # a backfill may merge buckets, which a range would not find
        stored = table.range(keys, *_ends(keys.inverse, start, len(keys)))
    else:
        stored = table.lookup(keys)
    before = one_chunk(stored.table.column(spec.time)).to_numpy()
    positions = np.concatenate([stored.key_index, keys.inverse])
    start = np.concatenate([before, start])
    sums = joined([Accumulated.of(stored.table, kinds), Accumulated.of(fresh, kinds)])
    order = np.lexsort((start, positions))
    positions, start = positions[order], start[order]
    fresh_pair = np.ones(len(positions), np.bool_)
    fresh_pair[1:] = (positions[1:] != positions[:-1]) | (start[1:] != start[:-1])
    starts = np.flatnonzero(fresh_pair)
    group = np.cumsum(fresh_pair) - 1
    total = sums.take(order).combined(starts).bounded()
    touched = np.zeros(len(starts), np.bool_)
    touched[group[order >= len(before)]] = True
    known = np.zeros(len(starts), np.bool_)
    known[group[order < len(before)]] = True
    wanted = np.flatnonzero(touched & (known | (total.rows != 0)))
    total, positions, start = total.take(wanted), positions[starts][wanted], start[starts][wanted]
    columns: dict[str, Any] = {name: take(one_chunk(keys.columns.column(name)), positions) for name in key}
    columns[spec.time] = start
    columns |= total.columns()
    rows = pa.table([columns[f.name] for f in spec.schema], schema=spec.schema)
    rows = rows.append_column(WEIGHT, pa.array((total.rows > 0).astype(np.int64)))
    return Change(spec.name, rows.append_column(HASH, pa.array(keys.hashes[positions])), presorted=True)


def _ends(positions: Ints, start: Ints, length: int) -> tuple[pa.Array, pa.Array]:
    """The least and the greatest start of each key."""
    low, high = np.full(length, 2**62, np.int64), np.full(length, NEVER, np.int64)
    np.minimum.at(low, positions, start)
    np.maximum.at(high, positions, start)
    return pa.array(low), pa.array(high)


def _numbered(parts: Sequence[pa.Table], key: Sequence[str]) -> tuple[KeySet, list[Ints]]:
    """The distinct keys of several tables, and the number of each row's key."""
    names = [*key, HASH]
    both = pa.concat_tables([part.select(names) for part in parts])
    keys = KeySet.of(both, key, one_chunk(both.column(HASH)).to_numpy())
    ends = np.cumsum([part.num_rows for part in parts])
    return keys, [np.asarray(p) for p in np.split(keys.inverse, ends[:-1])]


def _micros(rows: pa.Table) -> Ints:
    found: Ints = one_chunk(rows.column(SLICE)).to_numpy()
    return found


def _without_hash(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([HASH]) if HASH in rows.column_names else rows


def _of(bound: Bound, column: str, watermarks: tuple[tuple[str, int], ...]) -> Bound:
    return Bound(column, watermarks, bound.width_us, bound.grid, bound.window, bound.by)
