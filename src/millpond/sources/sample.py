"""Which rows of a split an epoch keeps when its source sheds load.

Law: whether a row is kept depends on the row, its place and this record alone, so every reader of the split
keeps the same rows (law 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Fates = tuple[tuple[int, int], ...]  # (since, divisor): windows that start at a time or later


@dataclass(frozen=True)
class Sample:
    """One of `divisor` rows is kept: by place, by key, by window, or by a score.

    Rows that are kept by their place or score stand for several, and count as many times.  Kept keys and
    windows are whole, and count once.
    """

    divisor: int
    columns: tuple[str, ...] = ()  # what decides: the key, the time of a window, or what the score reads
    window: tuple[int, int] | None = None  # size and offset in microseconds: whole windows are kept
    fates: Fates = ()  # of windows
    score: str | None = None  # SQL: a row with score s is kept with probability s / divisor
    divisor_limit: int = 1  # of rows with a low score

    @property
    def scales(self) -> bool:
        """Does a kept row stand for several?"""
        return self.score is not None or not self.columns

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"keeps": self.divisor, "by": list(self.columns)}
        if self.window is not None:
            found |= {"window": list(self.window), "fates": [list(fate) for fate in self.fates]}
        if self.score is not None:
            found |= {"score": self.score, "limit": self.divisor_limit}
        return found

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Sample:
        """
        >>> Sample.from_json({"keeps": 4, "by": ["user"]}) == Sample(4, ("user",))
        True
        """
        window = data.get("window")
        return Sample(
            int(data["keeps"]),
            tuple(data["by"]),
            None if window is None else (int(window[0]), int(window[1])),
            tuple((int(since), int(divisor)) for since, divisor in data.get("fates", ())),
            data.get("score"),
            int(data.get("limit", 1)),
        )
