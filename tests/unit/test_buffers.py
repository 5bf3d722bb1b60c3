"""Buffers speak of exactly the rows of their array."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa

from millpond.buffers import doubles, elements, fixed, limbs, nulls, strings


def holes(array: pa.Array) -> pa.Array:
    """The same buffers with the first row null: its value still lies there."""
    bits = pa.py_buffer(bytes([0b11111110] + [255] * len(array)))
    children = [array.values] if pa.types.is_nested(array.type) else []
    buffers = [bits, *array.buffers()[1 : 2 if children else None]]
    return pa.Array.from_buffers(array.type, len(array), buffers, children=children)


def test_strings_under_a_null_are_empty() -> None:
    for kind in (pa.string(), pa.large_binary(), pa.binary(3)):
        data, starts, lengths = strings(holes(pa.array([b"abc", b"def", b"ghi"], kind)))
        assert lengths.tolist() == [0, 3, 3]
        assert bytes(data[starts[2] : starts[2] + 3]) == b"ghi"


def test_lists_under_a_null_are_empty() -> None:
    inner, starts, lengths = elements(holes(pa.array([[1, 2], [3], [4, 5]])))
    assert lengths.tolist() == [0, 1, 2]
    assert inner.slice(int(starts[2]), 2).to_pylist() == [4, 5]


def test_slices_are_only_their_rows() -> None:
    assert fixed(pa.array([1, 2, 3]).slice(1), np.int64).tolist() == [2, 3]
    assert nulls(pa.array([1, None, 3]).slice(1)).tolist() == [True, False]
    low, high = limbs(pa.array([Decimal(5), Decimal(-1), Decimal(2**64 + 7)], pa.decimal128(38, 0)).slice(1))
    assert low.tolist() == [2**64 - 1, 7]
    assert high.tolist() == [2**64 - 1, 1]
    data, starts, lengths = strings(pa.array(["ab", "cde", "f"]).slice(1))
    assert [bytes(data[s : s + n]) for s, n in zip(starts, lengths, strict=True)] == [b"cde", b"f"]
    inner, starts, lengths = elements(pa.array([[1], [2, 3], []]).slice(1))
    assert (inner.to_pylist(), starts.tolist(), lengths.tolist()) == ([2, 3], [0, 2], [2, 0])
    inner, starts, lengths = elements(pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)).slice(1))
    assert (inner.to_pylist(), starts.tolist(), lengths.tolist()) == ([3, 4], [0], [2])


def test_values_are_not_copied() -> None:
    array = pa.array(np.arange(4))
    assert fixed(array, np.int64).ctypes.data == array.buffers()[1].address
    texts = pa.array(["ab", "cd"])
    assert strings(texts)[0].ctypes.data == texts.buffers()[2].address


def test_doubles_have_one_zero_and_one_nan_and_leave_the_column_alone() -> None:
    given = np.array([-0.0, -np.nan, 1.5])
    bits = given.view(np.uint64).tolist()
    assert doubles(given).view(np.uint64).tolist() == [0, 0x7FF8000000000000, 0x3FF8000000000000]
    assert given.view(np.uint64).tolist() == bits
