"""One epoch of a recursion: applies the changes of its inputs to all rounds.

See `operators.iterate` for the law; it runs the steps inside the recursion.

A row's *first* round is the lowest one that produces it.  The rows with the number of
their first round are the only unknowns: each round follows from the one before, so
there is one answer, and the loop has found it when no work is left.

A wave processes changes of all rounds together; its output belongs to later
rounds.  Only one kind of row waits: one that lost its first round and has a later
one.  That later one may be the row's own echo around a cycle, so the row returns
only when no work is left before that round.  Hence every wave finishes the
lowest round for good, and there are no more waves than rounds.  Large batches
of changes are processed round by round, each once, instead of being corrected later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import tuning
from millpond.delta import HASH, WEIGHT, concat, consolidate, weights, with_weights
from millpond.errors import InternalError, InvalidError
from millpond.identity import one_chunk
from millpond.kernels.expression_kernel import error_rows
from millpond.state.tables.table import KeySet, Table
from millpond.state.tables.write_buffer import WriteBuffer

Ints = npt.NDArray[np.int64]

COUNT = "_n"
LAST = "last"  # the rows of the previous round
NEVER = np.iinfo(np.int64).max
STOPPED = "stopped"  # the table that records that a recursion produced too many rows


def input_name(number: int) -> str:
    return f"input{number}"


@dataclass(frozen=True)
class Limits:
    """The limits of a recursion."""

    rounds: int = 1_000
    rows: int = 4_000_000  # that one epoch may add to rounds after the first
    copies: int = 1_000_000  # of one row in one round


class TooManyRows(Exception):
    """The rows of a recursion multiply beyond its limit."""


class Recursion:
    """The rounds of a recursion in one epoch; lives for one call."""

    def __init__(
        self,
        step: str,
        epoch: int,
        backfill: bool,
        columns: tuple[str, ...],
        round_column: str,
        schema: pa.Schema,
        distinct: bool,
        limits: Limits,
        seen: str,
        seen_table: Callable[[], Table],
        write_buffer: WriteBuffer,
        next_round: Callable[[Mapping[str, pa.Table]], pa.Table | None],
    ) -> None:
        """`seen` names the table of how often each round contains each row, `seen_table` reads it.

        `next_round` runs the inner steps on changes of their inputs, and returns the rows that they produce.
        """
        self.step = step
        self.epoch = epoch
        self.backfill = backfill
        self.columns = list(columns)
        self.round = round_column
        counters = [pa.field(self.round, pa.int64()), pa.field(WEIGHT, pa.int64())]
        self.schema = pa.schema([*schema, *counters])
        self.distinct = distinct
        self.limits = limits
        self.seen = seen
        self.seen_table = seen_table
        self.write_buffer = write_buffer
        self.next_round = next_round
        self.made = 0  # rows added to later rounds
        self.pending: list[pa.Table] = []  # changes of how often rounds contain rows
        self.waiting: dict[int, list[pa.Table]] = {}  # round -> rows that return to it
        self.out: list[pa.Table] = []
        self.errors: list[pa.Table] = []

    def run(self, inputs: Mapping[str, pa.Table]) -> None:
        """Apply the changes of the inputs; raises TooManyRows."""
        first = inputs.get(input_name(0))
        if first is not None:
            self.pending.append(self._rows(first, np.zeros(first.num_rows, np.int64)))
        others = {name: delta for name, delta in inputs.items() if name != input_name(0)}
        if others:
            self._through({name: without_hash(delta) for name, delta in others.items()})
        while self.pending or self.waiting:
            rows = self._wave()
            if rows.num_rows:
                self.out.append(rows)
                self._through_in_batches(rows)

    def _through_in_batches(self, rows: pa.Table) -> None:
        """Send rows of the last round through in batches, so that their output fits in memory."""
        at, size = 0, tuning.RECURSION_FIRST_ROWS
        while at < rows.num_rows:
            before = self.made
            self._through({LAST: rows.slice(at, size)})
            at += size
            times = max(1, (self.made - before) // size)
            size = max(1, min(tuning.RECURSION_CALL_ROWS, self.limits.rows) // times)

    def output(self) -> pa.Table | None:
        """The rows that the recursion gained and lost."""
        if not self.out:
            return None
        out = consolidate(pa.concat_tables(self.out), columns=self.columns)
        return out if out.num_rows else None

    def _through(self, inputs: Mapping[str, pa.Table]) -> None:
        """Send changes through all inner steps once; the output is added to later rounds."""
        rows = self.next_round(inputs)
        if rows is not None:
            self._give(rows)

    def _give(self, rows: pa.Table) -> None:
        """Add the rows that a round produced to the next round."""
        self.made += rows.num_rows
        if self.made > self.limits.rows:
            raise TooManyRows
        made_by = ints_of(rows, self.round)
        self.pending.append(self._rows(rows, made_by + 1))

    def _rows(self, delta: pa.Table, rounds: Ints) -> pa.Table:
        """Rows with their rounds and weights, in the declared schema."""
        arrays = [delta.column(name) for name in self.columns]
        return pa.table([*arrays, pa.array(rounds), pa.array(weights(delta))], schema=self.schema)

    def _by_round(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        rounds = ints_of(rows, self.round)
        if not len(rounds):
            return
        if not (rounds == rounds[0]).all():
            order = np.argsort(rounds, kind="stable")
            rows, rounds = rows.take(pa.array(order)), rounds[order]
        starts = np.flatnonzero(np.diff(rounds, prepend=rounds[0] - 1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(rounds)], strict=True):
            yield int(rounds[start]), rows.slice(start, end - start)

    # -- one wave ----------------------------------------------------------------------

    def _wave(self) -> pa.Table:
        """Run one wave; return the rows that enter and leave their rounds."""
        least = min(*self.waiting, *(int(ints_of(part, self.round).min()) for part in self.pending), NEVER)
        changes, self.pending = self.pending, []
        if sum(part.num_rows for part in changes) > tuning.RECURSION_ONE_WAVE_ROWS_MAX:
            changes = self._only(least, changes)
        changed = self._settled(consolidate(concat(changes))) if changes else []
        changed += self.waiting.pop(least, [])
        rows = consolidate(concat(changed)) if changed else self.schema.empty_table()
        return self._within(rows)

    def _only(self, number: int, changes: list[pa.Table]) -> list[pa.Table]:
        """The changes of one round; the rest is put back."""
        of_round = []
        for part in changes:
            here = ints_of(part, self.round) == number
            of_round.append(part.filter(pa.array(here)))
            if not here.all():
                self.pending.append(part.filter(pa.array(~here)))
        return [part for part in of_round if part.num_rows]

    def _settled(self, changes: pa.Table) -> list[pa.Table]:
        """Update the counts; return rows that enter or leave a round now.  Rows that return later wait."""
        keys = KeySet.of(changes, self.columns)
        known = self.seen_table().lookup(keys, [self.round, COUNT])
        seen = _Seen.of(
            np.concatenate([known.key_index, keys.inverse]),
            np.concatenate([ints_of(known.table, self.round), ints_of(changes, self.round)]),
            np.concatenate([ints_of(known.table, COUNT), np.zeros(changes.num_rows, np.int64)]),
            np.concatenate([np.zeros(known.table.num_rows, np.int64), weights(changes)]),
        )
        self._check(seen)
        touched = np.flatnonzero(seen.before != seen.after)
        which, rounds, after = seen.key[touched], seen.round[touched], seen.after[touched]
        counted = self._marked(keys.columns, which, rounds, after)
        counted = counted.rename_columns([*self.columns, self.round, COUNT])
        counted = counted.append_column(HASH, pa.array(keys.hashes[which]))
        self.write_buffer.add(self.seen, with_weights(counted, (after > 0).astype(np.int64)))
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
        """The rows that leave; a row that was still waiting to return is only removed from the queue."""
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
                "a round of a recursion has rows with a negative count",
                detail=f"{int((seen.after < 0).sum())} rows, lowest count {int(seen.after.min())}",
                step=self.step,
                epoch=self.epoch,
            )

    def _marked(self, rows: pa.Table, which: Ints, rounds: Ints, w: Ints) -> pa.Table:
        """The selected rows, with their rounds and weights."""
        columns = rows.take(pa.array(which)).columns
        return pa.table([*columns, pa.array(rounds), pa.array(w)], schema=self.schema)

    def _bounded(self, rows: pa.Table, seen: _Seen, touched: Ints) -> Ints:
        """The change of copies; a row with too many copies becomes an error row and is not passed on."""
        before, after = seen.before[touched], seen.after[touched]
        limit = self.limits.copies
        lost_before, lost = before > limit, after > limit
        turned = lost.astype(np.int64) - lost_before
        if turned.any():
            odd = np.flatnonzero(turned)
            where = touched[odd]
            bad = self._marked(rows, seen.key[where], seen.round[where], turned[odd])
            if (turned > 0).any() and self.backfill:
                raise InvalidError(
                    f"{called(self.step)} gives a row more than {limit} times in one round",
                    detail="its rows multiply from round to round (recursion_copies_max)",
                    hint="bound the recursion, use UNION instead of UNION ALL, or raise recursion_copies_max",
                    step=self.step,
                )
            bound = f"more than {limit} times in one round (recursion_copies_max)"
            self._fail(bad, f"{called(self.step)} gives this row {bound}")
        return np.where(lost, 0, after) - np.where(lost_before, 0, before)

    def _within(self, rows: pa.Table) -> pa.Table:
        """The rows within `rounds_max`; the others become error rows."""
        beyond = ints_of(rows, self.round) > self.limits.rounds
        if not beyond.any():
            return rows
        why = (
            f"{called(self.step)} is not over after {self.limits.rounds} rounds (rounds_max); "
            "this row would come next"
        )
        self._fail(rows.filter(pa.array(beyond)), why)
        return rows.filter(pa.array(~beyond))

    def _fail(self, rows: pa.Table, why: str) -> None:
        self.errors.append(error_rows(rows.drop_columns([self.round]), [why] * rows.num_rows))


@dataclass(frozen=True)
class _Seen:
    """How often rounds contain rows, before and after: sorted by (number of the row, round)."""

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
        """The first round of each row according to these counts."""
        found = np.full(length, NEVER, np.int64)
        there = counts > 0
        np.minimum.at(found, self.key[there], self.round[there])
        return found


def ints_of(rows: pa.Table, name: str) -> Ints:
    values: Ints = one_chunk(rows.column(name)).to_numpy()
    return values


def without_hash(delta: pa.Table) -> pa.Table:
    return delta.drop_columns([HASH]) if HASH in delta.column_names else delta


def called(step: str) -> str:
    """What error messages call a recursion."""
    return f"the recursion of view {step.partition('.recursion')[0]!r}"
