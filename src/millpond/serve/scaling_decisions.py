"""The scaling decisions of a pond, from its manifests."""

from __future__ import annotations

import pyarrow as pa

from millpond.serve.reader import Reader
from millpond.state.manifest import history
from millpond.state.manifest.manifest import is_retained

SCALING = pa.schema(
    [
        ("epoch", pa.int64()),
        ("at", pa.timestamp("us")),
        ("mode", pa.string()),
        ("before", pa.int64()),
        ("tasks", pa.int64()),
        ("rows_per_s", pa.float64()),
        ("levels", pa.string()),
        ("reason", pa.string()),
        ("symptoms", pa.string()),
        ("executors", pa.int64()),
    ]
)


def scaling_decisions(reader: Reader) -> pa.Table:
    """The decisions of all readable epochs, oldest first."""
    head, rows = reader.head(), []
    for epoch in history.epochs(reader.store):
        manifest = history.find_manifest(reader.store, epoch) if is_retained(head, epoch) else None
        decision = None if manifest is None else manifest.metrics.get("scaling")
        if manifest is None or decision is None:
            continue
        levels = ", ".join(str(n) for n in decision.get("levels", ()))
        rows.append(
            {
                **decision,
                "levels": levels,
                "epoch": epoch,
                "at": manifest.now_us,
                "tasks": decision.get("tasks"),
            }
        )
    return pa.Table.from_pylist([{name: row.get(name) for name in SCALING.names} for row in rows], SCALING)
