"""Reads one segment of a run file: sorted rows, mapped, without copies.

Law: no byte is used before the checksum of its block has been verified (`verified_blocks.py`).  A search
verifies the blocks of hashes that it may read (determined by the fences in the footer), and a gather verifies
the blocks of the values it takes.  So a lookup costs what it touches, also the first time.

Of a large file in a remote store, only the blocks that are verified are fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing, ordering, tuning
from millpond.delta import HASH
from millpond.errors import DataError
from millpond.identity import equal, equal_rows, fixed_view, repeat, take
from millpond.ordering import Order
from millpond.state.runs.cells import Cell, ReadCell, cell_reader
from millpond.state.runs.missing_column import CopiedColumn, Fill
from millpond.state.runs.segment_entry import SegmentEntry
from millpond.state.runs.verified_blocks import VerifiedBlocks, damaged
from millpond.state.store.store import Fetch

SMALL_ROWS = 1 << 15  # a segment with fewer rows is searched completely

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def stacked_name(index: int) -> str:
    """The name in a stack of the column at this position of every table's schema."""
    return f"c{index}"


class Segment:
    """Verified access to the rows of one segment."""

    def __init__(
        self,
        name: str,
        data: pa.Buffer,
        entry: SegmentEntry,
        stack: Segment | None = None,
        fetch: Fetch | None = None,
    ) -> None:
        """`stack` is the stack that contains the segment, if any; it is verified completely.

        `fetch` fetches bytes of the file into its mapping, if they may be absent.
        """
        self.name = name
        self._blocks = VerifiedBlocks(name, data, entry, fetch)
        self.rows = entry.rows
        self.entry = entry
        self._data = data
        self._columns: dict[str, pa.Array] = self._read() if stack is None else self._part_of(stack)
        self._hashes: Hashes = self._columns[HASH].to_numpy()
        self._hash_offset = self._columns[HASH].buffers()[1].address - data.address
        self._hashes_verified = stack is not None
        self._complete: set[str] = set()  # columns whose blocks are all verified
        self._bits: dict[str, npt.NDArray[Any] | None] = {}  # see `bits`
        self._cells: dict[str, ReadCell] = {}
        self._differ: dict[str, bool] = {}
        self._distinct: bool | None = None  # do all rows have different hashes? None: not checked yet

    def _read(self) -> dict[str, pa.Array]:
        """The columns of the Arrow file; only the metadata is verified."""
        entry = self.entry
        self._blocks.touch_metadata()
        reader = pa.ipc.open_file(self._data)
        batch = reader.get_batch(0)
        if reader.num_record_batches != 1 or batch.num_rows != entry.rows:
            raise self._damaged(
                "does not match its footer",
                f"{reader.num_record_batches} batches of {batch.num_rows} rows, footer has {entry.rows}",
            )
        return dict(zip(batch.schema.names, batch.columns, strict=True))

    def _part_of(self, stack: Segment) -> dict[str, pa.Array]:
        """The columns of a stack, sliced to the rows of one table and renamed to its names."""
        entry = self.entry
        first = entry.first
        if first is None or first + entry.rows > stack.rows:
            raise self._damaged(
                "does not match its footer", f"rows {first} and {entry.rows} more of {stack.rows}"
            )
        self._blocks.trust()
        own = {stacked_name(index): name for index, name in enumerate(entry.names)}
        return {own.get(n, n): c.slice(first, entry.rows) for n, c in stack.verified().items()}

    def verified(self) -> Mapping[str, pa.Array]:
        """All stored columns, every block verified."""
        self._blocks.check_span(0, self.entry.length)
        return self._columns

    # ------------------------------------------------------------ reading

    def take(self, name: str, positions: Ints, fill: Fill | None = None) -> pa.Array:
        """The values of one column at these rows; those of `fill` if the segment is older than the column."""
        if isinstance(fill, CopiedColumn) and self._lacks(name):
            return fill.of(self.take(fill.column, positions, fill.fill))
        constant = self._one_value(name, fill)
        if constant is not None:
            return repeat(constant, len(positions))
        column = self._column(name)
        if self._blocks.missing and len(positions) and name not in self._complete:
            self._blocks.touch(column, positions, positions + 1)
            self._note_complete(name)
        return take(column, positions)

    def slice(self, name: str, start: int, stop: int, fill: Fill | None = None) -> pa.Array:
        """The values of one column from row `start` up to `stop`, without a copy; `fill` as for take."""
        if isinstance(fill, CopiedColumn) and self._lacks(name):
            return fill.of(self.slice(fill.column, start, stop, fill.fill))
        constant = self._one_value(name, fill)
        if constant is not None:
            return repeat(constant, stop - start)
        column = self._column(name)
        if self._blocks.missing and stop > start and name not in self._complete:
            self._blocks.touch(column, np.array([start]), np.array([stop]))
            self._note_complete(name)
        return column.slice(start, stop - start)

    def cell(self, name: str, row: int, fill: Fill | None = None) -> Cell:
        """The value of one column at a row, as `cells` defines it; `fill` as for take."""
        if isinstance(fill, CopiedColumn) and self._lacks(name):
            return cell_reader(self.take(name, np.array([row]), fill))(0)
        if self._blocks.missing and name not in self._complete and name in self._columns:
            self._blocks.touch(self._columns[name], np.array([row]), np.array([row + 1]))
            self._note_complete(name)
        read = self._cells.get(name)
        if read is None:
            constant = self._one_value(name, fill)
            if constant is not None:
                value = cell_reader(constant)(0)
                if constant is not fill:
                    self._cells[name] = lambda row: value
                return value
            read = self._cells[name] = cell_reader(self._column(name))
        return read(row)

    def bits(self, name: str, rows: Ints, fill: Fill | None = None) -> npt.NDArray[Any] | None:
        """The bits of a fixed-width column at these rows, one value if all are equal; None with NULLs."""
        if isinstance(fill, CopiedColumn) and self._lacks(name):
            copied = self.take(name, rows, fill)
            return None if copied.null_count else fixed_view(copied)
        if name in self._columns:
            if name not in self._bits:
                column = self._columns[name]
                self._bits[name] = None if column.null_count else fixed_view(column)
            stored_bits = self._bits[name]
            if stored_bits is None:
                return None
            if self._blocks.missing and name not in self._complete:
                self._blocks.touch(self._columns[name], rows, rows + 1)
                self._note_complete(name)
            return stored_bits[rows]
        constant = self.entry.constants.get(name, fill)
        if constant is None:
            self._column(name)  # raises
            return None
        return None if constant.null_count else fixed_view(constant)

    def hashes(self, start: int, stop: int) -> Hashes:
        """The key hashes of these rows, without a copy."""
        self._check_hash_rows(start, stop)
        return self._hashes[start:stop]

    def hashes_at(self, positions: Ints) -> Hashes:
        """The key hashes of some rows, in the order of the argument."""
        if not len(positions):
            return self._hashes[:0]
        first, last = int(positions[0]), int(positions[-1]) + 1
        if last - first == len(positions):
            return self.hashes(first, last)
        if not self._hashes_verified:
            self._check_hash_positions(positions)
        return self._hashes[positions]

    def _lacks(self, name: str) -> bool:
        return name not in self._columns and name not in self.entry.constants

    def _one_value(self, name: str, fill: Fill | None) -> pa.Array | None:
        """The value of a column that is not stored, as one row."""
        if name in self._columns:
            return None
        return self.entry.constants.get(name, fill)

    def _column(self, name: str) -> pa.Array:
        column = self._columns.get(name)
        if column is None:
            raise self._damaged(
                "lacks a column", f"asked for {name!r}, it has {[*self._columns, *self.entry.constants]}"
            )
        return column

    # ------------------------------------------------------------ searching by key

    def cut(self, h_min: int, h_max: int) -> tuple[int, int]:
        """The rows [start, stop) with a hash in [h_min, h_max]."""
        start = 0 if h_min <= self.entry.h_min else int(self._search(np.array([h_min], np.uint64), "left")[0])
        stop = self.rows
        if h_max < self.entry.h_max:
            stop = int(self._search(np.array([h_max], np.uint64), "right")[0])
        return start, max(start, stop)

    def find(self, wanted: Hashes, numbers: Ints, key: Mapping[str, pa.Array]) -> tuple[Ints, Ints, Ints]:
        """Find keys: (the numbers of keys found, first row of each, row after its last).

        `wanted` are the sorted hashes of the keys `numbers`, which are rows of the columns `key`.  A hash
        only selects candidates: the key columns are compared at the first and the last row of each range,
        because rows with one hash are sorted by key.
        """
        if len(wanted) > 2 * self.rows:  # cheaper: search for the few rows among the many keys
            some = self._among(wanted)
            wanted, numbers = wanted[some], numbers[some]
        first = self._search(wanted, "left")
        inside = np.minimum(first, self.rows - 1)
        if not self._hashes_verified:
            self._check_hash_positions(inside)
        hit = np.flatnonzero((self._hashes[inside] == wanted) & (first < self.rows))
        lo = first[hit]
        hi = lo + 1
        after = np.minimum(hi, self.rows - 1)
        if not self._hashes_verified:
            self._check_hash_positions(after)
        more = np.flatnonzero((self._hashes[after] == wanted[hit]) & (hi < self.rows))
        if len(more):
            hi[more] = self._search(wanted[hit[more]], "right")
        if hashing.is_injective(list(key.values())) and all(self.all_differ(name) for name in key):
            return numbers[hit], lo, hi
        return self._settle(key, numbers[hit], lo, hi)

    def find_one(self, wanted: Hashes) -> tuple[Ints, Ints] | None:
        """(which of these sorted, distinct hashes occur here, the row of each); None if one has two rows."""
        if len(wanted) > 2 * self.rows and self.all_distinct():
            own = self.hashes(0, self.rows)
            positions = np.minimum(wanted.searchsorted(own), len(wanted) - 1)
            rows = (wanted[positions] == own).nonzero()[0]
            return positions[rows], rows
        first = self._search(wanted, "left")
        inside = np.minimum(first, self.rows - 1)
        if not self._hashes_verified:
            self._check_hash_positions(inside)
        hit = (self._hashes[inside] == wanted).nonzero()[0]  # a hash after the last row matches none
        rows = inside[hit]
        if not self.all_distinct():
            after = np.minimum(rows + 1, self.rows - 1)
            if not self._hashes_verified:
                self._check_hash_positions(after)
            if ((self._hashes[after] == wanted[hit]) & (after > rows)).any():
                return None
        return hit, rows

    def rows_of(self, wanted: np.uint64) -> range:
        """The rows with one hash; without the arrays that a search for many hashes makes."""
        if self._hashes_verified:
            first = int(self._hashes.searchsorted(wanted))
        else:
            fence_rows = self.entry.fence_rows
            start = max(int(self.entry.fences.searchsorted(wanted)) - 1, 0) * fence_rows
            self._check_hash_rows(start, min(start + fence_rows, self.rows))
            first = start + int(self._hashes[start : start + fence_rows].searchsorted(wanted))
        stop = first
        while stop < self.rows:
            self._check_hash_rows(stop, stop + 1)
            if self._hashes[stop] != wanted:
                break
            stop += 1
        return range(first, stop)

    def all_distinct(self) -> bool:
        """Is it known that no two rows share a hash?  Only small segments are checked."""
        if self._distinct is None:
            own = self.hashes(0, self.rows) if self.rows <= SMALL_ROWS else self._hashes[:0]
            self._distinct = bool(len(own)) and bool((own[1:] > own[:-1]).all())
        return self._distinct

    def all_differ(self, name: str) -> bool:
        """Do different values of a key column always have different hashes here?"""
        known = self._differ.get(name)
        if known is None:
            column = self._columns.get(name, self.entry.constants.get(name))
            known = self._differ[name] = column is not None and hashing.is_injective([column])
        return known

    def _among(self, wanted: Hashes) -> Ints:
        """Which of these sorted hashes occur in this segment at all."""
        own = self.hashes(*self.cut(int(wanted[0]), int(wanted[-1])))
        if not len(own) or (own[1:] == own[:-1]).any():
            own = np.unique(own)
        left: Ints = np.searchsorted(wanted, own, "left")
        is_here = wanted[np.minimum(left, len(wanted) - 1)] == own
        left = left[is_here]
        if (wanted[1:] == wanted[:-1]).any():  # keys that share a hash
            return expand(left, np.searchsorted(wanted, own[is_here], "right"))
        return left

    def _settle(
        self, key: Mapping[str, pa.Array], number: Ints, lo: Ints, hi: Ints
    ) -> tuple[Ints, Ints, Ints]:
        """Keep the ranges that have the wanted key."""
        asked = {name: take(column, number) for name, column in key.items()}
        good = self._equal_key(asked, lo)
        several = np.flatnonzero(hi > lo + 1)
        if len(several):
            ends = {name: take(column, several) for name, column in asked.items()}
            clear = good[several] & self._equal_key(ends, hi[several] - 1)
            for index in several[~clear].tolist():  # keys that share a hash: compare every row
                rows = np.arange(lo[index], hi[index])
                one = {name: repeat(column.slice(index, 1), len(rows)) for name, column in asked.items()}
                same = np.flatnonzero(self._equal_key(one, rows))
                good[index] = len(same) > 0
                if len(same):
                    lo[index], hi[index] = rows[same[0]], rows[same[-1]] + 1
        if good.all():
            return number, lo, hi
        return number[good], lo[good], hi[good]

    def _equal_key(self, asked: Mapping[str, pa.Array], rows: Ints) -> Bools:
        names = list(asked)
        return equal_rows(
            [asked[name] for name in names], [self.take(name, rows) for name in names], len(rows)
        )

    def _search(self, wanted: Hashes, side: Literal["left", "right"]) -> Ints:
        """searchsorted in the hashes; reads only verified blocks."""
        if self._hashes_verified:
            return self._hashes.searchsorted(wanted, side)
        fences, fence_rows = self.entry.fences, self.entry.fence_rows
        block = np.maximum(np.searchsorted(fences, wanted, side) - 1, 0)
        needed = np.unique(block)
        if 2 * len(needed) >= len(fences):
            self._check_hash_rows(0, self.rows)
            self._hashes_verified = True
            return np.searchsorted(self._hashes, wanted, side)
        positions = np.empty(len(wanted), np.int64)
        firsts = np.searchsorted(block, needed, "left")
        lasts = np.searchsorted(block, needed, "right")
        self._touch_hashes(needed)
        for number, first, last in zip(needed.tolist(), firsts.tolist(), lasts.tolist(), strict=True):
            start, stop = number * fence_rows, min((number + 1) * fence_rows, self.rows)
            positions[first:last] = start + np.searchsorted(
                self._hashes[start:stop], wanted[first:last], side
            )
        return positions

    # ------------------------------------------------------------ searching by order within a key

    def bisect(self, order: Order, lo: Ints, hi: Ints, at: pa.Array, side: Literal["left", "right"]) -> Ints:
        """For each range [lo, hi) the first row not before `at` (left) or after it (right), in table order.

        All ranges are searched together, with one probe each per round; `at` has one non-null value per
        range, and hi >= lo.
        """
        codes = ordering.code(at, order)
        sizes = hi - lo
        # Short ranges: compare all rows in one call.
        if sizes.sum() <= max(tuning.LOOKUP_COMPARE_ROWS, 4 * len(lo)):
            which = np.repeat(np.arange(len(lo)), sizes)
            sign = compare(self.take(order.column, expand(lo, hi)), at, which, codes, order)
            return lo + np.bincount(which[sign < 0 if side == "left" else sign <= 0], minlength=len(lo))
        lo, hi = lo.copy(), hi.copy()
        active = np.flatnonzero(lo < hi)
        while len(active):
            middle = (lo[active] + hi[active]) >> 1
            values = self.take(order.column, middle)
            sign = compare(values, at, active, codes, order)
            right = sign < 0 if side == "left" else sign <= 0
            lo[active[right]] = middle[right] + 1
            hi[active[~right]] = middle[~right]
            active = active[lo[active] < hi[active]]
        return lo

    def without_nulls(self, order: Order, lo: Ints, hi: Ints) -> tuple[Ints, Ints]:
        """The subrange of each range whose order value is not NULL; NULLs are at one end."""
        constant = self.entry.constants.get(order.column)
        column = constant if constant is not None else self._column(order.column)
        if not column.null_count:
            return lo, hi
        left, right = lo.copy(), hi.copy()
        active = np.flatnonzero(left < right)
        while len(active):
            middle = (left[active] + right[active]) >> 1
            null: Bools = self.take(order.column, middle).is_null().to_numpy(zero_copy_only=False)
            onward = null if order.nulls_first else ~null
            left[active[onward]] = middle[onward] + 1
            right[active[~onward]] = middle[~onward]
            active = active[left[active] < right[active]]
        return (left, hi) if order.nulls_first else (lo, left)

    # ------------------------------------------------------------ verifying hashes

    def _check_hash_positions(self, positions: Ints) -> None:
        if len(positions):
            self._blocks.touch_bytes(self._columns[HASH].buffers()[1], positions * 8, positions * 8 + 8)

    def _check_hash_rows(self, start: int, stop: int) -> None:
        if not self._hashes_verified and stop > start:
            self._blocks.check_span(self._hash_offset + start * 8, self._hash_offset + stop * 8)

    def _touch_hashes(self, fences: Ints) -> None:
        """Verify the hashes behind these fences, in ascending order."""
        rows = self.entry.fence_rows
        self._blocks.touch_bytes(
            self._columns[HASH].buffers()[1],
            fences * (rows * 8),
            np.minimum((fences + 1) * rows, self.rows) * 8,
        )

    def _note_complete(self, name: str) -> None:
        if self._blocks.covers_array(self._columns[name]):
            self._complete.add(name)

    # ------------------------------------------------------------ fetching ahead

    @property
    def is_partial(self) -> bool:
        """May bytes be absent?"""
        return self._blocks.is_partial

    def lacks_hashes(self, wanted: Hashes) -> bool:
        """Would a search for these hashes read a block that is not verified yet?"""
        if self._hashes_verified or not self.is_partial:
            return False
        fence = np.maximum(self.entry.fences.searchsorted(wanted) - 1, 0)
        first = self._hash_offset + fence * (self.entry.fence_rows * 8)
        stop = self._hash_offset + np.minimum((fence + 1) * self.entry.fence_rows, self.rows) * 8
        return not self._blocks.covers(first, stop)

    def stores(self, name: str) -> bool:
        """Is a column in the segment itself, and not in the footer?"""
        return name in self._columns

    def _damaged(self, what: str, detail: str) -> DataError:
        return damaged(self.name, self.entry, what, detail)


def compare(values: pa.Array, at: pa.Array, which: Ints, codes: Hashes, order: Order) -> Ints:
    """-1, 0 or 1: is values[i] before, equal to or after at[which[i]] in table order?

    `codes` are the codes of `at`.  A code may be only a prefix, so where codes are equal the values are
    ranked together.
    """
    own = ordering.code(values, order)
    other = codes[which]
    sign = (own > other).astype(np.int64) - (own < other)
    tied = np.flatnonzero(sign == 0)
    if len(tied):
        x, y = take(values, tied), take(at, which[tied])
        if not equal(x, y).all():
            both = ordering.ranks(pa.concat_arrays([x, y]), order)
            a, b = both[: len(tied)], both[len(tied) :]
            sign[tied] = (a > b).astype(np.int64) - (a < b)
    return sign


def expand(lo: Ints, hi: Ints) -> Ints:
    """All positions of the ranges [lo, hi), range by range."""
    sizes = hi - lo
    if len(sizes) and sizes.max() == 1 and sizes.min() == 1:
        return lo
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(lo - (ends - sizes), sizes) + np.arange(total)
