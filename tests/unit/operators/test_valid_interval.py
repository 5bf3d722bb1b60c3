"""ValidInterval against a filter at the time of the epoch."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import InternalError, InvalidError
from millpond.operators import valid_interval
from millpond.operators.operator import Shape
from millpond.operators.valid_interval import ValidInterval
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])
SHAPE = Shape(SCHEMA, append_only=False)
SINCE, UNTIL = "make_timestamp(a * 1000 * {0})", "make_timestamp(b * 1700 * {0})"


@pytest.mark.parametrize("kind", ["both", "since", "until"])
@settings(max_examples=5, deadline=None)
@given(
    given_deltas=deltas(SCHEMA, epochs=6),
    steps=st.lists(st.sampled_from([0, 1, 999, 1700, 70_000, 10**7, 10**9]), min_size=6, max_size=6),
    scale=st.sampled_from([1, 40, 10**6]),
    parallelism=parallelisms(),
)
def test_it_is_a_filter_by_the_clock(
    kind: str, given_deltas: list[pa.Table], steps: list[int], scale: int, parallelism: int
) -> None:
    since = None if kind == "until" else SINCE.format(scale)
    until = None if kind == "since" else UNTIL.format(scale)
    run = OperatorRun(ValidInterval(since, until), [SHAPE], parallelism=parallelism)
    now = 0
    for number, delta in enumerate(given_deltas):
        now += steps[number % len(steps)]
        at = f"make_timestamp({now})"
        conditions = [f"{since} <= {at}" if since else "true", f"{at} < {until}" if until else "true"]
        for shown in (delta, None):
            run.epoch(shown, now_us=now, parallelism=(parallelism + number) % 7 + 1)
            run.check_against(f"select * from input0 where {' and '.join(conditions)}")
        if number % 2:
            run.compact()


def test_a_row_costs_a_few_moves_and_leaves_nothing_behind() -> None:
    """Law 5: a row that waits for a day is looked at a few times, however many epochs there are."""
    schema = pa.schema([("k", pa.int64()), ("a", pa.int64())])
    run = OperatorRun(ValidInterval(None, "make_timestamp(a)"), [Shape(schema, append_only=True)])
    day = 86_400_000_000
    run.epoch(rows(schema, f"+ 1 {day}", f"+ 2 {day + 1}"), now_us=0)
    binding = run.binding
    looks, now = 0, 0
    while now < day + 1:
        now += 600_000_001 if day - now > 700_000_000 else 9_000_000
        earliest = {
            t.name: int(t.bucket_of(found["_at"]).min())
            for t in binding.tables
            if (found := run.state(t.name.rpartition("/")[2])).num_rows
        }
        if run.operator.due(binding, earliest, {}, min(now, day + 1)):  # type: ignore[attr-defined]
            looks += 1
            run.epoch(None, now_us=min(now, day + 1))
    assert looks <= len(valid_interval.WIDTHS)
    assert row_counts(run.output) == {}
    assert all(not run.state(t.name.rpartition("/")[2]).num_rows for t in binding.tables)


def test_what_is_taken_back_is_found_wherever_it_waits() -> None:
    schema = pa.schema([("k", pa.int64()), ("a", pa.int64())])
    run = OperatorRun(ValidInterval(None, "make_timestamp(a)"), [Shape(schema, append_only=False)])
    run.epoch(rows(schema, "+2 1 5000000000", "+ 2 5000000000"), now_us=0)
    run.epoch(None, now_us=4_900_000_000)  # some moved
    assert row_counts(run.epoch(rows(schema, "+ 1 5000000000", "- 2 5000000000"), now_us=4_900_000_001)) == {
        (1, 5_000_000_000): 1,
        (2, 5_000_000_000): -1,
    }
    run.epoch(rows(schema, "-3 1 5000000000"), now_us=4_999_999_999)
    assert all(not run.state(t.name.rpartition("/")[2]).num_rows for t in run.binding.tables)
    with pytest.raises(InternalError, match="retracted that is not there"):
        run.epoch(rows(schema, "- 7 5000000000"), now_us=4_999_999_999)


def test_bounds_are_times_and_there_is_one() -> None:
    with pytest.raises(InvalidError, match="needs a bound"):
        ValidInterval(None, None).bind("d", (SHAPE,))
    with pytest.raises(InvalidError, match="is a timestamp"):
        ValidInterval("a", None).bind("d", (SHAPE,))


def test_it_is_stored_with_the_plan() -> None:
    operator = ValidInterval("make_timestamp(a)", None)
    binding = operator.bind("d", (Shape(SCHEMA, True),))
    assert codec.loads(codec.dumps(operator)) == operator
    assert codec.loads(codec.dumps(binding)) == binding
    assert binding.shape.append_only, "what has no end is never taken back"
