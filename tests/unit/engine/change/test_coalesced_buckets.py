"""The past of a fill in spans: few of them, each ended whole by one step of time, whatever its rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.engine.change.coalesced_buckets import STEPS, kept_in, next_step, placed, spans_of, stepped
from millpond.kernels.bounds import Bound
from millpond.operators.emit_on_close import EmitOnClose
from millpond.operators.operator import Binding, Shape
from millpond.operators.state_scan import StateScan
from millpond.plan.nodes import Node, Plan
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables.table_spec import TableSpec

SECOND = 1_000_000
MARKS = {"w": {"max": 7_000_000 * SECOND, "bound": 6_999_996 * SECOND}}


def plan(bound: Bound) -> Plan:
    schema = pa.schema([("k", pa.int64()), ("end", pa.timestamp("us"))])
    shape = Shape(schema, True, bounds=(bound,))
    scan = Node("t", StateScan(TableSpec("t/rows", schema, ("k",)), shape), (), Binding(shape, ()))
    hold = EmitOnClose(("k",), bound)
    return Plan({"t": scan, "h": Node("h", hold, ("t",), hold.bind("h", (shape,)))}, {})


@pytest.mark.parametrize("grid", [False, True])
def test_each_step_ends_whole_spans_and_all_that_is_over(grid: bool) -> None:
    bound = Bound("end", (("w", 3 * SECOND),), 2 * SECOND, grid=grid, window="open", by="w")
    spans = spans_of(plan(bound), MARKS)["h/open"]
    assert len(spans) == len(STEPS) and list(spans) == sorted(spans)
    buckets = np.arange(3_400_000, 3_500_100)
    kept = placed(buckets, spans)
    assert len(np.unique(kept[buckets <= spans[-1]])) < 120
    for step, behind_us in enumerate(STEPS):
        limit = bound.limit(lambda s, us=behind_us: stepped(MARKS, us)[s]["bound"])
        assert limit is not None
        first = bound.first_open(limit)
        assert ((kept < first) == (buckets < first)).all(), "neither more nor less than is over"
        assert spans[step] == first - 1
    assert kept_in([3_499_000, 3_500_090], spans) == {
        *placed(np.array([3_499_000]), spans).tolist(),
        3_500_090,
    }


def test_tables_that_wait_for_a_watermark_nobody_knows_are_kept_bucket_by_bucket() -> None:
    bound = Bound("end", (("w", 0), ("other", 0)), SECOND, window="open", by="w")
    assert spans_of(plan(bound), MARKS) == {}


def test_a_step_ends_as_many_rows_as_a_chunk_may_and_always_some() -> None:
    spans = {"h": tuple(range(len(STEPS)))}
    held = [RunRef("h", "f", n, step, 1, 1, 100, 1, 0, 1, "delta") for n, step in enumerate((3, 5, 9))]
    assert next_step(held, spans, None, 250) == (STEPS[8], 200)
    assert next_step(held, spans, None, 10) == (STEPS[3], 100)
    assert next_step(held[1:], spans, STEPS[3], 10) == (STEPS[5], 100)
    assert next_step(held, spans, None, 300) == (0, 300)
    assert next_step([], spans, None, 1) == (0, 0)
