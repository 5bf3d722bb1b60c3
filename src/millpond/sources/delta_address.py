"""Addresses of Delta tables, of sources and sinks."""

from __future__ import annotations

import os
from pathlib import Path

from millpond.errors import InvalidError
from millpond.masking import masked


def delta_address(given: str | os.PathLike[str]) -> str:
    """The address of a table: an absolute folder, or an address without options and credentials in it.

    >>> delta_address("s3://bucket/table")
    's3://bucket/table'
    """
    path = os.fspath(given)
    if masked(path) != path:
        raise InvalidError(
            "the address of a Delta table must not contain credentials",
            detail=f"got {masked(path)}; addresses are stored in the catalog",
            hint='pass them as options, for example secret_access_key="${env:KEY}"',
        )
    if "://" not in path:
        path = str(Path(path).expanduser().absolute())
    odd = [character for character in "?#%" if character in path]
    if odd:
        raise InvalidError(
            f"the address of a Delta table cannot contain {odd[0]!r}",
            detail=f"got {path}",
            hint="deltalake would look elsewhere; pass options of the store as options",
        )
    return path
