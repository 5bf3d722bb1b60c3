"""Totals of epochs for Prometheus."""

from __future__ import annotations

from dataclasses import replace

import millpond
from millpond.server.metrics.epoch_totals import EpochTotals


def test_what_tasks_fetched_adds_up() -> None:
    """An epoch whose tasks read nothing remote has no such counts."""
    with millpond.open("memory://", engine="inline") as pond:
        pond.table("t", {"a": int}).key_by("a").aggregate(n="count(*)").view("v")
        pond.insert("t", {"a": 1})
        pond.drain()
        head, totals = pond.head(), EpochTotals(pond.store)
    first = {"hits": 3, "misses": 1, "fetched_bytes": 500, "parts": 2}
    second = {"hits": 1, "misses": 0, "fetched_bytes": 0, "parts": 0}
    for metrics in ({"cache": first}, {}, {"cache": second}):
        totals.add(replace(head, metrics=metrics))
    values = totals.samples.values
    assert values("millpond_epoch_cache_requests_total") == {("hit",): 4, ("miss",): 1}
    assert values("millpond_epoch_fetched_bytes_total") == {(): 500}
    assert values("millpond_epoch_cache_parts_total") == {(): 2}
