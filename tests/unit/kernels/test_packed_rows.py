"""Rows as numbers: the same code for the same row, and the row again from the code."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import hashing
from millpond.identity import one_chunk
from millpond.kernels.packed_rows import pack

TIMES = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 1, 1))
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**40), 2**40),
    pa.int8(): st.integers(-128, 127),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.string(): st.text(max_size=3),
    pa.timestamp("us"): TIMES,
    pa.date32(): TIMES.map(lambda t: t.date()),
}


@settings(max_examples=60, deadline=None)
@given(st.data(), st.lists(st.sampled_from(sorted(KINDS, key=str)), min_size=1, max_size=3))
def test_codes_are_rows(data: st.DataObject, kinds: list[pa.DataType]) -> None:
    few = [data.draw(st.lists(st.none() | KINDS[kind], min_size=1, max_size=6)) for kind in kinds]
    columns = [
        pa.array((values * (1200 // len(values) + 1))[:1200], kind)
        for values, kind in zip(few, kinds, strict=True)
    ]
    packed = pack(columns)
    cut = data.draw(st.integers(0, 1200))
    chunked = pack([pa.chunked_array([c.slice(0, cut), c.slice(cut)]) for c in columns])
    if packed is None:  # wider than a word
        assert chunked is None
        return
    assert chunked is not None and (chunked.codes == packed.codes).all()
    assert [one_chunk(c).to_pylist() for c in packed.columns(packed.codes)] == [
        c.to_pylist() for c in columns
    ]
    assert [one_chunk(c).type for c in packed.columns(packed.codes)] == kinds
    rows = set(zip(*(c.to_pylist() for c in columns), strict=True))
    assert len(np.unique(packed.codes)) == len(rows)
    hashes = hashing.hash_columns(packed.columns(packed.codes), 1200)
    assert (hashes == hashing.hash_columns(columns, 1200)).all()


@pytest.mark.parametrize(
    "columns",
    [
        [pa.array(["a"] * 10)],  # few
        [pa.array([0.5] * 2000)],  # no whole numbers
        [pa.array([str(n) for n in range(2000)])],  # all different
        [pa.array([0, 2**62] * 1000), pa.array([0, 7] * 1000)],  # 66 bits
        [pa.array([-(2**63), 2**63 - 1] * 1000)],
    ],
)
def test_some_are_not_packed(columns: list[pa.Array]) -> None:
    assert pack(columns) is None


def test_as_many_bits_as_there_are_left() -> None:
    column = pa.array(range(2000))
    assert pack([column], 10) is None
    packed = pack([column], 11)
    assert packed is not None and packed.bits == 11


def test_times_moved_by_a_constant_have_no_bits_of_their_own() -> None:
    begins = np.repeat(np.arange(-50, 50) * 2_000_000, 20)
    kind = pa.timestamp("us")
    begin, end = pa.array(begins).view(kind), pa.array(begins + 10_000_000).view(kind)
    both, one = pack([begin, end]), pack([begin])
    assert both is not None and one is not None and both.bits == one.bits
    for cut in (0, 7, 2000):
        ends = pa.chunked_array([end.slice(0, cut), end.slice(cut)])
        packed = pack([begin, pa.array(begins), ends])
        assert packed is not None and packed.columns(packed.codes)[2].equals(end)
    almost = begins + 10_000_000
    almost[1000] += 1
    for other in (pa.array(almost).view(kind), pa.array(begins, mask=begins == 0).view(kind)):
        packed = pack([begin, other])
        assert packed is not None and packed.bits > one.bits
        assert [c.to_pylist() for c in packed.columns(packed.codes)] == [begin.to_pylist(), other.to_pylist()]
