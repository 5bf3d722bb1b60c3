"""Watermark: late rows are kept aside and counted, never lost."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import InvalidError
from millpond.operators.operator import Shape
from millpond.operators.watermark import Watermark
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SECOND = 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
SHAPE = Shape(SCHEMA, append_only=True)


def at(second: int) -> str:
    return f"1970-01-01T00:00:{second:02}"


@settings(max_examples=10, deadline=None)
@given(deltas(SCHEMA, append_only=True), parallelisms(), st.integers(0, 5))
def test_every_row_is_on_time_or_late_or_an_error(
    given_deltas: list[pa.Table], parallelism: int, delay: int
) -> None:
    operator = Watermark("ts", delay * SECOND)
    run = OperatorRun(operator, [SHAPE], parallelism=parallelism)
    bound: int | None = None
    late = 0
    on_time = rows(SCHEMA)
    for number, delta in enumerate(given_deltas):
        newest = operator.observe(delta)
        after = bound if newest is None else max(newest - operator.delay_us, bound or -(2**60))
        before = bound
        run.epoch(
            delta,
            parallelism=(parallelism + number) % 7 + 1,
            watermark={} if after is None else {"step": after},
        )
        bound = after
        times = delta.column("ts").cast(pa.int64()).to_pylist()
        keep = [t is not None and (before is None or t >= before) for t in times]
        on_time = pa.concat_tables([on_time, delta.filter(pa.array(keep, pa.bool_()))])
        late += sum(t is not None and before is not None and t < before for t in times)
        if number == 1:
            run.compact()
    assert row_counts(run.output) == row_counts(on_time)
    assert run.counts["late"] == late == sum(row_counts(run.state("late")).values())
    total = sum(row_counts(run.output).values()) + late + sum(row_counts(run.errors).values())
    assert total == sum(delta.num_rows for delta in given_deltas)


def test_a_row_below_the_committed_bound_is_late_and_one_at_it_is_not() -> None:
    run = OperatorRun(Watermark("ts", 5 * SECOND), [SHAPE])
    run.epoch(rows(SCHEMA, f"+ 1 {at(20)}", f"+ 2 {at(1)}"), watermark=15 * SECOND)
    assert run.output.num_rows == 2  # nothing is late before there is a bound
    run.epoch(rows(SCHEMA, f"+ 3 {at(14)}", f"+2 4 {at(14)}", f"+ 5 {at(15)}"))
    assert {row[0] for row in row_counts(run.output)} == {1, 2, 5}
    assert {row[0]: n for row, n in row_counts(run.state("late")).items()} == {3: 1, 4: 2}
    assert run.counts["late"] == 3


def test_a_row_without_a_time_is_an_error_row() -> None:
    run = OperatorRun(Watermark("ts", 0), [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 NULL", f"+ 2 {at(1)}"))
    assert [row for row in row_counts(run.errors)] == [('{"k":1,"ts":null}', "time column 'ts' is NULL")]
    assert run.output.num_rows == 1


def test_what_is_observed_is_the_newest_time() -> None:
    operator = Watermark("ts", 5)
    assert operator.observe(rows(SCHEMA, "+ 1 NULL", f"+ 2 {at(3)}", f"+ 3 {at(2)}")) == 3 * SECOND
    assert operator.observe(rows(SCHEMA, "+ 1 NULL")) is None
    assert operator.observe(rows(SCHEMA)) is None


def test_the_output_is_bounded_by_this_step() -> None:
    binding = Watermark("ts", 5).bind("w", (Shape(SCHEMA, append_only=True, key=("k",)),))
    assert (binding.shape.time, binding.shape.watermark, binding.shape.key) == ("ts", "w", ("k",))
    assert [table.name for table in binding.tables] == ["w/late"]


@pytest.mark.parametrize(
    ("operator", "shape", "message"),
    [
        (Watermark("ts", 5), Shape(SCHEMA, append_only=False), "append-only"),
        (Watermark("k", 5), SHAPE, "not a time"),
        (Watermark("ts", -5), SHAPE, "cannot be negative"),
        (Watermark("ts", 5, drift_us=-1), SHAPE, "drift of partitions cannot be negative"),
    ],
)
def test_wrong_watermarks_are_refused(operator: Watermark, shape: Shape, message: str) -> None:
    with pytest.raises(InvalidError, match=message) as caught:
        operator.bind("w", (shape,))
    assert caught.value.step == "w"


def test_it_is_stored_and_comes_back() -> None:
    operator = Watermark("ts", 5)
    assert codec.loads(codec.dumps(operator)) == operator
