"""How far event time has come: the watermark of every step, source and partition at one epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from millpond.engine.task.settled_watermarks import END_US
from millpond.operators.traits import EndsState
from millpond.plan.nodes import Plan
from millpond.plan.watermark_steps import WatermarkStep, watermark_steps
from millpond.state.manifest.listing import Listing
from millpond.state.manifest.manifest import Manifest

COLUMNS = pa.schema(
    [
        ("step", pa.string()),  # that sets the watermark
        ("source", pa.string()),  # NULL: the step as a whole
        ("partition", pa.string()),  # NULL: the source or the step as a whole
        ("watermark", pa.timestamp("us")),
        ("newest", pa.timestamp("us")),  # the newest time that was seen
        ("event_lag_ms", pa.float64()),  # how far the watermark is behind the newest time of the step
        ("processing_lag_ms", pa.float64()),  # how far it is behind the time of the epoch
        ("state", pa.string()),  # active, idle, held, ended
        ("late_rows", pa.int64()),  # of the step
        ("held_rows", pa.int64()),  # in state that waits for the watermark of the step
    ]
)


def watermark_progress(plan: Plan, manifest: Manifest | None, listing: Listing | None) -> pa.Table:
    """A row for each watermark step, then for its sources and their active partitions."""
    rows: list[dict[str, Any]] = []
    for each in watermark_steps(plan).steps:
        state = {} if manifest is None else manifest.watermarks.get(each.step, {})
        now_us = 0 if manifest is None else manifest.now_us
        held = 0 if listing is None else _held_rows(plan, each.step, listing)
        late = 0 if manifest is None else manifest.counts.get(f"late/{each.step}", 0)
        for row in _rows(each, state):
            at, newest = row["watermark"], state.get("max")
            known = at is not None and at < END_US
            rows.append(
                {
                    **row,
                    "event_lag_ms": (newest - at) / 1000 if known and newest is not None else None,
                    "processing_lag_ms": (now_us - at) / 1000 if known else None,
                    "late_rows": late if row["source"] is None else None,
                    "held_rows": held if row["source"] is None else None,
                }
            )
    return pa.Table.from_pylist(rows, schema=COLUMNS)


def _rows(each: WatermarkStep, state: Mapping[str, Any]) -> list[dict[str, Any]]:
    def row(source: str | None, part: str | None, one: Mapping[str, Any], kind: str) -> dict[str, Any]:
        facts = {"watermark": one.get("bound"), "newest": one.get("max"), "state": kind}
        return {"step": each.step, "source": source, "partition": part, **facts}

    found = [row(None, None, state, "idle" if state.get("idle") else "active")]
    for scan, side in state.get("scans", {}).items():
        if not each.by_partition:
            continue
        parts, past = side.get("parts", {}), side.get("past", {})
        floor = state.get("floors", {}).get(scan)
        ends = floor == END_US
        kind = (
            "ended"
            if ends
            else "held"
            if scan in state.get("held", ())
            else "idle"
            if side.get("idle")
            else ""
        )
        bounds = [e["bound"] for e in parts.values() if not e.get("idle")] or [past.get("bound")]
        known = [] if None in bounds else [min(bounds)]
        whole = {
            "bound": max([*known, *([] if floor is None else [floor])], default=None),
            "max": max((e["max"] for e in (*parts.values(), past) if e.get("max") is not None), default=None),
        }
        found.append(row(scan, None, whole, kind or "active"))
        for part, entry in parts.items():
            if part:  # a source without partitions is its own row
                found.append(row(scan, part, entry, "idle" if entry.get("idle") else "active"))
    return found


def _held_rows(plan: Plan, step: str, listing: Listing) -> int:
    """The rows of the tables whose buckets this watermark closes."""
    steps = {step} | {union for union, inputs in watermark_steps(plan).least if step in inputs}
    tables = {
        table
        for node in plan.nodes.values()
        if isinstance(node.operator, EndsState)
        for table, bound in node.operator.ends(node.binding)
        if any(mark in steps for mark, _ in bound.marks)
    }
    return sum(ref.rows for table in tables for ref in listing.runs(table))
