"""The versions of the catalog's format, and the upgrades between them.

A catalog names its format and the version of Millpond that wrote it; format 1 named neither.
Each upgrade turns a value of one format into a value of the next, as JSON.
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
    """The content of a catalog file."""
    return {"format": FORMAT, "written_by": __version__, "value": value}


def unwrapped(content: Any, encode: Encode) -> tuple[str | None, Any]:
    """The version that wrote a file, and the file's value in the newest format."""
    version, written_by, value = 1, None, content
    if isinstance(content, dict) and "format" in content:
        version, written_by = content["format"], content.get("written_by")
        if not isinstance(version, int) or version < 2:
            raise ValueError(f"format {version!r}")
        if version > FORMAT:
            raise too_new(f"it has format {version}, and this version reads up to {FORMAT}", written_by)
        value = content["value"]
    for step in range(version, FORMAT):
        value = UPGRADES[step](value, encode)
    return written_by, value


def too_new(detail: str, written_by: str | None) -> DataError:
    needed = f"Millpond {written_by}" if written_by else "the version that wrote it"
    newer = f"use {needed} or newer" if written_by not in (None, __version__) else f"use {needed}"
    return DataError(
        f"the catalog needs another version of Millpond, this is {__version__}", detail=detail, hint=newer
    )
