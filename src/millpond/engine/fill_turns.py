"""Whose turn it is while views are filled: a chunk, an epoch, a chunk, an epoch.

A chunk that is in joins the next commit, whatever that is for; so no view waits
for longer than one chunk.  While the pond has input it is bounded as an epoch is.  While it
has none, nobody waits: a chunk may take long, since what it costs besides its rows (every step
of every view is called, and writes a run) is the less the larger it is.  But a row that comes then waits
for it; so the first after there was input takes no longer than a second, and each further one twice as long.
(Of changes it takes in at least twice what an epoch brings: `Fill.least`.)
"""

from __future__ import annotations

from dataclasses import replace

from millpond.control.admission import Bounds, Pace, budget_rows
from millpond.engine.protocol import FillMoved

CHUNK_ROWS = 4_000_000  # that a backfill takes in at once, at most
AT_ONCE_ROWS = 250_000  # that it takes in at once while nothing is known about its speed
IDLE_MS = 10_000  # that a chunk may take when the pond has had no input for long
IDLE_FIRST_MS = 1_000  # that it may take when there was input a moment ago


class FillTurns:
    def __init__(self) -> None:
        self.noted: FillMoved | None = None  # a chunk that waits for a commit
        self.tables: frozenset[str] = frozenset()  # that this process has filled, and may merge
        self._pace = Pace()
        self._idle = 0  # chunks, one after the other, that began while there was no input

    def rows(self, bounds: Bounds, *, idle: bool) -> int:
        """How much the next chunk takes in."""
        most = AT_ONCE_ROWS if self._pace.rows_per_ms is None else CHUNK_ROWS
        self._idle = self._idle + 1 if idle else 0
        if idle:
            idle_ms = min(IDLE_MS, IDLE_FIRST_MS * 2 ** (self._idle - 1))
            bounds = replace(bounds, target_ms=max(bounds.target_ms, idle_ms))
        return min(most, budget_rows(bounds, self._pace, 0))

    def moved(self, event: FillMoved) -> None:
        """A chunk is in."""
        self.noted = event
        self.tables = frozenset(event.fill.tables)
        self._pace = self._pace.measured(event.rows, event.ms)

    def taken(self) -> FillMoved | None:
        """The chunk that joins a commit, if one waits."""
        noted, self.noted = self.noted, None
        return noted

    def over(self) -> None:
        """There is nothing to fill any more."""
        self.noted, self.tables = None, frozenset()
