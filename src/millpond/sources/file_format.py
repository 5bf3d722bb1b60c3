"""What a followed folder needs to know about a format of files.

A file is measured in units of its format: row groups of Parquet, bytes of
text.  A piece of it is a range of units that begins and ends between two rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from millpond.errors import UnavailableError
from millpond.sources.folder import Folder, Found


class BadFileError(Exception):
    """The file is not what it should be; the text says why. Becomes an error row, never leaves the source."""


@contextlib.contextmanager
def fetching(file: Found) -> Iterator[None]:
    """What goes wrong in here has to do with where the file is, not with what it holds; gone is gone."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnavailableError(
            f"file {file.path!r} cannot be read", detail=f"{type(error).__name__}: {error}"
        ) from error


@dataclass(frozen=True)
class Facts:
    """What one look at a file tells, without reading its rows."""

    etag: str  # another content has another etag
    start: int  # the first unit with rows
    end: int
    rows: int | None  # None where only reading them would tell
    parts: Any = field(default=None, repr=False)  # the format's own


@dataclass(frozen=True)
class Piece:
    """Units [first, last) of a file."""

    first: int
    last: int
    rows: int  # exact or estimated
    bytes: int  # about what it takes in memory


class FileFormat(Protocol):
    def infer(self, folder: Folder, file: Found) -> pa.Schema:
        """The columns of a file; raises BadFileError."""

    def look(self, folder: Folder, file: Found, schema: pa.Schema) -> Facts:
        """Facts of a file that can be read as `schema`; raises BadFileError when it cannot."""

    def cut(self, folder: Folder, file: Found, facts: Facts, first: int, rows: int) -> Piece:
        """The piece that begins at `first`, of about so many rows and at least one unit."""

    def rows_from(self, facts: Facts, first: int) -> int:
        """About how many rows there are from a unit on."""

    def etag(self, folder: Folder, file: Found) -> str:
        """As in `Facts`, of the file as it is now."""

    def read(
        self,
        folder: Folder,
        file: Found,
        piece: Piece,
        schema: pa.Schema,
        columns: Sequence[str],
        texts: Collection[str] = (),
    ) -> Iterator[pa.Table]:
        """The rows of a piece, bad ones as tables made by `bad_rows`; of `texts` some may be dictionaries."""


ERROR = "_error"
ROW = "_row"


def bad_rows(rows: Sequence[str], reasons: Sequence[str]) -> pa.Table:
    """Rows that cannot be read, as `Source.read` hands them over: the text of each, and why."""
    return pa.table({ROW: pa.array(rows, pa.string()), ERROR: pa.array(reasons, pa.string())})
