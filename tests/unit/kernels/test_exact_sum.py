"""Exact sums: every accumulator against its digits in rational arithmetic, every result rounded once."""

from __future__ import annotations

import doctest
import math
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millpond.errors import InternalError
from millpond.kernels import exact_sum
from millpond.kernels.exact_sum import (
    ACCUMULATOR,
    add,
    combine,
    from_squares,
    from_values,
    to_float,
    variance,
)

MAX, TINY = sys.float_info.max, 5e-324
NAN, INF = math.nan, math.inf

# --- the oracle: fractions -----------------------------------------------------------


def digits(total: Fraction) -> list[dict[str, int]]:
    """The balanced digits of an exact sum in base 2**62, lowest first."""
    lowest = 80
    rest = total * 2 ** (62 * lowest)
    assert rest.denominator == 1
    number, e, out = rest.numerator, -lowest, []
    while number:
        m = (number + 2**61) % 2**62 - 2**61
        number = (number - m) >> 62
        if m:
            out.append({"e": e, "m": m})
        e += 1
    return out


def rounded(total: Fraction) -> float:
    try:
        return float(total)
    except OverflowError:
        return INF if total > 0 else -INF


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def weighted(rows: list[tuple[float, int]], power: int = 1) -> Fraction:
    return sum((Fraction(x) ** power * w for x, w in rows), Fraction(0))


def split(rows: list[tuple[float, int]]) -> tuple[pa.Array, Any, Any]:
    """Rows of one group as the arguments of from_values."""
    return (
        pa.array([x for x, _ in rows], pa.float64()),
        np.array([w for _, w in rows], np.int64),
        np.zeros(len(rows), np.int64),
    )


def one(rows: list[tuple[float, int]]) -> pa.Array:
    return from_values(*split(rows), 1)


# Plain floats, few-bit numbers of any size (which cancel and tie often), and the ends of the range.
numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.builds(math.ldexp, st.integers(-3, 3), st.integers(-1074, 1021)),
    st.builds(math.ldexp, st.integers(-(2**53), 2**53), st.integers(-60, 60)),
    st.sampled_from(
        [0.0, -0.0, TINY, -TINY, MAX, -MAX, 1e308, -1e308, 1e-308, 2.0**-1022, 0.1, 1.0, 2.0**61]
    ),
)
weights = st.one_of(
    st.sampled_from([1, 1, 1, -1, 2]),
    st.integers(-(2**31), 2**31),
    st.integers(-(2**63), 2**63 - 1),
)
rows_of = st.lists(st.tuples(numbers, weights), max_size=12)


# --- law: an accumulator is the digits of the exact sum ----------------------------------


@settings(max_examples=150, deadline=None)
@given(rows_of)
@example([(1e308, 1), (-1e308, 1), (1e-308, 1)])
@example([(MAX, 2**31)] * 3 + [(-MAX, 2**31), (TINY, -1)])
@example([(MAX, -(2**63)), (MAX, 2**63 - 1)])
@example([(1.0, 1), (2.0**-53, 1)])  # a tie, to even
@example([(1.0, 1), (2.0**-53, 1), (TINY, 1)])  # just above it, 1000 bits further down
@example([(1.0, 1), (-(2.0**-54), 1), (-TINY, 1)])  # just below a tie under a power of two
@example([(MAX, 1), (2.0**969, 1)])  # stays finite
@example([(MAX, 1), (2.0**970, 1)])  # the first sum that rounds to infinity
def test_sum_is_exact_and_rounded_once(rows: list[tuple[float, int]]) -> None:
    acc = one(rows)
    acc.validate(full=True)
    assert acc.type == ACCUMULATOR
    total = weighted(rows)
    assert acc[0].as_py() == digits(total)
    assert to_float(acc)[0] == rounded(total)


@settings(max_examples=80, deadline=None)
@given(rows_of)
@example([(MAX, 1), (TINY, 1), (-MAX, -(2**31))])
@example([(math.nextafter(1.0, 2), 2**31)] * 2)
@example([(2.0**-538, 2), (2.0**-575, 1)])  # just above half of the least double: not to be rounded twice
@example([(2.0**-538, 2), (2.0**-575, -1)])  # just below it
def test_squares_are_exact_and_rounded_once(rows: list[tuple[float, int]]) -> None:
    acc = from_squares(*split(rows), 1)
    total = weighted(rows, 2)
    assert acc[0].as_py() == digits(total)
    assert to_float(acc)[0] == rounded(total)


@settings(max_examples=40, deadline=None)
@given(st.lists(numbers.filter(lambda x: abs(x) < 1e300), max_size=30))
def test_equal_to_fsum(values: list[float]) -> None:
    assert to_float(one([(x, 1) for x in values]))[0] == math.fsum(values)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(numbers, weights, st.integers(0, 4)), max_size=25), st.randoms(use_true_random=False)
)
def test_order_and_grouping_leave_no_trace(rows: list[tuple[float, int, int]], random: Any) -> None:
    def columns(some: list[tuple[float, int, int]]) -> tuple[pa.Array, Any, Any]:
        x, w, g = (list(column) for column in zip(*some, strict=True)) if some else ([], [], [])
        return pa.array(x, pa.float64()), np.array(w, np.int64), np.array(g, np.int64)

    for make in (from_values, from_squares):
        whole = make(*columns(sorted(rows, key=lambda row: row[2])), 5)
        shuffled = list(rows)
        random.shuffle(shuffled)
        assert make(*columns(shuffled), 5).equals(whole)
        cut = random.randint(0, len(rows))
        first, second = make(*columns(shuffled[:cut]), 5), make(*columns(shuffled[cut:]), 5)
        assert add(first, second).equals(whole)
        assert add(second, first).equals(whole)
        each = pa.concat_arrays([first, second])
        assert combine(each, np.concatenate([np.arange(5), np.arange(5)]), 5).equals(whole)
        for i in range(5):
            power = 1 if make is from_values else 2
            assert whole[i].as_py() == digits(weighted([(x, w) for x, w, g in rows if g == i], power))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.one_of(numbers, st.sampled_from([NAN, INF, -INF])), weights), max_size=12))
def test_retracting_everything_leaves_the_empty_list(rows: list[tuple[float, int]]) -> None:
    x, w, g = split([(x, max(w, 1 - 2**63)) for x, w in rows])
    for make in (from_values, from_squares):
        there = make(x, w, g, 1)
        assert add(there, make(x, -w, g, 1))[0].as_py() == []
        there_and_back = make(pa.concat_arrays([x, x]), np.append(w, -w), np.append(g, g), 1)
        assert there_and_back[0].as_py() == []
        assert to_float(there_and_back)[0] == 0.0


# --- NaN and the infinities -------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, NAN], NAN),
        ([INF, 1.0, -MAX], INF),
        ([-INF, 1.0], -INF),
        ([INF, -INF], NAN),
        ([INF, -INF, NAN], NAN),
        ([INF, NAN], NAN),
        ([INF, INF], INF),
        ([], 0.0),
        ([-0.0], 0.0),
    ],
)
def test_specials(values: list[float], expected: float) -> None:
    assert same(to_float(one([(x, 1) for x in values]))[0], expected)


def test_specials_are_counted_and_can_be_retracted() -> None:
    acc = one([(NAN, 3), (INF, 2), (-INF, 2**40), (0.5, 1), (NAN, -1)])
    assert acc[0].as_py() == [
        {"e": -1, "m": 2**61 - 2**62},
        {"e": 0, "m": 1},
        {"e": exact_sum.NAN_BIN, "m": 2},
        {"e": exact_sum.POSITIVE_INFINITY_BIN, "m": 2},
        {"e": exact_sum.NEGATIVE_INFINITY_BIN, "m": 2**40},
    ]
    acc = add(acc, one([(NAN, -2)]))
    assert math.isnan(to_float(acc)[0]), "both infinities are left"
    acc = add(acc, one([(-INF, -(2**40))]))
    assert to_float(acc)[0] == INF
    acc = add(acc, one([(INF, -2)]))
    assert to_float(acc)[0] == 0.5
    squares = from_squares(pa.array([-INF, NAN, 2.0]), np.array([5, 0, 1]), np.zeros(3, int), 1)
    assert squares[0].as_py() == [{"e": 0, "m": 4}, {"e": exact_sum.POSITIVE_INFINITY_BIN, "m": 5}]


def test_counts_beyond_a_digit_do_not_carry() -> None:
    acc = one([(NAN, 2**61), (NAN, 2**61), (INF, -(2**62))])
    assert [entry["m"] for entry in acc[0].as_py()] == [2**62, -(2**62)]


# --- shapes of input ----------------------------------------------------------------------


def test_groups_keep_apart_and_may_be_empty() -> None:
    acc = from_values(
        pa.array([1.0, None, 2.0, None, -5.0]), np.array([1, 1, 1, 9, 1]), np.array([1, 1, 1, 2, 4]), 6
    )
    assert to_float(acc).tolist() == [0.0, 3.0, 0.0, 0.0, -5.0, 0.0]
    assert [len(row) for row in acc] == [0, 1, 0, 0, 1, 0]


def test_floats_of_other_widths_and_chunked_columns() -> None:
    narrow = pa.chunked_array([pa.array([0.1, None], pa.float32()), pa.array([0.2], pa.float32())])
    acc = from_values(narrow, np.ones(3, np.int64), np.zeros(3, np.int64), 1)
    assert to_float(acc)[0] == float(np.float32(0.1)) + float(np.float32(0.2))


def test_no_rows_and_no_groups() -> None:
    none = np.zeros(0, np.int64)
    for make in (from_values, from_squares):
        acc = make(pa.array([], pa.float64()), none, none, 0)
        assert acc.type == ACCUMULATOR and len(acc) == 0
    assert to_float(acc).tolist() == []
    assert len(add(acc, acc)) == 0 and len(combine(acc, none, 0)) == 0
    assert variance(none, acc, acc, sample=True).tolist() == []
    assert combine(acc, none, 2).to_pylist() == [[], []]


def test_null_and_sliced_and_chunked_accumulators() -> None:
    acc = from_values(pa.array([0.1, 0.2, 1e300, NAN]), np.ones(4, np.int64), np.arange(4), 4)
    holed = pa.ListArray.from_arrays(acc.offsets, acc.values, mask=pa.array([False, True, False, False]))
    assert len(holed.values) > len(holed.flatten()), "a null may hide entries"
    assert holed.to_pylist()[1] is None and holed.null_count == 1
    assert to_float(holed)[1] == 0.0
    assert add(holed, pa.nulls(4, ACCUMULATOR)).to_pylist()[:2] == [acc[0].as_py(), []]
    assert to_float(acc[1:3]).tolist() == [0.2, 1e300]
    assert add(acc[1:3], acc[:2]).equals(add(acc.take([1, 2]), acc.take([0, 1])))
    assert to_float(pa.chunked_array([acc[:1], acc[2:3]])).tolist() == [0.1, 1e300]
    assert to_float(combine(acc[:3], np.array([1, 0, 1]), 2)).tolist() == [0.2, 1e300]


def test_an_accumulator_survives_storage() -> None:
    acc = from_values(pa.array([0.1, -1e300, INF]), np.ones(3, np.int64), np.array([0, 0, 2]), 3)
    batch = pa.record_batch([acc], names=["acc"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stored = pa.ipc.open_file(sink.getvalue()).get_batch(0).column("acc")
    assert stored.equals(acc) and stored.type == ACCUMULATOR
    assert add(stored, stored).equals(add(acc, acc))


def test_everyday_sums_are_short() -> None:
    rng = np.random.default_rng(5)
    cents = pa.array(np.round(rng.uniform(-1e6, 1e6, 5_000), 2))
    whole = pa.array(rng.integers(-(10**12), 10**12, 5_000).astype(np.float64))
    ones, group = np.ones(5_000, np.int64), np.arange(5_000) // 10
    assert max(len(row) for row in from_values(cents, ones, group, 500)) <= 2
    assert max(len(row) for row in from_values(whole, ones, group, 500)) <= 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: from_values(pa.array([1]), np.ones(1, np.int64), np.zeros(1, np.int64), 1),
        lambda: from_values(pa.array([1.0]), np.ones(2, np.int64), np.zeros(2, np.int64), 1),
        lambda: from_values(pa.array([1.0]), np.ones(1, np.int64), np.ones(1, np.int64), 1),
        lambda: from_values(pa.array([1.0]), np.ones(1, np.int64), -np.ones(1, np.int64), 1),
        lambda: add(pa.nulls(1, ACCUMULATOR), pa.nulls(2, ACCUMULATOR)),
        lambda: combine(pa.nulls(1, ACCUMULATOR), np.zeros(2, np.int64), 1),
        lambda: variance(np.ones(1), pa.nulls(2, ACCUMULATOR), pa.nulls(1, ACCUMULATOR), sample=True),
    ],
)
def test_disagreeing_arguments_are_refused(call: Any) -> None:
    with pytest.raises(InternalError):
        call()


# --- no overflow, however many ---------------------------------------------------------------


@pytest.mark.parametrize("weight", [1, -1, 2**16 - 1, -(2**16) + 1, 2**31, -(2**31), 2**62])
@pytest.mark.parametrize("value", [MAX, -MAX, math.nextafter(2.0**30, 0), 0.1])
def test_many_rows_of_great_weight(value: float, weight: int) -> None:
    count = 70_000  # more than two blocks
    x, w, g = pa.array(np.full(count, value)), np.full(count, weight), np.zeros(count, np.int64)
    assert from_values(x, w, g, 1)[0].as_py() == digits(Fraction(value) * weight * count)
    assert from_squares(x, w, g, 1)[0].as_py() == digits(Fraction(value) ** 2 * weight * count)


def test_many_accumulators() -> None:
    acc = one([(2.0**61, 1), (-1.0, 1), (MAX, 1), (0.1, -1)])
    many = acc.take(np.zeros(100_000, np.int64))
    total = (Fraction(2**61 - 1) + Fraction(MAX) - Fraction(0.1)) * 100_000
    assert combine(many, np.zeros(100_000, np.int64), 1)[0].as_py() == digits(total)


def test_compaction_between_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(11)
    x = pa.array(np.exp(rng.normal(size=2_000) * 100))
    w, g = rng.integers(-(2**40), 2**40, 2_000), np.sort(rng.integers(0, 50, 2_000))
    whole = from_values(x, w, g, 50), from_squares(x, w, g, 50)
    monkeypatch.setattr(exact_sum, "_BLOCK_ROWS", 64)
    monkeypatch.setattr(exact_sum, "_PARTS_MAX", 3)
    assert from_values(x, w, g, 50).equals(whole[0])
    assert from_squares(x, w, g, 50).equals(whole[1])


def test_carries_run_through_all_digits() -> None:
    # Digits all at their greatest; one more unit at the bottom carries to the top.
    top = [(math.ldexp(1.0, 62 * bin_ + bit), 1) for bin_ in range(-15, 16) for bit in range(61)]
    acc = one(top)
    assert [entry["m"] for entry in acc[0].as_py()] == [2**61 - 1] * 31
    more = add(acc, one([(math.ldexp(1.0, 62 * -15), 1)]))
    assert more[0].as_py() == digits(weighted(top) + Fraction(2) ** (62 * -15))
    back = add(more, one([(math.ldexp(1.0, 62 * -15), -1)]))
    assert back.equals(acc)


def test_random_batches_against_fractions() -> None:
    rng = np.random.default_rng(3)
    for values in (
        rng.normal(size=3_000),
        rng.integers(-(2**63), 2**63 - 1, 3_000).view(np.float64),
        np.ldexp(rng.normal(size=3_000), rng.integers(-1074, -1000, 3_000)),
    ):
        values = np.where(np.isfinite(values), values, 1.5)
        w, g = rng.integers(-2, 3, 3_000), np.sort(rng.integers(0, 400, 3_000))
        acc, squares = from_values(pa.array(values), w, g, 400), from_squares(pa.array(values), w, g, 400)
        sums, square_sums = to_float(acc), to_float(squares)
        for i in range(400):
            rows = [(x, k) for x, k in zip(values[g == i].tolist(), w[g == i].tolist(), strict=True)]
            assert acc[i].as_py() == digits(weighted(rows)) and sums[i] == rounded(weighted(rows))
            assert squares[i].as_py() == digits(weighted(rows, 2))
            assert square_sums[i] == rounded(weighted(rows, 2))


# --- variance -----------------------------------------------------------------------------------


def exact_variance(rows: list[tuple[float, int]], sample: bool) -> float:
    n = sum(w for _, w in rows)
    divisor = n - 1 if sample else n
    if divisor <= 0:
        return NAN
    return rounded((weighted(rows, 2) - weighted(rows) ** 2 / n) / divisor)


def our_variance(rows: list[tuple[float, int]], sample: bool) -> float:
    x, w, g = split(rows)
    result = variance(np.array([w.sum()]), from_values(x, w, g, 1), from_squares(x, w, g, 1), sample)
    return float(result[0])


positive = st.one_of(st.just(1), st.integers(1, 5), st.integers(1, 2**27), st.integers(1, 2**40))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(numbers, positive), max_size=8), st.booleans())
@example([(1e9 + 1, 1), (1e9 + 2, 1), (1e9 + 4, 1)], True)
@example([(MAX, 1), (-MAX, 1)], True)
@example([(TINY, 1), (0.0, 1)], False)
@example([(2.0**-537, 1), (0.0, 1)], True)  # half of the least double: a tie between 0 and it
@example([(2.0**-530, 3), (2.0**-537, 2)], True)
@example([(2.0**-537, 1), (-(2.0**-537), 1), (2.0**-600, 1), (-(2.0**-600), 1)], False)  # just above it
@example([(1.0, 1)], False)
@example([(1.0, 1)], True)
@example([(0.1, 2**28 - 1), (0.3, 1)], True)
@example([(0.1, 2**28), (0.3, 1)], True)
@example([(0.1, 2**33), (0.3, 2**34 + 7)], True)
@example([(0.1, 2**61), (0.3, 2**61)], False)
@example([(3.0, 1), (math.nextafter(3.0, 4.0), 1)], True)
def test_variance_is_rounded_once(rows: list[tuple[float, int]], sample: bool) -> None:
    assert same(our_variance(rows, sample), exact_variance(rows, sample))


def test_variance_of_many_groups() -> None:
    rng = np.random.default_rng(9)
    n_groups, size = 20_000, 60_000  # more than two rounds of the vectorised way
    for values in (
        rng.normal(1e6, 1, size),
        rng.integers(0, 50, size) / 4,
        np.exp(rng.normal(size=size) * 40),
    ):
        g = np.sort(rng.integers(0, n_groups, size))
        ones, n = np.ones(size, np.int64), np.bincount(g, minlength=n_groups)
        acc, squares = (make(pa.array(values), ones, g, n_groups) for make in (from_values, from_squares))
        starts = np.searchsorted(g, np.arange(n_groups + 1))
        for sample in (False, True):
            ours = variance(n, acc, squares, sample)
            for i in range(0, n_groups, 37):
                rows = [(x, 1) for x in values[starts[i] : starts[i + 1]].tolist()]
                assert same(ours[i], exact_variance(rows, sample))


def test_the_slow_way_is_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = []
    exact = exact_sum._exact_variance

    def counted(n: int, divisor: int, total: Any, squares: Any) -> float:
        slow.append(n)
        return exact(n, divisor, total, squares)

    monkeypatch.setattr(exact_sum, "_exact_variance", counted)
    rng = np.random.default_rng(10)
    ones, g, n = np.ones(50_000, np.int64), np.arange(50_000) // 5, np.full(10_000, 5)

    def slow_share(values: Any) -> float:
        slow.clear()
        acc, squares = (make(pa.array(values), ones, g, 10_000) for make in (from_values, from_squares))
        variance(n, acc, squares, sample=True)
        return len(slow) / len(n)

    assert 0 < slow_share(rng.normal(100, 15, 50_000)) < 0.03
    assert slow_share(rng.integers(0, 10**6, 50_000) / 4) == 0, "where the numerator is short, only on ties"


def test_leading_bits_of_the_greatest_numbers() -> None:
    numbers = [0, 1, 2, 3, 2**53 - 1, 2**53, 2**54 - 1, 2**61 - 1, 2**61, 2**62 - 1, 2**62, 2**63 - 1]
    assert exact_sum._bit_length(np.array(numbers)).tolist() == [x.bit_length() for x in numbers]
    no, yes = np.array([False]), np.array([True])
    greatest = (no, np.array([2**63 - 1]), np.array([0]), yes)
    assert not exact_sum._divide(greatest, np.array([1]))[1][0], "a quotient beyond an int64 is not sure"
    quotient, sure = exact_sum._divide(greatest, np.array([2**56 - 1]))
    assert sure[0] and quotient[0] == (2**63 - 1) / (2**56 - 1)


def test_equal_values_have_no_variance() -> None:
    assert our_variance([(0.1, 3), (0.1, 1000)], sample=True) == 0.0
    assert our_variance([(MAX, 2)], sample=False) == 0.0
    assert our_variance([(-7.25, 1)], sample=False) == 0.0


def test_variance_is_not_defined_for_too_few_or_infinite_values() -> None:
    x = pa.array([1.0, 2.0, INF, 3.0, NAN, None, 5.0, 7.0])
    ones, g = np.ones(8, np.int64), np.array([0, 1, 1, 2, 2, 3, 4, 4])
    acc, squares = from_values(x, ones, g, 6), from_squares(x, ones, g, 6)
    n = np.array([1, 2, 2, 0, 2, 0])
    result = variance(n, acc, squares, sample=True).tolist()
    assert all(same(a, b) for a, b in zip(result, [NAN, NAN, NAN, NAN, 2.0, NAN], strict=True))
    result = variance(n, acc, squares, sample=False).tolist()
    assert all(same(a, b) for a, b in zip(result, [0.0, NAN, NAN, NAN, 1.0, NAN], strict=True))


def test_the_examples_run() -> None:
    assert doctest.testmod(exact_sum).failed == 0
