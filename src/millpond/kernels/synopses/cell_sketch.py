"""Sketches that are arrays of cells: HyperLogLog, count-min, AMS and Bloom differ in their cells alone.

Law: the bytes of a sketch are a function of its cells, and merging is associative and commutative
cell by cell, so a merged sketch does not depend on how its rows were divided or ordered.

A sketch is a row of 32-bit words: two of header (kind, form and width; number of cells), then
either the cells that are not zero (sparse: index and value) or all cells (dense), whichever is
shorter.  Sparse sketches of many groups are merged together, without a loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import InvalidError

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]

_MAGIC = 0x5C
_HEADER_WORDS = 2
_WIDTHS = (np.int16, np.int32, np.int64)
_REGISTER_BITS = 8


@dataclass(frozen=True)
class CellSketch:
    """One kind of cells; `unit` says how they are stored and merged."""

    name: str
    code: int
    cells: int
    unit: Literal["register", "count", "bit"]  # the largest value wins; values are added; any 1 wins

    @property
    def _merge(self) -> np.ufunc:
        return np.add if self.unit == "count" else np.maximum

    @property
    def _entry_words(self) -> int:
        return 3 if self.unit == "count" else 1

    # -- from cells --------------------------------------------------------------------

    def of_cells(self, group: Ints, index: Ints, value: Ints, n_groups: int) -> pa.Array:
        """The sketches of these cells; a cell may occur several times.  A group without cells is empty."""
        group, index, value = self._united(group, index, value)
        sizes = np.bincount(group, minlength=n_groups)
        sparse = self._sparse(group, index, value, sizes)
        limit = self._dense_bytes_min()
        large = np.flatnonzero(4 * self._entry_words * sizes > limit)
        if not len(large):
            return sparse
        ends = np.cumsum(sizes)
        blobs: list[Any] = sparse.to_pylist()
        for number in large.tolist():
            mine = slice(int(ends[number] - sizes[number]), int(ends[number]))
            cells = np.zeros(self.cells, np.int64)
            cells[index[mine]] = value[mine]
            blobs[number] = self._shorter(cells, blobs[number])
        return pa.array(blobs, pa.binary())

    def _united(self, group: Ints, index: Ints, value: Ints) -> tuple[Ints, Ints, Ints]:
        """Each cell of each group once, in order, without zeros."""
        if not len(group):
            return group, index, value
        key = group * self.cells + index
        order = np.argsort(key, kind="stable")
        key = key[order]
        starts = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
        total = self._merge.reduceat(value[order], starts)
        key = key[starts]
        is_set = total != 0
        if not is_set.all():
            key, total = key[is_set], total[is_set]
        return key // self.cells, key % self.cells, total

    def _dense_bytes_min(self) -> int:
        per_cell = {"register": 8, "count": 16, "bit": 1}[self.unit]
        return self.cells * per_cell // 8

    def _sparse(self, group: Ints, index: Ints, value: Ints, sizes: Ints) -> pa.Array:
        words_of = _HEADER_WORDS + self._entry_words * sizes
        offsets = np.concatenate([[0], np.cumsum(words_of)])
        words = np.zeros(int(offsets[-1]), np.uint32)
        words[offsets[:-1]] = _MAGIC | self.code << 8
        words[offsets[:-1] + 1] = self.cells
        if len(group):
            rank = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            at = offsets[group] + _HEADER_WORDS + self._entry_words * rank
            if self.unit == "count":
                words[at] = index
                words[at + 1] = value & 0xFFFFFFFF
                words[at + 2] = value >> 32 & 0xFFFFFFFF
            else:
                words[at] = index << _REGISTER_BITS | value
        return _binary(words, offsets * 4)

    def _shorter(self, cells: Ints, sparse: bytes) -> bytes:
        if self.unit == "register":
            width, payload = 1, cells.astype(np.uint8).tobytes()
        elif self.unit == "bit":
            width, payload = 0, np.packbits(cells.astype(np.uint8)).tobytes()
        else:
            kind = next(t for t in _WIDTHS if (cells == cells.astype(t)).all())
            width, payload = np.dtype(kind).itemsize, cells.astype(kind).tobytes()
        payload += bytes(-len(payload) % 4)
        if _HEADER_WORDS * 4 + len(payload) >= len(sparse):
            return sparse
        head = np.array([_MAGIC | self.code << 8 | 1 << 16 | width << 24, self.cells], np.uint32)
        return head.tobytes() + payload

    # -- to cells ----------------------------------------------------------------------

    def cells_of(self, sketches: pa.Array) -> tuple[Ints, Ints, Ints]:
        """(sketch, index, value) of all cells that are not zero; NULL has none."""
        numbers, words, offsets = self._checked(sketches)
        sizes = np.diff(offsets) - _HEADER_WORDS
        dense = (words[offsets[:-1]] >> 16 & 1).astype(np.bool_) if len(numbers) else np.zeros(0, np.bool_)
        entries = np.where(dense, 0, sizes // self._entry_words)
        rank = np.arange(int(entries.sum())) - np.repeat(np.cumsum(entries) - entries, entries)
        at = np.repeat(offsets[:-1] + _HEADER_WORDS, entries) + self._entry_words * rank
        group = np.repeat(numbers, entries)
        if self.unit == "count":
            index = words[at].astype(np.int64)
            value = words[at + 1].astype(np.int64) | words[at + 2].astype(np.int64) << 32
        else:
            index = (words[at] >> _REGISTER_BITS).astype(np.int64)
            value = (words[at] & 0xFF).astype(np.int64)
        if not dense.any():
            return group, index, value
        parts = [(group, index, value)]
        for place in np.flatnonzero(dense).tolist():
            cells = self._dense(words[offsets[place] : offsets[place + 1]])
            found = np.flatnonzero(cells)
            parts.append((np.full(len(found), numbers[place]), found, cells[found]))
        whole = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return whole[0], whole[1], whole[2]

    def _dense(self, words: Words) -> Ints:
        width = int(words[0] >> 24)
        payload = words[_HEADER_WORDS:]
        if width == 0:
            return np.unpackbits(payload.view(np.uint8), count=self.cells).astype(np.int64)
        kind = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[width]
        return np.frombuffer(payload.tobytes(), kind, self.cells).astype(np.int64)

    def _checked(self, sketches: pa.Array) -> tuple[Ints, Words, Ints]:
        """The sketches that are not NULL: their numbers, their words, and where each begins."""
        numbers = np.flatnonzero(sketches.is_valid().to_numpy(zero_copy_only=False))
        present = sketches.drop_null() if sketches.null_count else sketches
        ends = np.frombuffer(present.buffers()[1], np.int32, len(present) + 1, present.offset * 4).astype(
            np.int64
        )
        data = present.buffers()[2]
        raw = b"" if data is None else data[int(ends[0]) : int(ends[-1])].to_pybytes()
        ends -= ends[0]
        if len(present) and ((ends % 4).any() or (np.diff(ends) < _HEADER_WORDS * 4).any()):
            raise self._not_mine()
        words, offsets = np.frombuffer(raw, np.uint32), ends // 4
        first, second = words[offsets[:-1]], words[offsets[:-1] + 1]
        if ((first & 0xFFFF) != (_MAGIC | self.code << 8)).any() or (second != self.cells).any():
            raise self._not_mine()
        return numbers, words, offsets

    def _not_mine(self) -> InvalidError:
        return InvalidError(f"not a {self.name} sketch", hint=f"pass a column made by {self.name}_sketch(x)")

    # -- merging -----------------------------------------------------------------------

    def merged(self, sketches: pa.Array, starts: Ints) -> pa.Array:
        """The union of the sketches of each group; NULL if it has none."""
        groups = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(sketches))))
        valid = sketches.is_valid().to_numpy(zero_copy_only=False)
        count = np.bincount(groups[valid], minlength=len(starts))
        which = np.flatnonzero(valid & (count[groups] > 1))
        first = np.full(len(starts), -1)
        first[groups[valid][::-1]] = np.flatnonzero(valid)[::-1]
        out = sketches.take(pa.array(first, mask=first < 0))
        if not len(which):
            return out
        several = np.flatnonzero(count > 1)
        positions = np.searchsorted(several, groups[which])
        many = self._merged_many(sketches.take(pa.array(which)), positions, len(several))
        index = np.arange(len(starts))
        index[several] = len(starts) + np.arange(len(several))
        return pa.concat_arrays([out, many]).take(pa.array(index))

    def _merged_many(self, sketches: pa.Array, positions: Ints, n: int) -> pa.Array:
        number, index, value = self.cells_of(sketches)
        return self.of_cells(positions[number], index, value, n)

    def negated(self, sketches: pa.Array) -> pa.Array:
        """The sketches of the same rows with opposite weights; for counts only."""
        number, index, value = self.cells_of(sketches)
        made = self.of_cells(number, index, -value, len(sketches))
        return (
            made
            if not sketches.null_count
            else pa.array(
                [
                    m if v else None
                    for m, v in zip(made.to_pylist(), sketches.is_valid().to_pylist(), strict=True)
                ],
                pa.binary(),
            )
        )


def _binary(words: Words, offsets: Ints) -> pa.Array:
    ends = pa.py_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, ends, pa.py_buffer(words)])
