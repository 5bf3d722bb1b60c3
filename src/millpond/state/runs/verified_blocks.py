"""Verifies the blocks of a segment, each once in this process, before a byte of it is used.

Of a large file in a remote store, the blocks that are needed are fetched first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from millpond.errors import DataError
from millpond.state.runs.segment_entry import SegmentEntry
from millpond.state.store.store import Fetch, Span

Ints = npt.NDArray[np.int64]


class VerifiedBlocks:
    """Which blocks of a segment are verified; `fetch` fetches bytes that may be absent from its mapping."""

    def __init__(self, name: str, data: pa.Buffer, entry: SegmentEntry, fetch: Fetch | None) -> None:
        self._name = name
        self._entry = entry
        self._data = data
        self._view = memoryview(data)
        self._fetch = fetch
        self._shift = entry.block.bit_length() - 1
        self.verified = np.zeros(len(entry.checksums), np.bool_)
        self.missing = len(entry.checksums)  # the number of blocks that are not verified
        if len(entry.checksums) != -(-entry.length // entry.block) or data.size != entry.length:
            raise damaged(
                name,
                entry,
                "does not match its footer",
                f"{data.size} bytes and {len(entry.checksums)} checksums, expected {entry.length} bytes",
            )

    @property
    def is_partial(self) -> bool:
        """May bytes be absent?"""
        return self._fetch is not None and self.missing > 0

    def trust(self) -> None:
        """Take all blocks as verified: those of the stack that contains the segment are."""
        self.verified[:] = True
        self.missing = 0

    def covers(self, start: Ints, stop: Ints) -> bool:
        """Are the blocks of the first and the last byte of these ranges verified?"""
        return bool((self.verified[start >> self._shift] & self.verified[(stop - 1) >> self._shift]).all())

    def covers_array(self, array: pa.Array) -> bool:
        """Are all blocks of an array verified?"""
        spans = [(b.address, b.address + b.size) for b in array.buffers() if b is not None]
        if not spans:
            return True
        first = (min(start for start, _ in spans) - self._data.address) >> self._shift
        last = (max(stop for _, stop in spans) - 1 - self._data.address) >> self._shift
        return bool(self.verified[first : last + 1].all())

    def touch(self, array: pa.Array, lo: Ints, hi: Ints) -> None:
        """Verify everything needed to read rows [lo, hi) of an array; hi > lo throughout."""
        kind = array.type
        t = pa.types
        if isinstance(array, pa.ExtensionArray):
            self.touch(array.storage, lo, hi)
            return
        if t.is_null(kind):
            return
        buffers = array.buffers()
        lo, hi = lo + array.offset, hi + array.offset
        if buffers[0] is not None and buffers[0].size:
            self.touch_bytes(buffers[0], lo >> 3, (hi + 7) >> 3)
        if t.is_boolean(kind):
            self.touch_bytes(buffers[1], lo >> 3, (hi + 7) >> 3)
        elif t.is_primitive(kind) or t.is_decimal(kind) or t.is_fixed_size_binary(kind):
            width = kind.bit_width // 8
            self.touch_bytes(buffers[1], lo * width, hi * width)
        elif t.is_struct(kind):
            for index in range(kind.num_fields):
                self.touch(array.field(index), lo - array.offset, hi - array.offset)
        elif t.is_fixed_size_list(kind):
            if kind.list_size:
                self.touch(array.values, lo * kind.list_size, hi * kind.list_size)
        elif t.is_string(kind) or t.is_binary(kind) or t.is_large_string(kind) or t.is_large_binary(kind):
            starts, stops = self._offsets(
                buffers[1], t.is_large_string(kind) or t.is_large_binary(kind), lo, hi
            )
            if len(starts):
                self.touch_bytes(buffers[2], starts, stops)
        elif t.is_list(kind) or t.is_large_list(kind) or t.is_map(kind):
            starts, stops = self._offsets(buffers[1], t.is_large_list(kind), lo, hi)
            if len(starts):
                for child in [array.keys, array.items] if t.is_map(kind) else [array.values]:
                    self.touch(child, starts, stops)
        else:  # views, unions, intervals: verified completely
            for buffer in buffers:
                if buffer is not None and buffer.size:
                    self.touch_bytes(buffer, np.array([0]), np.array([buffer.size]))

    def _offsets(self, buffer: pa.Buffer, wide: bool, lo: Ints, hi: Ints) -> tuple[Ints, Ints]:
        """Read verified offsets: where the elements of rows [lo, hi) start and stop, without empty ranges."""
        dtype = np.dtype(np.int64 if wide else np.int32)
        self.touch_bytes(buffer, lo * dtype.itemsize, (hi + 1) * dtype.itemsize)
        offsets = np.frombuffer(buffer, dtype)
        starts, stops = offsets[lo].astype(np.int64), offsets[hi].astype(np.int64)
        filled = stops > starts
        return (starts, stops) if filled.all() else (starts[filled], stops[filled])

    def touch_bytes(self, buffer: pa.Buffer, start: Ints, stop: Ints) -> None:
        """Verify the blocks under byte ranges [start, stop) of one buffer; stop > start throughout."""
        base = buffer.address - self._data.address
        if len(start) == 1:
            self.check_span(base + int(start[0]), base + int(stop[0]))
            return
        blocks = len(self.verified)
        first = (start + base) >> self._shift
        last = (stop + (base - 1)) >> self._shift
        depth = np.bincount(first, minlength=blocks) - np.bincount(last + 1, minlength=blocks + 1)[:blocks]
        self.check_blocks(np.flatnonzero((np.cumsum(depth) > 0) & ~self.verified))

    def check_span(self, start: int, stop: int) -> None:
        if self.missing and stop > start:
            first, last = start >> self._shift, (stop - 1) >> self._shift
            self.check_blocks(first + np.flatnonzero(~self.verified[first : last + 1]))

    def check_blocks(self, blocks: Ints) -> None:
        if self._fetch is not None and len(blocks):
            self._fetch(self._spans(blocks))
        for block in blocks.tolist():
            actual, written = self._checksum(block), int(self._entry.checksums[block])
            if actual != written and self._fetch is not None:  # what was here was not complete
                self._fetch(self._spans(np.array([block])), again=True)
                actual = self._checksum(block)
            if actual != written:
                raise damaged(
                    self._name,
                    self._entry,
                    "holds a damaged block",
                    f"block {block}: written {written:016x}, found {actual:016x}",
                )
            self.verified[block] = True
        if len(blocks):  # counted again: another thread may have checked the same block
            self.missing = int(np.count_nonzero(~self.verified))

    def _checksum(self, block: int) -> int:
        return xxhash.xxh3_64_intdigest(self._view[block << self._shift : (block + 1) << self._shift])

    def _spans(self, blocks: Ints) -> list[Span]:
        """Where these blocks, in ascending order, are in the file."""
        starts = np.flatnonzero(np.diff(blocks, prepend=-2) != 1)
        firsts, lasts = blocks[starts], blocks[np.append(starts[1:], len(blocks)) - 1]
        at, length = self._entry.offset, self._entry.length
        return [
            (at + (first << self._shift), at + min((last + 1) << self._shift, length))
            for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)
        ]

    def touch_metadata(self) -> None:
        """Verify what is around the column data."""
        start, stop = self._entry.body
        if self._fetch is None or stop - start < 2 * self._entry.block:
            self.check_span(0, start)
            self.check_span(stop, self._entry.length)
            return
        first, last = (start - 1) >> self._shift, stop >> self._shift
        blocks = np.concatenate([np.arange(first + 1), np.arange(last, len(self.verified))])
        self.check_blocks(blocks[~self.verified[blocks]])  # both ends at the same time


def damaged(name: str, entry: SegmentEntry, what: str, detail: str) -> DataError:
    return DataError(
        f"run segment {name} {what}",
        detail=f"table {entry.table!r}: {detail}",
        hint="the file is damaged; keep it, restore it from a copy or roll back to an epoch without it",
    )
