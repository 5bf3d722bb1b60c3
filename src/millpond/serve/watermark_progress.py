"""How far event time has come: the watermark of every step, source and partition at one epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from millpond.engine.task.settled_watermarks import END_US
from millpond.kernels.bounds import Bound
from millpond.operators.traits import EndsState
from millpond.plan.nodes import Plan
from millpond.plan.watermark_steps import WatermarkStep, watermark_steps
from millpond.state.manifest.listing import Listing
from millpond.state.manifest.manifest import Manifest
from millpond.state.runs.run_ref import RunRef

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
        ("late_rows", pa.int64()),  # that came from it
        ("held_rows", pa.int64()),  # in state that waits for it, of a source or partition: that it holds back
    ]
)


def watermark_progress(plan: Plan, manifest: Manifest | None, listing: Listing | None) -> pa.Table:
    """A row for each watermark step, then for its sources and their active partitions."""
    rows: list[dict[str, Any]] = []
    for each in watermark_steps(plan).steps:
        state = {} if manifest is None else manifest.watermarks.get(each.step, {})
        now_us = 0 if manifest is None else manifest.now_us
        waiting = [] if listing is None else _waiting(plan, each.step, listing)
        late = 0 if manifest is None else manifest.counts.get(f"late/{each.step}", 0)
        for row in _rows(each, state):
            at, newest = row["watermark"], state.get("max")
            known = at is not None and at < END_US
            rows.append(
                {
                    **row,
                    "event_lag_ms": (newest - at) / 1000 if known and newest is not None else None,
                    "processing_lag_ms": (now_us - at) / 1000 if known else None,
                    "late_rows": late if row["source"] is None else row["late_rows"],
                    "held_rows": sum(
                        ref.rows
                        for bound, ref in waiting
                        if row["source"] is None or _holds(bound, ref, each.step, at)
                    ),
                }
            )
    return pa.Table.from_pylist(rows, schema=COLUMNS)


def _rows(each: WatermarkStep, state: Mapping[str, Any]) -> list[dict[str, Any]]:
    def row(source: str | None, part: str | None, one: Mapping[str, Any], kind: str) -> dict[str, Any]:
        facts = {"watermark": one.get("bound"), "newest": one.get("max"), "state": kind}
        facts["late_rows"] = one.get("late", 0)
        return {"step": each.step, "source": source, "partition": part, **facts}

    whole_end = (state.get("bound") or 0) >= END_US
    found = [row(None, None, state, "ended" if whole_end else "idle" if state.get("idle") else "active")]
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
            "late": sum(e.get("late", 0) for e in (*parts.values(), past)),
        }
        found.append(row(scan, None, whole, kind or "active"))
        for part, entry in parts.items():
            if part:  # a source without partitions is its own row
                found.append(
                    row(scan, part, entry, "ended" if ends else "idle" if entry.get("idle") else "active")
                )
    return found


def _waiting(plan: Plan, step: str, listing: Listing) -> list[tuple[Bound, RunRef]]:
    """The runs of the tables whose buckets this watermark closes."""
    least = watermark_steps(plan).least
    steps = {step} | {name for name, marks in least if step in {mark for mark, _ in marks}}
    tables = {
        table: bound
        for node in plan.nodes.values()
        if isinstance(node.operator, EndsState)
        for table, bound in node.operator.ends(node.binding)
        if any(mark in steps for mark, _ in bound.marks)
    }
    return [(bound, ref) for table, bound in tables.items() for ref in listing.runs(table)]


def _holds(bound: Bound, ref: RunRef, step: str, at_us: int | None) -> bool:
    """Would these rows wait if the watermark of a step were at this time?"""
    if at_us is None or ref.bucket is None:
        return True
    shift = max((shift for mark, shift in bound.marks if mark == step), default=0)
    return ref.bucket >= bound.first_open(at_us - shift)
