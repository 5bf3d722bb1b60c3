"""Tumble and Hop: which windows a row falls into."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond import tuning
from millpond.delta import weights
from millpond.errors import InvalidError
from millpond.kernels.aggregate_feeds import Agg, AggregateFeed
from millpond.kernels.window_assigners import Sliding
from millpond.operators.aggregate import Aggregate
from millpond.operators.assign_windows import AssignWindows
from millpond.operators.operator import Operator, Shape
from millpond.operators.window import END, START, Hop, Spread, Tumble
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SECOND = 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
SHAPE = Shape(SCHEMA, append_only=False)
NOT_NULL = {
    "ts": st.integers(-20, 20).map(lambda n: datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=n))
}


@settings(max_examples=10, deadline=None)
@given(deltas(SCHEMA, values=NOT_NULL), parallelisms())
def test_tumble_is_time_bucket(given_deltas: list[pa.Table], parallelism: int) -> None:
    run = OperatorRun(Tumble("ts", 7 * SECOND, offset_us=2 * SECOND), [SHAPE], parallelism=parallelism)
    for number, delta in enumerate(given_deltas):
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        run.check_against(
            """select *, time_bucket(interval 7 second, ts, timestamp '1970-01-01 00:00:02') as window_start,
                      window_start + interval 7 second as window_end from input0"""
        )


@pytest.mark.parametrize(("size", "slide"), [(10, 5), (10, 3), (4, 4), (10, 1)])
@settings(max_examples=10, deadline=None)
@given(given_deltas=deltas(SCHEMA, values=NOT_NULL), parallelism=parallelisms())
def test_hop_is_every_window_that_holds_the_row(
    size: int, slide: int, given_deltas: list[pa.Table], parallelism: int
) -> None:
    run = OperatorRun(Hop("ts", size * SECOND, slide * SECOND), [SHAPE], parallelism=parallelism)
    for number, delta in enumerate(given_deltas):
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        run.check_against(
            f"""select i.*, s as window_start, s + interval {size} second as window_end
                from input0 i, generate_series(-100, 100) as g(n),
                     lateral (select timestamp '1970-01-01' + to_seconds(n * {slide}) as s)
                where s <= ts and ts < s + interval {size} second"""
        )


@pytest.fixture(params=[2, 8])
def sums_min(request: pytest.FixtureRequest) -> Iterator[int]:
    """From how many windows per row on groups are added up instead of repeated."""
    before, tuning.SPREAD_SUMS_WINDOWS_MIN = tuning.SPREAD_SUMS_WINDOWS_MIN, request.param
    yield request.param
    tuning.SPREAD_SUMS_WINDOWS_MIN = before


@pytest.mark.usefixtures("sums_min")
@pytest.mark.parametrize(("size", "slide"), [(10, 5), (4, 4), (10, 1)])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_deltas=deltas(SCHEMA, values=NOT_NULL), parallelism=parallelisms())
def test_groups_of_rows_given_once_are_spread_over_every_window(
    size: int, slide: int, given_deltas: list[pa.Table], parallelism: int
) -> None:
    hop = Hop("ts", size * SECOND, slide * SECOND, offset_us=SECOND)
    assert hop.spread is not None
    aggs = (Agg("n", "count"), Agg("total", "sum", "k"), Agg("given", "count", "k"))
    flat = Aggregate(("k", START, END), aggs, (AggregateFeed("rows", (0, 1, 2)),))
    check_spread(hop, replace(hop, latest=True), flat, hop.spread, given_deltas, parallelism)


@pytest.mark.usefixtures("sums_min")
@pytest.mark.parametrize("function", ["min", "max", "avg", "approx_count_distinct"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_deltas=deltas(SCHEMA, append_only=True, values=NOT_NULL), parallelism=parallelisms())
def test_other_accumulators_are_spread_as_well(
    function: str, given_deltas: list[pa.Table], parallelism: int
) -> None:
    """A sketch cannot be taken back: there, groups are repeated."""
    windows = AssignWindows("ts", Sliding(10 * SECOND, 3 * SECOND))
    latest = replace(windows, latest=True)
    flat = Aggregate((START, END), (Agg("x", function, "k"),), (AggregateFeed("rows", (0,)),))
    check_spread(windows, latest, flat, latest.spread, given_deltas, parallelism)


def check_spread(
    windows: Operator,
    latest: Operator,
    flat: Aggregate,
    spread: Spread,
    given_deltas: list[pa.Table],
    parallelism: int,
) -> None:
    append_only = all((weights(d) > 0).all() for d in given_deltas) and isinstance(windows, AssignWindows)
    given = Shape(SCHEMA, append_only)
    runs = [OperatorRun(one, [given]) for one in (windows, latest)]
    sides = (flat, replace(flat, spread=spread))
    totals = [
        OperatorRun(one, [run.binding.shape], parallelism=parallelism)
        for one, run in zip(sides, runs, strict=True)
    ]
    for delta in given_deltas:
        for run, total in zip(runs, totals, strict=True):
            total.epoch(run.epoch(delta), parallelism=parallelism)
        assert row_counts(totals[0].output) == row_counts(totals[1].output)


def test_windows_that_no_slide_divides_are_not_spread() -> None:
    assert Hop("ts", 10 * SECOND, 3 * SECOND).spread is None


@pytest.mark.parametrize(
    ("kind", "value", "start"),
    [
        (pa.timestamp("s"), 61, "1970-01-01 00:01:00"),
        (pa.timestamp("ms"), 61_500, "1970-01-01 00:01:00"),
        (pa.timestamp("ns"), 119_999_999_999, "1970-01-01 00:01:00"),
        (pa.timestamp("ns"), -1, "1969-12-31 23:59:00"),
        (pa.timestamp("us", "Europe/Berlin"), 61_000_000, "1970-01-01 00:01:00"),
        (pa.date32(), 2, "1970-01-03 00:00:00"),
        (pa.date64(), 2 * 86_400_000, "1970-01-03 00:00:00"),
    ],
)
def test_time_columns_of_every_kind(kind: pa.DataType, value: int, start: str) -> None:
    schema = pa.schema([("t", kind)])
    operator = Tumble("t", 60 * SECOND)
    run = OperatorRun(operator, [Shape(schema, append_only=True)])
    integer = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    run.epoch(pa.table([pa.array([value], integer).cast(kind)], schema=schema))
    zone = kind.tz if pa.types.is_timestamp(kind) else None
    column = run.output.column("window_start")
    assert column.type == pa.timestamp("us", zone)
    assert str(column.cast(pa.timestamp("us")).to_pylist()[0]) == start
    length = (
        run.output.column("window_end").cast(pa.int64()).to_pylist()[0]
        - column.cast(pa.int64()).to_pylist()[0]
    )
    assert length == 60 * SECOND


@pytest.mark.parametrize("operator", [Tumble("ts", 10 * SECOND), Hop("ts", 10 * SECOND, 5 * SECOND)])
def test_a_row_without_a_time_is_an_error_row(operator: Operator) -> None:
    run = OperatorRun(operator, [SHAPE])
    far = pa.array([2**62], pa.int64()).cast(pa.timestamp("us"))
    run.epoch(
        pa.concat_tables(
            [
                rows(SCHEMA, "+ 1 NULL", "+ 2 1970-01-01T00:00:01").select(SCHEMA.names),
                pa.table([pa.array([3]), far], schema=SCHEMA),
            ]
        )
    )
    assert {row[0] for row in row_counts(run.output)} == {2}
    assert sorted(reason for _, reason in row_counts(run.errors)) == [
        "time column 'ts' is NULL",
        "time column 'ts' is out of range",
    ]
    run.epoch(rows(SCHEMA, "- 1 NULL"))
    assert run.errors.num_rows == 1


def test_what_is_known_of_the_output() -> None:
    shape = Shape(SCHEMA, append_only=True, key=("k",), time="ts", watermark="w")
    tumbled = Tumble("ts", SECOND).bind("t", (shape,)).shape
    assert (tumbled.append_only, tumbled.key, tumbled.time, tumbled.watermark) == (
        True,
        ("k",),
        "window_end",
        "w",
    )
    assert Hop("ts", SECOND, SECOND // 2).bind("t", (shape,)).shape.key == ("k", "window_start")
    assert Tumble("ts", SECOND).bind("t", (SHAPE,)).shape.time is None


def test_it_works_with_the_columns_it_requires() -> None:
    run = OperatorRun(Tumble("ts", 10 * SECOND), [SHAPE], needed=["window_end"])
    assert run.asked == [["ts"]]
    run.epoch(rows(SCHEMA, "+ 1 1970-01-01T00:00:12"))
    run.check_against("select timestamp '1970-01-01 00:00:20' as window_end")


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (Tumble("tss", SECOND), "no column 'tss'"),
        (Tumble("k", SECOND), "'k' is not a time"),
        (Tumble("ts", 0), "size of a window must be positive"),
        (Tumble("ts", 2**62), "size of a window is longer than the calendar"),
        (Hop("ts", SECOND, 0), "slide of a window must be positive"),
    ],
)
def test_wrong_windows_are_refused(operator: Operator, message: str) -> None:
    with pytest.raises(InvalidError, match=message) as caught:
        operator.bind("w", (SHAPE,))
    assert caught.value.step == "w"


def test_a_column_of_the_same_name_is_refused() -> None:
    schema = pa.schema([("ts", pa.timestamp("us")), ("window_end", pa.int64())])
    with pytest.raises(InvalidError, match="already has a column 'window_end'"):
        Tumble("ts", 1).bind("w", (Shape(schema, append_only=True),))


def test_they_are_stored_and_come_back() -> None:
    for operator in (Tumble("ts", 5, 1), Hop("ts", 5, 2)):
        assert codec.loads(codec.dumps(operator)) == operator
