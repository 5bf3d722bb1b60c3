"""The protocol of file formats.

A file is measured in units of its format: row groups of Parquet, bytes of text.
A range of units begins and ends between two rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from millpond.errors import UnavailableError
from millpond.sources.folder import Folder, Found


class BadFileError(Exception):
    """The file has the wrong content; the text says why.  It becomes an error row."""


@contextlib.contextmanager
def fetching(file: Found) -> Iterator[None]:
    """Turn I/O errors into UnavailableError, except for a missing file: they do not depend on the content."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnavailableError(
            f"file {file.path!r} cannot be read", detail=f"{type(error).__name__}: {error}"
        ) from error


@dataclass(frozen=True)
class FileFacts:
    """What is known about a file without reading its rows."""

    etag: str  # changes with the content
    start: int  # the first unit with rows
    end: int
    rows: int | None  # None if only reading would tell
    parts: Any = field(default=None, repr=False)  # private to the format
    earliest: Mapping[str, int] = field(default_factory=dict)  # by column: no time in it is older, in us


@dataclass(frozen=True)
class FileRange:
    """Units [first, last) of a file."""

    first: int
    last: int
    rows: int  # exact or estimated
    bytes: int  # the approximate size in memory


class FileFormat(Protocol):
    def infer(self, folder: Folder, file: Found) -> pa.Schema:
        """The columns of a file; raises BadFileError."""

    def look(self, folder: Folder, file: Found, schema: pa.Schema) -> FileFacts:
        """Facts of a file that can be read as `schema`; raises BadFileError when it cannot."""

    def cut(self, folder: Folder, file: Found, facts: FileFacts, first: int, rows: int) -> FileRange:
        """The range that begins at `first`, with about so many rows and at least one unit."""

    def rows_from(self, facts: FileFacts, first: int) -> int:
        """The approximate number of rows from a unit to the end."""

    def etag(self, folder: Folder, file: Found) -> str:
        """The etag of the file as it is now."""

    def read(
        self,
        folder: Folder,
        file: Found,
        piece: FileRange,
        schema: pa.Schema,
        columns: Sequence[str],
        texts: Collection[str] = (),
    ) -> Iterator[pa.Table]:
        """The rows of a range, bad ones as tables of `bad_rows`; columns of `texts` may be dictionaries."""


ERROR = "_error"
ROW = "_row"


def bad_rows(rows: Sequence[str], reasons: Sequence[str]) -> pa.Table:
    """Rows that cannot be read, as `Source.read` returns them: their texts and the reasons."""
    return pa.table({ROW: pa.array(rows, pa.string()), ERROR: pa.array(reasons, pa.string())})
