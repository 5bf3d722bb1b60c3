"""Load shedding: decides which share of a source's rows the next epoch keeps.

A source that sheds keeps one of every `divisor` rows.  The divisor is a whole number, so that a kept row can
stand for exactly that many: counts and sums over rows of that weight are Horvitz-Thompson estimates.

Law: the decision is a function of the settings, the measured pace and the backlog, and it is recorded in the
manifest of the epoch that it was made for.  Without a backlog nothing is shed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Z95 = 1.959963984540054
OWED_MAX = 1_000  # splits that are remembered for recovery

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shedding:
    """The settings of one source, and what was decided last."""

    target_lag_us: int | None  # None: switched off, but rows are still owed
    floor: float = 0.05  # the smallest share of rows that is kept
    by: Literal["row", "key"] = "row"
    key: tuple[str, ...] = ()
    recover: bool = True  # read shed rows again when there is no backlog
    divisor: int = 1  # of the newest epoch: one of so many rows, or keys, is kept
    divisor_max: int = 1  # of all rows that are still shed
    owed: tuple[Mapping[str, Any], ...] = ()  # splits whose shed rows were not read again
    lost: int = 0  # splits that are no longer remembered

    @property
    def divisor_limit(self) -> int:
        return max(1, int(1 / self.floor + 1e-9))

    def settings(self) -> dict[str, Any]:
        """What a user sets; the rest is decided epoch by epoch."""
        return {name: self.to_json()[name] for name in ("target_lag_us", "floor", "by", "key", "recover")}

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "key": list(self.key), "owed": [dict(o) for o in self.owed]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Shedding:
        return Shedding(**{**data, "key": tuple(data["key"]), "owed": tuple(data.get("owed", ()))})

    def shed(self, owed: tuple[Mapping[str, Any], ...]) -> Shedding:
        """After an epoch that shed rows of these splits."""
        every = (*self.owed, *owed)
        kept = every[-OWED_MAX:]
        most = max(self.divisor_max, self.divisor if owed else 1)
        return replace(self, owed=kept, lost=self.lost + len(every) - len(kept), divisor_max=most)

    def without(self, kept: tuple[Mapping[str, Any], ...]) -> Shedding:
        """Only these splits still owe rows; the rows of the others are lost."""
        return replace(self, owed=kept, lost=self.lost + len(self.owed) - len(kept))

    def recovered(self, count: int) -> Shedding:
        """After an epoch that read the shed rows of the first `count` splits again."""
        rest = self.owed[count:]
        return replace(self, owed=rest, divisor_max=1 if not rest and not self.lost else self.divisor_max)


def next_divisor(shedding: Shedding, rows_per_ms: float | None, backlog_rows: int) -> int:
    """One of how many rows the next epoch keeps.

    It rises at once to what brings the backlog below half of the target, and falls by half steps when that is
    enough as well, so that it does not oscillate.  Below a quarter of the target nothing is shed.

    >>> two_seconds = Shedding(2_000_000)
    >>> next_divisor(two_seconds, 10.0, 9_000)
    1
    >>> next_divisor(two_seconds, 10.0, 35_000)
    4
    >>> next_divisor(two_seconds, 10.0, 10**9)
    20
    >>> next_divisor(Shedding(2_000_000, divisor=4), 10.0, 9_000)
    2
    >>> next_divisor(Shedding(2_000_000, divisor=4), 10.0, 100)
    1
    """
    if shedding.target_lag_us is None:
        return 1
    if rows_per_ms is None or rows_per_ms <= 0:
        return shedding.divisor
    half_target_rows = max(1.0, rows_per_ms * shedding.target_lag_us / 2_000)
    if 2 * backlog_rows <= half_target_rows:
        return 1
    needed = max(1, int(np.ceil(backlog_rows / half_target_rows)))
    if needed >= shedding.divisor:
        return min(shedding.divisor_limit, needed)
    return max(needed, shedding.divisor // 2)


def bounds_of_count(estimates: Floats, divisor: int) -> tuple[Floats, Floats]:
    """95 % bounds of counts from rows that stand for up to `divisor` rows each."""
    return _around(estimates, (divisor - 1) * estimates, 0.0)


def bounds_of_sum(estimates: Floats, squares: Floats, divisor: int) -> tuple[Floats, Floats]:
    """95 % bounds of sums; `squares` are the estimated sums of squares."""
    return _around(estimates, (divisor - 1) * squares)


def bounds_of_average(
    sums: Floats, squares: Floats, counts: Floats, divisor: int
) -> tuple[Floats, Floats, Floats]:
    """Averages as ratios of two estimates, and their 95 % bounds."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sums / counts
        residual = squares - 2 * mean * sums + mean**2 * counts
        low, high = _around(mean, (divisor - 1) * np.maximum(residual, 0.0) / counts**2)
    return mean, low, high


def _around(values: Floats, variance: Floats, least: float = -np.inf) -> tuple[Floats, Floats]:
    half = Z95 * np.sqrt(np.maximum(variance, 0.0))
    return np.maximum(values - half, least), values + half
