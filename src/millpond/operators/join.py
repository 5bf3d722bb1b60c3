"""Join: pairs of rows with equal keys, kept correct as both sides change.

Law: the output is the batch join of the two multisets (canonical), and an
epoch costs its delta times what it meets, never the size of a side.

    pairs      dL x R  +  L x dR  +  dL x dR         (L and R at epoch e-1)
    kept rows  f_new(l) * dL(l)  +  (f_new(l) - f_old(l)) * L(l)

The second line gives what a side shows besides its pairs: the rows without a
partner (outer joins, anti) or those with one (semi); f is 0 or 1.  Without a
residual, f depends on the key alone: it says whether the other side holds the
key.  That count is a multiset index as well, namely the other side projected
to its key (`<step>/right_n`; the side's own table when it has no other
columns), so it needs no read before a write, and rows of L are fetched only
for keys whose f flips.  With a residual, f depends on the row: the side's
table then also holds, marked `__matched`, each row with the weight of its
pairs.  Those lie next to the rows they speak of and change by the same pairs
that the first line makes.

A row with NULL in its key meets nobody.  It is not stored; where its side is
kept it goes straight through, and it is sent by the hash of the whole row, so
that no task gets all of them.  As its place says nothing about its key, key
columns travel under a hidden name on such an edge.

Broadcast: every task sees all of the small side's delta and may read all of
its table, but writes only the rows in its own hash range.  The other side is
not exchanged at all: its rows are met where they are and written from there.
They are *found again* by the hash of (key, spread), the spread being one of 16
numbers taken from the row: a task meets the stored rows whose hash lies in its
range, whoever wrote them, so each row is met once, and a hot key is met by
many tasks at once.  A change of the small side looks up 16 keys for each of
its own.  What a side without a partner shows depends on all rows of the other,
which no single task sees here, so the small side cannot be the kept one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.delta import HASH, WEIGHT, concat, consolidate, with_weights
from millpond.errors import InvalidError
from millpond.identity import nulls, one_chunk
from millpond.operators.join_match import Matcher, Met
from millpond.operators.kernel import compile_predicate, join_errors
from millpond.operators.keyed import Keyed, some_keys
from millpond.operators.map import check_names
from millpond.operators.operator import (
    BROADCAST,
    HERE,
    NOTHING,
    Binding,
    Change,
    Context,
    Inputs,
    Result,
    Shape,
    by_key,
)
from millpond.operators.watermark import stored
from millpond.state.table import KeySet, Table
from millpond.state.table_spec import TableSpec

Ints = npt.NDArray[np.int64]
Kind = Literal["inner", "left", "right", "full", "semi", "anti"]

NAMES = ("left", "right")
MATCHED = "__matched"  # False: a row and its weight; True: the row and the weight of its pairs
SPREAD = "__spread"
SPREADS = 16  # part of the state format


@dataclass(frozen=True)
class Side:
    """One side of a join as `apply` needs it."""

    on: tuple[str, ...]
    columns: tuple[str, ...]  # of its rows, the key among them
    table: str
    counts: str | None  # the table that holds each key with the weight of its rows, if somebody asks
    shows: Literal["nothing", "alone", "met"]  # which of its rows come out by themselves
    marked: bool  # the table holds weights of pairs too
    way: Literal["hash", "broadcast", "here"]
    loose: bool  # rows without a key are kept, and lie anywhere

    @property
    def wire(self) -> tuple[str, ...]:
        """The names of `columns` on the edge."""
        return tuple("__" + c if self.loose and c in self.on else c for c in self.columns)


@dataclass(frozen=True)
class Sides:
    left: Side
    right: Side
    matcher: Matcher

    def __getitem__(self, side: int) -> Side:
        return (self.left, self.right)[side]


@dataclass(frozen=True)
class Join:
    """`columns` says (output name, side, input name); a residual speaks of output names.

    Semi and anti joins give the columns of the left side only; columns of the
    right are named for the residual alone.
    """

    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    kind: Kind
    columns: tuple[tuple[str, int, str], ...]
    residual: str | None = None
    broadcast: Literal["left", "right"] | None = None

    canonical: ClassVar[bool] = True

    # -- declaration -----------------------------------------------------------------

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        inputs = tuple(replace(shape, schema=stored(shape.schema)) for shape in inputs)
        self._check(step, inputs)
        left, right = (self._side(step, inputs, side) for side in (0, 1))
        schema = self._schema(inputs)
        pairs = self.kind not in ("semi", "anti")
        shape = Shape(
            self._visible(schema),
            append_only=self.kind in ("inner", "semi") and all(i.append_only for i in inputs),
            key=self._key(inputs),
        )
        residual = None
        if self.residual is not None:
            residual = compile_predicate(schema, self.residual, append_only=shape.append_only, step=step)
        out = pa.schema([*shape.schema, pa.field(WEIGHT, pa.int64())])
        matcher = Matcher(self.columns, out, residual, emits=pairs)
        placements = tuple(
            {"hash": by_key(*side.on), "broadcast": BROADCAST, "here": HERE}[side.way]
            for side in (left, right)
        )
        tables = [spec for side in (0, 1) for spec in self._tables(inputs, (left, right)[side], side)]
        return Binding(
            shape,
            placements,
            tuple(tables),
            placed_by=self._placed_by(left, right),
            extra=Sides(left, right, matcher),
        )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        """All of its columns: rows of a state table are told apart by all of them."""
        return (frozenset(binding.extra.left.columns), frozenset(binding.extra.right.columns))

    def _check(self, step: str, inputs: tuple[Shape, ...]) -> None:
        if len(self.left_on) != len(self.right_on):
            raise InvalidError(
                "a join needs as many key columns on the left as on the right",
                detail=f"{len(self.left_on)} on the left, {len(self.right_on)} on the right",
                step=step,
            )
        used = [(0, c) for c in self.left_on] + [(1, c) for c in self.right_on]
        used += [(side, column) for _, side, column in self.columns]
        for side, column in used:
            if column not in inputs[side].schema.names:
                raise InvalidError(
                    f"the {NAMES[side]} side of the join has no column {column!r}",
                    detail=f"columns are {', '.join(inputs[side].schema.names)}",
                    step=step,
                )
        for left, right in zip(self.left_on, self.right_on, strict=True):
            kinds = [inputs[0].schema.field(left).type, inputs[1].schema.field(right).type]
            if kinds[0] != kinds[1]:
                raise InvalidError(
                    f"cannot join {left!r} with {right!r}: their types differ",
                    detail=f"{kinds[0]} on the left, {kinds[1]} on the right",
                    hint="cast both to one type before the join",
                    step=step,
                )
        for on in (self.left_on, self.right_on):
            if len(set(on)) < len(on):
                raise InvalidError(
                    "a column stands twice in one side of a join key",
                    detail=f"key is {', '.join(on)}",
                    hint="put one of the two equalities into the residual",
                    step=step,
                )
        check_names([name for name, _, _ in self.columns], step)
        wrong = {"right": ("right", "full"), "left": ("left", "full", "semi", "anti")}
        if self.broadcast is not None and self.kind in wrong[self.broadcast]:
            raise InvalidError(
                f"a {self.kind} join cannot broadcast its {self.broadcast} side",
                detail="whether a row of that side has a partner is known to no single task",
                hint="broadcast the other side, or none",
                step=step,
            )

    def _side(self, step: str, inputs: tuple[Shape, ...], side: int) -> Side:
        on = (self.left_on, self.right_on)[side]
        left_shows = {"left": "alone", "full": "alone", "anti": "alone", "semi": "met"}
        right_shows = {"right": "alone", "full": "alone"}
        shows = (left_shows, right_shows)[side].get(self.kind, "nothing")
        other_shows = (right_shows, left_shows)[side].get(self.kind, "nothing")
        wanted = {*on, *(column for _, of, column in self.columns if of == side)}
        if side == 1 and self.kind in ("semi", "anti") and self.residual is None:
            wanted = {*on}
        columns = tuple(name for name in inputs[side].schema.names if name in wanted)
        table = f"{step}/{NAMES[side]}"
        counts = None
        if other_shows != "nothing" and self.residual is None:
            counts = table if len(columns) == len(on) else f"{table}_n"
        if self.broadcast is None:
            way: Literal["hash", "broadcast", "here"] = "hash"
        else:
            way = "broadcast" if self.broadcast == NAMES[side] else "here"
        may_lack = any(inputs[side].schema.field(name).nullable for name in on)
        return Side(
            on,
            columns,
            table,
            counts,
            shows,  # type: ignore[arg-type]
            marked=self.residual is not None and shows != "nothing",
            way=way,
            loose=shows == "alone" and way == "hash" and may_lack,
        )

    def _schema(self, inputs: tuple[Shape, ...]) -> pa.Schema:
        """All named columns, also those that only the residual sees."""
        padded = {0: self.kind in ("right", "full"), 1: self.kind in ("left", "full")}
        fields = []
        for name, side, column in self.columns:
            field = inputs[side].schema.field(column).with_name(name)
            fields.append(field.with_nullable(field.nullable or padded[side]))
        return pa.schema(fields)

    def _visible(self, schema: pa.Schema) -> pa.Schema:
        if self.kind not in ("semi", "anti"):
            return schema
        return pa.schema([schema.field(name) for name, side, _ in self.columns if side == 0])

    def _tables(self, inputs: tuple[Shape, ...], side: Side, number: int) -> list[TableSpec]:
        fields = [inputs[number].schema.field(name) for name in side.columns]
        key = side.on
        if side.way == "here":
            fields.append(pa.field(SPREAD, pa.uint8()))
            key = (*key, SPREAD)
        if side.marked:  # last, so that in table order a row and its mark are neighbours
            fields.append(pa.field(MATCHED, pa.bool_()))
        tables = [TableSpec(side.table, pa.schema(fields), key, rule="weights")]
        if side.counts is not None and side.counts != side.table:
            own = [inputs[number].schema.field(name) for name in side.on]
            tables.append(TableSpec(side.counts, pa.schema(own), side.on, rule="weights"))
        return tables

    def _placed_by(self, left: Side, right: Side) -> tuple[str, ...] | None:
        """The output columns by whose hash rows lie: the key of a side whose rows all have it."""
        if self.broadcast is not None:
            return None
        for number, side in ((0, left), (1, right)):
            padded = self.kind == "full" or self.kind == ("right", "left")[number]
            if padded or side.loose or (number == 1 and self.kind in ("semi", "anti")):
                continue
            names = [self._name_of(number, column) for column in side.on]
            if all(name is not None for name in names):
                return tuple(name for name in names if name is not None)
        return None

    def _name_of(self, side: int, column: str) -> str | None:
        return next((name for name, of, c in self.columns if of == side and c == column), None)

    def _key(self, inputs: tuple[Shape, ...]) -> tuple[str, ...] | None:
        """At most one row per these, if that follows from the keys of the sides."""
        found: list[list[str] | None] = []
        for side in (0, 1):
            names = [self._key_name(side, column) for column in inputs[side].key or ()]
            whole = inputs[side].key is not None and all(name is not None for name in names)
            found.append([name for name in names if name is not None] if whole else None)
        left, right = found
        if self.kind in ("semi", "anti"):
            return None if left is None else tuple(left)
        # A side whose key lies within the join key has at most one partner for each row of the other.
        one_left = inputs[0].key is not None and set(inputs[0].key) <= set(self.left_on)
        one_right = inputs[1].key is not None and set(inputs[1].key) <= set(self.right_on)
        if left is not None and one_right and self.kind in ("inner", "left"):
            return tuple(left)
        if right is not None and one_left and self.kind in ("inner", "right"):
            return tuple(right)
        if left is None or right is None:
            return None
        if self.kind == "full":
            # A left row alone and a right row alone would be one where both keys are all NULL.
            fields = [inputs[side].schema.field(c) for side in (0, 1) for c in inputs[side].key or ()]
            if all(field.nullable for field in fields):
                return None
        return tuple(dict.fromkeys([*left, *right]))

    def _key_name(self, side: int, column: str) -> str | None:
        """The output name of a key column; in an inner join the equal column of the other side will do."""
        name = self._name_of(side, column)
        on, other = (self.left_on, self.right_on) if side == 0 else (self.right_on, self.left_on)
        if name is None and self.kind == "inner" and column in on:
            name = self._name_of(1 - side, other[on.index(column)])
        return name

    # -- the sender's side -------------------------------------------------------------

    def prepare(self, binding: Binding, index: int, delta: pa.Table) -> pa.Table:
        side: Side = binding.extra[index]
        carried = [WEIGHT] if WEIGHT in delta.column_names else []
        delta = delta.select([*side.columns, *carried])
        lacks = _lacks_key(delta, side.on)
        if lacks.any() and not side.loose:
            delta = delta.filter(pa.array(~lacks))
        hashes = hashing.hash_columns([delta.column(name) for name in side.on], delta.num_rows)
        if side.loose and lacks.any():
            rows = np.flatnonzero(lacks)
            bare = delta.take(pa.array(rows))
            hashes[rows] = hashing.hash_columns([bare.column(n) for n in side.columns], len(rows))
        delta = delta.rename_columns([*side.wire, *carried])
        return delta.append_column(pa.field(HASH, pa.uint64()), pa.array(hashes))

    # -- one epoch ---------------------------------------------------------------------

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        sides: Sides = binding.extra
        schemas = {table.name: table.schema for table in binding.tables}
        came = [_receive(sides[n], inputs[n], schemas[sides[n].table]) for n in (0, 1)]
        if not any(keyed.num_rows or bare.num_rows for keyed, bare in came):
            return NOTHING
        work = _Epoch(ctx, sides, came[0][0], came[1][0])
        work.pairs(self.residual is not None or sides.matcher.emits)
        changes: list[Change] = []
        for n in (0, 1):
            side, bare = sides[n], came[n][1]
            if side.shows == "alone" and bare.num_rows:
                nobody = np.full(bare.num_rows, -1, np.int64)
                work.show(Keyed.of(bare, side.columns, nobody), n)
            if side.marked:
                work.show_by_row(n)
            elif side.shows != "nothing":
                work.show_by_key(n)
            changes += work.changes(n)
        return Result(work.output(self._tells_apart(sides)), tuple(changes), work.errors)

    def _tells_apart(self, sides: Sides) -> bool:
        """Do different pairs give different rows, because no column of a side is left out?"""
        shown = {(side, column) for _, side, column in self.columns}
        return all((n, column) in shown for n in (0, 1) for column in sides[n].columns)


class _Epoch:
    """The work of one task in one epoch; lives for one call."""

    def __init__(self, ctx: Context, sides: Sides, left: pa.Table, right: pa.Table) -> None:
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
        return self.ctx.table(name, everywhere=side.way == "broadcast")

    def fetch(self, number: int, which: Ints) -> Keyed:
        """The stored rows of one side with these keys, as far as this task is to meet them."""
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
        """All (key, spread) in this task's range, and the number of the key of each."""
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

    def _in_range(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        inside: npt.NDArray[np.bool_] = (hashes >= np.uint64(self.ctx.h_min)) & (
            hashes <= np.uint64(self.ctx.h_max)
        )
        return inside

    # -- pairs -------------------------------------------------------------------------

    def pairs(self, wanted: bool) -> None:
        """dL x R, L x dR and dL x dR."""
        if not wanted:
            return
        left, right = self.delta
        for name, number, other in (("new left", 1, left), ("new right", 0, right)):
            if len(other):
                stored = self.fetch(number, np.unique(other.key))
                self._meet(name, *((left, stored) if number else (stored, right)))
        self._meet("new both", left, right)

    def _meet(self, name: str, left: Keyed, right: Keyed) -> None:
        if not len(left) or not len(right):
            return
        met = self._met[name] = self.sides.matcher.meet(left, right)
        self.errors = join_errors(self.errors, met.errors)
        self._out += met.out
        self._blocks += 1

    # -- rows that a side shows by themselves ------------------------------------------

    def show(self, rows: Keyed, number: int) -> None:
        if not len(rows):
            return
        self._out.append(self.sides.matcher.alone(rows, number))
        self._blocks += 2  # they may meet rows of pairs

    def show_by_key(self, number: int) -> None:
        """Without a residual: by the weight of each key on the other side."""
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
        """With a residual: by the weight of each row's own pairs."""
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

    def changes(self, number: int) -> list[Change]:
        side, delta = self.sides[number], self.delta[number]
        found = []
        if len(delta):
            found.append(self._rows(side, delta, False))
        found += [self._rows(side, marks, True) for marks in self._marks[number] if len(marks)]
        changes = [Change(side.table, concat(found))] if found else []
        if side.counts is not None and side.counts != side.table and len(delta):
            sums = np.zeros(len(self.keys), np.int64)
            np.add.at(sums, delta.key, delta.weights)
            rows = np.flatnonzero((sums != 0) & self._writes(side, self.keys.hashes))
            table = some_keys(self.keys, rows, side.on).columns
            table = table.append_column(HASH, pa.array(self.keys.hashes[rows]))
            changes.append(Change(side.counts, with_weights(table, sums[rows])))
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

    def _writes(self, side: Side, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which rows this task writes: of a broadcast side only its own range."""
        return self._in_range(hashes) if side.way == "broadcast" else np.ones(len(hashes), np.bool_)

    def output(self, tells_apart: bool) -> pa.Table | None:
        if not self._out:
            return None
        out = pa.concat_tables(self._out)
        # Pairs of one block are pairs of different rows; only several blocks can give one pair twice.
        return out if tells_apart and self._blocks == 1 else consolidate(out)


def _receive(side: Side, delta: pa.Table | None, schema: pa.Schema) -> tuple[pa.Table, pa.Table]:
    """(rows with a key and its hash, rows without), consolidated."""
    if delta is None:
        fields = [*(schema.field(name) for name in side.columns), pa.field(WEIGHT, pa.int64())]
        nothing = pa.schema([*fields, pa.field(HASH, pa.uint64())]).empty_table()
        return nothing, nothing
    names = side.wire if side.way == "hash" else side.columns
    hidden = [name for name in (WEIGHT, HASH) if name in delta.column_names]
    if side.way != "hash":  # a hash that is there is of another key
        hidden = [name for name in hidden if name != HASH]
    delta = delta.select([*names, *hidden]).rename_columns([*side.columns, *hidden])
    delta = consolidate(delta)
    lacks = _lacks_key(delta, side.on)
    bare = delta.filter(pa.array(lacks)) if lacks.any() else delta.slice(0, 0)
    if lacks.any():
        delta = delta.filter(pa.array(~lacks))
    if HASH not in delta.column_names:
        hashes = hashing.hash_columns([delta.column(name) for name in side.on], delta.num_rows)
        delta = delta.append_column(pa.field(HASH, pa.uint64()), pa.array(hashes))
    return delta, bare


def _lacks_key(delta: pa.Table, on: Sequence[str]) -> npt.NDArray[np.bool_]:
    lacks = np.zeros(delta.num_rows, np.bool_)
    for name in on:
        if delta.column(name).null_count:
            lacks |= nulls(one_chunk(delta.column(name)))
    return lacks


def _shown(weight: Ints, side: Side) -> Ints:
    """1 where a row, or the rows of a key, with partners of this weight come out."""
    return (weight == 0 if side.shows == "alone" else weight > 0).astype(np.int64)


def _apart(rows: Keyed, names: Sequence[str]) -> tuple[Keyed, Ints]:
    """Rows, and for each the weight of its pairs: in table order that mark follows its row."""
    mark = one_chunk(rows.columns[MATCHED]).to_numpy(zero_copy_only=False)
    own = np.flatnonzero(~mark)
    pairs = np.zeros(len(own), np.int64)
    pairs[np.cumsum(~mark)[mark] - 1] = rows.weights[mark]
    plain = Keyed({name: rows.columns[name] for name in names}, rows.weights, rows.key)
    return plain.some(own), pairs
