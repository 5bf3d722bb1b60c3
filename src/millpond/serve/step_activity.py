"""What each step did in the last epochs: time, rows, state and watermark, from the manifests alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.plan.explain import ANALYZED_EPOCHS, label
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan
from millpond.state.manifest.snapshot import Snapshot

STEPS = pa.schema(
    [
        ("step", pa.string()),
        ("level", pa.int64()),
        ("operator", pa.string()),
        ("inputs", pa.string()),
        ("relation", pa.string()),  # the views that show its rows
        ("ms", pa.float64()),  # of all tasks, in the last epochs
        ("epochs", pa.int64()),  # of these, in which it ran
        ("rows", pa.int64()),  # that it gave in them
        ("state_rows", pa.int64()),  # an upper bound
        ("state_bytes", pa.int64()),
        ("state_runs", pa.int64()),
        ("watermark", pa.timestamp("us")),  # that it has heard
    ]
)


def recent_metrics(snapshot: Snapshot, epochs: int = ANALYZED_EPOCHS) -> list[Mapping[str, Any]]:
    """The metrics of the last epochs that can be read, oldest first."""
    first = max(snapshot.manifest.floor, snapshot.epoch - epochs + 1)
    return [snapshot.at(epoch).manifest.metrics for epoch in range(first, snapshot.epoch + 1)]


def step_rows(plan: Plan, snapshot: Snapshot, metrics: Sequence[Mapping[str, Any]] | None = None) -> pa.Table:
    """A row for each step of the plan, in the order of the levels."""
    recent = recent_metrics(snapshot) if metrics is None else metrics
    us: dict[str, list[int]] = {}
    gave: dict[str, int] = {}
    for one in recent:
        for step, took in one.get("steps_us", {}).items():
            us.setdefault(step, []).append(took)
        for steps in one.get("ran", {}).values():
            for step, count in steps.items():
                gave[step] = gave.get(step, 0) + count
    views: dict[str, list[str]] = {}
    for view in plan.views.values():
        views.setdefault(view.step, []).append(view.name)
    levels = cut(plan)
    rows: list[dict[str, Any]] = []
    watermarks: dict[str, int | None] = {}
    for node in plan.topological():
        runs = [r for table in node.binding.tables for r in snapshot.runs(table.name)]
        tables = node.binding.tables
        own = snapshot.manifest.watermarks.get(node.binding.shape.watermark or "", {}).get("bound")
        heard = [mark for source in node.inputs if (mark := watermarks.get(source)) is not None]
        watermarks[node.step] = min(heard, default=None) if own is None else own
        rows.append(
            {
                "step": node.step,
                "level": levels.level_of.get(node.step),
                "operator": label(node.operator),
                "inputs": ", ".join(node.inputs) or None,
                "relation": ", ".join(views.get(node.step, ())) or None,
                "ms": sum(us[node.step]) / 1000 if node.step in us else None,
                "epochs": len(us.get(node.step, ())),
                "rows": gave.get(node.step),
                "state_rows": sum(r.rows for r in runs) if tables else None,
                "state_bytes": sum(r.bytes for r in runs) if tables else None,
                "state_runs": len(runs) if tables else None,
                "watermark": watermarks[node.step],
            }
        )
    rows.sort(key=lambda row: -1 if row["level"] is None else row["level"])
    return pa.Table.from_pylist(rows, schema=STEPS)
