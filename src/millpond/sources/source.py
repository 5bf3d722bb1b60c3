"""The protocol of sources.

Law: a source supports *replay*: the same split read again gives the same rows in the same order.
The driver polls a source for splits after a position, and tasks read the splits.
A position is a small JSON value in the manifest.
Data that grows with the number of inputs (such as the names of files already read) is in a state table of the
source, which the coordinator writes with the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from millpond.sources.sample import Sample
from millpond.state.tables.table_spec import TableSpec

BOUND = "_bound"  # a column of `Source.read` that has a time instead of rows
Raw = bytes  # `Split.bytes` hides the builtin inside the class


@dataclass(frozen=True)
class Split:
    """A range of input that one task reads completely."""

    what: Mapping[str, Any]  # JSON: enough for `read`
    rows: int
    bytes: int
    partition: str = ""  # rows of one partition are in order; each has its own watermark
    data: Raw | None = field(default=None, repr=False)  # small inputs are sent with the split
    with_next: bool = False  # admitted together with the next split, or not at all
    blob: str | None = None  # or: a name in the pond's store whose bytes become `data` in the task
    ends: bool = False  # the partition has no rows after this split, and never will
    more: bool = False  # the source knows partitions after this split that hold watermarks back
    sample: Sample | None = None  # the rows that the epoch keeps, if it sheds others
    recovers: bool = False  # the split was read before: read only what it shed then
    more_from: Mapping[str, int] | None = None  # by column: no row of these partitions is older, in us


@dataclass(frozen=True)
class Poll:
    """The splits of a source after a position, in the order in which they must be admitted."""

    splits: tuple[Split, ...] = ()
    rejects: tuple[tuple[str, str], ...] = ()  # (what, reason): bad input that becomes error rows
    backlog_rows: int | None = None  # rows after these splits, if the source knows
    finished: bool = False  # nothing will ever come after these splits
    independent: bool = False  # splits of one partition may be left out, and those of others admitted


@dataclass(frozen=True)
class Advance:
    """The position after some splits were admitted, and rows for the source's own table."""

    position: Any
    seen: pa.Table | None = None


class Source(Protocol):
    """What every source has; `operators.source_traits` has what some of them can do besides."""

    append_only: bool

    @property
    def schema(self) -> pa.Schema: ...

    def table(self, step: str) -> TableSpec | None:
        """The source's own state table, if it needs one."""

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        """Splits after `position`, at least one if there is any, with about `max_rows` rows in all."""

    def advance(
        self, position: Any, admitted: Sequence[Split], rejects: Sequence[tuple[str, str]]
    ) -> Advance: ...

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The rows of a split; tables may carry `_w` when the source is not append-only.

        A table with a column `_error` has input that could not be read: `_row` is its text, `_error` the
        reason.  It becomes error rows, and reading continues.  A table with a column `_bound` has a time in
        microseconds: no row before it will come, and watermarks rise to it.
        """
