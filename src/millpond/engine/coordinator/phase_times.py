"""Measures the phases of epochs that the job of an epoch does not see: admit, commit and deliver.

Law: a manifest cannot hold how long its own commit took.  So what is measured after one epoch joins the
metrics of the next one that runs; each measurement is recorded once.
"""

from __future__ import annotations

import threading
from typing import Any


class PhaseTimes:
    """What was measured since the last epoch; safe for the threads of sinks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ms: dict[str, float] = {}
        self._delivered: dict[str, list[float]] = {}

    def add(self, phase: str, seconds: float) -> None:
        with self._lock:
            self._ms[phase] = self._ms.get(phase, 0.0) + seconds * 1000

    def delivered(self, sink: str, seconds: float, rows: int, size: int) -> None:
        with self._lock:
            sums = self._delivered.setdefault(sink, [0, 0, 0, 0.0])
            for index, value in enumerate((1, rows, size, seconds * 1000)):
                sums[index] += value

    def restart(self, phase: str) -> None:
        """Forget what was measured of a phase: a poll that found nothing admits nothing."""
        with self._lock:
            self._ms.pop(phase, None)

    def take(self) -> dict[str, Any]:
        """The entries for the metrics of an epoch; the next call begins at zero.

        >>> times = PhaseTimes()
        >>> times.add("admit", 0.0021)
        >>> times.delivered("out", 0.5, 10, 320)
        >>> times.take()
        {'phases_ms': {'admit': 2.1}, 'delivered': {'out': [1, 10, 320, 500.0]}}
        >>> times.take()
        {}
        """
        with self._lock:
            ms, delivered = self._ms, self._delivered
            self._ms, self._delivered = {}, {}
        times: dict[str, Any] = {}
        if ms:
            times["phases_ms"] = {phase: round(value, 3) for phase, value in ms.items()}
        if delivered:
            times["delivered"] = {
                sink: [int(n), int(rows), int(size), round(value, 3)]
                for sink, (n, rows, size, value) in delivered.items()
            }
        return times
