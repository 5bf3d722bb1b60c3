"""Rows that wait for the clock, by deadline: time finds what is due without a look at the rest.

There is one bucketed table per width.  A row is written into the narrowest that
reaches its deadline; when time comes to the start of a bucket, what is due is
handed out and the rest moves to a narrower table.  So a row far off costs a few
moves, never a look in every epoch (law 5).  A bucket of the narrowest table is
one instant, so it is always due as a whole, and each table's earliest bucket
says when an epoch has something to do.  Weights are kept: what is taken back is
found where it lies and leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import delta as deltas
from millpond.errors import InternalError
from millpond.identity import one_chunk
from millpond.operators.operator import Change, Context, Wake
from millpond.state.table import KeySet
from millpond.state.table_spec import TableSpec

Ints = npt.NDArray[np.int64]

AT = "_at"  # the deadline of a row, beside its columns
INSTANT = pa.timestamp("us")

WIDTHS = (1, *(1000 * 8**tier for tier in range(12)))  # 1 us, then 1 ms, 8 ms, … to 99 days
_REACH = (WIDTHS[1], *(64 * width for width in WIDTHS[1:-1]))  # a deadline nearer than this is for that tier


def due_tables(step: str, schema: pa.Schema, key: tuple[str, ...]) -> tuple[TableSpec, ...]:
    whole = schema.append(pa.field(AT, INSTANT))
    return tuple(
        TableSpec(due_name(step, tier), whole, key, rule="weights", time=AT, bucket_width=width)
        for tier, width in enumerate(WIDTHS)
    )


def due_name(step: str, tier: int) -> str:
    return f"{step}/due.{tier}"


def wakes(step: str) -> tuple[Wake, ...]:
    return tuple(Wake(due_name(step, tier), width, 0) for tier, width in enumerate(WIDTHS))


def is_due(step: str, earliest: Mapping[str, int], now_us: int) -> bool:
    return any(
        earliest[name] * width <= now_us
        for tier, width in enumerate(WIDTHS)
        if (name := due_name(step, tier)) in earliest
    )


@dataclass(frozen=True)
class Opened:
    """The buckets that time has reached."""

    due: pa.Table | None  # rows whose deadline has come, with their weights
    later: pa.Table | None  # the others, to be written again
    drops: tuple[tuple[str, int], ...]


def open_due(ctx: Context) -> Opened:
    drops, found = [], []
    for tier, width in enumerate(WIDTHS):
        name, bound = due_name(ctx.step, tier), ctx.now_us // width + 1
        table = ctx.table(name, below_bucket=bound)
        if table.runs:
            found.append(table.scan().drop_columns([deltas.HASH]))
        drops.append((name, bound))
    if not found:
        return Opened(None, None, ())
    rows = pa.concat_tables(found)
    come = deadlines(rows) <= ctx.now_us
    return Opened(rows.filter(pa.array(come)), rows.filter(pa.array(~come)), tuple(drops))


def written(ctx: Context, rows: pa.Table) -> list[Change]:
    """Rows with deadlines after now put where they wait; those of negative weight are taken from there."""
    rows = deltas.consolidate(rows)
    weights = deltas.weights(rows)
    found = _taken(ctx, rows.filter(pa.array(weights < 0)))
    fresh = rows.filter(pa.array(weights > 0))
    tiers = np.searchsorted(np.array(_REACH, np.int64), deadlines(fresh) - ctx.now_us, side="right")
    for tier in np.unique(tiers).tolist():
        found.append(Change(due_name(ctx.step, tier), fresh.filter(pa.array(tiers == tier))))
    return found


def _taken(ctx: Context, owed: pa.Table) -> list[Change]:
    """Look for what is taken back in each table, at its deadline; buckets that time has reached are over."""
    found = []
    for tier, width in enumerate(WIDTHS):
        if not owed.num_rows:
            break
        buckets = {b for b in np.unique(deadlines(owed) // width).tolist() if b > ctx.now_us // width}
        table = ctx.table(due_name(ctx.step, tier), buckets=buckets)
        if not table.runs:
            continue
        held = table.lookup(KeySet.of(owed, table.spec.key)).table.select(owed.column_names)
        after = deltas.consolidate(deltas.concat([owed, held]))
        rest = after.filter(pa.array(deltas.weights(after) < 0))
        taken = deltas.consolidate(deltas.concat([owed, deltas.negate(rest)]))
        if taken.num_rows:
            found.append(Change(table.spec.name, taken))
        owed = rest
    if owed.num_rows:
        raise InternalError(
            "a row was taken back that is not there",
            detail=f"{owed.num_rows} rows, first {owed.slice(0, 1).to_pylist()[0]}",
            hint="a retraction met no row; the step that sent it is at fault",
            step=ctx.step,
            epoch=ctx.epoch,
        )
    return found


def deadlines(rows: pa.Table) -> Ints:
    found: Ints = one_chunk(rows.column(AT)).cast(pa.int64()).to_numpy()
    return found
