"""Canonical equality and the exact sort, against plain Python."""

from __future__ import annotations

import functools
import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond import hashing, identity
from millpond.ordering import Order

NAN = math.nan
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int32(): [1, 2, None],
    pa.bool_(): [True, False, None],
    pa.float64(): [0.0, -0.0, NAN, math.inf, None],
    pa.float32(): [0.0, -0.0, NAN, 1.5, None],
    pa.string(): ["", "a", "b", None],
    pa.large_binary(): [b"", b"a\0", b"a", None],
    pa.decimal128(30, 2): [1, -1, 10**20, None],
    pa.list_(pa.float64()): [[], [0.0], [-0.0], [NAN], [NAN, None], [None], None],
    pa.large_list(pa.string()): [[], ["a"], ["a", "b"], ["ab"], None],
    pa.list_(pa.float32(), 2): [[0.0, 1.0], [-0.0, 1.0], [None, NAN], None],
    pa.struct([("x", pa.float64()), ("y", pa.list_(pa.int8()))]): [
        {"x": 0.0, "y": []},
        {"x": -0.0, "y": []},
        {"x": None, "y": [1]},
        {"x": None, "y": None},
        None,
    ],
    pa.map_(pa.string(), pa.float64()): [[], [("a", 0.0)], [("a", -0.0)], [("b", None)], [("a", NAN)], None],
    pa.list_(pa.list_(pa.struct([("f", pa.float64())]))): [
        [[{"f": -0.0}], []],
        [[{"f": 0.0}], []],
        [None],
        [[None]],
        None,
    ],
    pa.null(): [None],
}


def canon(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else ("float", value + 0.0)
    if isinstance(value, dict):
        return ("struct", *(canon(item) for item in value.values()))
    if isinstance(value, list | tuple):
        return ("list", *(canon(item) for item in value))
    return value


def sliced(r: random.Random, kind: pa.DataType, count: int) -> pa.Array:
    """A random array that starts and ends inside a larger one."""
    pool = VALUES[kind]
    whole = pa.array([r.choice(pool) for _ in range(count + 5)], kind)
    return whole.slice(r.randint(0, 5), count)


@pytest.mark.parametrize("kind", list(VALUES), ids=str)
def test_equal_is_canonical_equality(kind: pa.DataType) -> None:
    r = random.Random(1)
    for count in (0, 1, 2, 40):
        a, b = sliced(r, kind, count), sliced(r, kind, count)
        expected = [canon(x) == canon(y) for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)]
        assert identity.equal(a, b).tolist() == expected
        assert not count or (hashing.hash_array(a) == hashing.hash_array(b)).tolist() == expected


@pytest.mark.parametrize("kind", list(VALUES), ids=str)
def test_canonical_makes_equal_values_equal_bits(kind: pa.DataType) -> None:
    r = random.Random(2)
    for count in (0, 1, 40):
        array = sliced(r, kind, count)
        clean = identity.canonical(array)
        clean.validate(full=True)
        assert clean.type == array.type
        assert identity.equal(array, clean).all()
        assert "-0.0" not in repr(clean.to_pylist())
        if "-0.0" not in repr(array.to_pylist()):
            assert clean.equals(array) or "nan" in repr(array.to_pylist())


def test_canonical_changes_nothing_where_nothing_is_wrong() -> None:
    for values in (pa.array([1.5, 0.0, np.nan, None]), pa.array([[0.0], None]), pa.array(["a"])):
        assert identity.canonical(values) is values
    odd = pa.array(np.array([0xFFF8000000000000], np.uint64).view(np.float64))
    assert identity.canonical(odd).to_numpy().tobytes() == np.array([np.nan]).tobytes()


@pytest.mark.filterwarnings("error")
def test_what_lies_under_a_null_is_nobodys_matter() -> None:
    """Bits of a NaN that signals, in a place that is NULL, beside a zero that is made one of its kind."""
    bits = np.array([0x7FF0000000000001, 0x8000000000000000], np.uint64)
    valid = pa.py_buffer(bytes([0b10]))
    column = pa.Array.from_buffers(pa.float64(), 2, [valid, pa.py_buffer(bits.tobytes())], null_count=1)
    assert [str(v) for v in identity.canonical(column).to_pylist()] == ["None", "0.0"]


def test_one_chunk_undoes_every_wrapping() -> None:
    plain = pa.array(["a", None, "b"])
    chunked = pa.chunked_array([plain.slice(0, 1), plain.slice(1)])
    assert identity.one_chunk(chunked).equals(plain)
    assert identity.one_chunk(plain.dictionary_encode()).equals(plain)
    assert identity.one_chunk(pa.chunked_array([], pa.string())).equals(pa.array([], pa.string()))
    ids = pa.array([b"0123456789abcdef"], pa.uuid())
    assert identity.one_chunk(ids).type == pa.binary(16)


def test_take_of_a_stretch_is_a_slice() -> None:
    column = pa.array(np.arange(100))
    part = identity.take(column, np.arange(10, 20))
    assert part.to_pylist() == list(range(10, 20))
    assert part.buffers()[1].address == column.buffers()[1].address
    for rows in ([3, 1, 2], [1, 3, 3], [1, 1, 3], [2, 1], [], [7]):
        assert identity.take(column, np.array(rows, np.int64)).to_pylist() == rows


@pytest.mark.parametrize("stable", [False, True])
def test_refine_sorts_ties_and_only_ties(stable: bool) -> None:
    r = random.Random(3)
    for _ in range(50):
        count = r.randint(0, 30)
        group = np.array([r.choice([5, 6, 2**63]) for _ in range(count)], np.uint64)
        first = [r.choice([None, 1, -(2**63), 2**63 - 1]) for _ in range(count)]
        second = [r.choice(["", "https://millpond/1", "https://millpond/2", None]) for _ in range(count)]
        columns = [
            (pa.array(first, pa.int64()), Order("", descending=True, nulls_first=True)),
            (pa.array(second, pa.string()), Order("")),
        ]
        perm = np.argsort(group, kind="stable")
        same = identity.ties(group[perm])
        for column, order in columns:
            identity.refine(perm, same, functools.partial(identity.take, column), order, stable=stable)

        def name(i: int, group: Any = group, first: Any = first, second: Any = second) -> tuple[Any, ...]:
            lead = (0, 0) if first[i] is None else (1, -first[i])
            text = (1, "") if second[i] is None else (0, second[i])
            return int(group[i]), lead, text

        expected = sorted(range(count), key=name)
        names = [name(i) for i in perm.tolist()]
        assert names == [name(i) for i in expected]
        assert same.tolist() == [i > 0 and names[i] == names[i - 1] for i in range(count)]
        assert not stable or perm.tolist() == expected


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 2, 1, -1]),
        pa.array([1, None, 1, None]),
        pa.array([0.0, -0.0, float("nan"), float("nan")]),
        pa.array(["a", "b", "a", ""]),
        pa.array([[1], [1, 2], [1], None]),
        pa.array([True, False, True, True]),
    ],
    ids=lambda a: str(a.type),
)
def test_equal_at_is_equal_of_what_lies_there(values: pa.Array) -> None:
    a, b = (grid.ravel() for grid in np.meshgrid(np.arange(4), np.arange(4)))
    wanted = identity.equal(values.take(pa.array(a)), values.take(pa.array(b)))
    assert identity.equal_at(values, a, b).tolist() == wanted.tolist()
    assert identity.same_rows([values], np.arange(4), np.arange(4)) and not identity.same_rows([values], a, b)
