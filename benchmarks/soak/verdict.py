"""Is a figure flat over the hours? The verdict of a soak, and a small chart of what it saw.

Law: a line is fitted to the last two thirds of a series (Theil and Sen's: the median of all slopes between
two points, so that a few outliers do not tilt it) and told as growth over the length of that stretch, as a
share of the median of the first third. Up to a limit it is flat; what falls is flat.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Verdict:
    name: str
    unit: str
    first: float  # the median of the first third
    last: float  # the median of the last third
    growth: float  # of the fitted line over the last two thirds, as a share of `first`
    limit: float

    @property
    def flat(self) -> bool:
        return self.growth <= self.limit


def slope(values: Sequence[float]) -> float:
    """The median slope between two points, a step.

    >>> slope([1.0, 2.0, 3.0, 100.0])
    1.0
    """
    count = len(values)
    if count < 2:
        return 0.0
    return statistics.median(
        (values[j] - values[i]) / (j - i) for i in range(count) for j in range(i + 1, count)
    )


def judge(name: str, unit: str, values: Sequence[float], limit: float) -> Verdict:
    """
    >>> judge("disk", "MiB", [10.0] * 12, 0.1).flat
    True
    >>> round(judge("disk", "MiB", [float(n) for n in range(100, 112)], 0.05).growth, 3)
    0.069
    """
    if len(values) < 3:
        raise ValueError(f"{name} was sampled {len(values)} times: too few to tell anything")
    third = max(1, len(values) // 3)
    first, rest = statistics.median(values[:third]), values[third:]
    grown = slope(rest) * (len(rest) - 1)
    share = grown / first if first else (0.0 if grown <= 0 else float("inf"))
    return Verdict(name, unit, first, statistics.median(values[-third:]), share, limit)


def chart(values: Sequence[float], width: int = 60) -> str:
    """A bar for each stretch of the series, from nothing to its highest.

    >>> chart([0, 1, 2, 4], 4)
    '▁▂▄█'
    """
    if not values:
        return ""
    width = min(width, len(values))
    edges = [len(values) * n // width for n in range(width + 1)]
    means = [statistics.fmean(values[lo:hi]) for lo, hi in itertools.pairwise(edges)]
    top = max(means)
    if top <= 0:
        return BARS[0] * width
    return "".join(BARS[max(0, min(7, round(8 * mean / top) - 1))] for mean in means)
