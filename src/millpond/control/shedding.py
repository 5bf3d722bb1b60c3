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

from millpond.plan.sampled_keys import SampledBy, ShedWindow
from millpond.sources.sample import Fates, Sample

Z95 = 1.959963984540054
OWED_MAX = 1_000  # splits that are remembered for recovery
FATES_MAX = 1_000  # changes of the divisor of windows that are remembered

By = Literal["row", "key", "window", "score"]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shedding:
    """The settings of one source, and what was decided last."""

    target_lag_us: int | None  # None: switched off, but rows are still owed
    floor: float = 0.05  # the smallest share of rows that is kept
    by: By = "row"
    key: tuple[str, ...] = ()  # of the key; what a score reads; the time of windows
    recover: bool = True  # read shed rows again when there is no backlog
    score: str | None = None
    fates: Fates = ()  # of windows: since which start, which divisor
    divisor: int = 1  # of the newest epoch: one of so many rows, keys or windows is kept
    divisor_max: int = 1  # of all rows that are still shed
    owed: tuple[Mapping[str, Any], ...] = ()  # splits whose shed rows were not read again
    lost: int = 0  # splits that are no longer remembered

    @property
    def divisor_limit(self) -> int:
        return max(1, int(1 / self.floor + 1e-9))

    @property
    def chosen_by(self) -> SampledBy:
        return SampledBy(self.by, self.key)

    @property
    def divisor_min(self) -> int:
        """The least divisor while rows of shed keys are missing, where a key that was shed stays shed."""
        return self.divisor_max if self.owed or self.lost else 1

    def settings(self) -> dict[str, Any]:
        """What a user sets; the rest is decided epoch by epoch."""
        names = ("target_lag_us", "floor", "by", "key", "recover", "score")
        return {name: self.to_json()[name] for name in names}

    def to_json(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "key": list(self.key),
            "fates": [list(fate) for fate in self.fates],
            "owed": [dict(o) for o in self.owed],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Shedding:
        lists = {
            "key": tuple(data["key"]),
            "fates": tuple((int(since), int(divisor)) for since, divisor in data.get("fates", ())),
            "owed": tuple(data.get("owed", ())),
        }
        return Shedding(**{**data, **lists})

    def sample(self, window: ShedWindow | None) -> Sample | None:
        """The rows that the epoch keeps; None if it keeps all."""
        if window is not None:
            of = (window.size_us, window.offset_us)
            live = any(divisor > 1 for _, divisor in self.fates)
            return Sample(self.divisor, (window.column,), of, self.fates) if live else None
        if self.divisor == 1:
            return None
        if self.by == "score":
            return Sample(self.divisor, self.key, score=self.score, divisor_limit=self.divisor_limit)
        return Sample(self.divisor, self.key)

    def with_windows(self, divisor: int, window: ShedWindow, newest_us: int | None) -> Shedding:
        """Let windows that have not begun be shed with another divisor; `newest_us` is the newest time seen.

        >>> window = ShedWindow("at", 10, 0, ())
        >>> Shedding(1, by="window").with_windows(4, window, 25).fates
        ((30, 4),)
        >>> Shedding(1, by="window", fates=((30, 4),)).with_windows(2, window, 27).fates
        ((30, 2),)
        >>> Shedding(1, by="window", fates=((30, 4),)).with_windows(1, window, 33).fates
        ((30, 4), (40, 1))
        """
        size, offset = window.size_us, window.offset_us
        first = -(2**62) if newest_us is None else ((newest_us - offset) // size + 1) * size + offset
        begun = tuple(fate for fate in self.fates if fate[0] < first)
        if divisor != (begun[-1][1] if begun else 1):
            begun = (*begun, (first, divisor))
        return replace(self, fates=begun[-FATES_MAX:], divisor=divisor)

    def shed(self, owed: tuple[Mapping[str, Any], ...]) -> Shedding:
        """After an epoch that shed rows of these splits."""
        every = (*self.owed, *owed)
        remembered = every[-OWED_MAX:]
        worst = self.divisor_limit if self.by == "score" else self.divisor
        most = max(self.divisor_max, worst if owed else 1)
        return replace(self, owed=remembered, lost=self.lost + len(every) - len(remembered), divisor_max=most)

    def without(self, owed: tuple[Mapping[str, Any], ...]) -> Shedding:
        """Only these splits still owe rows; the rows of the others are lost."""
        return replace(self, owed=owed, lost=self.lost + len(self.owed) - len(owed))

    def recovered(self, count: int) -> Shedding:
        """After an epoch that read the shed rows of the first `count` splits again."""
        rest = self.owed[count:]
        return replace(self, owed=rest, divisor_max=1 if not rest and not self.lost else self.divisor_max)


def next_divisor(
    shedding: Shedding, rows_per_ms: float | None, backlog_rows: int, divisor_max: int | None = None
) -> int:
    """One of how many rows the next epoch keeps.

    It rises at once to what brings the backlog below half of the target, and falls by half steps when that is
    enough as well, so that it does not oscillate.  Below a quarter of the target nothing is shed.
    `divisor_max` is a limit besides the floor.

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
    limit = min(shedding.divisor_limit, shedding.divisor_limit if divisor_max is None else divisor_max)
    if rows_per_ms is None or rows_per_ms <= 0:
        return min(limit, shedding.divisor)
    half_target_rows = max(1.0, rows_per_ms * shedding.target_lag_us / 2_000)
    if 2 * backlog_rows <= half_target_rows:
        return 1
    needed = max(1, int(np.ceil(backlog_rows / half_target_rows)))
    if needed >= shedding.divisor:
        return min(limit, needed)
    return min(limit, max(needed, shedding.divisor // 2))


def divisor_of_error(error_bound: float, rows: int, groups: int) -> int:
    """The largest divisor with which counts of groups of average size have at most this relative error.

    With probability 95 % a count of N rows is off by at most 1.96 * sqrt((m - 1) * N).

    >>> divisor_of_error(0.01, rows=4_000_000, groups=10)
    11
    >>> divisor_of_error(0.01, rows=4_000, groups=10)
    1
    """
    return 1 + int(error_bound**2 * rows / max(1, groups) / Z95**2)


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


def bounds_of_totals(
    values: Floats, groups: npt.NDArray[np.int64], count: int, divisor: int
) -> tuple[Floats, Floats, Floats]:
    """Totals over all keys from those of the kept ones, by group, and their 95 % bounds.

    A key is kept with everything that belongs to it, so keys, and not rows, are the sample.
    """
    totals: Floats = np.bincount(groups, values, count).astype(np.float64) * divisor
    squares: Floats = np.bincount(groups, values**2, count).astype(np.float64)
    variance = squares * divisor * (divisor - 1)
    low, high = _around(totals, variance)
    return totals, low, high


def bounds_of_ratios(
    values: Floats, counts: Floats, groups: npt.NDArray[np.int64], count: int, divisor: int
) -> tuple[Floats, Floats, Floats]:
    """Averages over all keys, each the ratio of two totals, and their 95 % bounds."""
    with np.errstate(invalid="ignore", divide="ignore"):
        of = np.bincount(groups, counts, count)
        mean = np.bincount(groups, values, count) / of
        residual = np.bincount(groups, (values - mean[groups] * counts) ** 2, count)
        low, high = _around(mean, (1 - 1 / divisor) * residual / of**2)
    return mean, low, high


def _around(values: Floats, variance: Floats, least: float = -np.inf) -> tuple[Floats, Floats]:
    half = Z95 * np.sqrt(np.maximum(variance, 0.0))
    return np.maximum(values - half, least), values + half
