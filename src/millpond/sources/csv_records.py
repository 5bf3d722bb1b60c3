"""Finds where the records of a CSV text end if quoted values may contain line ends.

Law: a record ends at the first line end outside of quotes.  A quote opens a value only as its first
character, and a doubled quote inside does not close it (RFC 4180).  A record whose quote is never closed is
its first line: what follows is read by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

_NEWLINE, _RETURN = b"\n"[0], b"\r"[0]
LINE_BYTES_MAX = 64 << 20  # a longer line is bad
_BLOCK_BYTES = 4 << 20
_TOO_LONG = f"the line is longer than {LINE_BYTES_MAX} bytes, the most that are read"
_SHOWN_BYTES = 1000  # of a line that is too long in its error row
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CsvMarks:
    """The characters that matter."""

    delimiter: str = ","
    quote: str = '"'


@dataclass(frozen=True)
class CsvRecord:
    at: int  # its first byte
    data: bytes  # without the line end
    problem: str | None = None


UNCLOSED = "a quoted value is not closed"


def _record_ends(data: bytes, marks: CsvMarks) -> list[tuple[int, str | None]]:
    r"""The places after complete records, and what is wrong with them.

    >>> [end for end, _ in _record_ends(b'a,"b\nc"\nd,5" x\n"e""\n"\n"f', CsvMarks())]
    [8, 15, 22]
    """
    if not marks.quote or marks.quote.encode() not in data:
        ends: Ints | None = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE) + 1
    else:
        ends = _ends_if_regular(data, marks)
    return _ends_one_by_one(data, marks) if ends is None else [(end, None) for end in ends.tolist()]


def _ends_if_regular(data: bytes, marks: CsvMarks) -> Ints | None:
    """The ends if quotes only surround values, or are doubled inside of them; None otherwise."""
    text = np.frombuffer(data, np.uint8)
    quote, delimiter = marks.quote.encode()[0], marks.delimiter.encode()[0]
    quotes = np.flatnonzero(text == quote)
    around = np.concatenate(([_NEWLINE], text, [_NEWLINE]))  # with a byte before and one after the text
    opens, closes = around[quotes[0::2]], around[quotes[1::2] + 2]  # bytes before and after quotes
    if not np.isin(opens, (delimiter, _NEWLINE, quote)).all():
        return None
    if not np.isin(closes, (delimiter, _NEWLINE, quote, _RETURN)).all():
        return None
    ends = np.flatnonzero(text == _NEWLINE)
    outside = np.searchsorted(quotes, ends) % 2 == 0
    found: Ints = ends[outside] + 1
    return found


def _ends_one_by_one(data: bytes, marks: CsvMarks) -> list[tuple[int, str | None]]:
    quote, delimiter = marks.quote.encode(), marks.delimiter.encode()
    found: list[tuple[int, str | None]] = []
    begin = at = 0  # of the record, and of the value
    while at < len(data):
        if data[at : at + 1] == quote:
            closed = _closed(data, quote, at + 1)
            if closed < 0:
                break
            behind = data[closed : closed + 1]
            if behind not in (b"", b"\n", b"\r", delimiter) and b"\n" in data[at:closed]:
                begin = at = data.index(b"\n", begin) + 1  # it was not meant to close the value
                found.append((at, UNCLOSED))
                continue
            at = closed
        line_end, next_value = data.find(b"\n", at), data.find(delimiter, at)
        if line_end < 0 and next_value < 0:
            break
        if next_value < 0 or 0 <= line_end < next_value:
            begin = at = line_end + 1
            found.append((at, None))
        else:
            at = next_value + 1
    return found


def _closed(data: bytes, quote: bytes, at: int) -> int:
    """The place after the quote that closes a value; -1 if none does."""
    while True:
        at = data.find(quote, at)
        if at < 0:
            return -1
        if data[at + 1 : at + 2] != quote:
            return at + 1
        at += 2


class Bytes(Protocol):
    def read(self, size: int) -> bytes: ...


def records(text: Bytes, start: int, marks: CsvMarks) -> Iterator[list[CsvRecord]]:
    """All records from `start` (the current position) to the end of a file, in blocks; none is blank."""
    waiting, offset, skips = b"", start, False
    while block := text.read(_BLOCK_BYTES):
        waiting += block
        if skips:  # the rest of a line that is too long
            line, end, waiting = waiting.partition(b"\n")
            offset += len(line) + len(end)
            skips = not end
        found, used = _records(waiting, offset, marks)
        waiting, offset = waiting[used:], offset + used
        if len(waiting) > LINE_BYTES_MAX:
            line, end, waiting = waiting.partition(b"\n")
            why = f"{UNCLOSED} within {LINE_BYTES_MAX} bytes" if end else _TOO_LONG
            found.append(CsvRecord(offset, line[:_SHOWN_BYTES], why))
            offset += len(line) + len(end)
            skips = not end
        yield found
    yield [] if skips else _last_records(waiting, offset, marks)


def records_of(data: bytes, marks: CsvMarks) -> list[CsvRecord]:
    r"""All records of a text; none is blank.

    >>> [(r.at, r.data, r.problem) for r in records_of(b'a\n\n"b\nc"\n"d\ne', CsvMarks())]
    [(0, b'a', None), (3, b'"b\nc"', None), (9, b'"d', 'a quoted value is not closed'), (12, b'e', None)]
    """
    found, used = _records(data, 0, marks)
    return [*found, *_last_records(data[used:], used, marks)]


def _records(data: bytes, offset: int, marks: CsvMarks) -> tuple[list[CsvRecord], int]:
    """The complete records of a text, and how many bytes they are."""
    found, at = [], 0
    for end, problem in _record_ends(data, marks):
        line = data[at : end - 1].removesuffix(b"\r")
        if line:
            found.append(CsvRecord(offset + at, line, problem))
        at = end
    return found, at


def _last_records(data: bytes, offset: int, marks: CsvMarks) -> list[CsvRecord]:
    """The records of the end of a text, where the last line end may be missing."""
    found: list[CsvRecord] = []
    while data:
        more, used = _records(data if data.endswith(b"\n") else data + b"\n", offset, marks)
        found += more
        data, offset = data[used:], offset + used
        if data:
            line, _, data = data.partition(b"\n")
            found.append(CsvRecord(offset, line.removesuffix(b"\r"), UNCLOSED))
            offset += len(line) + 1
    return found
