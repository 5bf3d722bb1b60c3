"""A list per key, one row per item: the newest items are fetched first, older ones only when read."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.identity import one_chunk
from millpond.operators.operator import Change
from millpond.process import handle
from millpond.process.handle import (
    FirstElements,
    Handle,
    Home,
    end_rows,
    instants,
    micros,
    rows_of,
)
from millpond.process.spec import EXPIRES, POSITION
from millpond.process.values import decode, encode

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass
class _List:
    """One key's list: the fetched items at its end, and the changes made to it."""

    first: int  # the position of items[0]
    items: list[Any]
    ends: list[int]  # expiry times, if the state has a time to live
    stored: int  # lower positions are in the table, unless dropped
    is_complete: bool  # is items[0] the first item of the list?
    start: int | None = None  # if not complete: the first position of the list, once known
    start_end: int | None = None  # and the expiry time of the item there
    dropped: list[tuple[int, int]] = field(default_factory=list)  # stored positions to delete


class ListHandle(Handle):
    """`append`, `extend`, iteration, `len`, `list[i]`, `last(n)`, `keep(n)`, `clear()`."""

    __slots__ = ("_cells", "_first_elements")

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self._cells: dict[int, _List] = {}
        self._first_elements: FirstElements | None = None

    def append(self, item: Any) -> None:
        if item is None:
            raise TypeError(f"list state {self._home.spec.name!r} takes no None")
        cell = self._cell()
        cell.items.append(item)
        if self._home.spec.ttl is not None:  # no item outlives the next one
            cell.ends.append(max(self._until(), cell.ends[-1]) if cell.ends else self._until())

    def extend(self, items: Iterable[Any]) -> None:
        for item in items:
            self.append(item)

    def __iter__(self) -> Iterator[Any]:
        cell = self._cell()
        if not cell.is_complete:
            yield from self._before(cell)
        yield from list(cell.items)

    def __len__(self) -> int:
        cell = self._cell()
        return len(cell.items) + (0 if cell.is_complete else cell.first - self._start(cell))

    def __bool__(self) -> bool:
        return bool(self._cell().items)

    def __getitem__(self, which: int) -> Any:
        length = len(self)
        index = which + length if which < 0 else which
        if not 0 <= index < length:
            raise IndexError(f"list state {self._home.spec.name!r} has {length} items, asked for {which}")
        cell = self._cell()
        before = length - len(cell.items)
        if index >= before:
            return cell.items[index - before]
        at = cell.first - before + index
        return self._fetch(at, at)[0][0]

    def last(self, n: int) -> list[Any]:
        """The newest n items, the oldest of them first."""
        cell = self._cell()
        if n > len(cell.items) and not cell.is_complete:
            self._load(cell, max(self._start(cell), cell.first - (n - len(cell.items))))
        return cell.items[max(0, len(cell.items) - n) :] if n > 0 else []

    def keep(self, n: int) -> None:
        """Drop all but the newest n items."""
        self._drop(len(self) - n)

    def clear(self) -> None:
        self._drop(len(self))

    def _drop(self, count: int) -> None:
        """Drop the oldest `count` items without reading them."""
        if count <= 0:
            return
        cell = self._cell()
        start = cell.first if cell.is_complete else self._start(cell)
        end = start + count
        if start < cell.stored:
            cell.dropped.append((start, min(end, cell.stored)))
        cell.start, cell.start_end = end, None
        inside = max(0, end - cell.first)
        if end >= cell.first:
            cell.is_complete = True
            cell.first = end
            del cell.items[:inside]
            del cell.ends[:inside]

    def _oldest(self, cell: _List) -> int:
        """The position of the oldest stored item, in a list that is not fetched completely."""
        if cell.start is None:
            head = self._home.table.head(self._home.one(self.at), 1).table
            cell.start = int(one_chunk(head.column(POSITION))[0].as_py())
            if self._home.spec.ttl is not None:
                (cell.start_end,) = micros(head, EXPIRES)
        return cell.start

    def _start(self, cell: _List) -> int:
        """The position of the oldest item that has not expired.

        Items are stored in the order of their expiry, so a binary search finds it.
        """
        start = self._oldest(cell)
        if self._home.spec.ttl is None or start == cell.first:
            return start
        now = self._now()
        if cell.start_end is None:
            cell.start_end = self._fetch(start, start)[1][0]
        if cell.start_end > now:
            return start
        low, high = start + 1, cell.first
        while low < high:
            middle = (low + high) // 2
            if self._fetch(middle, middle)[1][0] <= now:
                low = middle + 1
            else:
                high = middle
        cell.dropped.append((start, low))
        cell.start, cell.start_end = low, None
        return low

    def _before(self, cell: _List) -> Iterator[Any]:
        """The items before the fetched ones, page by page."""
        at, end = self._start(cell), cell.first
        while at < end:
            items, _ = self._fetch(at, min(at + handle.FETCHED_PER_LOOKUP, end) - 1)
            yield from items
            at += handle.FETCHED_PER_LOOKUP

    def _load(self, cell: _List, start: int) -> None:
        if start == cell.first:
            return
        items, ends = self._fetch(start, cell.first - 1)
        cell.items[:0] = items
        cell.ends[:0] = ends
        cell.is_complete = start == self._start(cell)
        cell.first = start

    def _fetch(self, lo: int, hi: int) -> tuple[list[Any], list[int]]:
        home = self._home
        rows = home.table.range(home.one(self.at), pa.array([lo]), pa.array([hi])).table
        ends = micros(rows, EXPIRES) if home.spec.ttl is not None else []
        return decode(home.spec, rows, home.step), ends

    def _open_list(self) -> _List:
        cell = self._cells.get(self.at)
        if cell is None:
            cell = self._cells[self.at] = self._open()
        return cell

    def _cell(self) -> _List:
        """The list at the time of the current row, without expired items."""
        cell = self._open_list()
        if cell.ends and cell.ends[0] <= self._now():
            self._expire(cell)
        return cell

    def _expire(self, cell: _List) -> None:
        """Drop expired items: all items live equally long, so these are the oldest."""
        now = self._now()
        expired = next((n for n, end in enumerate(cell.ends) if end > now), len(cell.ends))
        before = 0 if cell.is_complete else cell.first - self._start(cell)
        ends, cell.ends = cell.ends, []  # so that nothing inside compares them with the clock
        try:
            self._drop(before + expired)
        finally:
            cell.ends = ends[expired:]

    def _open(self) -> _List:
        home = self._home
        if self._first_elements is None:
            self._first_elements = FirstElements(
                home, home.table.head(home.keys, handle.FETCHED_PER_KEY, reverse=True)
            )
        lo, hi = self._first_elements.span(self.at)
        if lo == hi:
            return _List(0, [], [], 0, is_complete=True)
        positions = self._first_elements.order[lo:hi]
        ends = self._first_elements.ends[lo:hi] if home.spec.ttl is not None else []
        first = positions[0]
        return _List(
            first,
            self._first_elements.values[lo:hi],
            ends,
            positions[-1] + 1,
            is_complete=hi - lo < handle.FETCHED_PER_KEY,
        )

    def sweep(self, at: int, positions: Iterable[int]) -> None:
        """Drop items whose expiry buckets have passed; `positions` are in descending order.

        No item outlives the next one, so all items up to an expired one have expired, too.  A position whose
        item does not expire now was reused since, in a list that had become empty.
        """
        self.at = at
        cell = self._cell()
        now = self._now()
        for position in positions:
            start = cell.first if cell.is_complete else self._start(cell)
            if not start <= position < cell.first + len(cell.items):
                continue
            inside = position - cell.first
            end = cell.ends[inside] if inside >= 0 else self._fetch(position, position)[1][0]
            if end <= now:
                ends, cell.ends = cell.ends, []
                self._drop(position - start + 1)
                cell.ends = ends[max(0, inside + 1) :]
                return

    def save(self) -> Any:
        # The list is fetched even if user code has not read it yet: decoded values may be modified in place.
        # Items that have expired for this row are saved, too: the call may never read the list, or fail, and
        # a row with an earlier time may follow.
        return copy.deepcopy(self._open_list())

    def restore(self, saved: Any) -> None:
        self._cells[self.at] = saved

    def changes(self, skip: Bools) -> list[Change]:
        home = self._home
        keys: list[int] = []
        positions: list[int] = []
        values: list[Any] = []
        ends: list[int] = []
        gone_keys: list[Ints] = []
        gone: list[Ints] = []
        for at in sorted(self._cells):
            if skip[at]:
                continue
            self.at = at
            cell = self._cell()
            for lo, hi in cell.dropped:
                gone.append(np.arange(lo, hi))
                gone_keys.append(np.full(hi - lo, at))
            fresh = max(0, cell.stored - cell.first)
            added = cell.items[fresh:]
            keys += [at] * len(added)
            positions += range(cell.first + fresh, cell.first + fresh + len(added))
            values += added
            ends += cell.ends[fresh:]
        changes_made = []
        spec = home.table.spec
        if values:
            at_keys = np.array(keys)
            arrays = encode(home.spec, values, home.step, lambda n: home.tell(keys[n]))
            order = pa.array(positions, pa.int64())
            if home.spec.ttl is not None:
                arrays.append(instants(np.array(ends, np.int64)))
                changes_made += end_rows(home, at_keys, {POSITION: order}, arrays[-1])
            rows = rows_of(
                home, at_keys, [order, *arrays], (POSITION, *spec.rest), np.ones(len(keys), np.bool_)
            )
            changes_made.append(Change(spec.name, rows, True))
        if gone:
            at_keys, where = np.concatenate(gone_keys), np.concatenate(gone)
            nothing = [pa.nulls(len(where), spec.schema.field(n).type) for n in spec.rest]
            dead = np.zeros(len(where), np.bool_)
            rows = rows_of(home, at_keys, [pa.array(where), *nothing], (POSITION, *spec.rest), dead)
            changes_made.append(Change(spec.name, rows, True))
        return changes_made
