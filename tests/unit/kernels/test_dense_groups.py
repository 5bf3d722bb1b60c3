"""Groups by place give what groups by sorting give, bit for bit (law 3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond import tuning
from millpond.kernels import dense_groups
from millpond.kernels.aggregate_feeds import Agg, feeds_for
from millpond.operators.aggregate import Aggregate
from millpond.operators.operator import Shape

AGGS = (Agg("n", "count"), Agg("some", "count", "x"), Agg("total", "sum", "x"), Agg("mean", "avg", "x"))


def prepared(
    rows: pa.Table, monkeypatch: pytest.MonkeyPatch, *, by_place: bool
) -> tuple[pa.Table, list[Any]]:
    operator = Aggregate(("k",), AGGS, feeds_for(AGGS, append_only=True))
    binding = operator.bind("g", (Shape(rows.schema, append_only=True),))
    used = []
    with monkeypatch.context() as patch:
        patch.setattr(tuning, "DENSE_ROWS_MIN", 1 if by_place else 10**9)
        original = dense_groups.places

        def noted(key: pa.Array) -> Any:
            found = original(key)
            used.append(found)
            return found

        patch.setattr(dense_groups, "places", noted)
        return operator.prepare(binding, 0, rows), used


def same(one: pa.Table, two: pa.Table) -> bool:
    """In any order of the groups; columns of zeros may be left out."""
    one, two = one.sort_by("_h"), two.sort_by("_h")
    names = {*one.column_names, *two.column_names}
    zeros = pa.array(np.zeros(one.num_rows, np.int64))
    return all(
        pa.chunked_array([one[n].combine_chunks() if n in one.column_names else zeros]).equals(
            pa.chunked_array([two[n].combine_chunks() if n in two.column_names else zeros])
        )
        for n in names
    )


@pytest.mark.parametrize("low", [-50, 0, 10, 10**12])
@pytest.mark.parametrize("kind", [pa.int64(), pa.int32()])
def test_dense_keys(low: int, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == pa.int32() and low == 10**12:
        low = 2**31 - 200
    rng = np.random.default_rng(3)
    keys = pa.array(rng.integers(low, low + 150, 1000)).cast(kind)
    rows = pa.table({"k": keys, "x": rng.integers(-(10**9), 10**9, 1000)})
    rows = pa.concat_tables([rows.slice(0, 300), rows.slice(300, 0), rows.slice(300)])
    rows = rows.set_column(
        1, "x", rows["x"].combine_chunks()
    )  # chunks of one column are not those of another
    fast, used = prepared(rows, monkeypatch, by_place=True)
    slow, _ = prepared(rows, monkeypatch, by_place=False)
    assert used and used[0] is not None
    assert same(fast, slow)


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"k": [1, 2, None, 2], "x": [1, 2, 3, 4]}),  # a key without a value
        pa.table({"k": [1, 2, 1, 2], "x": [1, None, 3, 4]}),  # a value that is NULL
        pa.table({"k": [1, 10**9, 1, 2], "x": [1, 2, 3, 4]}),  # far apart
        pa.table({"k": [1, 2, 1, 2], "x": [2**62, 5, 2**62, 1]}),  # sums beyond 64 bits
        pa.table({"k": ["a", "b", "a", "b"], "x": [1, 2, 3, 4]}),  # no integers
    ],
)
def test_what_is_not_dense_is_sorted(rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, _ = prepared(rows, monkeypatch, by_place=True)
    slow, _ = prepared(rows, monkeypatch, by_place=False)
    assert same(fast, slow)
    assert fast.column_names == slow.column_names


def test_largest_sums_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 4000
    top = (dense_groups.EXACT - 1) // count
    rows = pa.table({"k": np.zeros(count, np.int64), "x": np.full(count, top)})
    fast, used = prepared(rows, monkeypatch, by_place=True)
    assert used[0] is not None and fast["_a2_lo"].to_pylist() == [top * count]


EXTREMES = (*AGGS, Agg("least", "min", "x"), Agg("most", "max", "x"), Agg("noted", "count", "y"))


@pytest.mark.parametrize("key", [("k", "d"), ("d",)])
def test_dense_rows_of_several_columns(key: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    size = 3000
    rows = pa.table(
        {
            "k": pa.array(rng.integers(50, 250, size), mask=rng.random(size) < 0.01),
            "d": pa.array([f"day {n}" for n in rng.integers(0, 3, size)], mask=rng.random(size) < 0.01),
            "x": rng.integers(-(2**62), 2**62, size) // size,
            "y": pa.array(rng.integers(0, 9, size), mask=rng.random(size) < 0.5),
        }
    )
    operator = Aggregate(key, EXTREMES, feeds_for(EXTREMES, append_only=True))
    binding = operator.bind("g", (Shape(rows.schema, append_only=True),))
    slow = operator.prepare(binding, 0, rows)
    monkeypatch.setattr(tuning, "DENSE_ROWS_MIN", 1)
    fast = operator.prepare(binding, 0, rows)
    hashes = fast["_h"].to_numpy()
    assert (hashes[1:] > hashes[:-1]).all(), "by place, groups come in the order of their hashes"
    assert same(fast, slow)


def test_counts_of_several_columns_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    names = [f"c{n}" for n in range(11)]  # more than fit into a word
    columns = {name: pa.array(rng.integers(0, 9, 3000), mask=rng.random(3000) < 0.3) for name in names}
    rows = pa.table({"k": rng.integers(0, 40, 3000), **columns})
    rows = pa.concat_tables([rows.slice(0, 1100), rows.slice(1100, 0), rows.slice(1100)])
    for key in (("k",), ("k", "day")):
        given = rows.append_column("day", pa.array(["a", "b", "b"] * 1000))
        found = []
        for least in (1, 10**9):
            monkeypatch.setattr(tuning, "DENSE_ROWS_MIN", least)
            aggs = tuple(Agg(name, "count", name) for name in names)
            operator = Aggregate(key, aggs, feeds_for(aggs, append_only=True))
            binding = operator.bind("g", (Shape(given.schema, append_only=True),))
            found.append(operator.prepare(binding, 0, given))
        assert same(*found)
