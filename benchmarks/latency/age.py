"""Ages: how old the newest event of a committed view is, at every moment, and how late results are.

Law: a *sight* says that from its moment on a reader finds everything up to an event in the view. Between two
sights the newest event stays the same and its age grows with the clock, so the ages over a stretch of time
are straight pieces and their quantiles are exact: the share of the time at which the view was no older.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sight:
    at: float  # seconds after the feed began
    newest: float  # when the newest event in the view was due, on the same clock


@dataclass(frozen=True)
class Piece:
    """Ages from `least` to `least + length`, each for the same time."""

    least: float
    length: float


def pieces(sights: Iterable[Sight], start: float, end: float) -> list[Piece]:
    """The ages between two moments.

    >>> pieces([Sight(1.0, 0.5), Sight(2.0, 1.8), Sight(1.5, 1.0)], 1.2, 3.0)
    [Piece(least=0.7, length=0.3), Piece(least=0.5, length=0.5), Piece(least=0.2, length=1.0)]
    """
    if end <= start:
        raise ValueError(f"a stretch from {start} to {end} has no ages")
    found: list[Piece] = []
    at, newest = start, -math.inf
    for sight in sorted(sights, key=lambda one: one.at):
        if sight.at > start and newest > -math.inf and min(sight.at, end) > at:
            found.append(Piece(_round(at - newest), _round(min(sight.at, end) - at)))
        if sight.at >= end:
            break
        newest = max(newest, sight.newest)
        at = max(start, sight.at)
    else:
        if newest > -math.inf and end > at:
            found.append(Piece(_round(at - newest), _round(end - at)))
    return found


def _round(seconds: float) -> float:
    return round(seconds, 6)


def quantile(found: Sequence[Piece], share: float) -> float:
    """The age that the view did not exceed for this share of the time.

    >>> quantile([Piece(0.0, 1.0)], 0.5)
    0.5
    >>> quantile([Piece(0.0, 1.0), Piece(0.5, 1.0)], 0.5)
    0.75
    >>> quantile([Piece(0.0, 1.0), Piece(10.0, 0.01)], 1.0)
    10.01
    """
    if not found:
        raise ValueError("nothing was committed in the stretch that was measured")
    wanted = share * sum(one.length for one in found)
    turns = sorted(
        turn for one in found for turn in ((one.least, 1), (one.least + one.length, -1))
    )  # where one more piece has ages, or one fewer
    at, below, open_ = turns[0][0], 0.0, 0
    for edge, change in turns:
        here = below + open_ * (edge - at)
        if open_ and here >= wanted - 1e-12:
            return _round(at + (wanted - below) / open_)
        at, below, open_ = edge, here, open_ + change
    return _round(at)


def ranked(values: Sequence[float], share: float) -> float | None:
    """The value of this rank, none between two: with few values the highest stands for the 99th of a hundred.

    >>> ranked([3.0, 1.0, 2.0], 0.5), ranked([3.0, 1.0, 2.0], 0.99), ranked([], 0.5)
    (2.0, 3.0, None)
    """
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@dataclass(frozen=True)
class Ages:
    """Of one contender in one stretch, in milliseconds."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    commits: int  # sights within the stretch
    seconds: float  # of it that are covered: less than all when nothing was committed at first
    behind: bool  # at its end the view was older than at its worst in the first half, and by over a second


def summary(sights: Sequence[Sight], start: float, end: float) -> Ages:
    found = pieces(sights, start, end)
    half = pieces(sights, start, (start + end) / 2)
    last = found[-1].least + found[-1].length if found else 0.0
    worst = quantile(half, 1.0) if half else 0.0
    return Ages(
        p50_ms=quantile(found, 0.5) * 1000,
        p99_ms=quantile(found, 0.99) * 1000,
        max_ms=quantile(found, 1.0) * 1000,
        commits=len({one.at for one in sights if start <= one.at < end}),
        seconds=sum(one.length for one in found),
        behind=last > worst + 1.0,
    )


@dataclass(frozen=True)
class Delays:
    """Of results: from the moment the last event that a result waits for was due until it is in the view."""

    results: int
    p50_ms: float | None
    max_ms: float | None


def delays(found: Iterable[Sight], start: float, end: float) -> Delays:
    """Each sight is a result: `newest` is when the event was due that it waited for.

    >>> delays([Sight(5.5, 5.0), Sight(6.25, 6.0), Sight(20.0, 19.0)], 0.0, 10.0)
    Delays(results=2, p50_ms=250.0, max_ms=500.0)
    """
    values = [one.at - one.newest for one in found if start <= one.newest < end]
    p50, most = ranked(values, 0.5), ranked(values, 1.0)
    return Delays(
        len(values),
        None if p50 is None else _round(p50 * 1000),
        None if most is None else _round(most * 1000),
    )
