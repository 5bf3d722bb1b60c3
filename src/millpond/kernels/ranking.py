"""Ranking: rows of many keys in order, before and after a delta.

The rows fetched for each key are merged with the delta.  A key that returned as
many rows as were requested may have more behind them, so what is known about it
ends at the last row fetched (`known_to`).

Rows are ranked by their positions: most columns are read only once, for the rows
that are emitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import WEIGHT
from millpond.identity import one_chunk, refine, take, ties
from millpond.kernels.keyed_rows import Keyed
from millpond.ordering import Order, argsort_numbers

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max


class Unread(Mapping[str, pa.Array]):
    """Columns of concatenated tables; each is concatenated when it is first read."""

    def __init__(self, names: Sequence[str], *tables: Mapping[str, pa.Array] | pa.Table) -> None:
        self._names = tuple(names)
        self._tables = tables
        self._made: dict[str, pa.Array] = {}

    def __getitem__(self, name: str) -> pa.Array:
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = self._one_array(name)
        return found

    def _one_array(self, name: str) -> pa.Array:
        chunks: list[pa.Array] = []
        for table in self._tables:
            column = table[name]
            chunks += column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        plain = [one_chunk(chunk) for chunk in chunks if len(chunk)] or [one_chunk(self._tables[0][name])]
        return plain[0] if len(plain) == 1 else pa.concat_arrays(plain)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def arrange(
    columns: Mapping[str, pa.Array], key: Ints, chosen: Sequence[Order], rest: Sequence[Order]
) -> tuple[Ints, Bools, Bools]:
    """(perm, peer, same): rows sorted by key, the chosen order and the rest.

    peer[i]: row perm[i] ties with perm[i - 1] in key and chosen order; same[i]: they are equal rows.
    """
    perm = argsort_numbers(key)
    same = ties(key[perm])
    for order in chosen:
        refine(perm, same, partial(take, columns[order.column]), order)
    peer = same.copy()
    for order in rest:
        refine(perm, same, partial(take, columns[order.column]), order)
    return perm, peer, same


@dataclass(frozen=True)
class Counted:
    """One multiset over ranked rows: each row's weight, and its key's weight up to and including the row."""

    weights: Ints
    upto: Ints
    first: Ints  # weight of the key before the row's peers
    cut: Ints  # by key: the number of the peers at the last place, NEVER if there are fewer rows

    def within(self, peer: Ints, key: Ints, offset: int, last: int, with_ties: bool) -> Ints:
        """How much of each row's weight is at the places after `offset`, up to `last`."""
        end = np.where(peer <= self.cut[key], self.upto, 0) if with_ties else np.minimum(self.upto, last)
        inside: Ints = np.maximum(end - np.maximum(self.upto - self.weights, offset), 0)
        return inside


@dataclass(frozen=True)
class Ranked:
    """Distinct rows in order, grouped by key, before (old) and after (new) the delta."""

    columns: Mapping[str, pa.Array]
    row: Ints  # index into `columns`
    key: Ints
    peer: Ints  # number of the group of rows that tie in the chosen order
    changed: Ints  # weight of the delta
    fetched: Bools  # the row comes from the table
    known: Bools  # all rows up to this one are known
    complete: Bools  # by key: all rows are known
    stored: Ints  # weight in the table, as far as it was fetched
    last: int

    @cached_property
    def old(self) -> Counted:
        return _count(self._if_known(self.stored), self.key, self.peer, len(self.complete), self.last)

    @cached_property
    def new(self) -> Counted:
        weights = self._if_known(self.stored + self.changed)
        return _count(weights, self.key, self.peer, len(self.complete), self.last)

    def _if_known(self, weights: Ints) -> Ints:
        return weights if self.known.all() else np.where(self.known, weights, 0)

    def known_to(self, wanted: Ints) -> Ranked:
        """The same, if a key that returned all `wanted` rows may have more behind them."""
        keys = len(wanted)
        complete = np.bincount(self.key[self.fetched], minlength=keys) < wanted
        edge = np.full(keys, NEVER)  # a key that is not complete has fetched rows
        places = np.flatnonzero(self.fetched)
        edge[self.key[places]] = places  # ascending: the last one wins
        edge[complete] = NEVER
        known = np.arange(len(self.row)) <= edge[self.key]
        return replace(self, known=known, complete=complete)

    def settled(self, with_ties: bool, ranks: bool) -> Bools:
        """By key: is enough known to compute the change?"""
        enough: Bools = self.complete | (self.new.cut < NEVER)
        if not with_ties:
            return enough
        edge = np.full(len(self.complete), -1)
        places = np.flatnonzero(self.known)
        edge[self.key[places]] = self.peer[places]
        behind = edge > np.maximum(self.old.cut, self.new.cut)
        same = self.old.cut == self.new.cut
        if ranks:
            same &= self._before_cut(self.old) == self._before_cut(self.new)
        whole: Bools = self.complete | behind | same
        return enough & whole

    def _before_cut(self, counted: Counted) -> Ints:
        """By key: the weight before the peers at the last place."""
        found = np.zeros(len(self.complete), np.int64)
        here = np.flatnonzero(self.known & (self.peer == counted.cut[self.key]))
        found[self.key[here]] = counted.first[here]
        return found

    def of_keys(self, which: Bools) -> Ranked:
        """Only the rows of these keys; keys keep their numbers."""
        if which.all():
            return self
        rows = np.flatnonzero(which[self.key])
        return replace(
            self,
            row=self.row[rows],
            key=self.key[rows],
            peer=self.peer[rows],
            changed=self.changed[rows],
            fetched=self.fetched[rows],
            known=self.known[rows],
            stored=self.stored[rows],
        )

    def within(self, offset: int, last: int, with_ties: bool) -> tuple[Ints, Ints]:
        """Each row's weight within these places: (old, new)."""
        old = self.old.within(self.peer, self.key, offset, last, with_ties)
        new = self.new.within(self.peer, self.key, offset, last, with_ties)
        unknown = ~self.known
        old[unknown] = 0
        new[unknown] = 0
        if with_ties:
            # Unfetched peers of the last place are included before and after: only the change matters.
            beyond = unknown & (self.peer == self.new.cut[self.key])
            new[beyond] = self.changed[beyond]
        return old, new

    def table(self, names: Sequence[str], w: Ints) -> pa.Table:
        """The rows with these weights; rows of weight zero are removed."""
        alive = np.flatnonzero(w)
        columns = [take(self.columns[name], self.row[alive]) for name in names]
        return pa.table([*columns, pa.array(w[alive])], names=[*names, WEIGHT])


def rank(
    orders: tuple[Sequence[Order], Sequence[Order]], keys: int, head: Keyed | None, delta: Keyed, last: int
) -> Ranked:
    """Merge the fetched rows (if any) with the changes, as if no rows were behind them.

    Rows may be in any order, and those of one key need not be adjacent.
    """
    columns, key, stored, changed = delta.columns, delta.key, np.zeros_like(delta.weights), delta.weights
    fetched = np.zeros(len(key), np.bool_)
    if head is not None and len(head.key):
        columns = Unread(tuple(columns), head.columns, delta.columns)
        key = np.concatenate([head.key, delta.key])
        stored = np.concatenate([head.weights, stored])
        changed = np.concatenate([np.zeros_like(head.weights), changed])
        fetched = np.concatenate([np.ones(len(head.key), np.bool_), fetched])
    perm, tied, same = arrange(columns, key, *orders)
    starts = np.flatnonzero(~same)
    row = perm[starts]
    peer = np.cumsum(~tied, dtype=np.int64)[starts]
    if len(starts):
        stored = np.add.reduceat(stored[perm], starts)
        changed = np.add.reduceat(changed[perm], starts)
        fetched = np.logical_or.reduceat(fetched[perm], starts)
    key = key[row]
    return Ranked(
        columns,
        row,
        key,
        peer,
        changed,
        fetched,
        np.ones(len(row), np.bool_),
        np.ones(keys, np.bool_),
        stored,
        last,
    )


def _count(w: Ints, key: Ints, peer: Ints, keys: int, last: int) -> Counted:
    total = np.cumsum(w)
    starts = np.flatnonzero(~ties(key))
    base = np.zeros(keys, np.int64)
    base[key[starts]] = total[starts] - w[starts]
    upto = total - base[key]
    heads = np.flatnonzero(~ties(peer))
    first = np.repeat(upto[heads] - w[heads], np.diff(np.append(heads, len(w))))
    cut = np.full(keys, NEVER)
    reached = np.flatnonzero(upto >= last)[::-1]
    cut[key[reached]] = peer[reached]  # descending: the first one wins
    return Counted(w, upto, first, cut)
