"""Names what slows a pond down, from the times of its tasks: skew, a hot key, a slow host, a sink behind.

Dhalion (Floratou et al., VLDB 2017) separates symptoms, which are measured, from diagnoses, which explain
them.  More tasks help against load.  They do not help if one task has most of the rows, or one host is slow.

Law: everything here is a pure function of the history, so a diagnosis can be simulated and explained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

Name = Literal["skew", "hot key", "slow host", "sink behind"]

EPOCHS = 10  # the newest ones of a diagnosis
MOST = 0.7  # the share of them that must show the same
SLOWER = 2.0  # a task is slow if it takes so many times as long as the median of its level
LEAST_US = 20_000  # shorter tasks differ by chance
SINK_EPOCHS = 20  # a sink that lacks more epochs is behind


@dataclass(frozen=True)
class TaskTimes:
    """One epoch: how long each task of each level worked, and where."""

    levels: tuple[tuple[int, ...], ...]  # microseconds
    hosts: tuple[tuple[str, ...], ...] = ()  # empty if all tasks ran on one host


@dataclass(frozen=True)
class Symptom:
    name: Name
    where: str  # "level 1, task 3", a host or a sink
    detail: str

    def __str__(self) -> str:
        return f"{self.name}: {self.where}; {self.detail}"


def diagnosed(history: Sequence[TaskTimes], behind: Mapping[str, int] | None = None) -> tuple[Symptom, ...]:
    """What the newest epochs suffer from; `behind` are the epochs that each sink lacks.

    >>> epochs = [TaskTimes(((50_000, 50_000), (30_000, 31_000, 200_000, 29_000)))] * 10
    >>> [str(s) for s in diagnosed(epochs)]
    ['hot key: level 1, task 2; it takes 6.7 times as long as the median of its level: tasks do not help']
    >>> diagnosed(epochs[:3])
    ()
    """
    found: list[Symptom] = []
    recent = [times for times in history if times.levels][-EPOCHS:]
    if len(recent) >= EPOCHS:
        depth = max(len(times.levels) for times in recent)
        by_level = [_of_level(recent, level) for level in range(depth)]
        found += _hosts(recent) or [symptom for symptom in by_level if symptom is not None]
    for sink, epochs in sorted((behind or {}).items()):
        if epochs > SINK_EPOCHS:
            found.append(Symptom("sink behind", f"sink {sink!r}", f"it lacks {epochs} epochs"))
    return tuple(found)


def _of_level(recent: Sequence[TaskTimes], level: int) -> Symptom | None:
    """Skew of one level: always the same task has a hot key, ever another one has not."""
    slow: list[tuple[int, int, float]] = []  # (tasks, the slowest one, how many times slower)
    for times in recent:
        mine = times.levels[level] if level < len(times.levels) else ()
        ratio = _ratio(mine)
        if ratio >= SLOWER:
            slow.append((len(mine), mine.index(max(mine)), ratio))
    if len(slow) < MOST * len(recent):
        return None
    ratio = median(ratio for _, _, ratio in slow)
    (_, task), times_seen = Counter((tasks, task) for tasks, task, _ in slow).most_common(1)[0]
    said = f"it takes {ratio:.1f} times as long as the median of its level"
    if level and times_seen >= MOST * len(recent):  # tasks of level 0 read splits, not ranges of keys
        return Symptom("hot key", f"level {level}, task {task}", f"{said}: tasks do not help")
    return Symptom(
        "skew", f"level {level}", f"its slowest task takes {ratio:.1f} times as long as the median"
    )


def _ratio(times: Sequence[int]) -> float:
    """The slowest task, as a multiple of the median of the others."""
    if len(times) < 2 or max(times) < LEAST_US:
        return 1.0
    others = sorted(times)[:-1]
    return max(times) / max(1.0, median(others))


def _hosts(recent: Sequence[TaskTimes]) -> list[Symptom]:
    """Hosts whose tasks are slow, whatever they do."""
    slow: Counter[str] = Counter()
    ratios: dict[str, list[float]] = {}
    for times in recent:
        took: dict[str, list[float]] = {}
        for mine, hosts in zip(times.levels, times.hosts, strict=False):
            middle = max(1.0, median(mine))
            for us, host in zip(mine, hosts, strict=True):
                if max(mine) >= LEAST_US:
                    took.setdefault(host, []).append(us / middle)
        for host, shares in took.items():
            rest = [share for other, theirs in took.items() if other != host for share in theirs]
            if (
                len(shares) > 1
                and len(rest) > 1
                and (ratio := median(shares) / max(1e-9, median(rest))) >= SLOWER
            ):
                slow[host] += 1
                ratios.setdefault(host, []).append(ratio)
    return [
        Symptom("slow host", f"host {host}", f"its tasks take {median(ratios[host]):.1f} times as long")
        for host, count in sorted(slow.items())
        if count >= MOST * len(recent)
    ]
