"""Who is told what a running pond does: of its epochs, of what it fills, of rows it could not process, and,
before it runs, of whom it waits for.

Law: every epoch that this process commits is told to all who asked, in the order in which they asked, and on
the log (INFO) in one line; that a step has errors is told on the log once.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from millpond.engine.backfill import OnProgress, Progress
from millpond.serve.summaries import note
from millpond.state.manifest import Manifest

OnEpoch = Callable[[Manifest], None]
log = logging.getLogger("millpond.pond")


class Watch:
    def __init__(self, on_epoch: OnEpoch | None = None) -> None:
        self.progress: Progress | None = None  # of the backfill that is running
        self.on_progress: OnProgress | None = None
        self.on_wait: Callable[[str], None] | None = None
        self._on_epoch: tuple[OnEpoch, ...] = () if on_epoch is None else (on_epoch,)
        self._told: dict[str, int] = {}  # errors/<step> -> error rows that need not be told on the log

    def on_epoch(self, function: OnEpoch) -> None:
        self._on_epoch = (*self._on_epoch, function)

    def begin(self, head: Manifest | None) -> None:
        """What happened up to here is known."""
        self._told = {} if head is None else dict(head.counts)

    def committed(self, manifest: Manifest) -> None:
        if manifest.filling is None:
            self.progress = None
        for name, count in manifest.counts.items():
            kind, _, step = name.partition("/")
            if kind == "errors" and count > self._told.get(name, 0):
                self._told[name] = sys.maxsize  # once: what comes later is counted, and in errors()
                log.warning("step %r could not process some rows; pond.errors() tells which and why", step)
        log.info("%s", line_of(manifest))
        for function in self._on_epoch:
            function(manifest)

    def waits_for(self, holder: str) -> None:
        """A standby stands by."""
        log.info("%s runs this pond; it is taken over when it falls silent", holder)
        if self.on_wait is not None:
            self.on_wait(holder)

    def progressed(self, progress: Progress) -> None:
        self.progress = progress
        if self.on_progress is not None:
            self.on_progress(progress)


def line_of(manifest: Manifest) -> str:
    """What an epoch did, in one line.

    >>> line_of(Manifest("p", 7, 1, "n", 0, metrics={"rows": 1200, "ms": 31.25}))
    'epoch 7: 1200 rows in 31.2 ms'
    """
    metrics = manifest.metrics.get("backfill", manifest.metrics)
    made = f"{int(metrics.get('rows', 0))} rows in {metrics.get('ms', 0):.1f} ms"
    told = note(manifest, {})
    return f"epoch {manifest.epoch}: {made if told is None else f'{made}, {told}'}"
