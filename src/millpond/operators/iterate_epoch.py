"""One epoch of a recursion: what the changes of its inputs change in all rounds.

See `iterate` for what is carried out here.  A row's *first* round is the least
one that gives it.  The rows that are inside with the number of their first
round are all there is to settle: each round follows from the one before, so
there is one answer, and whatever is left without work to do is that answer.

Changes of all rounds are looked at together, pass by pass; what a pass gives
belongs to later rounds.  Only one thing waits: a row that lost its first round
and has a later one.  That may be the row's own echo around a cycle, so it comes
back when nothing before that round is left to do.  Hence every pass ends the
least round for good, and there are no more passes than rounds.  Many changes
at once are taken round by round, each once, instead of being put right later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.delta import HASH, WEIGHT, concat, consolidate, weights, with_weights
from millpond.errors import InternalError, InvalidError
from millpond.identity import one_chunk
from millpond.operators.kernel import error_rows, join_errors
from millpond.operators.operator import Binding, Change, Context, Operator, Result
from millpond.state.fresh import Fresh
from millpond.state.table import KeySet, Table

Ints = npt.NDArray[np.int64]

COUNT = "_n"
LAST = "last"  # the rows of the round before
NEVER = np.iinfo(np.int64).max
TOGETHER_ROWS = 20_000  # changes of all rounds that are looked at together; more of them round by round
STOPPED = "stopped"  # the table that says that a recursion gave too many rows
FIRST_ROWS = 10_000  # that go through the inner steps at once, until it is known how many come of them
AT_ONCE_ROWS = 500_000  # that may come out of the inner steps at once, about


def input_name(number: int) -> str:
    return f"input{number}"


@dataclass(frozen=True)
class Limits:
    """What a recursion may do."""

    rounds: int = 1_000
    rows: int = 4_000_000  # that one epoch may give to rounds after the first
    copies: int = 1_000_000  # of one row in one round


class TooManyRows(Exception):
    """The rows of a recursion multiply beyond its limit."""


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
        buckets: Collection[int] | None = None,
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
        limits: Limits,
    ) -> None:
        self.ctx = ctx
        self.columns = list(columns)
        self.round = round_column
        self.result = result
        self.distinct = distinct
        self.limits = limits
        self.made = 0  # rows given to later rounds
        marks = [pa.field(self.round, pa.int64()), pa.field(WEIGHT, pa.int64())]
        self.schema = pa.schema([*binding.shape.schema, *marks])
        self.inner: tuple[Inner, ...] = binding.extra[0]
        mine = [table for table in binding.tables if table.name != f"{ctx.step}/{STOPPED}"]
        self.stops = len(mine) < len(binding.tables)  # views of older versions cannot
        self.tables = [table.name for table in mine]
        self.fresh = Fresh({table.name: table for table in mine})
        self.inside = {part.name: InnerContext(ctx, self.fresh, part.name) for part in self.inner}
        self.given: list[pa.Table] = []  # changes of how often rows are given to rounds
        self.waiting: dict[int, list[pa.Table]] = {}  # round -> rows that come back to it
        self.out: list[pa.Table] = []
        self.errors: list[pa.Table] = []

    def run(self, inputs: Mapping[str, pa.Table]) -> Result:
        if self.stops and self.ctx.table(f"{self.ctx.step}/{STOPPED}").scan().num_rows:
            return Result()
        try:
            return self._run(inputs)
        except TooManyRows:
            if getattr(self.ctx, "filling", False) or not self.stops:
                raise InvalidError(
                    f"{self._called} gives more than {self.limits.rows} rows in one epoch",
                    detail="its rows multiply from round to round (recursion_rows_max)",
                    hint="bound the recursion, use UNION in place of UNION ALL, or raise recursion_rows_max",
                    step=self.ctx.step,
                ) from None
            return self._stop()

    @property
    def _called(self) -> str:
        return f"the recursion of view {self.ctx.step.partition('.recursion')[0]!r}"

    def _stop(self) -> Result:
        """No rows from here on: all that were given are taken back, and an error row says why."""
        held = self.ctx.table(self.tables[0]).scan()
        rounds, counts = _ints(held, self.round), _ints(held, COUNT)
        there = (rounds <= self.limits.rounds) & (self.distinct | (counts <= self.limits.copies))
        rows = held.filter(pa.array(there)).select(self.columns)
        out = consolidate(with_weights(rows, -counts[there])) if rows.num_rows else None
        if out is not None and self.distinct:  # a row is in the first of its rounds alone
            out = with_weights(out, np.full(out.num_rows, -1, np.int64))
        why = (
            f"{self._called} gives more than {self.limits.rows} rows in one epoch "
            "(recursion_rows_max); it has no rows until the view is created again"
        )
        told = error_rows(pa.table({"epoch": pa.array([self.ctx.epoch], pa.int64())}), [why])
        mark = pa.table({"epoch": pa.array([self.ctx.epoch], pa.int64()), WEIGHT: pa.array([1], pa.int64())})
        return Result(out, (Change(f"{self.ctx.step}/{STOPPED}", mark),), told)

    def _run(self, inputs: Mapping[str, pa.Table]) -> Result:
        first = inputs.get(input_name(0))
        if first is not None:
            self.given.append(self._rows(first, np.zeros(first.num_rows, np.int64)))
        others = {name: delta for name, delta in inputs.items() if name != input_name(0)}
        if others:
            self._through({name: _without_hash(delta) for name, delta in others.items()})
        while self.given or self.waiting:
            rows = self._pass()
            if rows.num_rows:
                self.out.append(rows)
                self._through_in_parts(rows)
        return self._result()

    def _through_in_parts(self, rows: pa.Table) -> None:
        """Rows of the last round, not more at once than what comes of them can be held."""
        at, size = 0, FIRST_ROWS
        while at < rows.num_rows:
            before = self.made
            self._through({LAST: rows.slice(at, size)})
            at += size
            times = max(1, (self.made - before) // size)
            size = max(1, min(AT_ONCE_ROWS, self.limits.rows) // times)

    def _result(self) -> Result:
        merged = [(name, self.fresh.merged(name)) for name in self.tables]
        changes = (Change(name, rows, presorted=True) for name, rows in merged if rows is not None)
        out = None
        if self.out:
            out = consolidate(pa.concat_tables(self.out), columns=self.columns)
        errors = join_errors(*self.errors)
        return Result(
            out if out is not None and out.num_rows else None,
            tuple(change for change in changes if change.rows.num_rows),
            None if errors is None else consolidate(errors),
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
        """Rows that a round made are given to the one after it."""
        self.made += rows.num_rows
        if self.made > self.limits.rows:
            raise TooManyRows
        made_by = _ints(rows, self.round)
        self.given.append(self._rows(rows, made_by + 1))

    def _rows(self, delta: pa.Table, rounds: Ints) -> pa.Table:
        """The columns of rows, their rounds and weights, as declared."""
        arrays = [delta.column(name) for name in self.columns]
        return pa.table([*arrays, pa.array(rounds), pa.array(weights(delta))], schema=self.schema)

    def _by_round(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        rounds = _ints(rows, self.round)
        if not len(rounds):
            return
        if not (rounds == rounds[0]).all():
            order = np.argsort(rounds, kind="stable")
            rows, rounds = rows.take(pa.array(order)), rounds[order]
        starts = np.flatnonzero(np.diff(rounds, prepend=rounds[0] - 1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(rounds)], strict=True):
            yield int(rounds[start]), rows.slice(start, end - start)

    # -- one pass ----------------------------------------------------------------------

    def _pass(self) -> pa.Table:
        """The rows that enter and leave their rounds."""
        least = min(*self.waiting, *(int(_ints(part, self.round).min()) for part in self.given), NEVER)
        given, self.given = self.given, []
        if sum(part.num_rows for part in given) > TOGETHER_ROWS:
            given = self._only(least, given)
        changed = self._settled(consolidate(concat(given))) if given else []
        changed += self.waiting.pop(least, [])
        rows = consolidate(concat(changed)) if changed else self.schema.empty_table()
        return self._within(rows)

    def _only(self, number: int, given: list[pa.Table]) -> list[pa.Table]:
        """What is given to one round; the rest is put back."""
        found = []
        for part in given:
            here = _ints(part, self.round) == number
            found.append(part.filter(pa.array(here)))
            if not here.all():
                self.given.append(part.filter(pa.array(~here)))
        return [part for part in found if part.num_rows]

    def _settled(self, given: pa.Table) -> list[pa.Table]:
        """Count what is given; the rows that enter or leave a round now. Those that come back later wait."""
        keys = KeySet.of(given, self.columns)
        found = self.fresh.over(self.ctx.table(self.tables[0])).lookup(keys, [self.round, COUNT])
        seen = _Seen.of(
            np.concatenate([found.key_index, keys.inverse]),
            np.concatenate([_ints(found.table, self.round), _ints(given, self.round)]),
            np.concatenate([_ints(found.table, COUNT), np.zeros(given.num_rows, np.int64)]),
            np.concatenate([np.zeros(found.table.num_rows, np.int64), weights(given)]),
        )
        self._check(seen)
        touched = np.flatnonzero(seen.before != seen.after)
        which, rounds, after = seen.key[touched], seen.round[touched], seen.after[touched]
        counted = self._marked(keys.columns, which, rounds, after)
        counted = counted.rename_columns([*self.columns, self.round, COUNT])
        counted = counted.append_column(HASH, pa.array(keys.hashes[which]))
        self.fresh.add(self.tables[0], with_weights(counted, (after > 0).astype(np.int64)))
        if not self.distinct:
            change = self._bounded(keys.columns, seen, touched)
            return [self._marked(keys.columns, which, rounds, change)]
        old, new = seen.first(seen.before, len(keys)), seen.first(seen.after, len(keys))
        leaves = np.flatnonzero((old != new) & (old != NEVER))
        enters = np.flatnonzero(new < old)
        returns = np.flatnonzero((new > old) & (new != NEVER))
        gone = self._marked(keys.columns, leaves, old[leaves], np.full(len(leaves), -1, np.int64))
        come = self._marked(keys.columns, enters, new[enters], np.ones(len(enters), np.int64))
        gone = self._not_waiting(gone)
        back = self._marked(keys.columns, returns, new[returns], np.ones(len(returns), np.int64))
        for number, part in self._by_round(back):
            self.waiting.setdefault(number, []).append(part)
        return [gone, come]

    def _not_waiting(self, gone: pa.Table) -> pa.Table:
        """Rows that leave; those that still wait to come just do not."""
        if not self.waiting:
            return gone
        left = []
        for number, part in self._by_round(gone):
            waiting = self.waiting.pop(number, None)
            if waiting is None:
                left.append(part)
                continue
            rest = consolidate(concat([*waiting, part]))
            w = weights(rest)
            left.append(rest.filter(pa.array(w < 0)))
            if (w > 0).any():
                self.waiting[number] = [rest.filter(pa.array(w > 0))]
        return concat(left) if left else gone

    def _check(self, seen: _Seen) -> None:
        if (seen.after < 0).any():
            raise InternalError(
                "a round of a recursion gives a row less than never",
                detail=f"{int((seen.after < 0).sum())} rows, lowest count {int(seen.after.min())}",
                step=self.ctx.step,
                epoch=self.ctx.epoch,
            )

    def _marked(self, rows: pa.Table, which: Ints, rounds: Ints, w: Ints) -> pa.Table:
        """Some rows, with their rounds and weights."""
        columns = rows.take(pa.array(which)).columns
        return pa.table([*columns, pa.array(rounds), pa.array(w)], schema=self.schema)

    def _bounded(self, rows: pa.Table, seen: _Seen, touched: Ints) -> Ints:
        """The change of copies; a row of too many is an error row, and goes no further."""
        before, after = seen.before[touched], seen.after[touched]
        limit = self.limits.copies
        lost_before, lost = before > limit, after > limit
        turned = lost.astype(np.int64) - lost_before
        if turned.any():
            odd = np.flatnonzero(turned)
            where = touched[odd]
            bad = self._marked(rows, seen.key[where], seen.round[where], turned[odd])
            if (turned > 0).any() and getattr(self.ctx, "filling", False):
                raise InvalidError(
                    f"{self._called} gives a row more than {limit} times in one round",
                    detail="its rows multiply from round to round (recursion_copies_max)",
                    hint="bound the recursion, use UNION instead of UNION ALL, or raise recursion_copies_max",
                    step=self.ctx.step,
                )
            bound = f"more than {limit} times in one round (recursion_copies_max)"
            self._fail(bad, f"{self._called} gives this row {bound}")
        return np.where(lost, 0, after) - np.where(lost_before, 0, before)

    def _within(self, rows: pa.Table) -> pa.Table:
        """The rows of rounds that may be; others are error rows."""
        beyond = _ints(rows, self.round) > self.limits.rounds
        if not beyond.any():
            return rows
        why = (
            f"{self._called} is not over after {self.limits.rounds} rounds (rounds_max); "
            "this row would come next"
        )
        self._fail(rows.filter(pa.array(beyond)), why)
        return rows.filter(pa.array(~beyond))

    def _fail(self, rows: pa.Table, why: str) -> None:
        self.errors.append(error_rows(rows.drop_columns([self.round]), [why] * rows.num_rows))


@dataclass(frozen=True)
class _Seen:
    """How often rows are given to rounds, before and after: sorted by (number of the row, round)."""

    key: Ints
    round: Ints
    before: Ints
    after: Ints

    @staticmethod
    def of(key: Ints, rounds: Ints, before: Ints, more: Ints) -> _Seen:
        order = np.lexsort((rounds, key))
        key, rounds = key[order], rounds[order]
        fresh = np.ones(len(key), np.bool_)
        fresh[1:] = (key[1:] != key[:-1]) | (rounds[1:] != rounds[:-1])
        starts = np.flatnonzero(fresh)
        old = np.add.reduceat(before[order], starts)
        new = old + np.add.reduceat(more[order], starts)
        return _Seen(key[starts], rounds[starts], old, new)

    def first(self, counts: Ints, length: int) -> Ints:
        """The first round of each row by these counts."""
        found = np.full(length, NEVER, np.int64)
        there = counts > 0
        np.minimum.at(found, self.key[there], self.round[there])
        return found


def _ints(rows: pa.Table, name: str) -> Ints:
    values: Ints = one_chunk(rows.column(name)).to_numpy()
    return values


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
