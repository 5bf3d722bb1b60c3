"""LookupJoin: joins each left row with the right side as of the epoch in which the row arrives.

Law: the output gains dL x R, where R is the right side after this epoch's changes,
and loses nothing: later changes to the right side do not affect rows that were
already joined.  So the left must never retract, and none of it is stored.  The output
depends on when rows arrived: it cannot be recomputed, only stored.

In many epochs it is *local* (`plan.local_lookup`): rows are not exchanged, the complete table
can be read, and every task receives all changes of the right and writes those it owns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import delta as deltas
from millpond import hashing
from millpond.column_names import check_names
from millpond.delta import WEIGHT
from millpond.errors import InvalidError
from millpond.identity import one_chunk
from millpond.kernels.dense_lookup import Partners
from millpond.kernels.expression_kernel import compile_predicate
from millpond.kernels.join_match import Matcher, key_ranges
from millpond.kernels.keyed_rows import Keyed, as_declared, some_keys
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.traits import DependsOnArrival, Ready, StreamsFirstInput
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]

_KEY = "_key"  # the number of a row's key, while rows are summed up


@dataclass(frozen=True)
class Looked:
    """What `apply` needs to know about the two sides."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    matcher: Matcher


@dataclass(frozen=True)
class LookupJoin(DependsOnArrival, StreamsFirstInput):
    """`columns` lists (output name, side, input name); a residual refers to output names.

    `owner` distinguishes equal steps: two views read the right side at different times.
    """

    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    kind: Literal["inner", "left"]
    columns: tuple[tuple[str, int, str], ...]
    residual: str | None
    owner: str

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        left, right = inputs
        if not left.append_only:
            raise InvalidError(
                "rows that can be retracted cannot be joined with a table as of the time at which they came",
                detail="a retraction would meet another state of the table than its row did",
                hint="use a plain join, which follows the changes of both sides",
                step=step,
            )
        check_names([name for name, _, _ in self.columns], step)
        for one, two in zip(self.left_on, self.right_on, strict=True):
            kinds = left.schema.field(one).type, right.schema.field(two).type
            if kinds[0] != kinds[1]:
                raise InvalidError(
                    f"cannot join {one!r} with {two!r}: their types differ",
                    detail=f"{kinds[0]} on the left, {kinds[1]} on the right",
                    hint="cast both to one type before the join",
                    step=step,
                )
        fields = [inputs[side].schema.field(column).with_name(name) for name, side, column in self.columns]
        schema = stored(pa.schema([field.with_nullable(True) for field in fields]))
        residual = None
        if self.residual is not None:
            residual = compile_predicate(schema, self.residual, append_only=True, step=step)
        wanted = [{*on, *(c for _, of, c in self.columns if of == side)} for side, on in self._keys()]
        names = [tuple(n for n in s.schema.names if n in w) for s, w in zip(inputs, wanted, strict=True)]
        stored_schema = stored(pa.schema([right.schema.field(n) for n in names[1]]))
        table = TableSpec(f"{step}/right", stored_schema, self.right_on, rule="weights")
        shown = {column: name for name, side, column in reversed(self.columns) if side == 0}
        time = shown.get(left.time) if left.time is not None else None
        bounds = tuple(replace(b, column=shown[b.column]) for b in left.bounds if b.column in shown)
        matcher = Matcher(self.columns, schema.append(pa.field(WEIGHT, pa.int64())), residual, emits=True)
        return Binding(
            Shape(schema, True, None, time, left.watermark if time is not None else None, bounds),
            (by_key(*self.left_on), by_key(*self.right_on)),
            (table,),
            extra=Looked(names[0], names[1], matcher),
        )

    def _keys(self) -> list[tuple[int, tuple[str, ...]]]:
        return [(0, self.left_on), (1, self.right_on)]

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        looked: Looked = binding.extra
        return frozenset(looked.left), frozenset(looked.right)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        left, right = inputs
        ready = self.ready(ctx, binding, (right,))
        if left is None:
            return ready.result
        return replace(ready.take(left), changes=ready.result.changes)

    def ready(self, ctx: Context, binding: Binding, sides: Inputs) -> Ready:
        looked: Looked = binding.extra
        (right,) = sides
        (table,) = binding.tables
        changes: tuple[Change, ...] = ()
        if right is not None:
            right = _with_keys(right, self.right_on)
            right = deltas.with_weights(
                right.select(list(looked.right)).cast(table.schema), deltas.weights(right)
            )
            changes = (Change(table.name, self._owned(ctx, deltas.consolidate(right))),)
        partners = Partners(partial(self._fetched, ctx, binding, right))
        return Ready(StepResult(None, changes), partial(self._take, ctx, binding, right, partners))

    def _take(
        self, ctx: Context, binding: Binding, right: pa.Table | None, partners: Partners, left: pa.Table
    ) -> StepResult:
        """Join rows of the left with their partners."""
        if self.residual is None and len(self.left_on) == 1:
            places = partners.find(left.column(self.left_on[0]))
            if places is not None:
                return StepResult(self._joined(binding, left, partners, places))
        return self._met(ctx, binding, left, right)

    def _joined(
        self, binding: Binding, left: pa.Table, partners: Partners, places: npt.NDArray[np.int32]
    ) -> pa.Table | None:
        """Join each row with its only partner, if any; rows of the left keep their order."""
        looked: Looked = binding.extra
        unmatched = None
        if places.min(initial=0) < 0:
            unmatched = places < 0
            if self.kind == "inner":
                left, places, unmatched = left.filter(pa.array(~unmatched)), places[~unmatched], None
        if partners.rows is None or not left.num_rows:
            return None
        theirs_stored, rows = partners.rows, pa.array(places, mask=unmatched)
        arrays = [
            left.column(column)
            if side == 0
            else pc.take(one_chunk(theirs_stored.column(column)), rows, boundscheck=False)
            for _, side, column in self.columns
        ]
        schema = looked.matcher.schema
        if partners.plain and WEIGHT not in left.column_names:
            return as_declared(schema.remove(len(arrays)), arrays)
        theirs = np.append(deltas.weights(theirs_stored), 1)[
            places
        ]  # the last entry is for rows without a partner
        return as_declared(schema, [*arrays, pa.array(deltas.weights(left) * theirs)])

    def _met(self, ctx: Context, binding: Binding, left: pa.Table, right: pa.Table | None) -> StepResult:
        """Join rows of the left with all their partners, by the numbers of their keys."""
        looked: Looked = binding.extra
        keys, numbers = self._numbered(left, right)
        # Unsorted: pairs are made in the order of the left, so its rows need no sort.
        columns = {name: one_chunk(left.column(name)) for name in looked.left}
        rows = Keyed(columns, deltas.weights(left), numbers[: left.num_rows])
        partners = self._partners(ctx, binding, keys, rows.key, right, numbers[left.num_rows :])
        met = looked.matcher.meet(rows, partners)
        out = list(met.out)
        if self.kind == "left":
            if met.left is None:
                unmatched = np.flatnonzero(key_ranges(partners.key, rows.key)[1] == 0)
            else:
                unmatched = np.flatnonzero(met.left == 0)
            out.append(looked.matcher.alone(rows.some(unmatched), 0))
        shown = pa.concat_tables(out) if out else None
        return StepResult(shown if shown is not None and shown.num_rows else None, errors=met.errors)

    def _fetched(
        self, ctx: Context, binding: Binding, right: pa.Table | None, wanted: pa.Array
    ) -> tuple[pa.Table, Ints]:
        """The rows of the right that have one of these distinct keys, and the number of that key."""
        keys, numbers = self._numbered(pa.table([wanted], names=list(self.left_on)), right)
        mine = numbers[: len(wanted)]
        fetched = self._partners(ctx, binding, keys, mine, right, numbers[len(wanted) :])
        number = np.empty(len(keys), np.int64)
        number[mine] = np.arange(len(wanted))
        return fetched.table(binding.extra.right), number[fetched.key]

    def _owned(self, ctx: Context, right: pa.Table) -> pa.Table:
        """The rows that this task writes: other tasks may have received the same rows."""
        hashes = hashing.hash_columns([right.column(name) for name in self.right_on], right.num_rows)
        own = (hashes >= np.uint64(ctx.h_min)) & (hashes <= np.uint64(ctx.h_max))
        return right if own.all() else right.filter(pa.array(own))

    def _numbered(self, left: pa.Table, right: pa.Table | None) -> tuple[KeySet, Ints]:
        """The keys of both sides, and the number of each row's key: left rows first, then right rows."""
        parts = [left.select(list(self.left_on))]
        if right is not None:
            parts.append(right.select(list(self.right_on)).rename_columns(list(self.left_on)))
        both = deltas.concat(parts)
        keys = KeySet.of(both, self.left_on)
        return keys, keys.inverse

    def _partners(
        self,
        ctx: Context,
        binding: Binding,
        keys: KeySet,
        mine: Ints,
        right: pa.Table | None,
        numbers: Ints,
    ) -> Keyed:
        """The current rows of the right whose key occurs among the left's rows."""
        looked: Looked = binding.extra
        wanted = np.flatnonzero(np.bincount(mine, minlength=len(keys)))
        stored = ctx.table(binding.tables[0].name).lookup(
            some_keys(keys, wanted, self.right_on), list(looked.right)
        )
        names = [*looked.right, WEIGHT]
        partner_rows = stored.table.select(names).append_column(_KEY, pa.array(wanted[stored.key_index]))
        if right is not None:
            came = np.flatnonzero(np.isin(numbers, wanted))
            fresh = right.select(names).take(pa.array(came)).append_column(_KEY, pa.array(numbers[came]))
            partner_rows = deltas.consolidate(deltas.concat([partner_rows, fresh]))
        return Keyed.of(partner_rows, looked.right, one_chunk(partner_rows.column(_KEY)).to_numpy())


def _with_keys(table: pa.Table, on: tuple[str, ...]) -> pa.Table:
    """Only the rows that have a key: NULL matches nothing."""
    has = np.ones(table.num_rows, np.bool_)
    for name in on:
        has &= one_chunk(table.column(name)).is_valid().to_numpy(zero_copy_only=False)
    return table if has.all() else table.filter(pa.array(has))
