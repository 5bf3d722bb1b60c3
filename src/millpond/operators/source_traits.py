"""Optional capabilities of the sources that scans read.

Every source implements `sources.source.Source`.  Each further capability that the
planner or the engine can use is a class in this file; callers check with `isinstance`.
The file is here, not next to `Source`, because the planner does not import `sources`.

Millpond's own sources inherit from these classes.  Third-party sources can do so too;
classes with methods are also recognised by their methods alone.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

Split = Any  # `sources.source.Split`, which this package does not import


class ReadsInbox:
    """A source whose rows come through the pond's inbox, which is polled once for all of them."""

    columns: pa.Schema
    append_only: bool
    fill: tuple[tuple[str, Any], ...]  # columns that an entry may lack, and their default values


class ConstantRows:
    """A source whose rows are known before any input arrives."""


class StoredWithSchema:
    """A source whose constructor finds a missing schema by reading files or servers.

    A stored one must contain its schema, because reading a catalog contacts nothing.
    """


class RetractsOwnRows:
    """A source that retracts only rows that it gave before: no table has to check its retractions."""


@runtime_checkable
class StagesRows(Protocol):
    """Rows that cannot be read again: they are written to files once, and the files are the source."""

    def staged(self, folder: str | os.PathLike[str], step: str) -> Any:
        """Write the rows below a folder of the pond; returns the source that reads them."""


@runtime_checkable
class RereadsColumns(Protocol):
    """A source that reads few columns cheaply: a split may be read twice, the second time in full."""

    @property
    def reads_again(self) -> bool: ...


@runtime_checkable
class ReadsEncoded(Protocol):
    """A source that stores some texts dictionary-encoded and can return them in that form."""

    def read_encoded(
        self, split: Split, columns: Sequence[str], texts: Collection[str]
    ) -> Iterator[pa.Table]:
        """Like `read`, but some of these texts may be dictionaries in some of the tables."""


@runtime_checkable
class KeepsHistory(Protocol):
    """A source that can return all admitted rows again, for steps that are added later."""

    def history(self, position: Any, seen: pa.Table | None, rows: int) -> Iterator[Split]:
        """Every split up to a position, in chunks of about `rows` rows: exactly what was admitted.

        Raises InvalidError if some of it is gone or has changed.
        """


@dataclass(frozen=True)
class PartitionLag:
    partition: str
    position: int  # the next one that is read
    end: int  # after the last one that can be read
    rows: int  # that are not read yet


@runtime_checkable
class ReportsLag(Protocol):
    """A source that can tell how far each partition is behind its end."""

    def lag(self, position: Any) -> list[PartitionLag]:
        """Each partition, as the server knows it now."""


@runtime_checkable
class RestoresSplits(Protocol):
    """A source whose splits carry data that `what` lacks, and which can rebuild a split for a replay."""

    def again(self, what: Mapping[str, Any]) -> Split:
        """The split that was admitted as `what`; raises InvalidError if it is gone."""


@runtime_checkable
class PollsForReader(Protocol):
    """A source that tells the system that it reads who its reader is, for example to keep what is unread."""

    def poll_for(self, reader: tuple[str, str], position: Any, seen: pa.Table | None, max_rows: int) -> Any:
        """Like `poll`; the reader is the id of the pond and the name of the step."""
