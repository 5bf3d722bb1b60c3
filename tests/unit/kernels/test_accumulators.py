"""Accumulators alone: partial sums, in any grouping and also backwards, against exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import InvalidError
from millpond.kernels.accumulators import LINEAR, Accumulator, Fields, accumulator, is_number
from millpond.plan import codec

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
DECIMALS = [pa.decimal128(5, 2), pa.decimal128(18, 0), pa.decimal128(38, 10), pa.decimal128(38, 0)]
FLOATS = [pa.float32(), pa.float64()]
BIG = 10**38

Change = tuple[Any, int]  # a value and its weight


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_integer(kind):
        low, high = int(np.iinfo(kind.to_pandas_dtype()).min), int(np.iinfo(kind.to_pandas_dtype()).max)
        return st.sampled_from([low, high, 0, 1, high // 2]) | st.integers(low, high)
    if pa.types.is_decimal(kind):
        top = 10**kind.precision - 1
        return (st.sampled_from([top, -top, 0]) | st.integers(-top, top)).map(
            lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -kind.scale))
        )
    finite = st.floats(allow_nan=False, allow_infinity=False, width=32 if kind == pa.float32() else 64)
    return finite | st.sampled_from([0.0, -0.0, 1.5])


def scripts(kind: pa.DataType) -> st.SearchStrategy[list[list[Change]]]:
    """Batches of changes of one group; weights of either sign, and NULLs."""
    weights = st.sampled_from([1, 1, 2, 3, -1, 7, 2**31 + 5])
    change = st.tuples(values_of(kind) | st.none(), weights)
    return st.lists(st.lists(change, min_size=1, max_size=4), min_size=1, max_size=4)


def run(kind: Accumulator, type_: pa.DataType, script: list[list[Change]]) -> tuple[Fields, int]:
    """All batches added one after the other; the fields, and the number of rows."""
    total: Fields | None = None
    rows = 0
    for batch in script:
        arg = pa.array([v for v, _ in batch], type_)
        weights = np.array([w for _, w in batch], np.int64)
        start = np.zeros(1, np.int64)
        given_weights = None if (weights == 1).all() else weights
        fields = kind.partial(arg, given_weights, start, np.array([weights.sum()]))
        total = fields if total is None else kind.add(total, fields)
        rows += int(weights.sum())
    assert total is not None
    return total, rows


def at_once(kind: Accumulator, type_: pa.DataType, script: list[list[Change]]) -> Fields:
    """One partial row per batch, combined like rows that came from several senders."""
    parts = [run(kind, type_, [batch])[0] for batch in script]
    together: Fields = {}
    for name in kind.fields:
        columns = [part[name] for part in parts]
        together[name] = np.concatenate(columns) if is_number(kind, name) else pa.concat_arrays(columns)
    return kind.combine(together, np.zeros(1, np.int64))


def same(a: Fields, b: Fields) -> bool:
    """Bit for bit; `repr` tells one zero from the other and takes one NaN for another."""
    return a.keys() == b.keys() and all(
        repr(pa.array(a[n]).to_pylist()) == repr(pa.array(b[n]).to_pylist()) for n in a
    )


def nearest(exact: Fraction) -> float:
    """Rounded once: Python divides whole numbers exactly."""
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def check(
    function: str, type_: pa.DataType, script: list[list[Change]], want: Callable[[list[Change]], Any]
) -> None:
    kind = accumulator(function, type_, step="test")
    fields, rows = run(kind, type_, script)
    assert same(fields, at_once(kind, type_, script)), "the grouping of additions left a trace"
    changes = [c for batch in script for c in batch]
    undone = [*script, [(v, -w) for v, w in changes], changes]
    again, rows_again = run(kind, type_, undone)
    assert same(fields, again), "retractions left a trace"
    assert rows_again == rows
    live = [(v, w) for v, w in changes if v is not None]
    if sum(w for _, w in live) <= 0 or rows <= 0:
        return  # a group that owes rows shows nothing worth a look
    (got,) = kind.finish(fields, np.array([rows])).to_pylist()
    expected = want(live)
    failed = kind.fails(fields)
    if expected is OverflowError:
        assert got is None and failed is not None and failed.tolist() == [True] and kind.reason
    else:
        assert failed is None or failed.tolist() == [False]
        assert repr(got) == repr(expected), (live, got, expected)


def exact(live: list[Change]) -> Fraction:
    return sum((Fraction(v) * w for v, w in live), Fraction(0))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_sums_of_integers(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(INTEGERS))

    def want(live: list[Change]) -> Any:
        total = int(exact(live))
        return total if -(2**63) <= total < 2**63 else OverflowError

    check("sum", type_, data.draw(scripts(type_)), want)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_sums_of_decimals(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(DECIMALS))

    def want(live: list[Change]) -> Any:
        total = exact(live) * 10**type_.scale
        assert total.denominator == 1
        if abs(total) >= BIG:
            return OverflowError
        return Decimal((int(total < 0), tuple(map(int, str(abs(int(total))))), -type_.scale))

    check("sum", type_, data.draw(scripts(type_)), want)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_sums_of_floats_round_once(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(FLOATS))
    check("sum", type_, data.draw(scripts(type_)), lambda live: nearest(exact(live)) + 0.0)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_variances_round_once(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from([*FLOATS, pa.int16()]))
    function = data.draw(st.sampled_from([f for f in LINEAR if f.startswith(("var", "std"))]))

    def want(live: list[Change]) -> Any:
        floats = [(Fraction(float(v)), w) for v, w in live]
        n = sum(w for _, w in live)
        total, squares = exact(floats), sum((v * v * w for v, w in floats), Fraction(0))
        divisor = n if function.endswith("_pop") else n - 1
        if divisor == 0:
            return None
        value = nearest((squares - total * total / n) / divisor)
        if not function.startswith("std"):
            return value
        return math.sqrt(value) if value >= 0 else math.nan  # owed rows can make it negative

    check(function, type_, data.draw(scripts(type_)), want)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_averages_are_near_and_leave_no_trace(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from([*INTEGERS, *DECIMALS, *FLOATS]))
    script = data.draw(scripts(type_))
    kind = accumulator("avg", type_, step="test")

    def want(live: list[Change]) -> Any:
        (got,) = kind.finish(*_finishable(run(kind, type_, script))).to_pylist()
        mean = exact(live) / sum(w for _, w in live)
        if math.isfinite(got):
            assert abs(Fraction(got) - mean) <= abs(mean) * Fraction(1, 2**50) + Fraction(5e-324)
        else:  # the sum is beyond the doubles
            assert type_ in FLOATS and abs(exact(live)) > Fraction(1.79e308)
        return got

    check("avg", type_, script, want)


def _finishable(found: tuple[Fields, int]) -> tuple[Fields, Any]:
    return found[0], np.array([found[1]])


@pytest.mark.parametrize("function", ["sum", "avg", "var_pop", "stddev_pop"])
@pytest.mark.parametrize(
    "values",
    [[math.inf, 1.0], [-math.inf, 1.0], [math.inf, -math.inf], [math.nan, math.inf], [math.nan, 1.0]],
)
def test_infinities_and_nan_come_and_go(function: str, values: list[float]) -> None:
    kind = accumulator(function, pa.float64(), step="test")
    fields, rows = run(kind, pa.float64(), [[(v, 1) for v in values]])
    (got,) = kind.finish(fields, np.array([rows])).to_pylist()
    spread = not function.startswith(("sum", "avg"))
    want = math.nan if spread else sum(values)
    assert repr(got) == repr(want)
    gone, rows = run(kind, pa.float64(), [[(v, 1) for v in values], [(2.0, 1)], [(v, -1) for v in values]])
    (left,) = kind.finish(gone, np.array([rows])).to_pylist()
    assert left == (0.0 if spread else 2.0)


def test_an_average_of_more_than_a_word_has_no_error() -> None:
    kind = accumulator("avg", pa.int64(), step="test")
    fields, rows = run(kind, pa.int64(), [[(2**63 - 1, 1), (2**63 - 1, 1)]])
    assert kind.finish(fields, np.array([rows])).to_pylist() == [2.0**63]
    assert kind.fails(fields) is None


def test_integers_beyond_the_doubles_are_rounded_for_a_variance() -> None:
    kind = accumulator("var_pop", pa.int64(), step="test")
    fields, rows = run(kind, pa.int64(), [[(2**62 + 1, 1), (2**62, 1)]])
    assert kind.finish(fields, np.array([rows])).to_pylist() == [0.0]


@pytest.mark.parametrize("function", ["min", "max"])
@given(
    st.lists(st.lists(st.sampled_from([0.0, -0.0, None, math.nan, -1.5, math.inf]), min_size=1), min_size=1)
)
def test_extremes_of_appended_values(function: str, batches: list[list[float | None]]) -> None:
    kind = accumulator(function, pa.float64(), step="test")
    script: list[list[Change]] = [[(v, 1) for v in batch] for batch in batches]
    fields, rows = run(kind, pa.float64(), script)
    assert same(fields, at_once(kind, pa.float64(), script))
    (got,) = kind.finish(fields, np.array([rows])).to_pylist()
    live = sorted((v for batch in batches for v in batch if v is not None), key=lambda v: (math.isnan(v), v))
    want = None if not live else live[0] if function == "min" else live[-1]
    assert repr(got) == repr(want if want is None else want + 0.0)  # one zero: either could come first


def test_a_count_of_anything() -> None:
    for type_ in (None, pa.string(), pa.list_(pa.int64()), pa.bool_()):
        assert accumulator("count", type_, step="test").visible == pa.int64()
    kind = accumulator("count", pa.string(), step="test")
    fields, rows = run(kind, pa.string(), [[("a", 2), (None, 3)], [("a", -1)]])
    assert kind.finish(fields, np.array([rows])).to_pylist() == [1]


@pytest.mark.parametrize(
    "function, type_",
    [("sum", None), ("sum", pa.string()), ("avg", pa.bool_()), ("var_pop", pa.date32()), ("med", pa.int8())],
)
def test_what_cannot_be_maintained_is_refused(function: str, type_: pa.DataType | None) -> None:
    with pytest.raises(InvalidError):
        accumulator(function, type_, step="test")


def test_accumulators_are_stored_with_the_plan() -> None:
    for function in (*LINEAR, "min", "max"):
        for type_ in (pa.int32(), pa.float64(), pa.decimal128(10, 3)):
            kind = accumulator(function, type_, step="test")
            assert codec.loads(codec.dumps(kind)) == kind
