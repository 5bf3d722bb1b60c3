"""Sums in two and three words against Python's own whole numbers."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.kernels import int128

TOP = 2**63 - 1
words = st.one_of(
    st.sampled_from([0, 1, -1, TOP, -TOP - 1, TOP - 1, 2**32, -(2**32), 2**31 - 1, 2**62, -(2**62)]),
    st.integers(-TOP - 1, TOP),
)
wide = st.one_of(st.integers(-(10**38) + 1, 10**38 - 1), words)


def pair_of(values: list[int]) -> int128.Pair:
    """(hi, lo), each signed, of numbers of up to 127 bits."""
    lo = [(v + 2**63) % 2**64 - 2**63 for v in values]
    hi = [(v - low) >> 64 for v, low in zip(values, lo, strict=True)]
    return np.array(hi, np.int64), np.array(lo, np.int64)


def numbers(parts: tuple[Any, ...]) -> list[int]:
    found = [0] * len(parts[0])
    for part in parts:
        found = [(f << 64) + int(v) for f, v in zip(found, part, strict=True)]
    return found


def canonical(parts: tuple[Any, ...]) -> bool:
    """Are these two words the one form of their number?"""
    hi, lo = pair_of(numbers(parts))
    return np.array_equal(hi, parts[0]) and np.array_equal(lo, parts[1])


@given(st.lists(st.tuples(words, words), min_size=1, max_size=5))
def test_adding_and_taking_away(both: list[tuple[int, int]]) -> None:
    a, b = pair_of([x for x, _ in both]), pair_of([y for _, y in both])
    total = int128.add(a, b)
    assert numbers(total) == [x + y for x, y in both]
    assert canonical(total)
    back = int128.add(total, pair_of([-y for _, y in both]))
    assert [back[0].tolist(), back[1].tolist()] == [a[0].tolist(), a[1].tolist()]


@given(st.lists(st.tuples(words, words), min_size=1, max_size=5))
def test_products_of_any_two_words(both: list[tuple[int, int]]) -> None:
    x, y = (np.array(side, np.int64) for side in zip(*both, strict=True))
    product = int128.times(x, y)
    assert numbers(product) == [a * b for a, b in both]
    assert canonical(product)


@given(st.lists(st.tuples(wide, words), min_size=1, max_size=5))
def test_products_of_two_words_with_one(both: list[tuple[int, int]]) -> None:
    weights = np.array([w for _, w in both], np.int64)
    assert numbers(int128.times3(pair_of([v for v, _ in both]), weights)) == [v * w for v, w in both]


@settings(max_examples=60)
@given(st.lists(st.lists(wide, min_size=1, max_size=8), min_size=1, max_size=4), st.booleans())
def test_sums_of_groups(groups: list[list[int]], narrow: bool) -> None:
    if narrow:
        groups = [[(v + 2**63) % 2**64 - 2**63 for v in group] for group in groups]
    flat = pair_of([v for group in groups for v in group])
    starts = np.cumsum([0] + [len(group) for group in groups[:-1]])
    want = [sum(group) for group in groups]
    three = int128.group_sum3((np.zeros_like(flat[0]), *flat), starts)
    assert numbers(three) == want
    if narrow:
        two = int128.group_sum(flat[0], flat[1], starts)
        assert numbers(two) == want
        assert canonical(two)


@given(st.lists(st.integers(-(2**188), 2**188), min_size=1, max_size=6))
def test_sums_in_three_words_do_not_wrap(values: list[int]) -> None:
    def triple(v: int) -> int128.Triple:
        lo = (v + 2**63) % 2**64 - 2**63
        hi = ((v - lo >> 64) + 2**63) % 2**64 - 2**63
        top = (v - lo >> 64) - hi >> 64
        return np.array([top]), np.array([hi]), np.array([lo])

    total = triple(0)
    for value in values:
        total = int128.add3(total, triple(value))
    assert numbers(total) == [sum(values)]
    (fits,) = int128.fits38(total).tolist()
    assert fits == (abs(sum(values)) < 10**38)


EDGE = 10**38


@pytest.mark.parametrize("value", [0, EDGE - 1, EDGE, EDGE + 1, 1 - EDGE, -EDGE, -EDGE - 1, 2**127 - 2**64])
def test_the_edge_of_38_digits(value: int) -> None:
    hi, lo = pair_of([value])
    assert int128.fits38((np.zeros(1, np.int64), hi, lo)).tolist() == [abs(value) < EDGE]


def test_groups_of_nothing() -> None:
    none = np.zeros(0, np.int64)
    assert [len(x) for x in int128.group_sum(None, none, none)] == [0, 0]
    assert [len(x) for x in int128.group_sum3((none, none, none), none)] == [0, 0, 0]
    assert [len(x) for x in int128.times(none, none)] == [0, 0]


@given(st.lists(wide | st.none(), max_size=6), st.integers(0, 3), st.integers(0, 38))
def test_decimals_there_and_back(values: list[int | None], skip: int, scale: int) -> None:
    kind = pa.decimal128(38, scale)
    column = pa.array(
        [None if v is None else Decimal((int(v < 0), tuple(map(int, str(abs(v)))), -scale)) for v in values],
        kind,
    )
    kept = column.slice(skip)  # an offset into the buffers
    pair = int128.from_decimal(kept)
    assert numbers(pair) == [0 if v is None else v for v in values[skip:]]
    null = np.array([v is None for v in values[skip:]], np.bool_)
    assert int128.to_decimal(pair, kind, null).equals(kept)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=5))
def test_unsigned_words(values: list[int]) -> None:
    pair = int128.from_unsigned(np.array(values, np.uint64))
    assert numbers(pair) == values
    assert canonical(pair)


@given(st.lists(wide, min_size=1, max_size=5))
def test_floats_are_near(values: list[int]) -> None:
    pair = pair_of(values)
    for got, value in zip(int128.to_float(pair).tolist(), values, strict=True):
        assert abs(int(got) - value) <= abs(value) * 2.0**-52
    fits = int128.fits64(pair).tolist()
    assert fits == [-(2**63) <= v < 2**63 for v in values]
