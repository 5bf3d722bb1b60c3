"""One epoch of a join: fetches stored rows, makes pairs and computes the changes of the state.

See `operators.join` for the two lines of algebra that this implements, and for the layout
of the state.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.delta import HASH, WEIGHT, concat, consolidate, weights, with_weights
from millpond.identity import nulls, one_chunk, ties
from millpond.kernels.bounds import Bound
from millpond.kernels.expression_kernel import join_errors
from millpond.kernels.join_match import Matcher, Met
from millpond.kernels.keyed_rows import Keyed, some_keys
from millpond.state.runs.sorted_rows import sorted_columns
from millpond.state.tables.table import KeySet, Table
from millpond.state.tables.table_spec import TableSpec, bucket_numbers

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MATCHED = "__matched"  # False: a row and its weight; True: the row and the weight of its pairs
SPREAD = "__spread"
SPREADS = 16  # part of the state format


class StepState(Protocol):
    """What a join reads besides its input: its tables, its hash range and watermarks."""

    h_min: int
    h_max: int

    def table(
        self, name: str, *, everywhere: bool = False, buckets: Collection[int] | None = None
    ) -> Table: ...

    def watermark(self, step: str) -> int | None: ...


@dataclass(frozen=True)
class NewRows:
    """Rows to be written to one table of a join."""

    table: str
    rows: pa.Table
    presorted: bool


@dataclass(frozen=True)
class Side:
    """One side of a join as `apply` needs it."""

    on: tuple[str, ...]
    columns: tuple[str, ...]  # of its rows, including the key
    table: str
    counts: str | None  # the table with each key and the weight of its rows, if it is read
    shows: Literal["nothing", "alone", "met"]  # which of its rows are emitted without a partner's columns
    marked: bool  # the table also stores the weights of pairs
    way: Literal["hash", "broadcast", "here"]
    loose: bool  # rows without a key are emitted, and placed anywhere
    bound: Bound | None = None  # rows behind it have expired

    @property
    def wire(self) -> tuple[str, ...]:
        """The names of `columns` on the edge."""
        return tuple("__" + c if self.loose and c in self.on else c for c in self.columns)

    @property
    def keyed_by_time(self) -> bool:
        return self.bound is not None and self.bound.column in self.on

    def drops(self, ctx: StepState, tables: Sequence[TableSpec]) -> tuple[tuple[str, int], ...]:
        own = [t for t in tables if t.time is not None and t.name in (self.table, self.counts)]
        return () if self.bound is None else self.bound.drops(ctx.watermark, *own)


@dataclass(frozen=True)
class Sides:
    left: Side
    right: Side
    matcher: Matcher
    tells_apart: bool  # different pairs produce different rows
    grows: bool  # both sides are append-only: nothing can cancel, so nothing is summed up before a write
    keyed: bool = False  # the output has a key: without retractions no row occurs twice

    def __getitem__(self, side: int) -> Side:
        return (self.left, self.right)[side]


class JoinEpoch:
    """The work of one task in one epoch; lives for one call."""

    def __init__(self, ctx: StepState, sides: Sides, left: pa.Table, right: pa.Table) -> None:
        self.ctx = ctx
        self.sides = sides
        self.errors: pa.Table | None = None
        names = sides.left.on
        parts = [d.select([*s.on, WEIGHT, HASH]) for d, s in ((left, sides.left), (right, sides.right))]
        both = concat([part.rename_columns([*names, WEIGHT, HASH]) for part in parts])
        self.keys = KeySet.of(both, names, one_chunk(both.column(HASH)).to_numpy())
        cut = left.num_rows
        numbers = (self.keys.inverse[:cut], self.keys.inverse[cut:])
        self.delta = [
            Keyed.of(d, side.columns, number)
            for d, side, number in zip((left, right), (sides.left, sides.right), numbers, strict=True)
        ]
        self.stored: list[Keyed | None] = [None, None]
        self._pairs_of_stored: list[Ints | None] = [None, None]  # weight of pairs at epoch e-1
        self._marks: list[list[Keyed]] = [[], []]  # changes of these weights
        self._met: dict[str, Met] = {}
        self._out: list[pa.Table] = []
        self._blocks = 0

    # -- reading state -----------------------------------------------------------------

    def _table(self, name: str, side: Side) -> Table:
        buckets = None
        if side.keyed_by_time and side.bound is not None:  # a key is in one bucket
            times = self.keys.columns.column(side.on.index(side.bound.column))
            buckets = frozenset(np.unique(bucket_numbers(times, side.bound.width_us)).tolist())
        return self.ctx.table(name, everywhere=side.way == "broadcast", buckets=buckets)

    def fetch(self, number: int, which: Ints) -> Keyed:
        """Fetch the stored rows of one side with these keys that this task has to match."""
        side = self.sides[number]
        names = [*side.columns, *([MATCHED] if side.marked else [])]
        keys = some_keys(self.keys, which, side.on)
        if side.way == "here":
            keys, which = self._spread(keys, which, side)
        found = self._table(side.table, side).lookup(keys, names)
        rows = Keyed.of(found.table, names, which[found.key_index])
        if side.marked:
            rows, self._pairs_of_stored[number] = _apart(rows, side.columns)
        self.stored[number] = rows
        return rows

    def _spread(self, keys: KeySet, which: Ints, side: Side) -> tuple[KeySet, Ints]:
        """All (key, spread) in this task's range, and the number of each one's key."""
        source = np.repeat(np.arange(len(keys)), SPREADS)
        spread = pa.array(np.tile(np.arange(SPREADS, dtype=np.uint8), len(keys)))
        columns = {name: keys.columns.column(name).take(pa.array(source)) for name in side.on}
        batch = pa.table({**columns, SPREAD: spread})
        hashes = hashing.hash_columns(batch.columns, batch.num_rows)
        mine = np.flatnonzero(self._in_range(hashes))
        found = KeySet.of(batch.take(pa.array(mine)), (*side.on, SPREAD), hashes[mine])
        numbers = np.empty(len(mine), np.int64)
        numbers[found.inverse] = which[source[mine]]
        return found, numbers

    def _in_range(self, hashes: npt.NDArray[np.uint64]) -> Bools:
        inside: Bools = (hashes >= np.uint64(self.ctx.h_min)) & (hashes <= np.uint64(self.ctx.h_max))
        return inside

    # -- pairs -------------------------------------------------------------------------

    def pairs(self, wanted: bool) -> None:
        """Make the pairs dL x R, L x dR and dL x dR."""
        if not wanted:
            return
        left, right = self.delta
        for name, number, other in (("new left", 1, left), ("new right", 0, right)):
            if len(other):
                stored = self.fetch(number, other.key[~ties(other.key)])
                self._meet(name, *((left, stored) if number else (stored, right)))
        self._meet("new both", left, right)

    def _meet(self, name: str, left: Keyed, right: Keyed) -> None:
        if not len(left) or not len(right):
            return
        met = self._met[name] = self.sides.matcher.meet(left, right)
        self.errors = join_errors(self.errors, met.errors)
        self._out += met.out
        self._blocks += 1

    # -- rows that a side emits without a partner's columns ----------------------------

    def show(self, rows: Keyed, number: int) -> None:
        if not len(rows):
            return
        self._out.append(self.sides.matcher.alone(rows, number))
        self._blocks += 2  # they may equal rows of pairs

    def show_by_key(self, number: int) -> None:
        """Without a residual: decide by the weight of each key on the other side."""
        side, other = self.sides[number], self.sides[1 - number]
        delta, opposite = self.delta[number], self.delta[1 - number]
        assert other.counts is not None
        found = self._table(other.counts, other).lookup(
            some_keys(self.keys, np.arange(len(self.keys)), other.on), other.on
        )
        before = np.zeros(len(self.keys), np.int64)
        before[found.key_index] = one_chunk(found.table.column(WEIGHT)).to_numpy()
        after = before.copy()
        np.add.at(after, opposite.key, opposite.weights)
        old, new = _shown(before, side), _shown(after, side)
        self.show(delta.weighted(delta.weights * new[delta.key]), number)
        flipped = np.flatnonzero(old != new)
        if len(flipped):
            stored = self.stored[number]
            if stored is None:
                stored = self.fetch(number, flipped)
            self.show(stored.weighted(stored.weights * (new - old)[stored.key]), number)

    def show_by_row(self, number: int) -> None:
        """With a residual: decide by the weight of each row's own pairs."""
        side, delta, stored = self.sides[number], self.delta[number], self.stored[number]
        fresh = self._sum(number, ("new left", "new right")[number], len(delta))
        fresh += self._sum(number, "new both", len(delta))
        self.show(delta.weighted(delta.weights * _shown(fresh, side)), number)
        self._marks[number].append(delta.weighted(delta.weights * fresh))
        if stored is not None:
            pairs = self._pairs_of_stored[number]
            assert pairs is not None
            before = pairs // stored.weights
            more = self._sum(number, ("new right", "new left")[number], len(stored))
            flip = _shown(before + more, side) - _shown(before, side)
            self.show(stored.weighted(stored.weights * flip), number)
            self._marks[number].append(stored.weighted(stored.weights * more))

    def _sum(self, number: int, name: str, length: int) -> Ints:
        met = self._met.get(name)
        found = None if met is None else (met.left, met.right)[number]
        return np.zeros(length, np.int64) if found is None else found

    # -- results -----------------------------------------------------------------------

    def changes(self, number: int) -> list[NewRows]:
        side, delta = self.sides[number], self.delta[number]
        found = []
        if len(delta):
            found.append(self._rows(side, delta, False))
        found += [self._rows(side, matched, True) for matched in self._marks[number] if len(matched)]
        in_order = side.way == "hash" and not side.marked
        changes = [NewRows(side.table, concat(found), presorted=in_order)] if found else []
        if side.counts is not None and side.counts != side.table and len(delta):
            sums = np.zeros(len(self.keys), np.int64)
            np.add.at(sums, delta.key, delta.weights)
            rows = np.flatnonzero((sums != 0) & self._writes(side, self.keys.hashes))
            table = some_keys(self.keys, rows, side.on).columns
            table = table.append_column(HASH, pa.array(self.keys.hashes[rows]))
            changes.append(NewRows(side.counts, with_weights(table, sums[rows]), presorted=True))
        return [change for change in changes if change.rows.num_rows]

    def _rows(self, side: Side, rows: Keyed, matched: bool) -> pa.Table:
        table = rows.table(side.columns)
        if side.marked:
            table = table.append_column(MATCHED, pa.array(np.full(len(rows), matched)))
        if side.way == "here":
            columns = [rows.columns[name] for name in side.columns]
            spread = hashing.hash_columns(columns, len(rows)) % np.uint64(SPREADS)
            return table.append_column(SPREAD, pa.array(spread.astype(np.uint8)))
        hashes = self.keys.hashes[rows.key]
        table = table.append_column(HASH, pa.array(hashes))
        return table if side.way == "hash" else table.filter(pa.array(self._writes(side, hashes)))

    def _writes(self, side: Side, hashes: npt.NDArray[np.uint64]) -> Bools:
        """Which rows this task writes: of a broadcast side, only those in its own range."""
        return self._in_range(hashes) if side.way == "broadcast" else np.ones(len(hashes), np.bool_)

    def output(self) -> pa.Table | None:
        if not self._out:
            return None
        out = pa.concat_tables(self._out)
        # Pairs of one block have different rows; only several blocks can contain the same pair twice.
        apart = self.sides.tells_apart and self._blocks == 1
        apart |= self.sides.keyed and only_comes(out)
        if not self.sides.grows and not apart:
            out = consolidate(out)
        return out if out.num_rows else None


def receive(side: Side, delta: pa.Table | None, spec: TableSpec, grows: bool) -> tuple[pa.Table, pa.Table]:
    """(rows with a key and its hash, rows without); equal ones are summed up, unless all are append-only.

    Rows with a key that arrive by an exchange are in the order of the side's table: both the matching and
    the writing need them by key.
    """
    if delta is None:
        fields = [*(spec.schema.field(name) for name in side.columns), pa.field(WEIGHT, pa.int64())]
        nothing = pa.schema([*fields, pa.field(HASH, pa.uint64())]).empty_table()
        return nothing, nothing
    names = side.wire if side.way == "hash" else side.columns
    hidden = [name for name in (WEIGHT, HASH) if name in delta.column_names]
    if side.way != "hash":  # an existing hash is that of another key
        hidden = [name for name in hidden if name != HASH]
    delta = delta.select([*names, *hidden]).rename_columns([*side.columns, *hidden])
    if side.way != "hash":
        delta = with_weights(delta, weights(delta)) if grows else consolidate(delta)
    lacks = lacks_key(delta, side.on)
    bare = delta.filter(pa.array(lacks)) if lacks.any() else delta.slice(0, 0)
    if lacks.any():
        delta = delta.filter(pa.array(~lacks))
        bare = bare if grows else consolidate(bare)
    if side.way == "hash":
        return in_table_order(side, delta, spec), bare
    hashes = hashing.hash_columns([delta.column(name) for name in side.on], delta.num_rows)
    return delta.append_column(pa.field(HASH, pa.uint64()), pa.array(hashes)), bare


def in_table_order(side: Side, rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Rows in the order of their side's table, with equal ones summed up."""
    if side.marked:
        fields = [field for field in spec.schema if field.name != MATCHED]
        spec = replace(spec, schema=pa.schema(fields))
    columns = sorted_columns(spec, rows)
    return pa.table([columns[name] for name in (*side.columns, WEIGHT, HASH)], [*side.columns, WEIGHT, HASH])


def only_comes(delta: pa.Table) -> bool:
    """Whether nothing is retracted."""
    return not delta.num_rows or int(weights(delta).min()) > 0


def lacks_key(delta: pa.Table, on: Sequence[str]) -> Bools:
    lacks = np.zeros(delta.num_rows, np.bool_)
    for name in on:
        if delta.column(name).null_count:
            lacks |= nulls(one_chunk(delta.column(name)))
    return lacks


def _shown(weight: Ints, side: Side) -> Ints:
    """1 where a row, or the rows of a key, with partners of this weight are emitted."""
    return (weight == 0 if side.shows == "alone" else weight > 0).astype(np.int64)


def _apart(rows: Keyed, names: Sequence[str]) -> tuple[Keyed, Ints]:
    """Rows, and for each the weight of its pairs: in table order that mark follows its row."""
    mark = one_chunk(rows.columns[MATCHED]).to_numpy(zero_copy_only=False)
    own = np.flatnonzero(~mark)
    pairs = np.zeros(len(own), np.int64)
    pairs[np.cumsum(~mark)[mark] - 1] = rows.weights[mark]
    plain = Keyed({name: rows.columns[name] for name in names}, rows.weights, rows.key)
    return plain.some(own), pairs
