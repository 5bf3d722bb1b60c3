"""Checks around every operator, so that none needs to check inside.

Always on in tests; in production they are off by default (`settings.checks`).
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pyarrow as pa

from millpond import delta as deltas
from millpond import hashing
from millpond.errors import InternalError
from millpond.operators.distinct import Distinct
from millpond.operators.operator import Context, StepResult
from millpond.plan.nodes import Node


def check_result(node: Node, result: StepResult, ctx: Context) -> None:
    shape = node.binding.shape
    if result.out is not None:
        columns = [n for n in result.out.column_names if not n.startswith("_")]
        unknown = [n for n in columns if n not in shape.schema.names]
        if unknown:
            _broken(node, ctx, "output has columns that the schema does not", str(unknown))
        for name in columns:
            want, got = shape.schema.field(name).type, result.out.schema.field(name).type
            if pa.types.is_dictionary(got):  # dictionary-encoded by the source, on the way to an exchange
                got = got.value_type
            if want != got:
                _broken(
                    node, ctx, f"column {name!r} has another type than declared", f"{got} instead of {want}"
                )
        weights = deltas.weights(result.out)
        if (weights == 0).any():
            _broken(node, ctx, "output has rows of weight zero", f"{int((weights == 0).sum())} rows")
        if shape.append_only and (weights < 0).any():
            _broken(node, ctx, "an append-only step retracted rows", f"{int((weights < 0).sum())} rows")
    specs = {t.name: t for t in node.binding.tables}
    for change in result.changes:
        spec = specs.get(change.table)
        if spec is None:
            _broken(node, ctx, "a change names a table the step does not have", change.table)
        if deltas.ORIGIN in change.rows.column_names:
            _broken(node, ctx, f"a change of table {change.table!r} brings the origin of its rows", "")
        missing = [n for n in spec.schema.names if n not in change.rows.column_names]
        if missing:
            _broken(node, ctx, f"a change of table {change.table!r} lacks columns", str(missing))
        hashes = hashing.hash_columns([change.rows.column(k) for k in spec.key], change.rows.num_rows)
        if "_h" in change.rows.column_names:
            given_h = change.rows.column("_h").to_numpy()
            if not np.array_equal(given_h, hashes):
                _broken(node, ctx, f"a change of table {change.table!r} has wrong hashes", "")
        if spec.rule == "latest" and change.rows.num_rows:
            low, high = int(hashes.min()), int(hashes.max())
            if low < ctx.h_min or high > ctx.h_max:
                _broken(
                    node, ctx, f"a change of table {change.table!r} lies outside the task's hash range", ""
                )


def check_batched(node: Node, result: StepResult, rows: pa.Table, ctx: Context) -> None:
    """Check that a batched step gives the same state as the step alone; it may also write unchanged rows."""
    (spec,) = node.binding.tables
    columns = [*spec.schema.names, "_w", "_h"]
    unbatched = [change.rows for change in result.changes]
    wanted = {str(row) for part in unbatched for row in part.select(columns).to_pylist()}
    batched = {str(row) for row in rows.select(columns).to_pylist()}
    if not batched >= wanted or (len(batched) > len(wanted) and not isinstance(node.operator, Distinct)):
        detail = f"alone {sorted(wanted - batched)[:3]}, at once {sorted(batched - wanted)[:3]}"
        _broken(node, ctx, "steps that were computed at once gave another state", detail)
    if result.errors is not None and result.errors.num_rows:
        _broken(node, ctx, "steps that were computed at once lost error rows", str(result.errors.num_rows))


def _broken(node: Node, ctx: Context, what: str, detail: str) -> NoReturn:
    raise InternalError(what, detail=detail or None, step=node.step, epoch=ctx.epoch)
