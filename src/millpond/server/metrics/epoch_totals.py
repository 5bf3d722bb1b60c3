"""Adds up what the manifests say about the epochs that were committed.

Law: every epoch counts once, in order, whichever process committed it.  A server that runs no pipeline has
the same figures as one that does.  Totals begin at the epoch that was newest when the server first looked:
Prometheus treats a smaller total as a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.server.metrics.samples import Samples
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest
from millpond.state.store.store import Store

CATCH_UP_EPOCHS = 1_000  # the most epochs that one scrape adds up


class EpochTotals:
    """Totals since the first call of `catch_up`, and the gauges of the last epoch that ran."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._at: int | None = None
        self.samples = Samples()

    def catch_up(self, head: Manifest) -> None:
        """Add the epochs after the last call, up to this one."""
        if self._at is None or head.epoch < self._at:
            self._at = head.epoch - 1
        first = max(self._at + 1, head.floor, head.epoch - CATCH_UP_EPOCHS + 1)
        for epoch in range(first, head.epoch + 1):
            found = head if epoch == head.epoch else history.find_manifest(self._store, epoch)
            if found is not None:  # collected since the head was read
                self.add(found)
            self._at = epoch

    def add(self, manifest: Manifest) -> None:
        samples, metrics = self.samples, manifest.metrics
        samples.add("millpond_epochs_total", 1, manifest.kind)
        for ref in manifest.added:
            if ref.kind == "merge":
                samples.add("millpond_compaction_merges_total", 1, ref.table)
                samples.add("millpond_compaction_written_bytes_total", ref.bytes, ref.table)
        if "ms" in metrics:
            seconds = float(metrics["ms"]) / 1000
            samples.observe("millpond_epoch_seconds", seconds)
            samples.add("millpond_epoch_phase_seconds_total", seconds, "run")
        for phase, ms in metrics.get("phases_ms", {}).items():
            samples.add("millpond_epoch_phase_seconds_total", ms / 1000, phase)
        samples.add("millpond_epoch_rows_total", int(metrics.get("rows", 0)))
        samples.add("millpond_epoch_written_bytes_total", int(metrics.get("bytes_written", 0)))
        self._add_cache(metrics.get("cache", {}))
        self._add_steps(metrics)
        self._set_last(metrics)

    def _add_cache(self, counts: Mapping[str, int]) -> None:
        samples = self.samples
        for outcome, name in (("hit", "hits"), ("miss", "misses")):
            if name in counts:
                samples.add("millpond_epoch_cache_requests_total", counts[name], outcome)
        if counts:
            samples.add("millpond_epoch_cache_parts_total", counts["parts"])
            samples.add("millpond_epoch_fetched_bytes_total", counts["fetched_bytes"])

    def _add_steps(self, metrics: Mapping[str, Any]) -> None:
        samples = self.samples
        for source, (rows, size) in metrics.get("sources", {}).items():
            samples.add("millpond_source_rows_total", rows, source)
            samples.add("millpond_source_bytes_total", size, source)
        for step, us in metrics.get("steps_us", {}).items():
            samples.add("millpond_step_seconds_total", us / 1e6, step)
        for steps in metrics.get("ran", {}).values():
            for step, rows in steps.items():
                samples.add("millpond_step_rows_total", rows, step)
        for sink, (deliveries, rows, size, ms) in metrics.get("delivered", {}).items():
            samples.add("millpond_sink_deliveries_total", deliveries, sink)
            samples.add("millpond_sink_rows_total", rows, sink)
            samples.add("millpond_sink_bytes_total", size, sink)
            samples.add("millpond_sink_seconds_total", ms / 1000, sink)
            samples.add("millpond_epoch_phase_seconds_total", ms / 1000, "deliver")

    def _set_last(self, metrics: Mapping[str, Any]) -> None:
        for source, rows in metrics.get("backlog", {}).items():
            self.samples.set("millpond_backlog_rows", rows, source)
        tasks = metrics.get("tasks", ())
        for level, (slowest_us, all_us) in enumerate(metrics.get("levels_us", ())):
            self.samples.add("millpond_level_seconds_total", slowest_us / 1e6, str(level))
            count = tasks[level] if level < len(tasks) else 1
            self.samples.set("millpond_epoch_tasks", count, str(level))
            if all_us:
                self.samples.set("millpond_task_skew_ratio", slowest_us * count / all_us, str(level))
