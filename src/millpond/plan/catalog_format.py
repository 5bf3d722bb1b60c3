"""The versions of the catalog's format, and how an older one becomes the newest.

A catalog says which format it has and which Millpond wrote it; format 1 said nothing.
Each upgrade makes of a value of one format the value of the next, as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millpond.errors import DataError
from millpond.plan import catalog_v1
from millpond.version import __version__

FORMAT = 2

Encode = Callable[[Any], Any]  # plain data as JSON
UPGRADES: Mapping[int, Callable[[Any, Encode], Any]] = {1: catalog_v1.upgraded}


def wrapped(value: Any) -> dict[str, Any]:
    """What a file holds."""
    return {"format": FORMAT, "written_by": __version__, "value": value}


def unwrapped(whole: Any, encode: Encode) -> tuple[str | None, Any]:
    """Who wrote a file, and its value in the newest format."""
    version, written_by, value = 1, None, whole
    if isinstance(whole, dict) and "format" in whole:
        version, written_by = whole["format"], whole.get("written_by")
        if not isinstance(version, int) or version < 2:
            raise ValueError(f"format {version!r}")
        if version > FORMAT:
            raise too_new(f"it has format {version}, and this version reads up to {FORMAT}", written_by)
        value = whole["value"]
    for step in range(version, FORMAT):
        value = UPGRADES[step](value, encode)
    return written_by, value


def too_new(detail: str, written_by: str | None) -> DataError:
    needed = f"Millpond {written_by}" if written_by else "the version that wrote it"
    newer = f"use {needed} or newer" if written_by not in (None, __version__) else f"use {needed}"
    return DataError(
        f"the catalog needs another version of Millpond, this is {__version__}", detail=detail, hint=newer
    )
