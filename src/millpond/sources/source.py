"""What a source is.

A source promises *replay*: the same split read again gives the same rows in
the same order.  The driver polls it for splits beyond a position; tasks read
splits.  A position is a small JSON value kept in the manifest; what grows
with the number of inputs (say, the names of files already read) is kept in a
state table of the source's own, written by the coordinator with the commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from millpond.state.table_spec import TableSpec

BOUND = "_bound"  # a column of `Source.read` that tells a time instead of rows
Raw = bytes  # `Split.bytes` hides the builtin inside the class


@dataclass(frozen=True)
class Split:
    """A piece of input that one task reads whole."""

    what: Mapping[str, Any]  # JSON: enough for `read`
    rows: int
    bytes: int
    partition: str = ""  # rows of one partition are in order
    data: Raw | None = field(default=None, repr=False)  # small inputs travel with the split
    with_next: bool = False  # admitted together with the one that follows it, or not at all
    blob: str | None = None  # or: a name in the pond's store whose bytes become `data` in the task


@dataclass(frozen=True)
class Poll:
    """What a source has to give beyond a position, in the order in which it must be admitted."""

    splits: tuple[Split, ...] = ()
    rejects: tuple[tuple[str, str], ...] = ()  # (what, reason): bad input to be counted as error rows
    backlog_rows: int | None = None  # known to exist beyond these splits, if it can tell


@dataclass(frozen=True)
class Advance:
    """A position after some splits were admitted, and rows for the source's own table."""

    position: Any
    seen: pa.Table | None = None


class Source(Protocol):
    """See the module's text."""

    append_only: bool

    @property
    def schema(self) -> pa.Schema: ...

    def table(self, step: str) -> TableSpec | None:
        """The source's own state table, if it needs one."""

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        """Splits beyond `position`, at least one if there is any, about `max_rows` in all."""

    def advance(
        self, position: Any, admitted: Sequence[Split], rejects: Sequence[tuple[str, str]]
    ) -> Advance: ...

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The rows of a split; tables may carry `_w` when the source is not append-only.

        A table with a column `_error` holds no rows but input that could not be read: `_row` is its text,
        `_error` the reason.  It becomes error rows, and the split goes on.  One with a column `_bound` holds
        no rows either: none before that time (in microseconds) will come any more, and watermarks rise to it.
        """


class ReadsAgain(Protocol):
    """A source that reads few columns for little: a split may be asked for twice, then for all of them."""

    reads_again: bool


class ReadsEncoded(Protocol):
    """A source that has some texts in dictionaries, and need not take them out."""

    def read_encoded(
        self, split: Split, columns: Sequence[str], texts: Collection[str]
    ) -> Iterator[pa.Table]:
        """As `read`; of these texts some may be dictionaries, in some tables."""


class History(Protocol):
    """A source that can give all that was admitted once more, for steps that came later."""

    def history(self, position: Any, seen: pa.Table | None, rows: int) -> Iterator[Split]:
        """Every split up to a position, in pieces of about so many rows: what was admitted, and no more.

        InvalidError when something of it is no longer there, or not as it was.
        """


class Again(Protocol):
    """A source whose splits carry data that `what` does not say: it can make one anew, for a replay."""

    def again(self, what: Mapping[str, Any]) -> Split:
        """The split that was admitted as `what`; InvalidError when it is no longer there."""
