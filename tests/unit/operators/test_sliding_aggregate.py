"""SlidingAggregate: equal to the aggregate of every window, in any order, at any parallelism, at low cost."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pyarrow as pa
import pytest

from millpond import tuning
from millpond.kernels.aggregate_feeds import Agg
from millpond.kernels.bounds import Bound
from millpond.kernels.window_assigners import Cumulating, Sliding, WindowAssigner
from millpond.operators import sliding_aggregate
from millpond.operators.assign_slices import SLICE, AssignSlices
from millpond.operators.operator import Shape
from millpond.operators.sliding_aggregate import SlidingAggregate
from millpond.operators.window import END, START
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun

SECOND = 1_000_000
MARK = "mark"
EPOCH = datetime.datetime(1970, 1, 1)
UNTIL = Bound("ts", ((MARK, 0),), SECOND)
SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("n", pa.int64()), ("x", pa.float64())])
SLICED = SCHEMA.append(pa.field(SLICE, pa.int64()))
AGGS = (
    Agg("c", "count"),
    Agg("t", "sum", "n"),
    Agg("m", "avg", "x"),
    Agg("lo", "min", "x"),
    Agg("hi", "max", "k"),
)
LINEAR = AGGS[:3]


def operator(windows: WindowAssigner, aggs: tuple[Agg, ...] = AGGS) -> SlidingAggregate:
    shown = ("k", START, END)
    return SlidingAggregate(("k",), aggs, windows, UNTIL, shown, START, END, pa.timestamp("us"))


def batch(rng: random.Random, now: int, count: int = 9) -> pa.Table:
    rows = [
        {
            "k": rng.choice(["a", "b", None]),
            "ts": EPOCH + datetime.timedelta(seconds=now + rng.randrange(-12, 4)),
            "n": rng.choice([1, 2, None]),
            "x": rng.choice([rng.randrange(1000) / 8, None]),
        }
        for _ in range(count)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


class Run:
    """Rows go through the assignment of slices, which leaves out those that are late for all windows."""

    def __init__(self, windows: WindowAssigner, aggs: tuple[Agg, ...] = AGGS) -> None:
        self.assign = OperatorRun(
            AssignSlices("ts", windows, UNTIL), [Shape(SCHEMA, append_only=True)], parallelism=1
        )
        self.sliding = OperatorRun(operator(windows, aggs), [Shape(SLICED, append_only=True)])

    def epoch(self, rows: pa.Table | None, mark: int | None, **options: Any) -> pa.Table:
        marks = {} if mark is None else {MARK: mark * SECOND}
        given = self.assign.epoch(rows, watermark=marks)
        given = given if given.num_rows else None
        return self.sliding.epoch(given, watermark=marks, **options)


QUERY = """
  select k, make_timestamp(e - {size}) window_start, make_timestamp(e) window_end,
    count(*) c, sum(n)::bigint t, avg(x) m, min(x) lo, max(k) hi
  from (select *, (window_slice // {slide} + unnest(range(-{size} // {slide} - 2, 2))) * {slide} + {size} e from input0)
  where e - {size} <= window_slice and window_slice < e and e <= {mark} group by k, e"""


@pytest.mark.parametrize(("size", "slide", "epochs"), [(10, 3, 6), (30, 1, 13)])
def test_windows_equal_the_batch_query(size: int, slide: int, epochs: int) -> None:
    windows = Sliding(size * SECOND, slide * SECOND)
    assert codec.loads(codec.dumps(operator(windows))) == operator(windows)
    rng, run, mark = random.Random(size * 100 + slide), Run(windows), None
    for epoch in range(epochs):
        now = 100 + 5 * epoch + (300 if epoch > epochs - 3 else 0)
        run.epoch(
            batch(rng, now), mark if epoch % 3 == 1 else (mark := now - 13), parallelism=rng.randrange(1, 6)
        )
        if epoch == 2:
            run.sliding.compact()
        # No row is late: times are within 12 seconds, and the watermark is 13 behind.
        sql = QUERY.format(size=size * SECOND, slide=slide * SECOND, mark=mark * SECOND)
        run.sliding.check_against(sql)


def test_a_row_behind_the_watermark_counts_in_the_windows_that_are_open() -> None:
    run = Run(Sliding(10 * SECOND, 2 * SECOND), LINEAR)
    row = pa.Table.from_pylist([{"k": "a", "ts": EPOCH + datetime.timedelta(seconds=1), "n": 1}], SCHEMA)
    run.epoch(row, 5)
    assert counts(run) == {2: 1, 4: 1}
    run.epoch(row, 5)  # late for the windows that end at 2 and 4
    assert counts(run) == {2: 1, 4: 1}
    run.epoch(row, 8)  # closes windows in the epoch in which it comes
    assert counts(run) == {2: 1, 4: 1, 6: 3, 8: 3}
    run.epoch(row, 8)
    run.epoch(None, 10)
    assert counts(run) == {2: 1, 4: 1, 6: 3, 8: 3, 10: 4}
    run.epoch(row, 10)  # late for all its windows
    later = pa.Table.from_pylist([{"k": "a", "ts": EPOCH + datetime.timedelta(seconds=15)}], SCHEMA)
    run.epoch(pa.concat_tables([row, later]), 40)  # and so is the first one here
    assert counts(run) == {2: 1, 4: 1, 6: 3, 8: 3, 10: 4} | dict.fromkeys(range(16, 26, 2), 1)


def counts(run: Run) -> dict[int, int]:
    return {
        int((r[END] - EPOCH).total_seconds()): r["c"] for r in run.sliding.output.to_pylist() if r["_w"] > 0
    }


def test_a_long_jump_over_empty_time_costs_the_windows_with_rows() -> None:
    """Nine thousand years of windows, of which 3,600 have a row."""
    run = Run(Sliding(3600 * SECOND, SECOND), AGGS)
    rows = batch(random.Random(1), 0, 1)
    run.epoch(rows, None)
    out = run.epoch(None, 253_402_300_799)
    assert out.num_rows == 3600
    assert run.epoch(None, 253_402_300_800).num_rows == 0


def test_windows_that_grow_share_slices_too() -> None:
    run = Run(Cumulating(2 * SECOND, 10 * SECOND), LINEAR)
    row = pa.Table.from_pylist([{"k": "a", "ts": EPOCH + datetime.timedelta(seconds=5), "n": 1}], SCHEMA)
    run.epoch(row, 6)
    run.epoch(row, 30)
    assert counts(run) == {6: 1, 8: 2, 10: 2}


def test_a_sum_that_does_not_fit_is_an_error_of_its_windows() -> None:
    run = Run(Sliding(4 * SECOND, 2 * SECOND), (Agg("t", "sum", "n"),))
    rows = [{"k": "a", "ts": EPOCH + datetime.timedelta(seconds=s), "n": 2**62} for s in (0, 0, 3, 4)]
    run.epoch(pa.Table.from_pylist(rows, SCHEMA), 20)
    found = {int((r[END] - EPOCH).total_seconds()): r["t"] for r in run.sliding.output.to_pylist()}
    assert found == {2: None, 4: None, 6: None, 8: 2**62}


def test_slices_far_apart_are_read_by_their_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliding_aggregate, "_MANY", 2)
    monkeypatch.setattr(tuning, "SLICE_BUCKETS", 4)
    test_windows_equal_the_batch_query(30, 1, 7)


def test_extremes_are_exact_at_both_ends_of_a_window() -> None:
    """The least value is always in the first slice of a window, and the greatest in the last."""
    aggs = (Agg("lo", "min", "n"), Agg("hi", "max", "n"))
    run = Run(Sliding(30 * SECOND, SECOND), aggs)
    for first in range(0, 91, 7):
        rows = [
            {"k": "a", "ts": EPOCH + datetime.timedelta(seconds=s), "n": s} for s in range(first, first + 7)
        ]
        run.epoch(pa.Table.from_pylist(rows, SCHEMA), first + 5)
    found = {
        int((r[END] - EPOCH).total_seconds()): (r["lo"], r["hi"]) for r in run.sliding.output.to_pylist()
    }
    assert found == {end: (max(end - 30, 0), end - 1) for end in range(1, 90)}
