"""Order codes against Python's sorted()."""

from __future__ import annotations

import datetime as dt
import functools
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import InvalidError
from millpond.ordering import Order, code, ranks, sort_indices

checked = settings(max_examples=30, deadline=None)

INT64 = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]),
)
UINT64 = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**63, 2**64 - 2, 2**64 - 1]))
FLOAT = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 5e-324]))
FLOAT32 = st.floats(width=32)
STRING = st.one_of(
    st.text(max_size=12),
    st.builds(
        lambda a, b: a + b,
        st.sampled_from(["", "common-p", "common-prefix-of-24-byte"]),
        st.text("ab\0é", max_size=4),
    ),
    st.builds(lambda n, b: "x" * n + b, st.integers(60, 90), st.text("ab\0", max_size=2)),
    st.sampled_from(
        ["", "\0", "\0\0", "a", "a\0", "\uffff", "\U00010000", "é", "z", "abcdefgh", "abcdefgh\0"]
    ),
)
NARROW = st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-3))
EDGES = [s * (2**k + d) for k in (61, 62, 63, 64, 90, 125) for d in (-1, 0, 1) for s in (1, -1)]


def wide(digits: int) -> st.SearchStrategy[Decimal]:
    top = 10**digits - 1
    near = st.builds(lambda edge, d: edge + d, st.sampled_from(EDGES), st.integers(-2, 2))
    return st.one_of(st.integers(-top, top), st.integers(-5, 5), near).map(lambda n: Decimal(f"{n}E-2"))


TIME = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))
COLUMNS: dict[str, tuple[st.SearchStrategy[Any], pa.DataType]] = {
    "int8": (st.integers(-128, 127), pa.int8()),
    "int64": (INT64, pa.int64()),
    "uint32": (st.integers(0, 2**32 - 1), pa.uint32()),
    "uint64": (UINT64, pa.uint64()),
    "bool": (st.booleans(), pa.bool_()),
    "float64": (FLOAT, pa.float64()),
    "float32": (FLOAT32, pa.float32()),
    "float16": (st.floats(width=16), pa.float16()),
    "date32": (st.dates(), pa.date32()),
    "date64": (st.dates(), pa.date64()),
    "time32": (st.integers(0, 86399).map(lambda s: dt.time(s // 3600, s // 60 % 60, s % 60)), pa.time32("s")),
    "time64": (st.times(), pa.time64("us")),
    "timestamp_us": (TIME, pa.timestamp("us")),
    "timestamp_tz": (TIME.map(lambda t: t.replace(tzinfo=dt.UTC)), pa.timestamp("us", "UTC")),
    "duration": (st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999)), pa.duration("us")),
    "decimal32": (st.integers(-999, 999).map(lambda n: Decimal(n).scaleb(-1)), pa.decimal32(5, 1)),
    "decimal64": (NARROW, pa.decimal64(18, 3)),
    "decimal128_narrow": (NARROW, pa.decimal128(18, 3)),
    "decimal128_wide": (wide(38), pa.decimal128(38, 2)),
    "decimal256_wide": (wide(76), pa.decimal256(76, 2)),
    "string": (STRING, pa.string()),
    "large_string": (STRING, pa.large_string()),
    "string_view": (STRING, pa.string_view()),
    "binary": (st.binary(max_size=20), pa.binary()),
    "fixed_binary": (st.binary(min_size=11, max_size=11), pa.binary(11)),
    "dictionary": (STRING, pa.dictionary(pa.int32(), pa.string())),
    "null": (st.none(), pa.null()),
    "list": (st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=4), pa.list_(pa.int64())),
    "list_view": (st.lists(st.integers(0, 3), max_size=4), pa.list_view(pa.int64())),
    "fixed_list": (st.lists(st.integers(0, 2), min_size=2, max_size=2), pa.list_(pa.int8(), 2)),
    "map": (
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), max_size=3),
        pa.map_(pa.string(), pa.int8()),
    ),
    "struct": (
        st.fixed_dictionaries(
            {"a": st.one_of(st.none(), st.integers(0, 2)), "b": st.one_of(st.none(), STRING)}
        ),
        pa.struct([("a", pa.int16()), ("b", pa.string())]),
    ),
}
EXACT = [
    name
    for name in COLUMNS
    if name.split("_")[0]
    not in ("string", "large", "binary", "fixed", "dictionary", "list", "map", "struct", "decimal256")
    and name != "decimal128_wide"
]
ORDERS = st.builds(Order, st.just("c"), st.booleans(), st.booleans())


def value_key(value: Any) -> Any:
    """The order of non-null values, told once more in plain Python."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list | tuple):
        return [nested_key(item) for item in value]
    if isinstance(value, dict):
        return [nested_key(value[name]) for name in sorted(value)]
    return value


def nested_key(value: Any) -> Any:
    return (1,) if value is None else (0, value_key(value))


def compare(a: Any, b: Any, order: Order) -> int:
    if a is None or b is None:
        return ((b is None) - (a is None)) * (1 if order.nulls_first else -1)
    left, right = value_key(a), value_key(b)
    sign = int(left > right) - int(left < right)
    return -sign if order.descending else sign


def compare_rows(a: Any, b: Any, orders: list[Order]) -> int:
    for left, right, order in zip(a, b, orders, strict=True):
        sign = compare(left, right, order)
        if sign:
            return sign
    return 0


def expected_order(rows: list[tuple[Any, ...]], orders: list[Order]) -> list[int]:
    def by_rows(i: int, j: int) -> int:
        return compare_rows(rows[i], rows[j], orders)

    return sorted(range(len(rows)), key=functools.cmp_to_key(by_rows))


def cut(array: pa.Array, at: int) -> pa.ChunkedArray:
    """The same values as chunks with offsets, one of them empty."""
    at = at % (len(array) + 1)
    return pa.chunked_array([array.slice(0, at), array.slice(at, 0), array.slice(at)], type=array.type)


def built(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_float16(kind):
        values = [None if v is None else np.float16(v) for v in values]
    return pa.array(values, type=kind)


@pytest.mark.parametrize("name", COLUMNS)
def test_against_sorted(name: str) -> None:
    strategy, kind = COLUMNS[name]

    @checked
    @given(
        st.lists(st.one_of(st.none(), strategy), max_size=14), ORDERS, st.integers(0, 30), st.integers(0, 3)
    )
    def check(values: list[Any], order: Order, at: int, lead: int) -> None:
        lead = min(lead, len(values))
        array = built(values[:lead] + values, kind).slice(lead)  # an array with an offset
        chunks = cut(array, at)
        expected = expected_order([(v,) for v in values], [order])
        assert sort_indices([array], [order]).tolist() == expected
        assert sort_indices([chunks], [order]).tolist() == expected

        exact, prefix = ranks(array, order), code(array, order)
        assert exact.dtype == prefix.dtype == np.uint64
        assert (code(chunks, order) == prefix).all()
        for i in range(len(values)):
            for j in range(len(values)):
                sign = compare(values[i], values[j], order)
                assert (int(exact[i]) > int(exact[j])) - (int(exact[i]) < int(exact[j])) == sign
                if sign < 0:
                    assert prefix[i] <= prefix[j]
                if sign == 0:
                    assert prefix[i] == prefix[j]
                if (values[i] is None) != (values[j] is None):
                    assert prefix[i] != prefix[j]
        nullcode = 0 if order.nulls_first else 2**64 - 1
        assert [int(c) == nullcode for c in prefix] == [v is None for v in values]

    check()


@pytest.mark.parametrize("name", COLUMNS)
def test_codes_are_monotone_across_batches(name: str) -> None:
    strategy, kind = COLUMNS[name]

    @checked
    @given(st.lists(st.one_of(st.none(), strategy), min_size=2, max_size=8), ORDERS)
    def check(values: list[Any], order: Order) -> None:
        alone = [int(code(built([value], kind), order)[0]) for value in values]
        assert alone == code(built(values, kind), order).tolist()
        for i in range(len(values)):
            for j in range(len(values)):
                if compare(values[i], values[j], order) < 0:
                    assert alone[i] <= alone[j]

    check()


@pytest.mark.parametrize("name", EXACT)
def test_exact_codes_are_strict_but_for_the_end_given_to_null(name: str) -> None:
    strategy, kind = COLUMNS[name]
    ends = {-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1, 0, 1, 2**64 - 2, 2**64 - 1}

    @checked
    @given(strategy, strategy, ORDERS)
    def check(a: Any, b: Any, order: Order) -> None:
        if kind in (pa.int64(), pa.uint64()) and {a, b} <= ends and abs(a - b) == 1:
            return
        codes = code(built([a, b], kind), order)
        assert (codes[0] == codes[1]) == (compare(a, b, order) == 0)

    check()


def test_the_end_of_int64_shares_a_code_and_keeps_its_rank() -> None:
    values = pa.array([-(2**63) + 1, -(2**63), None])
    first = Order("c", nulls_first=True)
    assert code(values, first).tolist() == [1, 1, 0]
    assert ranks(values, first).argsort().tolist() == [2, 1, 0]
    assert sort_indices([values], [first]).tolist() == [2, 1, 0]
    assert code(values.slice(0, 2), Order("c")).tolist() == [1, 0]


def test_wide_decimals_keep_full_codes_near_zero_and_54_bits_beyond() -> None:
    values = pa.array([Decimal(2**62 - 1), Decimal(2**62 - 2), Decimal(-(2**62))], pa.decimal128(38, 0))
    assert len(set(code(values, Order("c")).tolist())) == 3
    steps = [2**64 + n * 2**10 for n in range(4)] + [2**100 + n * 2**46 for n in range(4)]
    far = pa.array([Decimal(n) for n in steps], pa.decimal128(38, 0))
    assert len(set(code(far, Order("c")).tolist())) == 8


@checked
@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.sampled_from(["common-prefix-a", "common-prefix-b", "common-p"])),
            st.one_of(st.none(), st.integers(0, 2)),
            st.one_of(st.none(), st.sampled_from([0.0, -0.0, math.nan, 1.0])),
            st.one_of(st.none(), st.sampled_from(["", "a", "a\0"])),
        ),
        max_size=40,
    ),
    st.tuples(ORDERS, ORDERS, ORDERS, ORDERS),
)
def test_several_columns_sort_stably(rows: list[tuple[Any, ...]], orders: tuple[Order, ...]) -> None:
    kinds = [pa.string(), pa.int64(), pa.float64(), pa.dictionary(pa.int8(), pa.string())]
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
    expected = expected_order(rows, list(orders))
    assert sort_indices(columns, orders).tolist() == expected


@pytest.mark.parametrize("span", [1, 100, 2**32, 2**63, 2**64])
def test_large_sorts_are_stable(span: int) -> None:
    random = np.random.default_rng(span % 97)
    values = random.integers(0, span - 1, 30_000, dtype=np.uint64, endpoint=True)
    expected = np.argsort(values, kind="stable")
    assert (sort_indices([pa.array(values)], [Order("c")]) == expected).all()
    second = random.integers(0, 50, 30_000)
    both = sort_indices([pa.array(values % 7), pa.array(second)], [Order("c"), Order("d", descending=True)])
    assert (both == np.lexsort((-second, values % 7))).all()


@pytest.mark.parametrize("close", [1, 50, 10_000])
def test_sorts_mend_codes_that_differ_in_their_lowest_bits(close: int) -> None:
    random = np.random.default_rng(close)
    values = random.integers(0, 2**64 - 1, 20_000, dtype=np.uint64)
    values[close : 2 * close] = values[:close] ^ random.integers(0, 5, close, dtype=np.uint64)
    random.shuffle(values)
    assert (sort_indices([pa.array(values)], [Order("c")]) == np.argsort(values, kind="stable")).all()
    few = values % np.uint64(3)
    few[7] = 2**64 - 1
    assert (sort_indices([pa.array(few)], [Order("c")]) == np.argsort(few, kind="stable")).all()


def test_long_equal_strings_do_not_cost_a_pass_per_word() -> None:
    long = "x" * 1_000_000
    values = pa.array([long + "b", long, long + "b", None, long + "a", "x"])
    assert sort_indices([values], [Order("c")]).tolist() == [5, 1, 4, 0, 2, 3]


def test_empty_columns() -> None:
    for name, (_, kind) in COLUMNS.items():
        for column in (pa.array([], kind), pa.chunked_array([], kind)):
            assert len(code(column, Order("c"))) == 0, name
            assert len(ranks(column, Order("c"))) == 0, name
            assert len(sort_indices([column], [Order("c")])) == 0, name


def test_results_may_be_written_to_without_touching_the_column() -> None:
    column = pa.array(np.arange(4, dtype=np.uint64))
    for result in (ranks(column, Order("c")), code(column, Order("c"))):
        result[:] = 9
    assert column.to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["int64", "decimal128_wide", "string", "fixed_binary", "float64"])
def test_what_lies_under_a_null_does_not_matter(name: str) -> None:
    strategy, kind = COLUMNS[name]

    @checked
    @given(st.lists(strategy, min_size=1, max_size=9), st.integers(1, 511), ORDERS)
    def check(values: list[Any], bits: int, order: Order) -> None:
        full = built(values, kind)
        validity = pa.py_buffer(bits.to_bytes(2, "little"))
        holes = pa.Array.from_buffers(kind, len(full), [validity, *full.buffers()[1:]])
        seen = [v if bits >> i & 1 else None for i, v in enumerate(values)]
        clean = built(seen, kind)
        assert sort_indices([holes], [order]).tolist() == expected_order([(v,) for v in seen], [order])
        assert (ranks(holes, order) == ranks(clean, order)).all()
        assert (code(holes, order) == code(clean, order)).all()

    check()


def test_misuse_is_refused() -> None:
    with pytest.raises(InvalidError, match="one order for each"):
        sort_indices([pa.array([1])], [])
    with pytest.raises(InvalidError, match="same length"):
        sort_indices([pa.array([1]), pa.array([1, 2])], [Order("a"), Order("b")])
    with pytest.raises(InvalidError, match="has no order"):
        code(pa.array([None], pa.month_day_nano_interval()), Order("a"))
    with pytest.raises(InvalidError, match="has no order"):
        sort_indices([pa.array([None, None], pa.month_day_nano_interval())], [Order("a")])
