"""Decides how large the chunks of a backfill are; chunks and epochs alternate.

A chunk joins the next commit of any kind, so no view waits for longer than one chunk.  While the pond has
input, a chunk is bounded like an epoch.  While it has none, a chunk may take longer: its fixed cost (every
step of every view is called, and writes a run) matters less the larger it is.  But a row that arrives
meanwhile waits for the chunk; so the first chunk after input takes at most a second, and each further one
twice as long.  (A chunk of changes reads at least twice the rows of an epoch: `BackfillProgress.least`.)
"""

from __future__ import annotations

from dataclasses import replace

from millpond.control.admission import Bounds, Pace, budget_rows
from millpond.engine.coordinator.protocol import BackfillChunkDone

CHUNK_ROWS = 4_000_000  # the most rows of a chunk
AT_ONCE_ROWS = 250_000  # rows of a chunk while its speed is unknown
IDLE_MS = 10_000  # time of a chunk when the pond has had no input for long
IDLE_FIRST_MS = 1_000  # time of a chunk when there was input a moment ago


class BackfillSchedule:
    def __init__(self) -> None:
        self.pending: BackfillChunkDone | None = None  # a chunk that waits for a commit
        self.tables: frozenset[str] = frozenset()  # the tables that this process backfills, and may merge
        self._pace = Pace()
        self._idle = 0  # consecutive chunks that began without input

    def rows(self, bounds: Bounds, *, idle: bool) -> int:
        """How many rows the next chunk reads."""
        most = AT_ONCE_ROWS if self._pace.rows_per_ms is None else CHUNK_ROWS
        self._idle = self._idle + 1 if idle else 0
        if idle:
            idle_ms = min(IDLE_MS, IDLE_FIRST_MS * 2 ** (self._idle - 1))
            bounds = replace(bounds, target_ms=max(bounds.target_ms, idle_ms))
        return min(most, budget_rows(bounds, self._pace, 0))

    def on_chunk(self, event: BackfillChunkDone) -> None:
        self.pending = event
        self.tables = frozenset(event.progress.tables)
        self._pace = self._pace.measured(event.rows, event.ms)

    def take_pending(self) -> BackfillChunkDone | None:
        """The chunk that joins a commit, if one waits."""
        pending, self.pending = self.pending, None
        return pending

    def end(self) -> None:
        """End the backfill: forget its tables and chunks."""
        self.pending, self.tables = None, frozenset()
