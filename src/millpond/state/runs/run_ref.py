"""Describes one segment of one run file, as a manifest lists it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RunRef:
    """One sorted run of one table, and the range of hashes for which it is valid.

    Rows with a hash outside [h_min, h_max] are ignored: after a merge has replaced some hash ranges of a
    segment, several refs may name it.
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
        """Does the range of this ref overlap [h_min, h_max]?"""
        return self.h_min <= h_max and h_min <= self.h_max
