"""Positions in the history of a lake table: how many files of which version were admitted.

A source starts with the files of one version and continues with the changes of each later one.
A version is a
number of a Delta table or a snapshot of an Iceberg table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millpond.errors import DataError
from millpond.sources.source import Advance, Split


@dataclass(frozen=True)
class LakePosition:
    start: int  # the version that was read completely
    version: int
    files: int  # of this version that were admitted
    done: bool  # are these all?
    etag: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "from": self.start,
            "version": self.version,
            "files": self.files,
            "done": self.done,
            "etag": self.etag,
        }


def position_of(value: Any, table: str) -> LakePosition | None:
    """
    >>> position_of({"from": 3, "version": 5, "files": 0, "done": True, "etag": "x"}, "t")
    LakePosition(start=3, version=5, files=0, done=True, etag='x')
    """
    if value is None:
        return None
    if not isinstance(value, dict) or {*value} != {"from", "version", "files", "done", "etag"}:
        raise DataError(
            f"the position is not one of the table {table!r}",
            detail=f"got {json.dumps(value, default=str)}",
            hint="the step read another kind of source before; give this one another name",
        )
    return LakePosition(value["from"], value["version"], value["files"], value["done"], value["etag"])


def advanced(position: Any, admitted: Sequence[Split]) -> Advance:
    """The position behind the last split that was admitted: each split names it."""
    return Advance(admitted[-1].what["to"] if admitted else position)
