"""The past of a fill in few buckets: what is over by its end anyway.

Rows of the past come to a fill in no order of time, so nothing of them may end before
all are in.  But where watermarks stand at the epoch that it reads is known, and so is
which buckets are over by then.  Those are not told apart one by one: there may be one for every
second of years, and each would be a run of every chunk.  They are put together in *spans*, the longer the
further they lie behind; a span is kept under the number of its last bucket.

Law: time then comes in steps, from span to span, and each step ends whole spans:
those and no other buckets lie behind the bound of the step (`stepped`).  So an operator
sees what it would see, had every bucket been kept for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millpond.engine import watermarks
from millpond.plan.nodes import Plan
from millpond.state.run_ref import RunRef
from millpond.state.table_spec import TableSpec

Ints = npt.NDArray[np.int64]
Spans = Mapping[str, tuple[int, ...]]  # by table: for each step, the last bucket that is over then

_SECOND_US = 1_000_000
_DOUBLINGS = 32  # of a second: as far behind as anything is told apart
_PARTS = 4  # of each doubling
# How far behind its end time stands at each step, the farthest first.
STEPS = (
    *sorted(
        ((_PARTS + part) * _SECOND_US * 2**doubling // _PARTS)
        for doubling in range(_DOUBLINGS)
        for part in range(_PARTS)
    )[::-1],
    0,
)


def stepped(marks: Mapping[str, Any], behind_us: int) -> dict[str, Any]:
    """Watermarks as they were so long before.

    >>> stepped({"s": {"max": 50, "bound": 40}}, 15)
    {'s': {'max': 50, 'bound': 25}}
    """
    return {step: {**mark, "bound": mark["bound"] - behind_us} for step, mark in marks.items()}


def spans_of(plan: Plan, marks: Mapping[str, Any]) -> Spans:
    """The spans of all tables that end by watermarks, when these have come to `marks`."""
    found: dict[str, tuple[int, ...]] = {}
    each = [stepped(marks, behind_us) for behind_us in STEPS]
    for node in plan.nodes.values():
        ends = getattr(node.operator, "ends", None)
        specs = {table.name: table for table in node.binding.tables}
        for table, bound in () if ends is None else ends(node.binding):
            if not _told_apart(specs[table]):
                continue
            limits = [bound.limit(lambda step, at=at: watermarks.bound(at, step)) for at in each]
            if None not in limits:
                found[table] = tuple(bound.first_open(limit) - 1 for limit in limits if limit is not None)
    return found


def next_step(held: Iterable[RunRef], spans: Spans, before: int | None, rows_max: int) -> tuple[int, int]:
    """(how far behind its end time comes next, rows that end): as near as ends few enough rows."""
    ended = np.zeros(len(STEPS), np.int64)
    for ref in held:
        if ref.bucket is not None and ref.table in spans:
            step = int(np.searchsorted(np.array(spans[ref.table], np.int64), ref.bucket, side="left"))
            if step < len(STEPS):
                ended[step] += ref.rows
    ended = ended.cumsum()
    left = [n for n, behind_us in enumerate(STEPS) if before is None or behind_us < before]
    some = next((n for n in left if ended[n] > 0), left[-1])
    found = max(n for n in left if n == some or ended[n] <= max(rows_max, 0))
    return STEPS[found], int(ended[found])


def _told_apart(spec: TableSpec) -> bool:
    """May rows of several buckets lie in one?  Not where the same key may be in two of them."""
    return spec.rule == "weights" or spec.time in (*spec.key, *(o.column for o in spec.order))


def placed(buckets: Ints, spans: Sequence[int]) -> Ints:
    """Where rows of these buckets are kept.

    >>> placed(np.array([-9, 3, 4, 5, 6, 7]), (3, 6)).tolist()
    [3, 3, 6, 6, 6, 7]
    """
    last = np.array(spans, np.int64)
    places = np.searchsorted(last, buckets, side="left")
    inside = places < len(last)
    return np.where(inside, last[np.where(inside, places, 0)], buckets)


def kept_in(buckets: Iterable[int], spans: Sequence[int]) -> frozenset[int]:
    """Where rows of some buckets are looked for."""
    return frozenset(placed(np.fromiter(buckets, np.int64), spans).tolist())
