"""What a manifest says about one segment of one run file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RunRef:
    """One sorted piece of one table, and the hash range it speaks for.

    Rows of the segment whose hash lies outside [h_min, h_max] do not exist for
    this ref: one file may serve several refs after a merge has replaced part
    of it.
    """

    table: str
    file: str  # name in the store; may carry a fork parent's prefix
    segment: int  # index in the file's footer
    bucket: int | None  # time bucket number, floor(time / width)
    lo: int  # content interval of epochs, inclusive
    hi: int
    rows: int
    bytes: int
    h_min: int  # inclusive
    h_max: int  # inclusive
    kind: Literal["delta", "merge"]

    def meets(self, h_min: int, h_max: int) -> bool:
        """Does this ref speak for any hash in [h_min, h_max]?"""
        return self.h_min <= h_max and h_min <= self.h_max
