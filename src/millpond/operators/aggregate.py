"""Aggregate: one row per group, updated by adding changes to accumulators.

Law: the output is a function of the input multiset (canonical), and an epoch
costs the groups it touches.  The group's row, visible columns and accumulators
together, is stored in one *latest* table, which is also the view.

Rows arrive by *feeds*, each over its own exchange:

* `rows`: every input row; the sender pre-aggregates them to one partial row per
  group, so a hot key or the global group costs each sender one row (the first
  half of the hierarchy (key, sender) -> key);
* `values`: (group, value, weight) for min and max over input that can
  retract; the head of an index ordered by value within the group is the answer;
* `distinct`: the rows of a Distinct over (group, value), for DISTINCT
  aggregates; exchanged by (group, value) before they arrive here;
* `always`: one row that counts as nothing, for an aggregate without a key: its one
  group exists from the start, and remains when all its rows are gone.

With `closes` set, a group is a window: it is emitted once, when the watermark
passes its end, and its state is dropped by entire time buckets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import delta as deltas
from millpond import hashing
from millpond.column_names import check_names
from millpond.delta import HASH
from millpond.errors import InvalidError
from millpond.identity import one_chunk, take
from millpond.kernels import dense_groups
from millpond.kernels.accumulators import (
    Accumulator,
    Count,
    Fields,
    SumsDenseKeys,
    is_number,
)
from millpond.kernels.aggregate_feeds import Agg, AggregateFeed, Close
from millpond.kernels.aggregate_functions import aggregate_function, is_insert_only
from millpond.kernels.bounds import Bound, among, bucketed_by, buckets_of, closed
from millpond.kernels.group_changes import Failing, group_errors, unreplaced, visible_change
from millpond.kernels.grouping import few_groups, grouped, grouped_in_order, keys_of, placed
from millpond.kernels.min_max_lookup import end_of
from millpond.kernels.packed_rows import PackedRows, pack
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.traits import EndsState, PreAggregatesByBatch, UsesHashOrder
from millpond.operators.window import Spread
from millpond.ordering import Order, argsort_numbers
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Aggregate(UsesHashOrder, PreAggregatesByBatch, EndsState):
    key: tuple[str, ...]
    aggs: tuple[Agg, ...]
    feeds: tuple[AggregateFeed, ...]
    closes: Close | None = None
    expires: Bound | None = None  # groups behind it have expired, and the table is not read
    spread: Spread | None = None  # rows arrive in the latest of their windows, and count in all of them

    canonical: ClassVar[bool] = True

    @property
    def until(self) -> Bound | None:
        """The bound by which the state of a group ends."""
        return self.expires if self.closes is None else self.closes.bound

    @property
    def always(self) -> bool:
        """Whether there is an output row even without input."""
        return self.feeds[-1].kind == "always"

    # -- declaration -----------------------------------------------------------------

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        inputs = tuple(replace(shape, schema=stored(shape.schema)) for shape in inputs)
        first = inputs[0]
        check_names([a.name for a in self.aggs], step)
        for feed, shape in zip(self.feeds, inputs, strict=True):
            wanted = [*self._sent, *([feed.column] if feed.column else [])]
            wanted += [a.argument for i in feed.aggs if (a := self.aggs[i]).argument is not None]
            missing = [c for c in wanted if c not in shape.schema.names]
            if missing:
                raise InvalidError(
                    f"no column named {missing[0]!r}",
                    detail=f"columns are {', '.join(shape.schema.names)}",
                    step=step,
                )
        key_fields = [first.schema.field(k) for k in self.key]
        kinds = self._kinds(step, inputs)
        visible = [pa.field(a.name, kinds[i].visible) for i, a in enumerate(self.aggs)]
        twice = [n for n in [*self.key] if n in {a.name for a in self.aggs}]
        if twice:
            raise InvalidError(
                f"column {twice[0]!r} is both a key and an aggregate", hint="choose another name", step=step
            )
        hidden = [pa.field("_n", pa.int64())]
        for j, feed in enumerate(self.feeds):
            if feed.kind == "distinct":
                hidden.append(pa.field(f"_f{j}_n", pa.int64()))
        for i, kind in enumerate(kinds):
            hidden += [pa.field(f"_a{i}_{f}", t) for f, t in kind.fields.items() if f != kind.visible_field]
            if kind.visible_field == "lo":  # a sum that is not shown (NULL) must still be stored
                hidden.append(pa.field(f"_a{i}_lost", pa.int64()))
        groups = TableSpec(
            f"{step}/groups",
            pa.schema([*key_fields, *visible, *hidden]),
            key=self.key,
            **bucketed_by(self.until),
        )
        tables = [groups]
        for j, feed in enumerate(self.feeds):
            if feed.kind == "values":
                value = inputs[j].schema.field(feed.column)
                tables.append(
                    TableSpec(
                        f"{step}/values{j}",
                        pa.schema([*key_fields, value.with_name("_value")]),
                        key=self.key,
                        order=(Order("_value"),),
                        rule="weights",
                        time=groups.time,
                        bucket_width=groups.bucket_width,
                    )
                )
        shape = Shape(
            pa.schema([*key_fields, *visible]),
            append_only=self.closes is not None,
            key=self.key,
            time=self.closes.column if self.closes else None,
            watermark=self.closes.bound.named(step) if self.closes else None,
            bounds=self._bounds(first),
        )
        return Binding(
            shape,
            tuple(by_key(*self.key) for _ in self.feeds),
            tuple(tables),
            view=None if self.until else groups.name,
            placed_by=self.key,
            extra=tuple(kinds),
        )

    def _bounds(self, shape: Shape) -> tuple[Bound, ...]:
        found = among(shape.bounds, self.key)
        if self.closes is None or self.closes.column not in {b.column for b in found}:
            return found
        return closed(found, self.closes.bound)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        out = []
        for feed in self.feeds:
            arguments = {self.aggs[i].argument for i in feed.aggs} | {feed.column}
            out.append(frozenset(self._sent) | {a for a in arguments if a is not None})
        return tuple(out)

    def _kinds(self, step: str, inputs: tuple[Shape, ...]) -> list[Accumulator]:
        found: dict[int, Accumulator] = {}
        for feed, shape in zip(self.feeds, inputs, strict=True):
            for i in feed.aggs:
                agg = self.aggs[i]
                kind = None if agg.argument is None else shape.schema.field(agg.argument).type
                found[i] = aggregate_function(agg.function, kind, step=step)
                if not shape.append_only and feed.kind == "rows" and is_insert_only(agg.function):
                    raise InvalidError(
                        f"{agg.function.partition('(')[0]} needs rows that are never retracted",
                        hint="use an exact aggregate",
                        step=step,
                    )
        return [found[i] for i in range(len(self.aggs))]

    # -- the sender's side -------------------------------------------------------------

    @property
    def _sent(self) -> tuple[str, ...]:
        """The key of the groups that a sender makes."""
        return self.key if self.spread is None else (*self.key, *self.spread.extra)

    def prepare(self, binding: Binding, index: int, delta: pa.Table) -> pa.Table:
        return self._over_windows(binding, self.shrunk(binding, index, delta))

    def shrinks(self, binding: Binding, index: int, part: pa.Table) -> bool:
        plain = self.feeds[index].kind not in ("values", "always") and HASH not in part.column_names
        return plain and few_groups([part.column(k) for k in self._sent], part.num_rows)

    def united(self, binding: Binding, index: int, parts: pa.Table) -> pa.Table:
        keys = keys_of([(index, parts)], self._sent)
        fresh: dict[str, Any] = {}
        self._gather(index, parts, keys.inverse, len(keys), binding.extra, fresh)
        columns = {k: keys.columns.column(k) for k in self._sent}
        counts = {f"_a{i}_n" for i in self.feeds[index].aggs if self.aggs[i].argument is None}
        # The total may need words that no partial sum needed: their sum need not fit into one word.
        columns |= {
            name: values
            for name, values in fresh.items()
            if name in parts.column_names or (name not in counts and _travels(values))
        }
        columns["_h"] = keys.hashes
        return self._over_windows(binding, pa.table(columns))

    def _over_windows(self, binding: Binding, rows: pa.Table) -> pa.Table:
        """Expand partial rows of the latest window to all windows that contain them."""
        if self.spread is None:
            return rows
        kinds = [
            None if a.argument is None else kind for a, kind in zip(self.aggs, binding.extra, strict=True)
        ]
        rows = self.spread.over(rows.drop_columns(["_h"]), self.key, kinds)
        hashes = hashing.hash_columns([rows.column(k) for k in self.key], rows.num_rows)
        if self.spread.adds_up(kinds):  # in order, the owner need not sort them to number the keys
            order = np.argsort(hashes)
            rows, hashes = rows.take(pa.array(order)), hashes[order]
        return rows.append_column("_h", pa.array(hashes))

    def shrunk(self, binding: Binding, index: int, delta: pa.Table) -> pa.Table:
        feed = self.feeds[index]
        if feed.kind == "values":
            return self._value_rows(feed, delta)
        if feed.kind == "always":
            return pa.table({"_h": hashing.hash_columns([], 1)})
        in_order = HASH in delta.column_names
        packed = None
        if not in_order:
            if not hashing.is_injective([delta.column(k) for k in self._sent]):
                packed = pack([delta.column(k) for k in self._sent])
            by_place = self._by_place(binding, index, delta, packed)
            if by_place is not None:
                return by_place
        key = {k: one_chunk(delta.column(k)) for k in self._sent}
        if in_order:
            order, starts, columns = grouped_in_order(key, one_chunk(delta.column(HASH)).to_numpy())
        else:
            order, starts, columns = grouped(key, delta.num_rows, packed)
        weights = None if "_w" not in delta.column_names else deltas.weights(delta)
        if weights is not None and order is not None:
            weights = weights[order]
        lengths = np.diff(np.append(starts, delta.num_rows))
        counts = lengths if weights is None else np.add.reduceat(weights, starts)
        columns[self._feed_count(index)] = counts
        sorted_args: dict[str, pa.Array] = {}
        kinds = binding.extra
        for i in feed.aggs:
            name = self.aggs[i].argument
            if name is None:
                continue  # rows are counted in any case
            if name not in sorted_args:
                column = one_chunk(delta.column(name))
                sorted_args[name] = column if order is None else take(column, order)
            for field, values in kinds[i].partial(sorted_args[name], weights, starts, counts).items():
                if _travels(values):
                    columns[f"_a{i}_{field}"] = values
        return pa.table(columns)

    def _by_place(
        self, binding: Binding, index: int, delta: pa.Table, packed: PackedRows | None
    ) -> pa.Table | None:
        """Compute the partial rows without sorting, if the key and all aggregates allow it."""
        feed = self.feeds[index]
        if "_w" in delta.column_names or (packed is None and len(self._sent) != 1):
            return None
        kinds = binding.extra
        if not all(isinstance(kinds[i], SumsDenseKeys) for i in feed.aggs):
            return None
        found = (
            dense_groups.places(delta.column(self._sent[0]))
            if packed is None
            else dense_groups.packed_slots(packed)
        )
        if found is None:
            return None
        columns: dict[str, Any] = dict(zip(self._sent, found.keys, strict=True))
        columns[self._feed_count(index)] = found.counts
        arguments = {
            name: delta.column(name) for i in feed.aggs if (name := self.aggs[i].argument) is not None
        }
        counted = {self.aggs[i].argument for i in feed.aggs if isinstance(kinds[i], Count)}
        found.count_valid(
            [column for name, column in arguments.items() if name in counted and column.null_count]
        )
        for i in feed.aggs:
            argument = self.aggs[i].argument
            fields = {} if argument is None else kinds[i].dense(arguments[argument], found)
            if fields is None:
                return None
            columns.update({f"_a{i}_{field}": values for field, values in fields.items()})
        columns["_h"] = found.hashes
        return pa.table(columns)

    def _feed_count(self, index: int) -> str:
        return "_n" if index == 0 else f"_f{index}_n"

    def _value_rows(self, feed: AggregateFeed, delta: pa.Table) -> pa.Table:
        assert feed.column is not None
        columns = {k: one_chunk(delta.column(k)) for k in self.key}
        columns["_value"] = one_chunk(delta.column(feed.column))
        if "_w" in delta.column_names:
            columns["_w"] = delta.column("_w")
        rows = pa.table(columns)
        rows = deltas.consolidate(rows.filter(pc.is_valid(rows.column("_value"))))
        hashes = hashing.hash_columns([rows.column(k) for k in self.key], rows.num_rows)
        return rows.append_column("_h", pa.array(hashes))

    # -- the owner's side ---------------------------------------------------------------

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        groups = binding.tables[0]
        changed = self._touch(ctx, binding, inputs)
        if self.closes is not None:
            return self._close(ctx, binding, groups, changed)
        changed = changed if changed is not None else StepResult()
        if self.expires is None:
            return changed
        return replace(changed, drops=self.expires.drops(ctx.watermark, *binding.tables))

    def _touch(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult | None:
        """Add this epoch's partial rows to the groups they touch."""
        live = [(j, t) for j, t in enumerate(inputs) if t is not None and t.num_rows]
        if not live:
            return None
        groups = binding.tables[0]
        kinds = binding.extra
        keys = keys_of(live, self.key)
        length = len(keys)
        buckets = buckets_of(groups, keys.columns)
        wanted = None if ctx.output_is_read else self.kept(groups, kinds)
        found, old = ctx.table(groups.name, buckets=buckets).lookup_one(keys, wanted)
        fresh: dict[str, Any] = {}
        changes: list[Change] = []
        at = 0
        for j, table in live:
            positions = keys.inverse[at : at + table.num_rows]
            at += table.num_rows
            if self.feeds[j].kind == "values":
                changes.append(Change(f"{ctx.step}/values{j}", table))
            elif self.feeds[j].kind != "always":
                self._gather(j, table, positions, length, kinds, fresh)
        for j, feed in enumerate(self.feeds):
            name = self._feed_count(j)
            if feed.kind in ("rows", "distinct"):
                fresh[name] = ints(old.column(name)) + fresh.get(name, 0)
        columns: dict[str, Any] = {}
        errors: list[Failing] = []
        for j, feed in enumerate(self.feeds):
            if feed.kind == "values":
                index = ctx.table(f"{ctx.step}/values{j}", buckets=buckets)
                touched = [t for n, t in live if n == j]
                self._extremes(feed, keys, found, old, touched, index, columns)
                continue
            for i in feed.aggs:
                self.advance(i, kinds[i], found, old, fresh, fresh[self._feed_count(j)], columns, errors)
        n = fresh["_n"]
        weight = ((n > 0) | self.always).astype(np.int64)
        for name in groups.schema.names:
            if name in self.key:
                columns[name] = one_chunk(keys.columns.column(name))
            elif name in fresh and name not in columns:
                columns[name] = fresh[name]
        rows = pa.table([columns[f.name] for f in groups.schema], schema=groups.schema)
        rows = rows.append_column("_w", pa.array(weight)).append_column("_h", pa.array(keys.hashes))
        keep = found | (weight > 0)  # a group that appeared and vanished within the epoch leaves nothing
        if not keep.all():
            where = pa.array(keep)
            rows, old, found = rows.filter(where), old.filter(where), found[keep]
            weight = weight[keep]
            errors = [(a[keep], b[keep], r) for a, b, r in errors]
        changes.insert(0, Change(groups.name, rows, presorted=True))
        out = None
        if ctx.output_is_read and self.closes is None:
            out = visible_change(binding.shape.schema.names, old, found, rows, weight)
        return StepResult(out, tuple(changes), group_errors(rows, self.key, errors))

    def kept(self, groups: TableSpec, kinds: Sequence[Accumulator]) -> list[str]:
        """The columns of a group's row that changes are added to; the others are computed from them."""
        finished = {
            a.name
            for i, a in enumerate(self.aggs)
            if kinds[i].visible_field is None
            and not any(i in f.aggs for f in self.feeds if f.kind == "values")
        }
        return [name for name in groups.schema.names if name not in finished]

    def _gather(
        self,
        index: int,
        table: pa.Table,
        positions: Ints,
        length: int,
        kinds: Sequence[Accumulator],
        fresh: dict[str, Any],
    ) -> None:
        """Sum one feed's partial rows per key into full-length columns of `fresh`."""
        if len(positions) == length and bool((positions == np.arange(length)).all()):
            order: Ints | None = None
            starts = np.arange(length)
            touched = starts
        else:
            order = argsort_numbers(positions)
            ordered = positions[order]
            starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
            touched = ordered[starts]

        by_name = dict(zip(table.column_names, table.columns, strict=True))

        def column(name: str, kind: pa.DataType, number: bool) -> Any:
            if name not in by_name:
                return np.zeros(len(positions), np.int64) if number else pa.nulls(len(positions), kind)
            if number:
                values = ints(by_name[name])
                return values if order is None else values[order]
            values = one_chunk(by_name[name])
            return values if order is None else take(values, order)

        count = column(self._feed_count(index), pa.int64(), True)
        fresh[self._feed_count(index)] = placed(np.add.reduceat(count, starts), touched, length)
        for i in self.feeds[index].aggs:
            kind = kinds[i]
            if self.aggs[i].argument is None:
                fresh[f"_a{i}_n"] = fresh[self._feed_count(index)]
                continue
            fields: Fields = {f: column(f"_a{i}_{f}", t, is_number(kind, f)) for f, t in kind.fields.items()}
            if order is not None:
                fields = kind.combine(fields, starts)
            for f, values in fields.items():
                fresh[f"_a{i}_{f}"] = placed(values, touched, length)

    def advance(
        self,
        i: int,
        kind: Accumulator,
        found: Bools,
        old: pa.Table,
        fresh: dict[str, Any],
        rows: Ints,
        columns: dict[str, Any],
        errors: list[Failing],
    ) -> None:
        """old + delta for one aggregate, and its visible value."""
        name = self.aggs[i].name
        before: Fields = {}
        delta: Fields = {}
        for f, t in kind.fields.items():
            column = old.column(name if f == kind.visible_field else f"_a{i}_{f}")
            of_sender = fresh.pop(f"_a{i}_{f}", None)
            if is_number(kind, f):
                before[f] = ints(column)
                if f == "lo" and f == kind.visible_field:
                    before[f] = before[f] + ints(old.column(f"_a{i}_lost"))
                delta[f] = np.zeros(len(rows), np.int64) if of_sender is None else of_sender
            else:
                values = one_chunk(column)
                before[f] = values if found.all() else pc.if_else(pa.array(found), values, pa.scalar(None, t))
                delta[f] = pa.nulls(len(rows), t) if of_sender is None else of_sender
        now = kind.add(before, delta)
        shown = kind.finish(now, rows)
        columns[name] = shown
        for f, values in now.items():
            if f != kind.visible_field:
                columns[f"_a{i}_{f}"] = values
        if kind.visible_field == "lo":
            lost = np.zeros(len(rows), np.int64)
            if shown.null_count:
                dead = shown.is_null().to_numpy(zero_copy_only=False)
                lost[dead] = now[kind.visible_field][dead]
            columns[f"_a{i}_lost"] = lost
        was, fails_now = kind.fails(before), kind.fails(now)
        if was is not None and fails_now is not None and (was.any() or fails_now.any()):
            errors.append((was, fails_now, f"{name}: {kind.reason}"))

    def _extremes(
        self,
        feed: AggregateFeed,
        keys: KeySet,
        found: Bools,
        old: pa.Table,
        touched: Sequence[pa.Table],
        index: Any,
        columns: dict[str, Any],
    ) -> None:
        """Compute min and max from the ends of the value index: state plus this epoch's changes."""
        for i in feed.aggs:
            agg = self.aggs[i]
            if touched:
                columns[agg.name] = end_of(index, keys, touched[0], self.key, agg.function == "max")
            else:
                extremes = one_chunk(old.column(agg.name))
                columns[agg.name] = pc.if_else(pa.array(found), extremes, pa.scalar(None, extremes.type))

    # -- windows that close -------------------------------------------------------------

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        return self.until is not None and self.until.is_due(binding.tables[0].name, earliest, watermarks)

    def ends(self, binding: Binding) -> tuple[tuple[str, Bound], ...]:
        until = self.until
        return () if until is None else tuple((t.name, until) for t in binding.tables if t.time is not None)

    def _close(
        self, ctx: Context, binding: Binding, groups: TableSpec, changed: StepResult | None
    ) -> StepResult:
        """Emit the windows that ended, once and completely, and drop their buckets."""
        assert self.closes is not None
        changed = changed if changed is not None else StepResult()
        bound = self.closes.bound
        reached = bound.limit(ctx.watermark)
        if reached is None:
            return changed
        limit = bound.first_open(reached)
        names = binding.shape.schema.names
        parts = []
        fresh = next((c.rows for c in changed.changes if c.table == groups.name), None)
        state = ctx.table(groups.name, below_bucket=limit).scan()
        if fresh is not None:
            closing = groups.buckets(fresh) < limit
            ended = closing & (deltas.weights(fresh) > 0)
            shown = fresh.select(names)
            parts.append(shown if ended.all() else shown.filter(pa.array(ended)))
            if state.num_rows:
                parts.append(unreplaced(state, fresh, self.key).select(names))
        elif state.num_rows:
            parts.append(state.select(names))
        drops = tuple((t.name, limit) for t in binding.tables)
        out = pa.concat_tables(parts) if parts else None
        return StepResult(out, changed.changes, changed.errors, drops, changed.counts)


def _travels(values: Any) -> bool:
    """A field of zeros need not be sent."""
    return not isinstance(values, np.ndarray) or bool(values.any())


def ints(column: pa.ChunkedArray | pa.Array) -> Ints:
    array = one_chunk(column)
    if array.null_count:
        array = array.fill_null(0)
    values: Ints = array.to_numpy(zero_copy_only=False)
    return values
