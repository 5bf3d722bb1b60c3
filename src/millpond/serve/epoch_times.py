"""How long the phases and the levels of an epoch took, from the metrics of its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def level_times(metrics: Mapping[str, Any]) -> list[list[int]]:
    """The microseconds of every task, by level.

    >>> level_times({"tasks": [1, 2], "tasks_us": [5, 7, 9]})
    [[5], [7, 9]]
    """
    times, levels, at = list(metrics.get("tasks_us", ())), [], 0
    for count in metrics.get("tasks", ()):
        levels.append(times[at : at + count])
        at += count
    return levels


def level_ms(metrics: Mapping[str, Any]) -> list[float]:
    """How long the slowest task of each level took.

    >>> level_ms({"tasks": [1, 2], "tasks_us": [5000, 7000, 9000]})
    [5.0, 9.0]
    """
    return [max(times, default=0) / 1000 for times in level_times(metrics)]


def level_skew(metrics: Mapping[str, Any]) -> list[float | None]:
    """The slowest task of each level as a multiple of the mean of the level; 1 is even.

    >>> level_skew({"tasks": [1, 2], "tasks_us": [5, 10, 30]})
    [1.0, 1.5]
    """
    return [
        round(max(times) * len(times) / sum(times), 3) if sum(times) else None
        for times in level_times(metrics)
    ]


def skew(metrics: Mapping[str, Any]) -> float | None:
    """The slowest task of the slowest level, as a multiple of the mean of its level; 1 is even.

    >>> skew({"tasks": [1, 2], "tasks_us": [5, 10, 30]})
    1.5
    """
    levels = list(zip(level_ms(metrics), level_skew(metrics), strict=True))
    return max(levels, key=lambda level: level[0])[1] if levels else None


def phase_ms(metrics: Mapping[str, Any], phase: str) -> float | None:
    """How long a phase took: admit, commit or deliver.

    A manifest cannot contain the time of its own commit: commits and deliveries are those since the epoch
    before.

    >>> phase_ms({"phases_ms": {"admit": 1.5}}, "admit")
    1.5
    >>> phase_ms({"delivered": {"out": [1, 10, 320, 4.5]}}, "deliver")
    4.5
    """
    if phase == "deliver":
        delivered = metrics.get("delivered")
        return None if not delivered else float(sum(one[3] for one in delivered.values()))
    phase_time = metrics.get("phases_ms", {}).get(phase)
    return None if phase_time is None else float(phase_time)
