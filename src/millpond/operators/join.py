"""Join: pairs of rows with equal keys, maintained as both sides change.

Law: the output is the batch join of the two multisets (canonical), and an
epoch costs its delta times the rows it matches, never the size of a side.

    pairs      dL x R  +  L x dR  +  dL x dR         (L and R at epoch e-1)
    own rows   f_new(l) * dL(l)  +  (f_new(l) - f_old(l)) * L(l)

The second line is what a side emits besides its pairs: the rows without a
partner (outer joins, anti) or those with one (semi); f is 0 or 1.  Without a
residual, f depends on the key alone: it says whether the other side has the
key.  That count is a multiset index as well, namely the other side projected
to its key (`<step>/right_n`; the side's own table if it has no other
columns), so it needs no read before a write, and rows of L are fetched only
for keys whose f flips.  With a residual, f depends on the row: the side's
table then also stores, marked `__matched`, each row with the weight of its
pairs.  These entries are stored next to their rows and change by the same pairs
that the first line produces.

A row with NULL in its key matches nothing.  It is not stored.  If its side
emits rows without a partner, it passes straight through, and it is sent by the
hash of the complete row, so that no task gets all of them.  As its placement
does not depend on its key, key columns have a hidden name on such an edge.

Broadcast: every task receives all of the small side's delta and may read all of
its table, but writes only the rows in its own hash range.  The other side is
not exchanged at all: its rows are matched where they are and written from there.
They are *found again* by the hash of (key, spread), where the spread is one of 16
numbers derived from the row.  A task matches the stored rows whose hash is in its
range, no matter which task wrote them, so each row is matched once, and many
tasks share the work of a hot key.  A change of the small side looks up 16 keys for
each of its own.  The rows without a partner of one side depend on all rows of the
other, which no single task sees here, so the small side cannot emit them.

Time: where watermarks bound both sides and the condition compares times, a row
that no later row can match leaves its side's table (`bounds`, see
`sql.lowering.join_time_bounds`); it needs no partner any more, and is never retracted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from millpond import hashing
from millpond.column_names import check_names
from millpond.delta import HASH, WEIGHT
from millpond.errors import InvalidError
from millpond.kernels.bounds import Bound, bucketed_by
from millpond.kernels.expression_kernel import compile_predicate
from millpond.kernels.join_epoch import MATCHED, SPREAD, JoinEpoch, Side, Sides, lacks_key, receive
from millpond.kernels.join_match import Matcher
from millpond.kernels.keyed_rows import Keyed
from millpond.kernels.python_function import CallsPythonFunctions
from millpond.operators.operator import (
    BROADCAST,
    HERE,
    Binding,
    Change,
    Context,
    Inputs,
    Shape,
    StepResult,
    by_key,
)
from millpond.operators.traits import EndsState, NamesColumnsRead, PreparesInput
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table_spec import TableSpec

Kind = Literal["inner", "left", "right", "full", "semi", "anti"]

NAMES = ("left", "right")


@dataclass(frozen=True)
class Join(PreparesInput, NamesColumnsRead, EndsState, CallsPythonFunctions):
    """`columns` lists (output name, side, input name); a residual refers to output names.

    Semi and anti joins emit the columns of the left side only; columns of the
    right are named for the residual alone.
    """

    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    kind: Kind
    columns: tuple[tuple[str, int, str], ...]
    residual: str | None = None
    broadcast: Literal["left", "right"] | None = None
    bounds: tuple[
        tuple[int, Bound], ...
    ] = ()  # (side, the bound behind which its rows have no more partners)
    functions: tuple[Any, ...] = ()  # Python functions that the SQL calls

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
            bounds=self._bounds(),
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
            extra=Sides(
                left,
                right,
                matcher,
                self._tells_apart(inputs, left, right),
                grows=self.kind == "inner" and shape.append_only,
                keyed=shape.key is not None,
            ),
        )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        """All of its columns: rows of a state table are distinguished by all of them."""
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
            bound=next((b for of, b in self.bounds if of == side and b.column in columns), None),
        )

    def _bounds(self) -> tuple[Bound, ...]:
        """The bounds of the output: a later output row contains a later row of either side."""
        padded = {0: self.kind in ("right", "full"), 1: self.kind in ("left", "full", "semi", "anti")}
        return tuple(
            replace(b, column=name)
            for name, side, column in self.columns
            for of, b in self.bounds
            if side == of and column == b.column and not padded[side]
        )

    def _schema(self, inputs: tuple[Shape, ...]) -> pa.Schema:
        """All named columns, including those that only the residual reads."""
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
        bucketing = bucketed_by(side.bound)
        tables = [TableSpec(side.table, pa.schema(fields), key, rule="weights", **bucketing)]
        if side.counts is not None and side.counts != side.table:
            own = [inputs[number].schema.field(name) for name in side.on]
            bucketing = bucketing if side.keyed_by_time else {}
            tables.append(TableSpec(side.counts, pa.schema(own), side.on, rule="weights", **bucketing))
        return tables

    def _placed_by(self, left: Side, right: Side) -> tuple[str, ...] | None:
        """The output columns by whose hash rows are placed: the key of a side that is in all output rows."""
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
        """The key of the output, if the keys of the sides imply one."""
        keys: list[list[str] | None] = []
        for side in (0, 1):
            names = [self._key_name(side, column) for column in inputs[side].key or ()]
            whole = inputs[side].key is not None and all(name is not None for name in names)
            keys.append([name for name in names if name is not None] if whole else None)
        left, right = keys
        if self.kind in ("semi", "anti"):
            return None if left is None else tuple(left)
        # A side whose key is contained in the join key has at most one partner for each row of the other.
        one_left = inputs[0].key is not None and set(inputs[0].key) <= set(self.left_on)
        one_right = inputs[1].key is not None and set(inputs[1].key) <= set(self.right_on)
        if left is not None and one_right and self.kind in ("inner", "left"):
            return tuple(left)
        if right is not None and one_left and self.kind in ("inner", "right"):
            return tuple(right)
        if left is None or right is None:
            return None
        if self.kind == "full":
            # An unmatched left and an unmatched right row would be equal where both keys are all NULL.
            fields = [inputs[side].schema.field(c) for side in (0, 1) for c in inputs[side].key or ()]
            if all(field.nullable for field in fields):
                return None
        return tuple(dict.fromkeys([*left, *right]))

    def _key_name(self, side: int, column: str) -> str | None:
        """The output name of a key column; in an inner join the equal column of the other side also works."""
        name = self._name_of(side, column)
        on, other = (self.left_on, self.right_on) if side == 0 else (self.right_on, self.left_on)
        if name is None and self.kind == "inner" and column in on:
            name = self._name_of(1 - side, other[on.index(column)])
        return name

    def _tells_apart(self, inputs: tuple[Shape, ...], left: Side, right: Side) -> bool:
        """Whether different pairs are different rows: the output has a key, or all columns, of each side."""
        for number, side in ((0, left), (1, right)):
            shown = {column for _, of, column in self.columns if of == number}
            on, other = (self.left_on, self.right_on) if number == 0 else (self.right_on, self.left_on)
            # In a pair the two key columns are equal: one in the output represents both.
            shown |= {c for c, o in zip(on, other, strict=True) if self._name_of(1 - number, o) is not None}
            key = inputs[number].key
            if not shown >= {*side.columns} and (key is None or not shown >= {*key}):
                return False
        return True

    # -- the sender's side -------------------------------------------------------------

    def looks_at(self, binding: Binding, index: int) -> frozenset[str]:
        side: Side = binding.extra[index]
        return frozenset(side.columns if side.loose else side.on)

    def prepare(self, binding: Binding, index: int, delta: pa.Table) -> pa.Table:
        side: Side = binding.extra[index]
        carried = [WEIGHT] if WEIGHT in delta.column_names else []
        delta = delta.select([*side.columns, *carried])
        lacks = lacks_key(delta, side.on)
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

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        sides: Sides = binding.extra
        bounded = [side for side in (sides.left, sides.right) if side.bound is not None]
        return any(s.bound.is_due(s.table, earliest, watermarks) for s in bounded if s.bound is not None)

    def ends(self, binding: Binding) -> tuple[tuple[str, Bound], ...]:
        sides: Sides = binding.extra
        timed = {table.name for table in binding.tables if table.time is not None}
        return tuple(
            (table, side.bound)
            for side in (sides.left, sides.right)
            for table in (side.table, side.counts)
            if side.bound is not None and table in timed
        )

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        sides: Sides = binding.extra
        drops = tuple(d for side in (sides.left, sides.right) for d in side.drops(ctx, binding.tables))
        specs = {table.name: table for table in binding.tables}
        came = [receive(sides[n], inputs[n], specs[sides[n].table], sides.grows) for n in (0, 1)]
        if not any(keyed.num_rows or bare.num_rows for keyed, bare in came):
            return StepResult(drops=drops)
        work = JoinEpoch(ctx, sides, came[0][0], came[1][0])
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
            changes += [Change(new.table, new.rows, new.presorted) for new in work.changes(n)]
        return StepResult(work.output(), tuple(changes), work.errors, drops)
