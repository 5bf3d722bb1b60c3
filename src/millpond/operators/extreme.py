"""Extreme: the first row of every key in an order.

DISTINCT ON, first and last, arg_min and arg_max: a TopN of one row whose
output is a table with a key, so it is also the view.

Law: the output is a function of the input multiset (canonical): ties in the
order are broken by all other columns.  An epoch costs its delta: the best row
of a touched key is one lookup, and is kept or replaced by a row of the delta.
Over append-only input only the best rows are stored (`<step>/best`), and senders
send one row per key.  Where rows can be retracted, all rows are stored too
(`<step>/rows`), and their head is read only for keys that lost their best row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.delta import HASH, WEIGHT, concat, consolidate, negate, with_weights
from millpond.identity import one_chunk, take, ties
from millpond.kernels.bounds import Bound, among, bucketed_by, buckets_of
from millpond.kernels.keyed_rows import Keyed, as_declared, some_keys
from millpond.kernels.ranking import Ranked, rank
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.top_n import check_columns
from millpond.operators.traits import ExpiresBehindBound, PreparesInput
from millpond.ordering import Order
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Extreme(ExpiresBehindBound, PreparesInput):
    """Emits the key and `columns` of the row that is first by `order`."""

    key: tuple[str, ...]
    order: tuple[Order, ...]
    columns: tuple[str, ...]
    expires: Bound | None = None  # keys behind it have expired, and the table is not read

    canonical: ClassVar[bool] = True

    # -- declaration -----------------------------------------------------------------

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        ordered = tuple(o.column for o in self.order)
        check_columns(step, shape, [*self.key, *self.columns, *ordered])
        shown = tuple(dict.fromkeys([*self.key, *self.columns]))
        unseen = tuple(dict.fromkeys(c for c in ordered if c not in shown))
        plain = stored(shape.schema)
        fields = {c: plain.field(c) for c in (*shown, *unseen)}
        best = TableSpec(
            f"{step}/best",
            pa.schema([*(fields[c] for c in shown), *(fields[c].with_name(f"_{c}") for c in unseen)]),
            self.key,
            **bucketed_by(self.expires),
        )
        rows = TableSpec(
            f"{step}/rows",
            pa.schema(list(fields.values())),
            self.key,
            order=self.order,
            rule="weights",
            **bucketed_by(self.expires),
        )
        return Binding(
            Shape(
                pa.schema([fields[c] for c in shown]),
                append_only=False,
                key=self.key,
                bounds=among(shape.bounds, self.key),
            ),
            (by_key(*self.key),),
            (best,) if shape.append_only else (best, rows),
            view=None if self.expires else best.name,
            placed_by=self.key,
            wire=rows.schema,
            extra=rows,
        )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.extra.schema.names),)

    # -- the sender's side -------------------------------------------------------------

    def prepare(self, binding: Binding, index: int, delta: pa.Table) -> pa.Table:
        names = binding.extra.schema.names
        delta = delta.select([*names, *([WEIGHT] if WEIGHT in delta.column_names else [])])
        if len(binding.tables) > 1:
            hashes = hashing.hash_columns([delta.column(c) for c in self.key], delta.num_rows)
        else:  # append-only: one row per key is enough
            delta = consolidate(delta)
            keys = KeySet.of(delta, self.key)
            ranked = self._rank(binding, len(keys), None, Keyed.of(delta, names, keys.inverse))
            first = _first_rows(ranked, ranked.changed > 0)
            delta, hashes = _rows(ranked, first, names), keys.hashes
        return delta.append_column(pa.field(HASH, pa.uint64()), pa.array(hashes))

    # -- one epoch ---------------------------------------------------------------------

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        drops = self.ended(ctx, binding)
        if inputs[0] is None:
            return StepResult(drops=drops)
        names = binding.extra.schema.names
        hidden = [name for name in (WEIGHT, HASH) if name in inputs[0].column_names]
        delta = consolidate(inputs[0].select([*names, *hidden]))
        if not delta.num_rows:
            return StepResult(drops=drops)
        hashes = one_chunk(delta.column(HASH)).to_numpy() if HASH in delta.column_names else None
        keys = KeySet.of(delta, self.key, hashes)
        part = Keyed.of(delta, names, keys.inverse)
        buckets = buckets_of(binding.tables[0], keys.columns)
        is_found, before = ctx.table(binding.tables[0].name, buckets=buckets).lookup_one(keys)
        before = before.rename_columns(names)
        there = np.flatnonzero(is_found)
        old = Keyed.of(before.take(pa.array(there)), names, there)

        ranked = self._rank(binding, len(keys), old, part)
        # A best row survives unless the delta retracts it; then its key is searched.
        lost = np.zeros(len(keys), np.bool_)
        lost[ranked.key[ranked.fetched & (ranked.changed < 0)]] = True
        alive = (ranked.fetched | (ranked.changed > 0)) & ~lost[ranked.key]
        first = _first_rows(ranked, alive)
        better = first[~ranked.fetched[first]]
        moved, rows = ranked.key[better], [_rows(ranked, better, names)]
        changes = []
        if len(binding.tables) > 1:
            changes.append(Change(binding.tables[1].name, delta))
            searched = np.flatnonzero(lost)
            if len(searched):
                next_ones = self._search(ctx, binding, keys, searched, part)
                moved = np.concatenate([moved, next_ones.key])
                rows.append(next_ones.table)
        now = pa.concat_tables(rows)
        gone = lost.copy()
        gone[moved] = False
        touched = lost.copy()
        touched[moved] = True
        was = before.filter(pa.array(touched & is_found))
        put = _put(binding.tables[0], now, before.filter(pa.array(gone)))
        if put.num_rows:
            changes.append(Change(binding.tables[0].name, put))
        return StepResult(
            _difference(binding, was, now) if ctx.output_is_read else None, tuple(changes), drops=drops
        )

    def _rank(self, binding: Binding, keys: int, head: Keyed | None, delta: Keyed) -> Ranked:
        return rank((binding.extra.order_within_key, ()), keys, head, delta, 1)

    def _search(self, ctx: Context, binding: Binding, keys: KeySet, which: Ints, delta: Keyed) -> _Best:
        """Find the new best rows of keys that lost theirs; fetching one more row than were lost is enough."""
        names = binding.extra.schema.names
        delta = delta.of_keys(which)
        gone = np.bincount(delta.key[delta.weights < 0], minlength=len(which))
        here = some_keys(keys, which, self.key)
        rows = ctx.table(binding.tables[1].name, buckets=buckets_of(binding.tables[1], here.columns))
        head = rows.head(here, gone + 1)
        ranked = self._rank(binding, len(which), Keyed.of(head.table, names, head.key_index), delta)
        first = _first_rows(ranked, ranked.new.weights > 0)
        return _Best(which[ranked.key[first]], _rows(ranked, first, names))


@dataclass(frozen=True)
class _Best:
    key: Ints  # numbers of keys
    table: pa.Table  # one row for each


def _first_rows(ranked: Ranked, alive: npt.NDArray[np.bool_]) -> Ints:
    """The first row with a positive weight of each key that has one."""
    rows = np.flatnonzero(alive)
    return rows[~ties(ranked.key[rows])]


def _rows(ranked: Ranked, which: Ints, names: Sequence[str]) -> pa.Table:
    return pa.table([take(ranked.columns[name], ranked.row[which]) for name in names], names=list(names))


def _put(spec: TableSpec, now: pa.Table, gone: pa.Table) -> pa.Table:
    """The changes of the table of best rows: puts and tombstones."""
    rows = concat(
        [
            with_weights(now, np.ones(now.num_rows, np.int64)),
            with_weights(gone, np.zeros(gone.num_rows, np.int64)),
        ]
    )
    return rows.rename_columns([*spec.schema.names, WEIGHT])


def _difference(binding: Binding, was: pa.Table, now: pa.Table) -> pa.Table | None:
    shown = binding.shape.schema.names
    out = consolidate(
        concat([negate(was.select(shown)), with_weights(now.select(shown), np.ones(now.num_rows, np.int64))])
    )
    if not out.num_rows:
        return None
    return as_declared(pa.schema([*binding.shape.schema, pa.field(WEIGHT, pa.int64())]), out.columns)
