"""The key hash: golden vectors, equal values across types, even spread."""

from __future__ import annotations

import bisect
import datetime as dt
import math
import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millpond import hashing
from millpond.errors import InvalidError
from millpond.hashing import bounds, hash_array, hash_columns, owners

checked = settings(max_examples=40, deadline=None)

BELOW = 2**63
SMALL = st.integers(-128, 127)
INT64 = st.one_of(st.integers(-BELOW, BELOW - 1), SMALL, st.sampled_from([-BELOW, BELOW - 1]))
BYTES = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda n, tail: b"x" * n + tail,
        st.sampled_from([247, 256, 257, 511, 512, 2048]),
        st.binary(max_size=9),
    ),
)


def one(value: Any, kind: pa.DataType | None = None) -> int:
    return int(hash_array(pa.array([value], kind))[0])


# ---------------------------------------------------------------- golden

# Written down once; they may change only together with hashing.VERSION.
GOLDEN: list[tuple[Any, pa.DataType, int]] = [
    (0, pa.int64(), 16852473371444490038),
    (1, pa.int8(), 16911753153453118205),
    (-1, pa.int32(), 9368744190824693952),
    (-(2**63), pa.int64(), 661615523132938665),
    (2**63 - 1, pa.int64(), 18303424425528688381),
    (2**63, pa.uint64(), 4650020586771995285),
    (2**64 - 1, pa.uint64(), 10409331588008177288),
    (None, pa.int64(), 13437774018240085913),
    (None, pa.null(), 13437774018240085913),
    (False, pa.bool_(), 9992746046255836306),
    (True, pa.bool_(), 16903225604116078773),
    (0.0, pa.float64(), 10995195534006383467),
    (1.5, pa.float32(), 12298899824546656116),
    (-1.5, pa.float64(), 15739749948964304286),
    (math.inf, pa.float64(), 8725567493322962554),
    (math.nan, pa.float64(), 4987772212325655790),
    (dt.date(2024, 2, 29), pa.date32(), 14250854716579918411),
    (dt.datetime(2024, 2, 29, 12, 30, 1, 5), pa.timestamp("us"), 17802601881572472059),
    (-1, pa.timestamp("ns"), 6652009157944022419),
    (dt.time(23, 59, 59), pa.time32("s"), 15901333084830330386),
    (dt.timedelta(days=-1), pa.duration("ms"), 12987927776604568582),
    (Decimal("1.50"), pa.decimal128(10, 2), 9942861653670193025),
    (Decimal("-0.001"), pa.decimal64(10, 3), 9161779921728637760),
    (Decimal(10**30), pa.decimal128(38, 0), 2653193415076730899),
    (Decimal("-12345678901234567890.5"), pa.decimal256(50, 3), 2669797940437143614),
    ("", pa.string(), 10363054496673160180),
    ("a", pa.string(), 6587122843452583743),
    ("millpond", pa.string(), 5525639900824610464),
    ("millpond!", pa.large_string(), 8645662341784242704),
    ("Mühlteich an der Straße", pa.string(), 8437853610673081850),
    (b"\x00\xff", pa.binary(), 14721833775410157935),
    ("x" * 256, pa.string(), 16545225325908629480),
    ("x" * 257, pa.string(), 6171598389848140595),
    ("x" * 100_000, pa.string(), 14697021154583462382),
    ([], pa.list_(pa.int64()), 12664055460545633424),
    ([1, None, 3], pa.list_(pa.int64()), 10817767829214571904),
    ({"a": 1, "b": "x"}, pa.struct([("a", pa.int64()), ("b", pa.string())]), 10490677822685255566),
]


def test_version() -> None:
    assert hashing.VERSION == 1


@pytest.mark.parametrize(("value", "kind", "expected"), GOLDEN)
def test_golden(value: Any, kind: pa.DataType, expected: int) -> None:
    assert one(value, kind) == expected


def test_golden_columns() -> None:
    columns = [pa.array([1, None]), pa.array(["a", "b"]), pa.array([True, None])]
    assert hash_columns(columns, 2).tolist() == [3006890659710940420, 15622187365832009411]
    assert hash_columns([], 2).tolist() == [2639559389850201335, 2639559389850201335]


def test_another_process_agrees() -> None:
    program = (
        "import pyarrow as pa; from millpond.hashing import hash_array;"
        "print(hash_array(pa.array(['pond', None])).tolist())"
    )
    env = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7"}
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env
    )
    assert shown.stdout.strip() == str(hash_array(pa.array(["pond", None])).tolist())


# ---------------------------------------------------------------- against plain Python


def plain_mix(value: int, seed: int) -> int:
    mask = 2**64 - 1
    x = (value + seed) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def plain_bytes(value: bytes, seed: int) -> int:
    """The hash of bytes, told once more one word at a time."""
    mask = 2**64 - 1
    state = (len(value) * 0x9E3779B97F4A7C15 + seed) & mask
    if len(value) > 256:
        pieces = [plain_bytes(value[at : at + 256], seed) for at in range(0, len(value), 256)]
        inner = plain_bytes(b"".join(piece.to_bytes(8, "little") for piece in pieces), seed)
        return plain_mix(inner + len(value) * 0x9E3779B97F4A7C15, seed)
    for at in range(0, len(value), 8):
        state ^= int.from_bytes(value[at : at + 8], "little")
        state = ((state ^ (state >> 32)) * 0x9E3779B185EBCA87) & mask
        state = ((state ^ (state >> 29)) * 0xC2B2AE3D27D4EB4F) & mask
    return plain_mix(state, seed)


@checked
@given(INT64)
def test_integers_as_defined(value: int) -> None:
    assert one(value, pa.int64()) == plain_mix(value, 0x243F6A8885A308D3)


@checked
@given(st.lists(st.one_of(st.none(), BYTES), max_size=20), st.integers(0, 5))
def test_strings_as_defined(values: list[bytes | None], lead: int) -> None:
    expected = [hashing.NULL_HASH if v is None else plain_bytes(v, 0xD1310BA698DFB5AC) for v in values]
    array = pa.array([b"?" * lead, *values], pa.binary()).slice(1)
    assert hash_array(array).tolist() == expected


def test_strings_of_many_lengths_in_many_blocks() -> None:
    random = np.random.default_rng(5)
    values = [random.bytes(int(size)) for size in random.integers(0, 40, 20_000)]
    seed = 0xD1310BA698DFB5AC
    got = hash_array(pa.array(values, pa.binary()))
    for row in [*range(0, 20_000, 97), 8191, 8192, 16383, 16384, 19_998, 19_999]:
        assert int(got[row]) == plain_bytes(values[row], seed)


# ---------------------------------------------------------------- equal values


@checked
@given(SMALL)
def test_integers_of_every_width_are_equal(value: int) -> None:
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.decimal128(5, 0), pa.decimal64(9, 4)]
    if value >= 0:
        kinds += [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    assert len({one(value, kind) for kind in kinds}) == 1


@checked
@given(st.integers(BELOW, 2 * BELOW - 1))
def test_uint64_above_int64_is_itself(value: int) -> None:
    assert one(value, pa.uint64()) != one(value - 2 * BELOW, pa.int64())
    assert one(value, pa.uint64()) == one(Decimal(value), pa.decimal128(38, 0))
    assert one(value, pa.uint64()) == one(Decimal(value), pa.decimal256(40, 7))


@checked
@given(
    st.one_of(st.integers(-(10**30), 10**30), INT64, st.integers(-999, 999)),
    st.integers(0, 6),
    st.integers(0, 6),
)
def test_decimals_hash_by_value(mantissa: int, scale: int, more: int) -> None:
    value = Decimal(f"{mantissa}E-{scale}")
    plain = one(value, pa.decimal128(38, scale))
    assert one(value, pa.decimal256(70, scale + more)) == plain
    if abs(mantissa) * 10**more < 10**38:
        assert one(value, pa.decimal128(38, scale + more)) == plain
    if mantissa % 10**scale == 0 and -BELOW <= mantissa // 10**scale < BELOW:
        assert one(mantissa // 10**scale, pa.int64()) == plain


@pytest.mark.parametrize(
    "value",
    [BELOW - 1, BELOW, BELOW + 1, 2 * BELOW - 1, 2 * BELOW, -BELOW, -BELOW - 1, 2**96, -(2**96), 10**37],
)
def test_decimals_at_the_edges_of_words(value: int) -> None:
    shapes = [(pa.decimal128(38, 0), value), (pa.decimal256(76, 0), value), (pa.decimal256(76, 9), value)]
    assert len({one(Decimal(v), kind) for kind, v in shapes}) == 1
    assert one(Decimal(value), pa.decimal128(38, 0)) != one(Decimal(-value), pa.decimal128(38, 0))
    tenth = one(Decimal(f"{value}E-1"), pa.decimal128(38, 1))
    assert tenth == one(Decimal(f"{value}E-1"), pa.decimal256(60, 20))
    assert tenth != one(Decimal(value), pa.decimal128(38, 0))


def test_decimals_of_negative_scale() -> None:
    assert one(Decimal("1.2E+4"), pa.decimal128(5, -3)) == one(12_000, pa.int32())
    huge = pa.py_buffer((10**75).to_bytes(32, "little"))
    with pytest.raises(InvalidError, match="too large"):
        hash_array(pa.Array.from_buffers(pa.decimal256(76, -20), 1, [None, huge]))


@checked
@given(st.floats(width=32))
def test_floats_widen(value: float) -> None:
    assert one(value, pa.float32()) == one(value, pa.float64())


def test_floats_have_one_zero_and_one_nan() -> None:
    assert one(0.0) == one(-0.0)
    odd_nans = np.array(
        [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF], dtype=np.uint64
    )
    hashes = hash_array(pa.array(odd_nans.view(np.float64)))
    assert len(set(hashes.tolist())) == 1
    assert one(np.float16(math.nan), pa.float16()) == one(math.nan) == hashes[0]
    assert len({one(v) for v in (math.nan, math.inf, -math.inf, 0.0, 5e-324, -5e-324, 1.0)}) == 7


UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@checked
@given(
    st.integers(-(2**33), 2**33),
    st.sampled_from([pa.timestamp, pa.duration, lambda u: pa.timestamp(u, "Asia/Tokyo")]),
)
def test_instants_are_equal_in_every_unit(seconds: int, kind: Any) -> None:
    assert len({one(seconds * factor, kind(unit)) for unit, factor in UNITS.items()}) == 1


@checked
@given(st.integers(-(2**62), 2**62))
def test_nanoseconds_count(nanos: int) -> None:
    assume(nanos % 1000)
    floor = nanos // 1000
    assert one(nanos, pa.timestamp("ns")) not in (
        one(floor, pa.timestamp("us")),
        one(floor + 1, pa.timestamp("us")),
    )
    assert one(nanos, pa.timestamp("ns")) != one(nanos + 1, pa.timestamp("ns"))


def test_far_seconds_equal_themselves_in_milliseconds() -> None:
    far = 2**62 // 1000
    assert one(far, pa.timestamp("s")) == one(far * 1000, pa.timestamp("ms"))


@checked
@given(st.integers(0, 86_399))
def test_times_are_equal_in_every_unit(second: int) -> None:
    kinds = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
    assert len({one(second * UNITS[kind.unit], kind) for kind in kinds}) == 1


def test_dates_are_days() -> None:
    day = dt.date(1969, 12, 30)
    assert one(day, pa.date32()) == one(day, pa.date64())
    assert one(day, pa.date32()) != one(day + dt.timedelta(1), pa.date32())


def test_kinds_do_not_meet() -> None:
    ones = [
        pa.array([1], pa.int64()),
        pa.array([1], pa.int32()).cast(pa.date32()),
        pa.array([True]),
        pa.array([1.0]),
        pa.array([1], pa.time64("us")),
        pa.array([1], pa.timestamp("us")),
        pa.array([1], pa.duration("us")),
        pa.array([Decimal("0.1")]),
        pa.array([b"\1"]),
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([None], pa.int64()),
    ]
    assert len({int(hash_array(array)[0]) for array in ones}) == len(ones)


@checked
@given(st.text(max_size=30))
def test_strings_are_their_bytes(text: str) -> None:
    raw = text.encode()
    kinds = [pa.string(), pa.large_string(), pa.string_view()]
    hashes = {one(text, kind) for kind in kinds} | {
        one(raw, kind) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())
    }
    if raw:
        hashes.add(one(raw, pa.binary(len(raw))))
    assert len(hashes) == 1


def test_strings_with_zero_bytes_differ() -> None:
    values = [b"\0" * n for n in range(40)] + [b"a" + b"\0" * n for n in range(40)]
    assert len(set(hash_array(pa.array(values)).tolist())) == 80


# ---------------------------------------------------------------- shapes of arrays

SHAPES: dict[str, tuple[st.SearchStrategy[Any], pa.DataType]] = {
    "int": (INT64, pa.int64()),
    "uint64": (st.integers(0, 2**64 - 1), pa.uint64()),
    "bool": (st.booleans(), pa.bool_()),
    "float": (st.floats(), pa.float64()),
    "date": (st.dates(), pa.date32()),
    "timestamp": (st.integers(-(2**62), 2**62), pa.timestamp("ns")),
    "decimal": (st.integers(-(10**30), 10**30).map(lambda n: Decimal(n).scaleb(-2)), pa.decimal128(38, 2)),
    "string": (st.text(max_size=20), pa.string()),
    "fixed": (st.binary(min_size=5, max_size=5), pa.binary(5)),
    "list": (st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=4), pa.list_(pa.string())),
    "fixed_list": (st.lists(SMALL, min_size=2, max_size=2), pa.list_(pa.int8(), 2)),
    "map": (st.lists(st.tuples(st.text(max_size=2), SMALL), max_size=3), pa.map_(pa.string(), pa.int8())),
    "struct": (
        st.fixed_dictionaries({"a": st.one_of(st.none(), SMALL), "b": st.text(max_size=3)}),
        pa.struct([("a", pa.int8()), ("b", pa.string())]),
    ),
    "null": (st.none(), pa.null()),
}


@pytest.mark.parametrize("name", SHAPES)
def test_chunks_slices_and_garbage_under_nulls_do_not_matter(name: str) -> None:
    strategy, kind = SHAPES[name]

    @checked
    @given(st.lists(st.one_of(st.none(), strategy), max_size=12), st.integers(0, 12), st.integers(0, 12))
    def check(values: list[Any], a: int, b: int) -> None:
        array = pa.array(values, kind)
        low, high = sorted((a % (len(values) + 1), b % (len(values) + 1)))
        expected = [one(value, kind) for value in values]
        assert hash_array(array).tolist() == expected
        assert [h == hashing.NULL_HASH for h in expected] == [v is None for v in values]
        chunks = pa.chunked_array([array[:low], array[low:high], array[high:]], kind)
        assert hash_array(chunks).tolist() == expected
        assert hash_array(array[low:high]).tolist() == expected[low:high]
        if kind != pa.null() and not pa.types.is_nested(kind):
            full = pa.array([v for v in values if v is not None], kind)
            assert set(hash_array(masked(full)).tolist()) <= {hashing.NULL_HASH}
            assert hash_array(array.dictionary_encode()).tolist() == expected
            assert hash_array(array.dictionary_encode()[low:high]).tolist() == expected[low:high]

    check()


def masked(array: pa.Array) -> pa.Array:
    """The same buffers, every row null."""
    bits = pa.py_buffer(bytes(len(array) // 8 + 1))
    return pa.Array.from_buffers(array.type, len(array), [bits, *array.buffers()[1:]], null_count=len(array))


def test_nulls_inside_a_dictionary() -> None:
    array = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 1, 2, 0, 0], pa.int8()), pa.array(["x", None, "y"])
    )
    null = hashing.NULL_HASH
    x, y = one("x"), one("y")
    assert hash_array(array).tolist() == [x, null, null, null, y, x, x]
    assert hash_array(array.slice(1, 2)).tolist() == [null, null]
    nothing = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
    assert hash_array(nothing).tolist() == [null, null]


def test_run_ends_and_extension_types_hash_their_values() -> None:
    ends = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, None]))
    assert hash_array(ends).tolist() == [one(7), one(7), hashing.NULL_HASH]
    raw = pa.array([bytes(range(16))], pa.binary(16))
    assert hash_array(pa.ExtensionArray.from_storage(pa.uuid(), raw)).tolist() == hash_array(raw).tolist()


def test_nested_values_are_ordered_and_delimited() -> None:
    lists = [[], [None], ["a"], ["a", "b"], ["b", "a"], ["ab"], ["a", None], ["a"] * 40, ["a"] * 41]
    assert len(set(hash_array(pa.array(lists)).tolist())) == len(lists)
    assert one(["a", "b"], pa.list_(pa.string())) == one(["a", "b"], pa.large_list(pa.string()))
    assert one(["a", "b"], pa.list_(pa.string())) == one(["a", "b"], pa.list_(pa.string(), 2))
    assert one(["a", "b"], pa.list_(pa.string())) == one(["a", "b"], pa.list_view(pa.string()))
    structs = [{"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": None, "b": None}, None]
    assert len(set(hash_array(pa.array(structs)).tolist())) == len(structs)


def test_empty_columns() -> None:
    for _, kind in SHAPES.values():
        for column in (pa.array([], kind), pa.chunked_array([], kind)):
            result = hash_array(column)
            assert result.dtype == np.uint64 and result.size == 0
    assert hash_array(pa.array([], pa.dictionary(pa.int8(), pa.string()))).size == 0


# ---------------------------------------------------------------- several columns


@checked
@given(st.lists(st.tuples(INT64, st.text(max_size=9)), max_size=9))
def test_one_column_is_its_own_hash_and_order_matters(rows: list[tuple[int, str]]) -> None:
    numbers, texts = pa.array([r[0] for r in rows], pa.int64()), pa.array([r[1] for r in rows], pa.string())
    assert hash_columns([numbers], len(rows)).tolist() == hash_array(numbers).tolist()
    forth, back = hash_columns([numbers, texts], len(rows)), hash_columns([texts, numbers], len(rows))
    assert not (forth == back).any()


def test_columns_are_not_changed() -> None:
    column = pa.array(np.arange(5, dtype=np.uint64))
    hash_columns([column, column], 5)[:] = 0
    assert column.to_pylist() == [0, 1, 2, 3, 4]


def test_pairs_rarely_collide() -> None:
    a, b = np.meshgrid(np.arange(500), np.arange(500))
    hashes = hash_columns([pa.array(a.ravel()), pa.array(b.ravel())], a.size)
    assert np.unique(hashes).size == a.size


def test_misuse_is_refused() -> None:
    with pytest.raises(InvalidError, match="same length"):
        hash_columns([pa.array([1])], 2)
    with pytest.raises(InvalidError, match="cannot be a key"):
        hash_array(pa.array([None], pa.month_day_nano_interval()))
    with pytest.raises(InvalidError, match="uint64"):
        owners(np.array([1], dtype=np.int64), 2)
    for parallelism in (0, -1, 32769):
        with pytest.raises(InvalidError, match="parallelism"):
            bounds(parallelism)


# ---------------------------------------------------------------- placement


@pytest.mark.parametrize("parallelism", [1, 2, 3, 7, 48, 1000, 32768])
def test_owners_follow_bounds(parallelism: int) -> None:
    cuts = bounds(parallelism)
    assert cuts.dtype == np.uint64 and cuts.size == parallelism and cuts[0] == 0
    assert cuts.tolist() == [(i * 32768 // parallelism) << 49 for i in range(parallelism)]
    probes = np.concatenate([cuts, cuts[1:] - np.uint64(1), np.array([2**64 - 1, 2**63], dtype=np.uint64)])
    expected = [bisect.bisect_right(cuts.tolist(), h) - 1 for h in probes.tolist()[:200]]
    assert owners(probes, parallelism)[:200].tolist() == expected
    assert owners(probes, parallelism).dtype == np.int64
    assert (owners(probes, parallelism) == np.searchsorted(cuts, probes, side="right") - 1).all()


KEYS = {
    "sequence": pa.array(np.arange(200_000)),
    "multiples": pa.array(np.arange(200_000) << 40),
    "days": pa.array(np.arange(200_000) * 86_400_000_000).cast(pa.timestamp("us")),
    "floats": pa.array(np.arange(200_000) / 4),
    "digits": pa.array([f"{n:08d}" for n in range(200_000)]),
    "long": pa.array([f"https://example.org/item/{n}/" for n in range(200_000)]),
    "cents": pa.array(np.arange(200_000)).cast(pa.decimal128(20, 0)).cast(pa.decimal128(20, 2)),
    "halves": pa.array([Decimal(n) / 8 for n in range(20_000)], pa.decimal128(20, 3)),
}


@pytest.mark.parametrize("name", KEYS)
def test_key_groups_are_even_and_hashes_distinct(name: str) -> None:
    hashes = hash_array(KEYS[name])
    assert np.unique(hashes).size == hashes.size
    for shift in (56, 49, 20, 0):  # some eight bits: the top, below the key group, the lowest
        counts = np.bincount(((hashes >> np.uint64(shift)) & np.uint64(255)).astype(np.int64), minlength=256)
        expected = hashes.size / 256
        chi = float((((counts - expected) ** 2) / expected).sum())
        assert 160 < chi < 370, (name, shift, chi)  # 255 +- five standard deviations
