"""Decodes many `pgoutput` changes at once, column by column (see `pgoutput`).

Law: the rows are those that `pgoutput.change` gives, message by message.  Messages that this cannot decode
(TRUNCATE, and rows with unchanged large values) are named, and the caller decodes them one by one.

A row is a list of cells: the byte `n` (NULL), or `t`, four bytes of size and a text.  Where a cell begins
depends on those before it, so the cells of one column are found for all rows together.  No text is copied
until all are known: the array of texts is made of the bytes of the messages themselves, and the bytes between
two texts are elements that are not taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.operators.decode_changes import CHANGE_LOG, DELETE_OP, PUT_OP
from millpond.sources.pgoutput import DELETE, TRUNCATE

Positions = npt.NDArray[np.int64]
_TEXT, _KEPT = b"tu"
_NEW, _OLD, _KEY = b"NOK"
_HEAD = 5  # the kind and the OID of the table
BYTES_MAX = 2**31 - 1  # of messages together: offsets of Arrow's texts have 32 bits


@dataclass(frozen=True)
class LoggedTable:
    """A table of the source, as the messages of one relation have it."""

    name: str
    places: Sequence[int]  # of its columns in the messages
    key: Sequence[int]  # of its columns


class LoggedMessages:
    """The bytes of messages, and where each begins."""

    def __init__(self, data: bytes, sizes: npt.NDArray[np.uint32]) -> None:
        self.data = data
        self.bytes = np.frombuffer(data, np.uint8)
        ends = np.cumsum(sizes, dtype=np.int64)
        self.starts: Positions = ends - sizes
        self.ends: Positions = ends
        # A number may begin at any byte; these views overlap.
        self._two: Any = np.ndarray((max(0, len(data) - 1),), ">u2", data, strides=(1,))
        self._four: Any = np.ndarray((max(0, len(data) - 3),), ">u4", data, strides=(1,))

    def short(self, at: Positions) -> Positions:
        found: Positions = self._two[at].astype(np.int64)
        return found

    def number(self, at: Positions) -> Positions:
        found: Positions = self._four[np.minimum(at, len(self._four) - 1)].astype(np.int64)
        return found


@dataclass(frozen=True)
class _Cells:
    """The cells of some rows of equal width."""

    begins: Positions  # [row, column]: of the text
    sizes: Positions
    is_null: npt.NDArray[np.bool_]
    is_kept: npt.NDArray[np.bool_]  # [row]: it has a value that was not sent
    after: Positions  # [row]: the byte after it


def _cells(messages: LoggedMessages, at: Positions, width: int) -> _Cells:
    """The cells of rows that begin at these bytes, with the number of their columns."""
    at = at + 2
    begins, sizes = np.zeros((len(at), width), np.int64), np.zeros((len(at), width), np.int64)
    is_null, is_kept = np.ones((len(at), width), np.bool_), np.zeros(len(at), np.bool_)
    for column in range(width):
        kind = messages.bytes[at]
        is_text = kind == _TEXT
        size = np.where(is_text, messages.number(at + 1), 0)
        begins[:, column] = at + np.where(is_text, 5, 1)
        sizes[:, column] = size
        is_null[:, column] = ~is_text
        is_kept |= kind == _KEPT
        at = begins[:, column] + size
    return _Cells(begins, sizes, is_null, is_kept, at)


def decoded(
    messages: LoggedMessages, sequences: Positions, tables: Mapping[int, LoggedTable]
) -> tuple[list[pa.Table], Positions]:
    """The rows of the log, and the numbers of the messages that must be decoded one by one.

    `sequences` has a number for each message: a deleted row has it, and a row that is put has the next one.
    """
    kinds = messages.bytes[messages.starts]
    left = np.flatnonzero(kinds == TRUNCATE)
    rows = []
    for table, numbers, width in _groups(messages, np.flatnonzero(kinds != TRUNCATE), tables):
        at = messages.starts[numbers] + _HEAD
        has_old = np.isin(messages.bytes[at], (_OLD, _KEY))
        has_new = kinds[numbers] != DELETE
        old = _cells(messages, at[has_old] + 1, width)
        begin_new = at.copy()
        begin_new[has_old] = old.after
        new = _cells(messages, begin_new[has_new] + 1, width)
        kept = np.zeros(len(numbers), np.bool_)
        kept[has_old] |= old.is_kept
        kept[has_new] |= new.is_kept
        left = np.concatenate([left, numbers[kept]])
        group = _ChangesOfTable(messages, table, sequences[numbers], has_old, has_new, old, new)
        rows.append(group.rows(~kept))
    return [table for table in rows if table.num_rows], np.sort(left)


def _groups(
    messages: LoggedMessages, numbers: Positions, tables: Mapping[int, LoggedTable]
) -> Iterator[tuple[LoggedTable, Positions, int]]:
    """LoggedMessages of one table and one width: a table may gain columns."""
    starts = messages.starts[numbers]
    oids, widths = messages.number(starts + 1), messages.short(starts + _HEAD + 1)
    for oid in np.unique(oids):
        mine = oids == oid
        for width in np.unique(widths[mine]):
            yield tables[int(oid)], numbers[mine & (widths == width)], int(width)


@dataclass(frozen=True)
class _ChangesOfTable:
    messages: LoggedMessages
    table: LoggedTable
    sequences: Positions
    has_old: npt.NDArray[np.bool_]
    has_new: npt.NDArray[np.bool_]
    old: _Cells
    new: _Cells

    def rows(self, wanted: npt.NDArray[np.bool_]) -> pa.Table:
        """The rows of the log of the wanted messages, in the order of their numbers."""
        deletes = wanted & self.has_old & (~self.has_new | self._moved())
        puts = wanted & self.has_new
        # The place of a message's rows among the old and the new ones.
        of_old, of_new = np.cumsum(self.has_old) - 1, np.cumsum(self.has_new) - 1
        numbers = np.concatenate([self.sequences[deletes], self.sequences[puts] + 1])
        order = np.argsort(numbers, kind="stable")
        texts = self._texts(of_old[deletes], of_new[puts], order)
        count, width = len(numbers), len(self.table.places)
        is_put = pa.array(np.repeat(np.array([0, 1]), [int(deletes.sum()), int(puts.sum())])[order])
        columns = [
            pa.repeat(pa.scalar(self.table.name, pa.string()), count),
            pa.array([DELETE_OP, PUT_OP], pa.string()).take(is_put),
            pa.array(numbers[order]),
            pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * width), texts),
            pa.nulls(count, pa.list_(pa.int32())),
        ]
        return pa.table(columns, schema=CHANGE_LOG)

    def _moved(self) -> npt.NDArray[np.bool_]:
        """By message: is it an update that changes the key of its row?"""
        both = self.has_old & self.has_new
        found = np.zeros(len(both), np.bool_)
        if not both.any():
            return found
        was = (np.cumsum(self.has_old) - 1)[both]
        now = (np.cumsum(self.has_new) - 1)[both]
        for column in self.table.key:
            place = np.array([self.table.places[column]])
            before = _texts(self.messages, [(self.old, was)], place)
            after = _texts(self.messages, [(self.new, now)], place)
            same = pc.or_kleene(pc.equal(before, after), pc.and_(pc.is_null(before), pc.is_null(after)))
            found[both] |= ~np.asarray(pc.fill_null(same, False))
        return found

    def _texts(self, old: Positions, new: Positions, order: Positions) -> pa.Array:
        """The texts of some rows, in this order, row by row."""
        pairs = [(self.old, old), (self.new, new)]
        return _texts(self.messages, pairs, np.asarray(self.table.places), order)


def _texts(
    messages: LoggedMessages,
    pairs: Sequence[tuple[_Cells, Positions]],
    places: npt.NDArray[np.int_],
    order: Positions | None = None,
) -> pa.Array:
    """Some columns of some rows, row by row."""
    begins, sizes, is_null = (
        np.concatenate([getattr(cells, name)[rows] for cells, rows in pairs])
        for name in ("begins", "sizes", "is_null")
    )
    cells = len(begins) * begins.shape[1]
    # Elements must not go back: the cells in the order of their bytes.
    by_place = np.argsort(begins[:, 0], kind="stable") if len(pairs) > 1 and cells else np.arange(len(begins))
    offsets = np.zeros(2 * cells + 1, np.int32)
    offsets[0 : 2 * cells : 2] = begins[by_place].ravel()
    offsets[1 : 2 * cells : 2] = (begins + sizes)[by_place].ravel()
    offsets[2 * cells] = offsets[2 * cells - 1] if cells else 0
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(messages.data)]
    elements = pa.Array.from_buffers(pa.binary(), 2 * cells, buffers)
    rank = np.empty(len(begins), np.int64)
    rank[by_place] = np.arange(len(begins))
    wanted = np.arange(len(begins)) if order is None else order
    taken = 2 * (rank[wanted][:, None] * begins.shape[1] + places[None, :])
    missing = is_null[wanted][:, places]
    indices = pa.array(taken.ravel(), mask=missing.ravel())
    return elements.take(indices).cast(pa.string())
