"""Aggregates against plain Python, DuckDB and the generic operator, over input that comes and goes."""

from __future__ import annotations

import datetime
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import hashing
from millpond.delta import concat, consolidate, weights, with_weights
from millpond.errors import InvalidError
from millpond.kernels.aggregate_feeds import Agg, Close, feeds_for
from millpond.operators.aggregate import Aggregate
from millpond.operators.distinct import Distinct
from millpond.operators.operator import Shape
from millpond.operators.per_key import PerKey
from millpond.plan import codec
from tests.unit.operators.harness import (
    OperatorRun,
    assert_same_rows,
    deltas,
    expand,
    parallelisms,
    plain,
    row_counts,
    rows,
)

MORE = int(os.environ.get("MILLPOND_EXAMPLES", "1"))  # how many times more random examples

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.string()),
        ("g", pa.float64()),
        ("c", pa.decimal128(9, 2)),
        ("i8", pa.int8()),
        ("i64", pa.int64()),
        ("u64", pa.uint64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("d", pa.decimal128(38, 3)),
        ("t", pa.timestamp("us")),
        ("b", pa.bool_()),
    ]
)
KEYS = [(), ("k",), ("s",), ("g",), ("c",), ("k", "s"), ("b", "c", "k")]
NUMBERS = ["i8", "i64", "u64", "f32", "f64", "d"]
SPREADS = ["var_samp", "var_pop", "stddev_samp", "stddev_pop"]
FINITE = [0.0, -0.0, 0.1, 0.2, -0.3, 1e16, -1e16, 1e-300, 3.5, 2.0**-1074, 1.7e308]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "k": st.integers(0, 2) | st.none(),
    "s": st.sampled_from(["", "a", "a string that is long", None]),
    "g": st.sampled_from([0.0, -0.0, math.nan, 1.5, None]),
    "c": st.sampled_from([Decimal("0.00"), Decimal("-1.10"), None]),
    "i8": st.sampled_from([-128, 127, 0, None]),
    "i64": st.sampled_from([0, 1, -1, 2**62, 2**63 - 1, -(2**63), None]),
    "u64": st.sampled_from([0, 1, 2**63, 2**64 - 1, None]),
    "f32": st.sampled_from([0.5, -0.0, 3.25, math.inf, None]),
    "f64": st.sampled_from([*FINITE, math.nan, math.inf, -math.inf, None]),
    "d": st.sampled_from([Decimal("0.001"), Decimal("9" * 35), Decimal("-" + "9" * 35), None]),
}


def aggs_of(draw: st.DrawFn) -> tuple[Agg, ...]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        function = draw(st.sampled_from(["count", "count", "sum", "sum", "avg", "min", "max", *SPREADS]))
        numeric = function in ("sum", "avg", *SPREADS)
        columns: list[str | None] = [*NUMBERS] if numeric else [*SCHEMA.names]
        column = draw(st.sampled_from([*columns, None] if function == "count" else columns))
        distinct = column is not None and draw(st.booleans())
        found.append(Agg(f"a{number}", function, column, distinct))
    return tuple(found)


some_aggs = st.composite(aggs_of)


class AggregateRun:
    """An Aggregate with the steps that a plan puts in front of it."""

    def __init__(
        self,
        key: Sequence[str],
        aggs: Sequence[Agg],
        schema: pa.Schema = SCHEMA,
        *,
        append_only: bool = False,
    ) -> None:
        self.key, self.aggs, self.schema = tuple(key), tuple(aggs), schema
        self.operator = Aggregate(self.key, self.aggs, feeds_for(aggs, append_only))
        shape = Shape(schema, append_only=append_only)
        self.distincts = {
            j: OperatorRun(
                Distinct(tuple(dict.fromkeys((*self.key, feed.column)))), [shape], step=f"distinct{j}"
            )
            for j, feed in enumerate(self.operator.feeds)
            if feed.kind == "distinct" and feed.column is not None
        }
        shapes = [
            self.distincts[j].binding.shape if j in self.distincts else shape
            for j in range(len(self.operator.feeds))
        ]
        self.run = OperatorRun(self.operator, shapes)

    def epoch(self, delta: pa.Table, **options: Any) -> pa.Table:
        inputs = []
        for j, feed in enumerate(self.operator.feeds):
            if j in self.distincts:
                given_value = delta.filter(delta.column(feed.column).is_valid())
                inputs.append(self.distincts[j].epoch(given_value, **options))
            else:
                inputs.append(delta)
        return self.run.epoch(*inputs, **options)

    def compact(self) -> None:
        for run in (self.run, *self.distincts.values()):
            run.compact()

    def check(self) -> None:
        """Every group's row, bit for bit, and every error row."""
        want, errors = model(self.run.inputs[0], self.key, self.aggs)
        assert_same_rows(bits(self.run.output), want, "integrated output", "plain Python")
        found = {(row["row"], row["reason"]): row["_w"] for row in self.run.errors.to_pylist()}
        assert {key: w for key, w in found.items() if w} == errors

    def sql(self) -> str:
        shown = [*self.key, *(f"{spoken(agg)} as {agg.name}" for agg in self.aggs)]
        grouping = f" group by {', '.join(self.key)}" if self.key else " having count(*) > 0"
        return f"select {', '.join(shown)} from input0{grouping}"


def spoken(agg: Agg) -> str:
    return f"{agg.function}({'distinct ' if agg.distinct else ''}{agg.argument or '*'})"


def bits(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Rows with floats spelled out, so that every bit counts."""
    return Counter({tuple(exactly(v) for v in row): w for row, w in row_counts(table).items()})


def exactly(value: Any) -> Any:
    return value.hex() if isinstance(value, float) else value


# ---------------------------------------------------------------- plain Python


def model(
    table: pa.Table, key: Sequence[str], aggs: Sequence[Agg]
) -> tuple[Counter[tuple[Any, ...]], dict[tuple[str, str], int]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in expand(table).to_pylist():
        groups.setdefault(tuple(plain(row[name]) for name in key), []).append(row)
    found: Counter[tuple[Any, ...]] = Counter()
    errors: dict[tuple[str, str], int] = {}
    for group, members in groups.items():
        shown: list[Any] = [exactly(v) for v in group]
        for agg in aggs:
            kind = None if agg.argument is None else table.schema.field(agg.argument).type
            value, reason = compute(agg, members, kind)
            shown.append(exactly(plain(value)))
            if reason:
                errors[as_json(group, key), f"{agg.name}: {reason}"] = 1
        found[tuple(shown)] += 1
    return found, errors


def as_json(group: tuple[Any, ...], key: Sequence[str]) -> str:
    """A key as error rows show it."""
    parts = []
    for name, value in zip(key, group, strict=True):
        # DuckDB writes decimals into JSON as numbers: 0.0 and -1.1, without the zeros behind.
        text = json.dumps(float(value) if isinstance(value, Decimal) else value)
        parts.append(f"{json.dumps(name)}:{text}")
    return "{" + ",".join(parts) + "}"


def compute(agg: Agg, members: list[dict[str, Any]], kind: pa.DataType | None) -> tuple[Any, str | None]:
    if agg.argument is None:
        return len(members), None
    values = [row[agg.argument] for row in members if row[agg.argument] is not None]
    if agg.distinct:
        values = list({plain(v): v for v in values}.values())
    if agg.function == "count":
        return len(values), None
    if not values:
        return None, None
    if agg.function in ("min", "max"):
        ordered = sorted(values, key=lambda v: (isinstance(v, float) and math.isnan(v), v))
        return ordered[0 if agg.function == "min" else -1], None
    if agg.function in SPREADS:
        return spread(agg.function, [float(v) for v in values]), None
    floats = kind is not None and pa.types.is_floating(kind)
    total = float_sum(values) if floats else sum(map(Fraction, values), Fraction(0))
    if agg.function == "avg":
        return average(total, len(values), kind), None
    if floats:
        return total, None
    if kind is not None and pa.types.is_decimal(kind):
        if abs(total) * 10**kind.scale >= 10**38:
            return None, "sum does not fit 38 digits"
        digits = tuple(map(int, str(abs(int(total * 10**kind.scale)))))
        return Decimal((int(total < 0), digits, -kind.scale)), None
    if not -(2**63) <= total < 2**63:
        return None, "sum does not fit a 64-bit integer"
    return int(total), None


def float_sum(values: list[float]) -> float:
    """math.fsum, also where it refuses: beyond the doubles and for infinities of both signs."""
    if not all(map(math.isfinite, values)):
        return float(np.sum([v for v in values if not math.isfinite(v)]))
    return nearest(sum(map(Fraction, values), Fraction(0)))


def nearest(exact: Fraction) -> float:
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def average(total: Any, count: int, kind: pa.DataType | None) -> float:
    """Of whole numbers and decimals: by the steps that are promised, sums in one word being exact."""
    if isinstance(total, float):
        return total / count
    scale = kind.scale if kind is not None and pa.types.is_decimal(kind) else 0
    unscaled = int(total * 10**scale)
    low = (unscaled + 2**63) % 2**64 - 2**63
    high = (unscaled - low) >> 64
    return (float(high) * 2.0**64 + float(low)) / 10.0**scale / count


def spread(function: str, values: list[float]) -> float | None:
    n = len(values)
    divisor = n if function.endswith("_pop") else n - 1
    if divisor == 0:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    exact = [Fraction(v) for v in values]
    total = sum(exact, Fraction(0))
    variance = nearest((sum((v * v for v in exact), Fraction(0)) - total * total / n) / divisor)
    return math.sqrt(variance) if function.startswith("std") else variance


# ---------------------------------------------------------------- random input


def collisions(few: bool) -> AbstractContextManager[Any]:
    """With `few`, all rows share three hashes; then no key is known to have its own."""
    if not few:
        return nullcontext()
    real: Callable[..., Any] = hashing.hash_columns
    places = np.array([0, 2**63, 2**64 - 1], np.uint64)

    def few_hashes(columns: Any, length: int) -> Any:
        return places[(real(columns, length) % np.uint64(3)).astype(np.int64)]

    return mock.patch.multiple(hashing, hash_columns=few_hashes, is_injective=lambda columns: False)


def play(run: AggregateRun, script: list[pa.Table], parallelism: int) -> None:
    for number, delta in enumerate(script):
        run.epoch(delta, parallelism=(parallelism + 3 * number) % 7 + 1)
        run.check()
        if number % 3 == 1:
            run.compact()


@settings(max_examples=40 * MORE, deadline=None)
@given(
    st.sampled_from(KEYS),
    some_aggs(),
    st.booleans().flatmap(
        lambda only: st.tuples(st.just(only), deltas(SCHEMA, append_only=only, values=VALUES))
    ),
    st.booleans(),
    parallelisms(),
)
def test_any_aggregates_over_any_changes(
    key: tuple[str, ...],
    aggs: tuple[Agg, ...],
    input_: tuple[bool, list[pa.Table]],
    few: bool,
    parallelism: int,
) -> None:
    append_only, script = input_
    with collisions(few):
        play(AggregateRun(key, aggs, append_only=append_only), script, parallelism)


PLAIN = {
    **VALUES,
    "i64": st.integers(-3, 3) | st.none(),
    "u64": st.integers(0, 3) | st.none(),
    "f32": st.sampled_from([0.5, 3.25, None]),
    "f64": st.sampled_from([0.5, -0.1, 3.0, None]),
    "d": st.sampled_from([Decimal("0.001"), Decimal("-12.5"), None]),
}


@settings(max_examples=20 * MORE, deadline=None)
@given(st.sampled_from(KEYS), some_aggs(), deltas(SCHEMA, values=PLAIN), parallelisms())
def test_duckdb_agrees(
    key: tuple[str, ...], aggs: tuple[Agg, ...], script: list[pa.Table], parallelism: int
) -> None:
    run = AggregateRun(key, aggs)
    for number, delta in enumerate(script):
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        run.run.check_against(run.sql(), close=1e-9)


@settings(max_examples=15 * MORE, deadline=None)
@given(some_aggs(), deltas(SCHEMA, values=PLAIN))
def test_the_generic_operator_agrees(aggs: tuple[Agg, ...], script: list[pa.Table]) -> None:
    aggs = tuple(a for a in aggs if a.function in ("count", "min", "max")) or (Agg("n", "count"),)
    fast = AggregateRun(("k", "s"), aggs)
    sql = f"select k, s, {', '.join(f'{spoken(a)} as {a.name}' for a in aggs)} from input group by k, s"
    slow = OperatorRun(PerKey(("k", "s"), sql=sql), [Shape(SCHEMA, append_only=False)])
    for delta in script:
        assert_same_rows(row_counts(fast.epoch(delta)), row_counts(slow.epoch(delta)), "fast", "generic")


@settings(max_examples=25 * MORE, deadline=None)
@given(
    deltas(
        pa.schema([("k", pa.int64()), ("x", pa.float64())]),
        epochs=6,
        values={"x": st.sampled_from(FINITE[:-1])},
    )
)
def test_float_sums_are_fsum_of_the_live_rows(script: list[pa.Table]) -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.float64())])
    run = AggregateRun(("k",), (Agg("total", "sum", "x"),), schema)
    for delta in script:
        run.epoch(delta)
        live: dict[Any, list[float]] = {}
        for row in expand(run.run.inputs[0]).to_pylist():
            live.setdefault(row["k"], []).append(row["x"])
        got = {row["k"]: row["total"] for row in run.run.output.to_pylist()}
        assert {k: v.hex() for k, v in got.items()} == {
            k: (math.fsum(x) + 0.0).hex() for k, x in live.items()
        }


# ---------------------------------------------------------------- by hand

SMALL = pa.schema([("k", pa.int64()), ("x", pa.int64())])
MAX = 2**63 - 1


def small(*aggs: Agg, key: Sequence[str] = ("k",), append_only: bool = False) -> AggregateRun:
    return AggregateRun(key, aggs, SMALL, append_only=append_only)


def test_a_group_vanishes_and_comes_back() -> None:
    run = small(Agg("n", "count"), Agg("total", "sum", "x"), Agg("low", "min", "x"))
    run.epoch(rows(SMALL, "+ 1 5", "+ 2 7"))
    out = run.epoch(rows(SMALL, "- 1 5"))
    assert row_counts(out) == {(1, 1, 5, 5): -1}
    run.check()
    out = run.epoch(rows(SMALL, "+ 1 NULL"))
    assert row_counts(out) == {(1, 1, None, None): 1}
    run.compact()
    out = run.epoch(rows(SMALL, "- 1 NULL", "+ 1 9"))
    assert row_counts(out) == {(1, 1, None, None): -1, (1, 1, 9, 9): 1}
    run.check()


def test_a_group_that_comes_and_goes_within_an_epoch_leaves_nothing() -> None:
    run = small(Agg("n", "count"), Agg("low", "min", "x"))
    out = run.epoch(rows(SMALL, "+ 1 5", "- 1 5"))
    assert out.num_rows == 0 and run.run.state("groups").num_rows == 0


def test_a_group_that_showed_only_null_is_gone_too() -> None:
    run = small(Agg("total", "sum", "x"))
    run.epoch(rows(SMALL, "+ 1 NULL"))
    assert row_counts(run.epoch(rows(SMALL, "- 1 NULL"))) == {(1, None): -1}


@pytest.mark.parametrize("append_only", [False, True])
def test_a_new_group_of_nulls_has_no_minimum(append_only: bool) -> None:
    run = small(Agg("low", "min", "x"), Agg("high", "max", "x"), append_only=append_only)
    assert row_counts(run.epoch(rows(SMALL, "+ 1 NULL"))) == {(1, None, None): 1}
    assert row_counts(run.epoch(rows(SMALL, "+ 2 NULL", "+ 3 4"))) == {(2, None, None): 1, (3, 4, 4): 1}
    assert row_counts(run.epoch(rows(SMALL, "+ 3 NULL"))) == {}


def test_a_change_that_shows_nothing_sends_nothing() -> None:
    run = small(Agg("low", "min", "x"))
    run.epoch(rows(SMALL, "+ 1 5"))
    assert run.epoch(rows(SMALL, "+ 1 7")).num_rows == 0
    assert row_counts(run.epoch(rows(SMALL, "- 1 5"))) == {(1, 5): -1, (1, 7): 1}
    run.check()


def test_weights_above_one() -> None:
    run = small(Agg("n", "count"), Agg("total", "sum", "x"), Agg("d", "count", "x", distinct=True))
    assert row_counts(run.epoch(rows(SMALL, "+3 1 5", "+2 1 NULL"))) == {(1, 5, 15, 1): 1}
    assert row_counts(run.epoch(rows(SMALL, "-2 1 5"))) == {(1, 5, 15, 1): -1, (1, 3, 5, 1): 1}


def test_an_overflow_is_an_error_that_leaves_with_its_cause() -> None:
    run = small(Agg("total", "sum", "x"), Agg("n", "count"))
    run.epoch(rows(SMALL, f"+ 1 {MAX}", "+ 2 1"))
    run.epoch(rows(SMALL, "+ 1 1"))
    error = {"row": '{"k":1}', "reason": "total: sum does not fit a 64-bit integer", "_w": 1}
    assert run.run.errors.to_pylist() == [error]
    run.epoch(rows(SMALL, "+ 1 1"))  # still too large: one error, not two
    assert run.run.errors.to_pylist() == [error]
    run.check()
    run.compact()
    run.epoch(rows(SMALL, "-2 1 1"))
    assert run.run.errors.num_rows == 0
    run.check()
    run.epoch(rows(SMALL, "+ 1 1"))
    run.epoch(rows(SMALL, "- 1 1", f"- 1 {MAX}"))  # the group is gone, and its error with it
    assert run.run.errors.num_rows == 0
    run.check()


def test_a_sum_of_wide_decimals_does_not_wrap() -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.decimal128(38, 0))])
    run = AggregateRun(("k",), (Agg("total", "sum", "x"),), schema)
    nines = "9" * 38
    run.epoch(rows(schema, *[f"+ 1 {nines}"] * 4))
    assert [row["reason"] for row in run.run.errors.to_pylist()] == ["total: sum does not fit 38 digits"]
    run.check()
    run.epoch(rows(schema, f"-3 1 {nines}"))
    assert row_counts(run.run.output) == {(1, Decimal(nines)): 1}
    assert run.run.errors.num_rows == 0


def test_the_global_group_is_there_while_there_are_rows() -> None:
    run = small(Agg("n", "count"), Agg("d", "sum", "x", distinct=True), key=())
    assert row_counts(run.epoch(rows(SMALL, "+ 1 5", "+ 2 5"))) == {(2, 5): 1}
    assert row_counts(run.epoch(rows(SMALL, "- 1 5", "- 2 5"))) == {(2, 5): -1}
    assert row_counts(run.epoch(rows(SMALL, "+ 1 NULL"))) == {(1, None): 1}


def test_encoded_columns_are_stored_plain() -> None:
    schema = pa.schema([("k", pa.dictionary(pa.int32(), pa.string())), ("x", pa.int64())])
    run = AggregateRun(("k",), (Agg("n", "count"), Agg("low", "min", "x")), schema)
    keys = pa.array(["a", "b", "a", None]).dictionary_encode()
    run.run.inputs = [t.set_column(0, "k", t["k"].cast(pa.string())) for t in run.run.inputs]
    run.epoch(pa.table([keys, pa.array([3, 2, 1, 0])], schema=schema))
    assert row_counts(run.run.output) == {("a", 2, 1): 1, ("b", 1, 2): 1, (None, 1, 0): 1}


def test_nobody_reads_the_output() -> None:
    aggs = (Agg("n", "count"), Agg("low", "min", "x"))
    operator = Aggregate(("k",), aggs, feeds_for(aggs, False))
    run = OperatorRun(operator, [Shape(SMALL, append_only=False)] * 2, wanted=False)
    delta = rows(SMALL, "+ 1 5", "+ 2 7")
    assert run.epoch(delta, delta).num_rows == 0
    assert row_counts(run.view()) == {(1, 1, 5): 1, (2, 1, 7): 1}


def test_an_epoch_costs_its_groups_and_not_their_rows() -> None:
    run = small(Agg("low", "min", "x"), Agg("high", "max", "x"))
    run.epoch(pa.table([pa.array([1] * 5000), pa.array(range(5000))], schema=SMALL))
    asked: list[int] = []
    real = type(run.run.table("step/values1")).head

    def head(self: Any, keys: Any, n: Any, **options: Any) -> Any:
        found = real(self, keys, n, **options)
        asked.append(found.table.num_rows)
        return found

    with mock.patch("millpond.state.tables.table.Table.head", head):
        run.epoch(rows(SMALL, "- 1 0", "+ 1 7000"))
    assert max(asked) <= 8  # the harness adds two rows that come and go
    assert row_counts(run.run.output) == {(1, 1, 7000): 1}


@pytest.mark.parametrize(
    "key, aggs",
    [
        (("k",), [Agg("k", "count")]),
        (("nope",), [Agg("n", "count")]),
        (("k",), [Agg("n", "sum", "nope")]),
        (("k",), [Agg("n", "sum", None)]),
        (("k",), [Agg("_n", "count")]),
        (("k",), [Agg("n", "count"), Agg("N", "count")]),
        (("k",), [Agg("n", "median", "x")]),
    ],
)
def test_what_cannot_be_bound_is_refused(key: tuple[str, ...], aggs: list[Agg]) -> None:
    feeds = feeds_for(aggs, True)
    with pytest.raises(InvalidError):
        Aggregate(key, tuple(aggs), feeds).bind("step", (Shape(SMALL, append_only=True),) * len(feeds))


def test_the_plan_keeps_it() -> None:
    aggs = (Agg("n", "count"), Agg("low", "min", "x"), Agg("d", "sum", "x", True))
    operator = Aggregate(("k",), aggs, feeds_for(aggs, False), Close("k", "w", 10))
    assert codec.loads(codec.dumps(operator)) == operator


# ---------------------------------------------------------------- windows that close

SECOND = 1_000_000
WINDOWS = pa.schema([("window_end", pa.timestamp("us")), ("k", pa.string()), ("x", pa.int64())])
EPOCH = datetime.datetime(1970, 1, 1)


class WindowRun:
    """Rows of windows, shown once when the watermark has passed their end."""

    def __init__(self, aggs: Sequence[Agg], bucket_s: int = 10) -> None:
        self.feeds = feeds_for(aggs, append_only=True)
        close = Close("window_end", "mark", bucket_s * SECOND)
        self.operator = Aggregate(("window_end", "k"), tuple(aggs), self.feeds, close)
        shape = Shape(WINDOWS, append_only=True, time="window_end", watermark="mark")
        plain_shape = Shape(WINDOWS, append_only=False)
        self.distincts = {
            j: OperatorRun(Distinct(("window_end", "k", feed.column)), [plain_shape], step=f"distinct{j}")
            for j, feed in enumerate(self.feeds)
            if feed.kind == "distinct" and feed.column is not None
        }
        shapes = [
            self.distincts[j].binding.shape if j in self.distincts else shape for j in range(len(self.feeds))
        ]
        self.run = OperatorRun(self.operator, shapes)
        self.bound: int | None = None
        parts = ", ".join(f"{spoken(a)} as {a.name}" for a in aggs)
        self.query = f"select window_end, k, {parts} from input0 where {{}} group by all"

    def epoch(self, delta: pa.Table | None, watermark_s: int | None = None, **options: Any) -> pa.Table:
        if watermark_s is not None:
            self.bound = watermark_s * SECOND
        mark = None if self.bound is None else {"mark": self.bound}
        if delta is None:
            return self.run.idle(watermark=mark, **options)
        feeds = [
            self.distincts[j].epoch(delta.filter(delta.column("x").is_valid()))
            if j in self.distincts
            else delta
            for j in range(len(self.feeds))
        ]
        return self.run.epoch(*feeds, watermark=mark, **options)

    def check(self) -> None:
        closed = "false" if self.bound is None else f"epoch_us(window_end) <= {self.bound}"
        self.run.check_against(self.query.format(closed))
        if self.bound is not None:
            limit = self.operator.closes.bound.first_open(self.bound)  # type: ignore[union-attr]
            assert all(ref.bucket is None or ref.bucket >= limit for ref in self.run.refs)


def window(end_s: int, k: str | None, x: int | None, w: int = 1) -> tuple[Any, ...]:
    return (EPOCH + datetime.timedelta(seconds=end_s), k, x, w)


def windows(*given_rows: tuple[Any, ...]) -> pa.Table:
    columns = list(zip(*given_rows, strict=True))
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns[:3], WINDOWS, strict=True)], schema=WINDOWS)
    return with_weights(table, np.array(columns[3], np.int64))


ON_CLOSE = (Agg("n", "count"), Agg("total", "sum", "x"), Agg("low", "min", "x"))


def test_a_window_is_shown_once_and_whole() -> None:
    run = WindowRun(ON_CLOSE)
    assert run.epoch(windows(window(10, "a", 1), window(20, "a", 2))).num_rows == 0
    assert run.epoch(windows(window(10, "a", 5)), watermark_s=9).num_rows == 0
    run.check()
    out = run.epoch(windows(window(20, "b", 7)), watermark_s=10)
    assert {row[1:]: w for row, w in row_counts(out).items()} == {("a", 2, 6, 1): 1}
    run.check()
    assert run.epoch(None, watermark_s=19).num_rows == 0
    out = run.epoch(None, watermark_s=40)  # no row came: time alone closes them
    assert {row[1:]: w for row, w in row_counts(out).items()} == {("a", 1, 2, 2): 1, ("b", 1, 7, 7): 1}
    run.check()
    assert run.run.refs == []
    calls = run.run.calls
    assert run.epoch(None, watermark_s=90).num_rows == 0
    assert run.run.calls == calls  # nothing held, nothing due


def test_a_window_that_opens_and_closes_in_one_epoch() -> None:
    run = WindowRun(ON_CLOSE)
    out = run.epoch(windows(window(10, "a", 1), window(30, "a", 2)), watermark_s=25)
    assert [row[1:] for row in row_counts(out)] == [("a", 1, 1, 1)]
    run.check()


def test_windows_before_1970() -> None:
    run = WindowRun(ON_CLOSE)
    run.epoch(windows(window(-10, "a", 1), window(0, "a", 2)), watermark_s=-11)
    assert run.run.output.num_rows == 0
    run.epoch(None, watermark_s=-10)
    run.check()
    assert run.run.output.num_rows == 1


@settings(max_examples=40 * MORE, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(
                st.tuples(
                    st.integers(0, 30), st.sampled_from(["a", "b", None]), st.integers(0, 3) | st.none()
                ),
                max_size=6,
            ),
            st.integers(0, 25),
        ),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
    st.booleans(),
    parallelisms(),
)
def test_closing_windows_against_the_batch_query(
    script: list[tuple[list[tuple[int, Any, Any]], int]], few: bool, distinct: bool, parallelism: int
) -> None:
    """Rows are at most as old as the bound before them, as a watermark step lets them through."""
    aggs = (*ON_CLOSE, Agg("d", "count", "x", True)) if distinct else ON_CLOSE
    with collisions(few):
        run = WindowRun(aggs)
        bound = 0
        for number, (members, ahead) in enumerate(script):
            found = [window((bound + offset) // 10 * 10 + 10, k, x) for offset, k, x in members]
            bound += ahead
            delta = windows(*found) if found else None
            run.epoch(delta, watermark_s=bound, parallelism=(parallelism + number) % 7 + 1)
            run.check()
            if number % 2:
                run.run.compact()


def test_the_weights_of_a_delta_are_what_a_group_counts() -> None:
    """What one epoch sends, added to what was there, is one row per group: no leftovers of old rows."""
    run = small(Agg("n", "count"), Agg("d", "avg", "x"))
    total = rows(pa.schema([("k", pa.int64()), ("n", pa.int64()), ("d", pa.float64())]))
    rng = np.random.default_rng(5)
    for _ in range(10):
        delta = pa.table([pa.array(rng.integers(0, 3, 20)), pa.array(rng.integers(0, 100, 20))], schema=SMALL)
        total = consolidate(concat([total, run.epoch(delta)]))
        assert (weights(total) == 1).all() and total.num_rows <= 3
    run.check()
