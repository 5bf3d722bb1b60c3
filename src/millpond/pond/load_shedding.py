"""What `pond.shed`, `pond.shedding` and `pond.bounds` do: settings, the bill, and bounds of estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from millpond.control.shedding import (
    Shedding,
    bounds_of_average,
    bounds_of_count,
    bounds_of_sum,
)
from millpond.errors import InvalidError
from millpond.flow.durations import Duration, microseconds
from millpond.plan.nodes import Plan, upstream
from millpond.plan.sheddable import sheddable_source, why_not_shed
from millpond.state.manifest.manifest import Manifest

BILL = pa.schema(
    [
        ("source", pa.string()),
        ("view", pa.string()),
        ("by", pa.string()),
        ("state", pa.string()),
        ("rate", pa.float64()),
        ("lowest_rate", pa.float64()),
        ("kept", pa.int64()),
        ("shed", pa.int64()),
        ("recovers", pa.bool_()),
    ]
)


def checked_settings(
    plan: Plan,
    source: str,
    target_lag: Duration | None,
    by: str,
    key: Sequence[str],
    floor: float,
    recover: bool,
) -> dict[str, Any] | None:
    """The settings as the manifest records them; None switches shedding off."""
    if target_lag is None:
        return None
    if (reason := why_not_shed(plan, source)) is not None:
        raise InvalidError(
            f"rows of {source!r} cannot be shed",
            detail=reason,
            hint="shed sources whose views aggregate rows with count, sum or avg",
        )
    if by not in ("row", "key"):
        raise InvalidError("by is 'row' or 'key'", detail=f"got {by!r}")
    if (by == "key") != bool(key):
        raise InvalidError(
            "shedding by key needs the columns of the key",
            detail=f"by={by!r}, key={list(key)!r}",
            hint='by="key", key=["user"]',
        )
    names = plan.nodes[source].binding.shape.schema.names
    if unknown := [name for name in key if name not in names]:
        raise InvalidError(f"no column named {unknown[0]!r}", detail=f"columns are {', '.join(names)}")
    if isinstance(floor, bool) or not isinstance(floor, int | float) or not 0 < floor <= 1:
        raise InvalidError(
            "floor must be above 0 and at most 1", detail=f"got {floor!r}", hint="for example 0.05"
        )
    by_key: Literal["row", "key"] = "key" if by == "key" else "row"
    return Shedding(microseconds(target_lag), float(floor), by_key, tuple(key), recover).settings()


def bill(plan: Plan, head: Manifest | None) -> pa.Table:
    """For every view of a source that sheds: the share of rows it is computed from."""
    rows: list[dict[str, Any]] = []
    for source, data in sorted({} if head is None else head.shedding.items()):
        assert head is not None
        shedding = Shedding.from_json(data)
        shed = head.counts.get(f"shed/{source}", 0)
        kept = head.counts.get(f"rows/{source}", 0)
        allowed = sheddable_source(plan, source)
        state = "off" if shedding.target_lag_us is None else "shedding" if shedding.divisor > 1 else "idle"
        for view in sorted(v.name for v in plan.views.values() if source in upstream(plan, [v.step])):
            rows.append(
                {
                    "source": source,
                    "view": view,
                    "by": shedding.by,
                    "state": state,
                    "rate": 1 / shedding.divisor,
                    "lowest_rate": 1 / shedding.divisor_max,
                    "kept": kept,
                    "shed": shed,
                    "recovers": shedding.recover and allowed is not None and allowed.recovers,
                }
            )
    return pa.Table.from_pylist(rows, schema=BILL)


def with_bounds(
    plan: Plan, head: Manifest, view: str, rows: pa.Table, squares: Mapping[str, str], counts: Sequence[str]
) -> pa.Table:
    """A view's rows, with `x_low` and `x_high` beside each count and each sum whose squares it has."""
    sources = upstream(plan, [plan.views[view].step]) & set(head.shedding)
    shed = [Shedding.from_json(head.shedding[s]) for s in sources]
    if any(s.by == "key" and s.divisor_max > 1 for s in shed):
        raise InvalidError(
            f"view {view!r} has no bounds",
            detail="its source is shed by key: kept keys are exact, and the others are missing",
        )
    divisor = max((s.divisor_max for s in shed), default=1)
    names = set(rows.column_names)
    if unknown := [n for n in (*counts, *squares, *squares.values()) if n not in names]:
        raise InvalidError(f"no column named {unknown[0]!r}", detail=f"columns are {', '.join(names)}")
    for name in counts:
        low, high = bounds_of_count(_floats(rows, name), divisor)
        rows = rows.append_column(f"{name}_low", pa.array(low)).append_column(f"{name}_high", pa.array(high))
    for name, squared in squares.items():
        low, high = bounds_of_sum(_floats(rows, name), _floats(rows, squared), divisor)
        rows = rows.append_column(f"{name}_low", pa.array(low)).append_column(f"{name}_high", pa.array(high))
        if len(counts) == 1:
            mean, low, high = bounds_of_average(
                _floats(rows, name), _floats(rows, squared), _floats(rows, counts[0]), divisor
            )
            for end, values in (("", mean), ("_low", low), ("_high", high)):
                rows = rows.append_column(f"{name}_avg{end}", pa.array(values))
    return rows


def _floats(rows: pa.Table, name: str) -> Any:
    return rows.column(name).cast(pa.float64()).to_numpy().astype(np.float64)
