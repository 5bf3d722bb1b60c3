"""How far each partition of the sources is behind its end, as the servers know it now."""

from __future__ import annotations

import pyarrow as pa

from millpond.operators.scan import Scan
from millpond.operators.source_traits import ReportsLag
from millpond.plan.nodes import Plan
from millpond.sources.unavailable import named
from millpond.state.manifest.manifest import Manifest

COLUMNS = pa.schema(
    [
        ("source", pa.string()),
        ("partition", pa.string()),
        ("position", pa.int64()),  # the next offset that is read
        ("end", pa.int64()),  # after the last offset that can be read
        ("lag", pa.int64()),
    ]
)


def source_lag(plan: Plan, manifest: Manifest | None) -> pa.Table:
    """A row for each partition of the sources that can tell; it asks their servers."""
    rows = []
    for node in plan.nodes.values():
        source = node.operator.source if isinstance(node.operator, Scan) else None
        if not isinstance(source, ReportsLag):
            continue
        position = None if manifest is None else manifest.positions.get(node.step)
        with named(node.step):
            for one in source.lag(position):
                found = {"partition": one.partition, "position": one.position, "end": one.end}
                rows.append({"source": node.step, **found, "lag": one.rows})
    return pa.Table.from_pylist(rows, schema=COLUMNS)
