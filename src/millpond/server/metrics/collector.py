"""Collects the metrics of a pond and of its server when Prometheus asks for them.

Values come from the newest manifests, the lease and `pond.status`, so a server that does not run the pipeline
has them, too.  A pond that cannot be read does not fail a scrape: `millpond_scrape_error` says so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from millpond.control import lease
from millpond.errors import MillpondError
from millpond.plan.nodes import Plan
from millpond.pond import Pond
from millpond.pond.status import Status
from millpond.server.metrics.activity import ServerActivity
from millpond.server.metrics.epoch_totals import EpochTotals
from millpond.server.metrics.samples import Samples
from millpond.state import inbox
from millpond.state.manifest.listing import Listing, PageCache
from millpond.state.manifest.manifest import Manifest
from millpond.state.runs.compaction import plan_merges
from millpond.state.store.disk_cache import DiskCache
from millpond.version import __version__

STATES = ("new", "running", "stopped", "failed", "standby")
SINK_STATES = ("current", "behind", "failed", "paused", "detached")
_COUNTERS = {
    "late": "millpond_late_rows_total",
    "errors": "millpond_error_rows_total",
    "shed": "millpond_shed_rows_total",
    "lost": "millpond_sink_lost_epochs_total",
}
log = logging.getLogger("millpond.server")


class PondCollector:
    """Gives the values of all metrics; safe for any number of threads."""

    def __init__(self, pond: Pond, activity: ServerActivity, now_s: Callable[[], float] = time.time) -> None:
        self._pond = pond
        self._activity = activity
        self._now_s = now_s
        self._totals = EpochTotals(pond.store)
        self._pages = PageCache(pond.store)
        self._lock = threading.Lock()

    def samples(self) -> Samples:
        """All values of now."""
        started = time.perf_counter()
        found = Samples()
        failed = 0
        with self._lock:
            try:
                self._add_pond(found)
            except MillpondError as error:
                failed = 1
                log.warning("the metrics of the pond cannot be read: %s", error.message)
            found = self._totals.samples.merged(found)
        found = found.merged(self._activity.samples())
        found.set("millpond_scrape_error", failed)
        found.set("millpond_scrape_seconds", time.perf_counter() - started)
        return found

    def _add_pond(self, found: Samples) -> None:
        status = self._pond.status
        for state in STATES:
            found.set("millpond_state", state == status.state, state)
        self._add_lease(found)
        if isinstance(self._pond.store, DiskCache):
            counts = self._pond.store.counts
            found.set("millpond_cache_requests_total", counts.hits, "hit")
            found.set("millpond_cache_requests_total", counts.misses, "miss")
        if status.epoch is None:
            return
        head = self._pond.head()
        self._totals.catch_up(head)
        found.set("millpond_info", 1, __version__, head.pond)
        found.set("millpond_epoch", head.epoch)
        found.set("millpond_epoch_floor", head.floor)
        found.set("millpond_epoch_age_seconds", max(0.0, self._now_s() - head.now_us / 1e6))
        found.set("millpond_parallelism", head.parallelism)
        found.set("millpond_savepoints", len(head.savepoints))
        found.set("millpond_backfill_running", head.backfill is not None)
        found.set("millpond_takeovers_total", head.token)
        found.set("millpond_inbox_entries", waiting_entries(self._pond, head))
        self._add_counts(found, head, self._pond.plan)
        self._add_sinks(found, status)
        self._add_event_time(found)
        self._add_tables(found, head)

    def _add_lease(self, found: Samples) -> None:
        beat = lease.latest(self._pond.store)
        if beat is None:
            return
        found.set("millpond_lease_held", not beat.over, beat.holder)
        if beat.at_us is not None:
            found.set("millpond_lease_age_seconds", max(0.0, self._now_s() - beat.at_us / 1e6))

    def _add_counts(self, found: Samples, head: Manifest, plan: Plan) -> None:
        for name, count in head.counts.items():
            kind, _, step = name.partition("/")
            metric = _COUNTERS.get(kind)
            if kind == "errors" and step in plan.sinks:
                metric = "millpond_dead_letter_rows_total"
            if metric is not None:
                found.set(metric, count, step)

    def _add_sinks(self, found: Samples, status: Status) -> None:
        for sink in status.sinks:
            for state in SINK_STATES:
                found.set("millpond_sink_state", state == sink.state, sink.name, state)
            if sink.epoch is not None:
                found.set("millpond_sink_epoch", sink.epoch, sink.name)
            if sink.behind is not None:
                found.set("millpond_sink_behind_epochs", sink.behind, sink.name)

    def _add_event_time(self, found: Samples) -> None:
        for row in self._pond.watermarks().to_pylist():
            if row["partition"] is not None:
                continue  # a source may have thousands of partitions
            labels = (row["step"], row["source"] or "")
            if row["watermark"] is not None and row["processing_lag_ms"] is not None:
                at_s = _utc_s(row["watermark"])
                found.set("millpond_watermark_timestamp_seconds", at_s, *labels)
                found.set("millpond_watermark_delay_seconds", self._now_s() - at_s, *labels)
                found.set("millpond_processing_lag_seconds", row["processing_lag_ms"] / 1000, *labels)
            if row["event_lag_ms"] is not None:
                found.set("millpond_event_lag_seconds", row["event_lag_ms"] / 1000, *labels)
            if row["source"] is None:
                found.set("millpond_watermark_held_rows", row["held_rows"], row["step"])

    def _add_tables(self, found: Samples, head: Manifest) -> None:
        listing = Listing.of(head, self._pages)
        self._pages.trim(len(head.pages))
        for table in listing.tables():
            runs = listing.runs(table)
            found.set("millpond_table_rows", sum(r.rows for r in runs), table)
            found.set("millpond_table_bytes", sum(r.bytes for r in runs), table)
            found.set("millpond_table_runs", len(runs), table)
            found.set("millpond_compaction_debt_bytes", 0, table)
        for job in plan_merges(listing.all(), fan_in=self._pond.settings.fan_in):
            found.add("millpond_compaction_debt_bytes", job.bytes, job.table)


def waiting_entries(pond: Pond, head: Manifest) -> int:
    """Inbox entries that no epoch has executed."""
    executed = inbox.next_entry(head)
    return sum(number >= executed for number in inbox.numbers(pond.store))


def _utc_s(at: datetime) -> float:
    return at.replace(tzinfo=UTC).timestamp()
