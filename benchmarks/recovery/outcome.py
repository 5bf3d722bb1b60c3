"""What is made of the lives of a follower: how long it was gone, and what of that was start-up.

Law: all moments are of one clock. A *new result* holds a file that appeared after the kill: what was already
there before it could have been a result of the life before.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.recovery.follower import Commit, Seen


@dataclass(frozen=True)
class Return:
    """From kill -9 to the first new result, in seconds."""

    startup_s: float  # to the session or cluster that stands: interpreter, JVM, planning
    restore_s: float  # from there to the first new result that is committed
    emitted_s: float | None  # from there to the first that is out, where a system shows rows before
    parallelism: int

    @property
    def total_s(self) -> float:
        return self.startup_s + self.restore_s


def returned(
    seen: Seen, killed: float, newest: int, parallelism: int, rows: Sequence[Commit] | None = None
) -> Return:
    """`newest` is the last file that had appeared when it was killed.

    >>> seen = Seen(12.0, (Commit(13.0, 7), Commit(14.5, 9)))
    >>> returned(seen, 10.0, 8, 2)
    Return(startup_s=2.0, restore_s=2.5, emitted_s=None, parallelism=2)
    """
    assert seen.ready is not None
    first = next(one.at for one in seen.commits if one.newest > newest)
    out = None if rows is None else min(one.at for one in rows if one.newest > newest) - seen.ready
    return Return(seen.ready - killed, first - seen.ready, out, parallelism)


@dataclass(frozen=True)
class Rescale:
    """The pause between the last commit as before and the first in another parallelism, against the usual."""

    before: int
    after: int
    pause_ms: float
    steady_ms: float  # the median gap of the commits that followed


def paused(commits: Sequence[Commit], before: int, after: int) -> Rescale:
    """Only commits with new input count: the command itself is an epoch, too.

    >>> moments = [(0.0, 5, 2), (1.0, 6, 2), (1.2, 6, 7), (3.0, 7, 7), (4.0, 8, 7), (4.5, 9, 7), (6.0, 10, 7)]
    >>> paused([Commit(*moment) for moment in moments], 2, 7)
    Rescale(before=2, after=7, pause_ms=2000.0, steady_ms=1000.0)
    """
    moved = [commits[0], *(b for a, b in itertools.pairwise(commits) if b.newest > a.newest)]
    first = next(n for n, one in enumerate(moved) if one.parallelism == after)
    gaps = [b.at - a.at for a, b in itertools.pairwise(moved[first:])]
    pause = moved[first].at - moved[first - 1].at
    return Rescale(before, after, pause * 1000, statistics.median(gaps) * 1000)


@dataclass(frozen=True)
class Recovery:
    name: str
    system: str
    keys: int
    cores: int
    committed: str
    load_s: float  # from the start to the commit of the last key
    state_bytes: int
    returns: tuple[Return, ...]
    rescales: tuple[Rescale, ...]  # while it ran
    restarted: tuple[Return, ...]  # into another parallelism, where that takes a restart
    cannot: str | None  # why there is no rescale
    checked: bool  # the totals at the end are those of the input

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def median(self, name: str) -> float | None:
        values: list[float] = [value for one in self.returns if (value := getattr(one, name)) is not None]
        return statistics.median(values) if values else None
