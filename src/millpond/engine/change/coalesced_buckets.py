"""Merges time buckets that will have closed before a backfill ends.

A backfill reads past rows in no order of time, so no bucket may close before all rows are read.  But the
watermarks at the epoch that it reads are known, and so are the buckets that are closed by then.  There may
be one for every second of years, and each would be a run of every chunk.  So they are coalesced into *spans*,
which are longer the older they are; a span is stored under the number of its last bucket.

Law: watermarks then rise in steps, from span to span, and each step closes complete spans: exactly the
buckets behind the bound of the step (`stepped`).  So an operator sees the same as with separate buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from millpond.engine.task import watermarks
from millpond.operators.traits import EndsState
from millpond.plan.nodes import Plan
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]
Spans = Mapping[str, tuple[int, ...]]  # by table: for each step, the last bucket that has closed

_SECOND_US = 1_000_000
_DOUBLINGS = 32  # powers of two of a second: older times share one span
_PARTS = 4  # steps per power of two
# By step, how far watermarks are behind their final values, in microseconds; the farthest first.
STEPS = (
    *sorted(
        ((_PARTS + part) * _SECOND_US * 2**doubling // _PARTS)
        for doubling in range(_DOUBLINGS)
        for part in range(_PARTS)
    )[::-1],
    0,
)


def stepped(watermarks: Mapping[str, Any], behind_us: int) -> dict[str, Any]:
    """Watermarks moved back by this much.

    >>> stepped({"s": {"max": 50, "bound": 40}}, 15)
    {'s': {'max': 50, 'bound': 25}}
    """
    return {step: {**mark, "bound": mark["bound"] - behind_us} for step, mark in watermarks.items()}


def spans_of(plan: Plan, reached: Mapping[str, Any]) -> Spans:
    """The spans of all tables whose buckets close by watermarks, when these have risen to `reached`."""
    spans: dict[str, tuple[int, ...]] = {}
    each = [stepped(reached, behind_us) for behind_us in STEPS]
    for node in plan.nodes.values():
        if not isinstance(node.operator, EndsState):
            continue
        specs = {table.name: table for table in node.binding.tables}
        for table, bound in node.operator.ends(node.binding):
            if not _may_coalesce(specs[table]):
                continue
            limits = [bound.limit(partial(watermarks.bound, at)) for at in each]
            if None not in limits:
                spans[table] = tuple(bound.first_open(limit) - 1 for limit in limits if limit is not None)
    return spans


def next_step(runs: Iterable[RunRef], spans: Spans, before: int | None, rows_max: int) -> tuple[int, int]:
    """Choose the next step that closes few enough rows: (how far watermarks stay behind, rows closed)."""
    ended = np.zeros(len(STEPS), np.int64)
    for ref in runs:
        if ref.bucket is not None and ref.table in spans:
            step = int(np.searchsorted(np.array(spans[ref.table], np.int64), ref.bucket, side="left"))
            if step < len(STEPS):
                ended[step] += ref.rows
    ended = ended.cumsum()
    left = [n for n, behind_us in enumerate(STEPS) if before is None or behind_us < before]
    some = next((n for n in left if ended[n] > 0), left[-1])
    chosen = max(n for n in left if n == some or ended[n] <= max(rows_max, 0))
    return STEPS[chosen], int(ended[chosen])


def _may_coalesce(spec: TableSpec) -> bool:
    """May buckets be coalesced?  Not if the same key may be in two of them."""
    return spec.rule == "weights" or spec.time in (*spec.key, *(o.column for o in spec.order))


def placed(buckets: Ints, spans: Sequence[int]) -> Ints:
    """The buckets in which rows of these buckets are stored.

    >>> placed(np.array([-9, 3, 4, 5, 6, 7]), (3, 6)).tolist()
    [3, 3, 6, 6, 6, 7]
    """
    last = np.array(spans, np.int64)
    places = np.searchsorted(last, buckets, side="left")
    inside = places < len(last)
    return np.where(inside, last[np.where(inside, places, 0)], buckets)


def kept_in(buckets: Iterable[int], spans: Sequence[int]) -> frozenset[int]:
    """The buckets to read for rows of these buckets."""
    return frozenset(placed(np.fromiter(buckets, np.int64), spans).tolist())
