"""SessionAggregate: aggregates of sessions, over append-only time bounded by a watermark.

Law: one row per session of each key, with its start, its end and the aggregates
of its rows (see `session`); the output equals `Aggregate` over `SessionWindow`.

A session is an interval with its accumulators, so two sessions merge by adding
them up, and no row is stored.  Senders form sessions of their own rows.  An epoch
costs the open sessions of the keys that it touches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import HASH, WEIGHT, concat, negate, weights, with_weights
from millpond.errors import InvalidError
from millpond.identity import one_chunk, take
from millpond.kernels.accumulators import Accumulator, Fields, bounded, is_number
from millpond.kernels.aggregate_feeds import Agg
from millpond.kernels.aggregate_functions import aggregate_function
from millpond.kernels.bounds import Bound, bucketed_by
from millpond.kernels.event_time import check_time, micros
from millpond.kernels.expression_kernel import error_rows, join_errors
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.session import LEAST_WIDTH_US
from millpond.operators.traits import EndsState, PreparesInput
from millpond.operators.window import END, START
from millpond.ordering import Order, stable_argsort
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]
ROWS = "_n"


@dataclass(frozen=True)
class _Sessions:
    """Sessions of numbered keys: first and last time, rows, and the fields of each aggregate."""

    key: Ints
    first: Ints
    last: Ints
    rows: Ints
    fields: tuple[Fields, ...]

    def some(self, which: Ints) -> _Sessions:
        fields = tuple({f: _taken(v, which) for f, v in one.items()} for one in self.fields)
        return _Sessions(self.key[which], self.first[which], self.last[which], self.rows[which], fields)

    def plus(self, other: _Sessions) -> _Sessions:
        fields = tuple(
            {f: _joined(v, b[f]) for f, v in a.items()}
            for a, b in zip(self.fields, other.fields, strict=True)
        )
        return _Sessions(
            np.concatenate([self.key, other.key]),
            np.concatenate([self.first, other.first]),
            np.concatenate([self.last, other.last]),
            np.concatenate([self.rows, other.rows]),
            fields,
        )


@dataclass(frozen=True)
class SessionAggregate(PreparesInput, EndsState):
    key: tuple[str, ...]
    time: str
    gap_us: int
    aggs: tuple[Agg, ...]

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        schema = stored(shape.schema)
        at = check_time(schema, self.time, step)
        bound = next((b for b in shape.bounds if b.column == self.time), None)
        if bound is None or not shape.append_only:
            raise InvalidError("aggregates of sessions need append-only rows with a watermark", step=step)
        kinds = tuple(
            aggregate_function(
                a.function, None if a.argument is None else schema.field(a.argument).type, step=step
            )
            for a in self.aggs
        )
        own = [*(schema.field(k) for k in self.key), pa.field(START, at), pa.field(END, at)]
        hidden = [pa.field(_name(n, f), t) for n, kind in enumerate(kinds) for f, t in kind.fields.items()]
        end = Bound(END, bound.marks, max(self.gap_us // 4, LEAST_WIDTH_US), window="open", by=step)
        table = TableSpec(
            f"{step}/sessions",
            pa.schema([*own, pa.field(ROWS, pa.int64()), *hidden]),
            self.key,
            order=(Order(START),),
            **bucketed_by(end),
        )
        shown = [pa.field(a.name, kind.visible) for a, kind in zip(self.aggs, kinds, strict=True)]
        output = Shape(pa.schema([*own, *shown]), append_only=False, key=(*self.key, START), bounds=(end,))
        return Binding(output, (by_key(*self.key),), (table,), placed_by=self.key, extra=(end, kinds))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (
            frozenset({*self.key, self.time, *(a.argument for a in self.aggs if a.argument is not None)}),
        )

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        end: Bound = binding.extra[0]
        return end.is_due(binding.tables[0].name, earliest, watermarks)

    def ends(self, binding: Binding) -> tuple[tuple[str, Bound], ...]:
        return ((binding.tables[0].name, binding.extra[0]),)

    # -- the sender's side -------------------------------------------------------------

    def prepare(self, binding: Binding, index: int, delta: pa.Table) -> pa.Table:
        """The sessions of a sender's own rows."""
        keys = KeySet.of(delta, self.key)
        at, _ = micros(delta.column(self.time))
        weighted = WEIGHT in delta.column_names
        counts_only = not weighted and all(agg.argument is None for agg in self.aggs)
        key, when, order = _by_key_and_time(keys.inverse, at, rows=not counts_only)
        starts = np.flatnonzero(_begins(key, when, when, self.gap_us))
        ends = np.append(starts[1:], len(key)) - 1
        w = weights(delta)[order] if weighted else None
        counts = ends - starts + 1 if w is None else np.add.reduceat(w, starts)
        columns: dict[str, Any] = {k: take(one_chunk(keys.columns.column(k)), key[starts]) for k in self.key}
        columns |= {START: when[starts], END: when[ends], ROWS: counts}
        kinds: Sequence[Accumulator] = binding.extra[1]
        for n, (agg, kind) in enumerate(zip(self.aggs, kinds, strict=True)):
            values = None if agg.argument is None else take(one_chunk(delta.column(agg.argument)), order)
            columns |= {_name(n, f): v for f, v in kind.partial(values, w, starts, counts).items()}
        return pa.table({**columns, HASH: keys.hashes[key[starts]]})

    # -- one epoch ---------------------------------------------------------------------

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        (spec,) = binding.tables
        end: Bound = binding.extra[0]
        drops = end.drops(ctx.watermark, spec)
        if delta is None or not delta.num_rows:
            return StepResult(drops=drops)
        keys = KeySet.of(delta, self.key, one_chunk(delta.column(HASH)).to_numpy())
        stored = ctx.table(spec.name).lookup(keys)
        ends = micros(stored.table.column(END))[0]
        sessions = self._read(binding, stored.table, stored.key_index, ends - self.gap_us)
        fresh = self._read(binding, delta, keys.inverse, _ints(delta.column(END)))
        old, new = self._merged(binding, sessions, fresh)
        before, after = (self._rows(binding, keys, s) for s in (old, new))
        names = binding.shape.schema.names
        out = concat([negate(_weighted(before.select(names), 1)), _weighted(after.select(names), 1)])
        state = [n for n in spec.schema.names]
        gone = before.filter(pa.array(~_still(spec, old, before, new, after)))
        rows = [_weighted(after.select([*state, HASH]), 1), _weighted(gone.select([*state, HASH]), 0)]
        errors = self._errors(binding, keys, old, new)
        return StepResult(out, (Change(spec.name, pa.concat_tables(rows)),), errors, drops)

    def _read(self, binding: Binding, table: pa.Table, key: Ints, last: Ints) -> _Sessions:
        kinds: Sequence[Accumulator] = binding.extra[1]
        first = table.column(START)
        at = _ints(first) if pa.types.is_integer(first.type) else micros(first)[0]
        fields = tuple(
            {
                f: _ints(table.column(_name(n, f)))
                if is_number(kind, f)
                else one_chunk(table.column(_name(n, f)))
                for f in kind.fields
            }
            for n, kind in enumerate(kinds)
        )
        return _Sessions(key, at, last, _ints(table.column(ROWS)), fields)

    def _merged(self, binding: Binding, stored: _Sessions, fresh: _Sessions) -> tuple[_Sessions, _Sessions]:
        """(old sessions that changed, the sessions that replace them)."""
        both = stored.plus(fresh)
        order = np.lexsort((both.last, both.first, both.key))
        both = both.some(order)
        reach = _furthest(both.key, both.last)
        starts = np.flatnonzero(_begins(both.key, both.first, reach, self.gap_us))
        stops = np.append(starts[1:], len(order)) - 1
        came = np.logical_or.reduceat(order >= len(stored.key), starts)
        kinds: Sequence[Accumulator] = binding.extra[1]
        new = _Sessions(
            both.key[starts],
            both.first[starts],
            reach[stops],
            np.add.reduceat(both.rows, starts),
            tuple(bounded(kind, kind.combine(f, starts)) for kind, f in zip(kinds, both.fields, strict=True)),
        )
        touched = np.repeat(came, stops - starts + 1) & (order < len(stored.key))
        return both.some(np.flatnonzero(touched)), new.some(np.flatnonzero(came))

    def _rows(self, binding: Binding, keys: KeySet, sessions: _Sessions) -> pa.Table:
        """All columns of sessions: the visible ones and the stored ones."""
        at = binding.shape.schema.field(START).type
        columns: dict[str, Any] = {k: take(one_chunk(keys.columns.column(k)), sessions.key) for k in self.key}
        columns[START] = pa.array(sessions.first).cast(at)
        columns[END] = pa.array(sessions.last + self.gap_us).cast(at)
        columns[ROWS] = pa.array(sessions.rows)
        kinds: Sequence[Accumulator] = binding.extra[1]
        for n, (agg, kind) in enumerate(zip(self.aggs, kinds, strict=True)):
            columns[agg.name] = kind.finish(sessions.fields[n], sessions.rows)
            columns |= {_name(n, f): v for f, v in sessions.fields[n].items()}
        columns[HASH] = pa.array(keys.hashes[sessions.key])
        fields = {f.name: f for f in (*binding.shape.schema, *binding.tables[0].schema)}
        schema = pa.schema([fields.get(name, pa.field(HASH, pa.uint64())) for name in columns])
        return pa.table(list(columns.values()), schema=schema)

    def _errors(self, binding: Binding, keys: KeySet, old: _Sessions, new: _Sessions) -> pa.Table | None:
        errors_of_rows = None
        kinds: Sequence[Accumulator] = binding.extra[1]
        for n, kind in enumerate(kinds):
            for sessions, weight in ((old, -1), (new, 1)):
                bad = kind.fails(sessions.fields[n])
                if bad is None or not bad.any():
                    continue
                rows = self._rows(binding, keys, sessions.some(np.flatnonzero(bad)))
                errors = [f"{self.aggs[n].name}: {kind.reason}"] * rows.num_rows
                made = error_rows(rows.select([*self.key, START, HASH]), errors)
                errors_of_rows = join_errors(errors_of_rows, made if weight > 0 else negate(made))
        return errors_of_rows


def _name(number: int, field: str) -> str:
    return f"_a{number}_{field}"


def _ints(column: pa.ChunkedArray | pa.Array) -> Ints:
    values: Ints = one_chunk(column).to_numpy(zero_copy_only=False)
    return values


def _taken(values: Any, which: Ints) -> Any:
    return values[which] if isinstance(values, np.ndarray) else take(values, which)


def _joined(one: Any, two: Any) -> Any:
    return np.concatenate([one, two]) if isinstance(one, np.ndarray) else pa.concat_arrays([one, two])


def _weighted(rows: pa.Table, weight: int) -> pa.Table:
    return with_weights(rows, np.full(rows.num_rows, weight, np.int64))


def _by_key_and_time(key: Ints, at: Ints, *, rows: bool) -> tuple[Ints, Ints, Ints]:
    """Keys and times sorted by both, and the row of each if `rows` is set."""
    low = int(at.min()) if len(at) else 0
    bits = (int(at.max()) - low).bit_length() if len(at) else 0
    if bits + int(key.max(initial=0)).bit_length() > 63:
        order = np.lexsort((at, key))
        return key[order], at[order], order
    words = (key << bits | (at - low)).view(np.uint64)  # sorts many times faster than pairs
    order = stable_argsort(words) if rows else np.empty(0, np.int64)
    ordered = (words[order] if rows else np.sort(words)).view(np.int64)
    return ordered >> bits, (ordered & ((1 << bits) - 1)) + low, order


def _begins(key: Ints, first: Ints, reach: Ints, gap: int) -> npt.NDArray[np.bool_]:
    """Where a session begins, in intervals sorted by key and first time; `reach`: the latest time so far."""
    begins = np.ones(len(key), np.bool_)
    begins[1:] = (key[1:] != key[:-1]) | (first[1:] - reach[:-1] > gap)
    return begins


def _furthest(key: Ints, last: Ints) -> Ints:
    """The greatest `last` of each key, up to and including each row."""
    order = np.argsort(last, kind="stable")
    rank = np.empty(len(last), np.int64)
    rank[order] = np.arange(len(last))
    furthest: Ints = np.maximum.accumulate(key * len(last) + rank) - key * len(last)
    return last[order[furthest]]


def _still(
    spec: TableSpec, old: _Sessions, before: pa.Table, new: _Sessions, after: pa.Table
) -> npt.NDArray[np.bool_]:
    """Which of the old rows a new one replaces in its place: the same key, start and bucket."""
    places = [np.column_stack([s.key, s.first, spec.buckets(t)]) for s, t in ((old, before), (new, after))]
    both, inverse = np.unique(np.concatenate(places), axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    taken = np.zeros(len(both), np.bool_)
    taken[inverse[len(places[0]) :]] = True
    is_taken: npt.NDArray[np.bool_] = taken[inverse[: len(places[0])]]
    return is_taken
