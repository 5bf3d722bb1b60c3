"""Watches the pond from outside: reads every new epoch from its manifest and shows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from millpond.cli.commands.epochs import epoch_row
from millpond.cli.demo.feed import DemoFeed
from millpond.cli.output import OutputColumn, Screen
from millpond.cli.values import count, milliseconds
from millpond.clock import SystemClock
from millpond.errors import UnavailableError
from millpond.serve.epoch_summaries import summary
from millpond.serve.reader import Reader
from millpond.state import inbox
from millpond.state.manifest import history
from millpond.state.manifest.listing import Listing
from millpond.state.manifest.manifest import Manifest

POLL_S = 0.03
PATIENCE_S = 180.0  # without a new epoch
COLUMNS = (
    OutputColumn("epoch", right=True, width=5),
    OutputColumn("rows", show=count, right=True, width=7),
    OutputColumn("rows_per_s", "rows/s", count, right=True, width=7),
    OutputColumn("ms", "took", milliseconds, right=True, width=7),
    OutputColumn("tasks", width=9),
    OutputColumn("stored", "state rows", count, right=True),
    OutputColumn("lag_s", "lag", lambda s: "-" if s is None else f"{s:.1f} s", right=True, width=6),
    OutputColumn("note", show=lambda note: note or ""),
)


@dataclass
class PondWatcher:
    """What was seen of the pond so far."""

    reader: Reader
    feed: DemoFeed
    screen: Screen
    check: Callable[[], None]  # raises when the pipeline is gone
    seen: list[Manifest] = field(default_factory=list)

    @property
    def head(self) -> Manifest | None:
        return self.seen[-1] if self.seen else None

    @property
    def done(self) -> int:
        """The number of processed events."""
        return 0 if self.head is None else self.feed.done(self.head.positions)

    def until_done(self, part: float) -> None:
        """Wait until this fraction of all events is processed."""
        self.until(lambda: self.done >= part * self.feed.events)

    def until_taken(self, entry: int) -> None:
        """Wait until the pipeline has executed this inbox entry."""
        self.until(lambda: self.head is not None and inbox.next_entry(self.head) > entry)

    def until_rows_after(self, epoch: int) -> None:
        """Wait until a later epoch has read events."""
        self.until(lambda: any(m.epoch > epoch and m.metrics.get("rows") for m in self.seen))

    def until(self, reached: Callable[[], bool]) -> None:
        """Show new epochs until a condition holds."""
        last = time.monotonic()
        while not reached():
            if self.look():
                last = time.monotonic()
                continue
            self.check()
            if time.monotonic() - last > PATIENCE_S:
                raise UnavailableError(
                    "the pipeline makes no progress", detail=f"no epoch for {PATIENCE_S:.0f} s"
                )
            self.screen.tick()
            time.sleep(POLL_S)

    def look(self) -> bool:
        """Show the new epochs; returns whether there were any."""
        newest = history.read_head(self.reader.store)
        if newest is None or (self.head is not None and newest.epoch <= self.head.epoch):
            return False
        first = 0 if self.head is None else self.head.epoch + 1
        for epoch in range(first, newest.epoch + 1):
            manifest = newest if epoch == newest.epoch else history.read_manifest(self.reader.store, epoch)
            row = self._row(manifest)
            self.seen.append(manifest)
            if row["rows"] or row["note"]:  # not those that only let a merge of runs join in
                self.screen.progress(COLUMNS, row)
        return True

    def _row(self, manifest: Manifest) -> dict[str, Any]:
        listing = Listing.of(manifest, self.reader.worker.pages)
        row = epoch_row(summary(manifest, manifest.savepoints))
        tasks = manifest.metrics.get("tasks")
        return {
            **row,
            "tasks": None if tasks is None else "+".join(str(n) for n in tasks),
            "stored": sum(r.rows for r in listing.all()),
            "lag_s": self.feed.lag_s(manifest.positions, SystemClock().now_us()) if row["rows"] else None,
            "note": self._note(manifest),
        }

    def _note(self, manifest: Manifest) -> str | None:
        if manifest.kind == "create":
            return "created"
        if manifest.kind == "takeover":
            return "taken over"
        if self.head is not None and manifest.parallelism != self.head.parallelism:
            return f"rescaled to {manifest.parallelism}"
        return None
