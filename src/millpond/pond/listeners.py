"""Reports what a running pond does: epochs, backfill progress, error rows, and what it waits for.

Law: every epoch that this process commits is passed to all listeners, in the order in which they were added,
and logged (INFO) in one line; that a step has error rows is logged once.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Literal

from millpond.arguments.call_errors import need_callable
from millpond.engine.change.backfill import OnProgress, Progress
from millpond.serve.epoch_summaries import note
from millpond.state.manifest.manifest import Manifest
from millpond.state.store.waiting_store import Outage

OnEpoch = Callable[[Manifest], None]
log = logging.getLogger("millpond.pond")


class WaitReason(str):
    """Why a pond waits, as text; `kind` is what it waits for."""

    kind: Literal["holder", "storage", "executors"] = "holder"

    def __new__(cls, text: str, kind: Literal["holder", "storage", "executors"] = "holder") -> WaitReason:
        made = super().__new__(cls, text)
        made.kind = kind
        return made


class Listeners:
    """The functions to call, and what was already reported."""

    def __init__(self, on_epoch: OnEpoch | None = None) -> None:
        self.progress: Progress | None = None  # the progress of the running backfill
        self.on_progress: OnProgress | None = None
        self.on_wait: Callable[[str], None] | None = None
        self.executors: str | None = None  # while there are none: since when
        self._on_epoch: tuple[OnEpoch, ...] = () if on_epoch is None else (on_epoch,)
        self._logged_counts: dict[str, int] = {}  # errors/<step> -> error rows that are already logged

    def on_epoch(self, function: OnEpoch) -> None:
        need_callable("on_epoch", function)
        self._on_epoch = (*self._on_epoch, function)

    def set_on_wait(self, function: Callable[[str], None]) -> None:
        need_callable("on_wait", function)
        self.on_wait = function

    def begin(self, head: Manifest | None) -> None:
        """Treat everything before this epoch as already reported."""
        self._logged_counts = {} if head is None else dict(head.counts)

    def committed(self, manifest: Manifest) -> None:
        if manifest.backfill is None:
            self.progress = None
        for name, count in manifest.counts.items():
            kind, _, step = name.partition("/")
            if kind == "errors" and count > self._logged_counts.get(name, 0):
                self._logged_counts[name] = (
                    sys.maxsize
                )  # logged once: later ones are counted, and are in errors()
                log.warning(
                    "step %r could not process some rows; pond.errors() lists them with the reason", step
                )
        for sink, why in manifest.metrics.get("paused_sinks", {}).items():
            log.warning("sink %r is paused: %s; ALTER SINK … RESUME continues there", sink, why)
        log.info("%s", line_of(manifest), extra={"facts": facts_of(manifest)})
        for function in self._on_epoch:
            function(manifest)

    def waits_for(self, holder: str) -> None:
        """Report that this standby waits for the holder of the pond."""
        log.info("%s runs this pond; it is taken over when it falls silent", holder)
        if self.on_wait is not None:
            self.on_wait(WaitReason(holder))

    def waits_for_storage(self, outage: Outage) -> None:
        """Report that the storage is unavailable; the store logs it."""
        if self.on_wait is not None:
            self.on_wait(WaitReason(outage.described(time.monotonic()), "storage"))

    def waits_for_executors(self, text: str) -> None:
        """Report that there is no executor to run tasks; the engine logs it.  Called with "" at the end."""
        self.executors = text or None
        if text and self.on_wait is not None:
            self.on_wait(WaitReason(text, "executors"))

    def progressed(self, progress: Progress) -> None:
        self.progress = progress
        if self.on_progress is not None:
            self.on_progress(progress)


def line_of(manifest: Manifest) -> str:
    """One log line about an epoch.

    >>> line_of(Manifest("p", 7, 1, "n", 0, metrics={"rows": 1200, "ms": 31.25}))
    'epoch 7: 1200 rows in 31.2 ms'
    """
    metrics = manifest.metrics.get("backfill", manifest.metrics)
    made = f"{int(metrics.get('rows', 0))} rows in {metrics.get('ms', 0):.1f} ms"
    text = note(manifest, {})
    return f"epoch {manifest.epoch}: {made if text is None else f'{made}, {text}'}"


def facts_of(manifest: Manifest) -> dict[str, int | float | str]:
    """The same as data, for logs that programs read.

    >>> facts_of(Manifest("p", 7, 1, "n", 0, metrics={"rows": 1200, "ms": 31.25}))
    {'pond': 'p', 'epoch': 7, 'kind': 'epoch', 'rows': 1200, 'ms': 31.25}
    """
    metrics = manifest.metrics.get("backfill", manifest.metrics)
    about = {"pond": manifest.pond, "epoch": manifest.epoch, "kind": manifest.kind}
    return {**about, "rows": int(metrics.get("rows", 0)), "ms": metrics.get("ms", 0)}
