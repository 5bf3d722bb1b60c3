"""One epoch of a recursion: its rounds, the least first.

See `iterate` for what is carried out here.  A row's *first* round is the least
one that gives it.  What was sent so far is always what the first rounds of all
rows, as known by now, say; a row that loses its first round is promised to the
next one that gives it, and the promise is settled when that round comes.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.delta import HASH, WEIGHT, concat, consolidate, weights, with_weights
from millpond.errors import InternalError
from millpond.identity import one_chunk
from millpond.operators.kernel import error_rows, join_errors
from millpond.operators.operator import Binding, Change, Context, Operator, Result
from millpond.state.fresh import Fresh
from millpond.state.table import KeySet, Table

Ints = npt.NDArray[np.int64]

LAST = "last"  # the rows of the round before
NEVER = np.iinfo(np.int64).max
COPIES_MAX = 1 << 31  # of one row in one round; more than any batch query would live to see


def input_name(number: int) -> str:
    return f"input{number}"


@dataclass(frozen=True)
class Inner:
    """A step of the loop, bound."""

    name: str
    operator: Operator
    inputs: tuple[str, ...]
    binding: Binding


class InnerContext:
    """What an inner step may ask: all that the whole may, and what it changed itself in this epoch."""

    def __init__(self, outer: Context, fresh: Fresh, name: str) -> None:
        self._outer = outer
        self._fresh = fresh
        self.step = f"{outer.step}/{name}"
        self.epoch = outer.epoch
        self.now_us = outer.now_us
        self.task = 0
        self.h_min = 0
        self.h_max = (1 << 64) - 1
        self.wanted = True

    def table(
        self,
        name: str,
        *,
        everywhere: bool = False,
        buckets: Container[int] | None = None,
        below_bucket: int | None = None,
    ) -> Table:
        found = self._outer.table(name, everywhere=True, buckets=buckets, below_bucket=below_bucket)
        return self._fresh.over(found)

    def watermark_before(self, step: str) -> int | None:
        return None

    def watermark(self, step: str) -> int | None:
        return None


class IterateEpoch:
    """The work of one epoch; lives for one call."""

    def __init__(
        self,
        ctx: Context,
        binding: Binding,
        columns: tuple[str, ...],
        round_column: str,
        result: str,
        distinct: bool,
        rounds_max: int,
    ) -> None:
        self.ctx = ctx
        self.columns = list(columns)
        self.round = round_column
        self.result = result
        self.distinct = distinct
        self.rounds_max = rounds_max
        self.schema = pa.schema([*binding.shape.schema, pa.field(WEIGHT, pa.int64())])
        self.inner: tuple[Inner, ...] = binding.extra[0]
        self.tables = [table.name for table in binding.tables]
        self.fresh = Fresh({table.name: table for table in binding.tables})
        self.inside = {part.name: InnerContext(ctx, self.fresh, part.name) for part in self.inner}
        self.given: dict[int, list[pa.Table]] = {}  # round -> changes of what is given to it
        self.promised: dict[
            int, list[pa.Table]
        ] = {}  # round -> rows that enter or leave it for another's sake
        self.out: list[pa.Table] = []
        self.errors: list[pa.Table] = []
        self.rounds = 0

    def run(self, inputs: Mapping[str, pa.Table]) -> Result:
        first = inputs.get(input_name(0))
        if first is not None:
            self.given[0] = [self._rows(first)]
        others = {name: delta for name, delta in inputs.items() if name != input_name(0)}
        if others:
            self._through({name: _without_hash(delta) for name, delta in others.items()})
        while self.given or self.promised:
            number = min((*self.given, *self.promised))
            rows = self._changed(number)
            if not rows.num_rows:
                continue
            if number > self.rounds_max:
                self._beyond(rows)
                continue
            self.out.append(rows)
            mark = pa.array(np.full(rows.num_rows, number, np.int64))
            self._through({LAST: rows.append_column(self.round, mark)})
            self.rounds += 1
        return self._result()

    def _result(self) -> Result:
        merged = ((name, self.fresh.merged(name)) for name in self.tables)
        changes = [
            Change(name, rows, presorted=True) for name, rows in merged if rows is not None and rows.num_rows
        ]
        out = consolidate(pa.concat_tables(self.out)) if self.out else None
        errors = join_errors(*self.errors)
        return Result(
            out if out is not None and out.num_rows else None,
            tuple(changes),
            None if errors is None else consolidate(errors),
            counts={"rounds": self.rounds},
        )

    # -- the inner steps ---------------------------------------------------------------

    def _through(self, given: Mapping[str, pa.Table]) -> None:
        """Send changes through all inner steps once; what comes out is given to later rounds."""
        found: dict[str, pa.Table] = dict(given)
        for part in self.inner:
            inputs = [found.get(source) for source in part.inputs]
            if all(delta is None for delta in inputs):
                continue
            placed = tuple(
                None if delta is None else _placed(part, index, delta) for index, delta in enumerate(inputs)
            )
            result = part.operator.apply(self.inside[part.name], part.binding, placed)
            for change in result.changes:
                self.fresh.add(change.table, change.rows)
            if result.errors is not None:
                self.errors.append(result.errors)
            if result.out is not None and result.out.num_rows:
                found[part.name] = _without_hash(result.out)
        if self.result in found:
            self._give(found[self.result])

    def _give(self, rows: pa.Table) -> None:
        """Rows that a round made belong to the one after it."""
        made_by: Ints = one_chunk(rows.column(self.round)).to_numpy()
        plain = self._rows(rows)
        order = np.argsort(made_by, kind="stable")
        numbers, starts = np.unique(made_by[order], return_index=True)
        if len(numbers) > 1:
            plain = plain.take(pa.array(order))
        ends = [*starts[1:], len(made_by)]
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
            self.given.setdefault(number + 1, []).append(plain.slice(start, int(end) - start))

    def _rows(self, delta: pa.Table) -> pa.Table:
        """The columns of a row and its weight, as declared."""
        arrays = [delta.column(name) for name in self.columns]
        return pa.table([*arrays, pa.array(weights(delta))], schema=self.schema)

    # -- one round ---------------------------------------------------------------------

    def _changed(self, number: int) -> pa.Table:
        """The rows that enter and leave a round."""
        parts = self.promised.pop(number, [])
        given = self.given.pop(number, [])
        if given:
            parts = [*parts, *self._settled(consolidate(concat(given)), number)]
        return consolidate(concat(parts)) if parts else self.schema.empty_table()

    def _settled(self, given: pa.Table, number: int) -> list[pa.Table]:
        """Count what is given to a round; the rows that enter or leave it now. Others are promised."""
        keys = KeySet.of(given, self.columns)
        more = np.zeros(len(keys), np.int64)
        np.add.at(more, keys.inverse, weights(given))
        seen = self.tables[0]
        held = self.fresh.over(self.ctx.table(seen)).lookup(keys, [self.round, "_n"])
        of = held.key_index
        rounds: Ints = one_chunk(held.table.column(self.round)).to_numpy()
        counts: Ints = one_chunk(held.table.column("_n")).to_numpy()
        here = rounds == number
        before = np.zeros(len(keys), np.int64)
        before[of[here]] = counts[here]
        after = before + more
        if (after < 0).any():
            raise InternalError(
                "a round of a recursion gives a row less than never",
                detail=f"round {number}, {int((after < 0).sum())} rows, lowest count {int(after.min())}",
                step=self.ctx.step,
                epoch=self.ctx.epoch,
            )
        rows = keys.columns
        counted = rows.append_column(self.round, pa.array(np.full(len(keys), number, np.int64)))
        counted = counted.append_column("_n", pa.array(after)).append_column(HASH, pa.array(keys.hashes))
        self.fresh.add(seen, with_weights(counted, (after > 0).astype(np.int64)))
        if not self.distinct:
            return [self._weighted(rows, self._bounded(rows, before, after))]
        earlier, later = (
            _least(len(keys), of, rounds, rounds < number),
            _least(len(keys), of, rounds, rounds > number),
        )
        open_here = earlier == NEVER
        enters = open_here & (before == 0) & (after > 0)
        leaves = open_here & (before > 0) & (after == 0)
        for who, sign in ((enters, -1), (leaves, 1)):
            which = np.flatnonzero(who & (later != NEVER))
            for next_round in np.unique(later[which]).tolist():
                chosen = which[later[which] == next_round]
                moved = self._weighted(rows.take(pa.array(chosen)), np.full(len(chosen), sign, np.int64))
                self.promised.setdefault(next_round, []).append(moved)
        return [self._weighted(rows, enters.astype(np.int64) - leaves.astype(np.int64))]

    def _bounded(self, rows: pa.Table, before: Ints, after: Ints) -> Ints:
        """The change of copies; a row of too many is an error row, and goes no further."""
        lost_before, lost = before > COPIES_MAX, after > COPIES_MAX
        turned = lost.astype(np.int64) - lost_before
        if turned.any():
            why = f"the recursion gives this row more than {COPIES_MAX} times in one round"
            bad = self._weighted(rows, turned)
            self.errors.append(error_rows(bad, [why] * bad.num_rows))
        return np.where(lost, 0, after) - np.where(lost_before, 0, before)

    def _weighted(self, rows: pa.Table, w: Ints) -> pa.Table:
        """Rows with these weights; those of weight zero are left out."""
        alive = np.flatnonzero(w)
        if len(alive) < len(w):
            rows, w = rows.take(pa.array(alive)), w[alive]
        return pa.table([*rows.columns, pa.array(w)], schema=self.schema)

    def _beyond(self, rows: pa.Table) -> None:
        why = f"the recursion is not over after {self.rounds_max} rounds; this row would come next"
        self.errors.append(error_rows(rows, [why] * rows.num_rows))


def _least(length: int, of: Ints, rounds: Ints, which: npt.NDArray[np.bool_]) -> Ints:
    """For each key the least of its chosen rounds."""
    found = np.full(length, NEVER, np.int64)
    np.minimum.at(found, of[which], rounds[which])
    return found


def _placed(part: Inner, index: int, delta: pa.Table) -> pa.Table:
    """An input as the engine would bring it: with its hash where the step wants rows by key."""
    placement = part.binding.placements[index]
    if placement.kind != "hash":
        return delta
    operator: Any = part.operator
    if hasattr(operator, "prepare"):
        prepared: pa.Table = operator.prepare(part.binding, index, delta)
        return prepared
    hashes = hashing.hash_columns([delta.column(name) for name in placement.key], delta.num_rows)
    return delta.append_column(HASH, pa.array(hashes))


def _without_hash(delta: pa.Table) -> pa.Table:
    return delta.drop_columns([HASH]) if HASH in delta.column_names else delta
