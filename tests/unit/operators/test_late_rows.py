"""LateRows and Watermark: every row on exactly one side (law 8)."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings

from millpond.errors import InvalidError
from millpond.operators.late_rows import LateRows
from millpond.operators.operator import Shape
from millpond.operators.watermark import Watermark
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SECOND = 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
SHAPE = Shape(SCHEMA, append_only=True)


@settings(max_examples=20, deadline=None)
@given(deltas(SCHEMA, append_only=True), parallelisms())
def test_it_gives_what_the_watermark_leaves_out(given_deltas: list[pa.Table], parallelism: int) -> None:
    watermark = Watermark("ts", SECOND)
    on_time = OperatorRun(watermark, [SHAPE], parallelism=parallelism, step="w")
    late = OperatorRun(LateRows("ts", "w"), [SHAPE], parallelism=parallelism % 7 + 1)
    bound = -(2**60)
    for delta in given_deltas:
        newest = watermark.observe(delta)
        bound = bound if newest is None else max(newest - SECOND, bound)
        on_time.epoch(delta, watermark={"w": bound})
        late.epoch(delta, watermark={"w": bound})
        assert row_counts(late.output) == row_counts(on_time.state("late"))
    assert late.errors.num_rows == 0  # the watermark tells them, once


def test_rows_below_the_bound_that_was_committed() -> None:
    run = OperatorRun(LateRows("ts", "w"), [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 1970-01-01T00:00:01"), watermark={"w": 5 * SECOND})
    assert run.output.num_rows == 0
    run.epoch(rows(SCHEMA, "+2 2 1970-01-01T00:00:04", "+ 3 1970-01-01T00:00:05", "+ 4 NULL"))
    assert {row[0]: n for row, n in row_counts(run.output).items()} == {2: 2}


def test_its_rows_are_bounded_by_no_watermark() -> None:
    operator = LateRows("ts", "w")
    binding = operator.bind("l", (Shape(SCHEMA, append_only=True, key=("k",), time="ts", watermark="w0"),))
    assert binding.shape == Shape(SCHEMA, append_only=True, key=("k",))
    assert operator.requires(binding, frozenset({"k"})) == (frozenset({"k", "ts"}),)
    assert codec.loads(codec.dumps(operator)) == operator
    with pytest.raises(InvalidError, match="not a time"):
        LateRows("k", "w").bind("l", (SHAPE,))
