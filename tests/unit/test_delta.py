"""Deltas: consolidation is a function of the multiset, bit for bit (law 3)."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import delta, hashing
from millpond.errors import InternalError

NAN = math.nan
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [0, 1, None]),
    "s": (pa.string(), ["", "a", "https://x/1", "https://x/2", None]),
    "f": (pa.float64(), [0.0, -0.0, NAN, 1.5, None]),
    "list": (pa.list_(pa.float32()), [[], [-0.0], [0.0], [NAN], [None], None]),
    "struct": (pa.struct([("x", pa.float64()), ("y", pa.list_(pa.string()))]), [
        {"x": -0.0, "y": ["a"]}, {"x": 0.0, "y": ["a"]}, {"x": None, "y": None}, None,
    ]),
    "map": (pa.map_(pa.string(), pa.float64()), [[("a", -0.0)], [("a", 0.0)], [("a", None)], [], None]),
}  # fmt: skip


def canon(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else ("float", value + 0.0)
    if isinstance(value, dict):
        return tuple(canon(item) for item in value.values())
    if isinstance(value, list | tuple):
        return tuple(canon(item) for item in value)
    return value


def text(table: pa.Table) -> str:
    """The rows as text, in which -0.0 and 0.0 differ."""
    return repr(table.to_pylist())


def random_delta(r: random.Random, names: list[str], count: int) -> pa.Table:
    columns = {n: pa.array([r.choice(KINDS[n][1]) for _ in range(count)], KINDS[n][0]) for n in names}
    return pa.table(
        {**columns, "_w": pa.array([r.choice([-2, -1, 1, 1, 2]) for _ in range(count)], pa.int64())}
    )


def shuffled(r: random.Random, table: pa.Table) -> pa.Table:
    """The same multiset: another order, other chunks, some weights split."""
    split = table.filter(pa.array([abs(w) == 2 for w in table["_w"].to_pylist()], pa.bool_()))
    half = delta.with_weights(split, delta.weights(split) // 2)
    table = pa.concat_tables([table, half, delta.negate(half)]).combine_chunks()
    table = table.take(pa.array(r.sample(range(table.num_rows), table.num_rows), pa.int64()))
    cut = r.randint(0, table.num_rows)
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)])


def few_hashes(columns: Any, length: int, real: Any = hashing.hash_columns) -> Any:
    return real(columns, length) % np.uint64(3)


@pytest.mark.parametrize("collide", [False, True], ids=["hash", "collisions"])
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    names=st.lists(st.sampled_from(sorted(KINDS)), unique=True, max_size=3),
    count=st.integers(0, 40),
)
def test_consolidate_sums_equal_rows_in_an_order_of_their_own(
    seed: int, names: list[str], count: int, collide: bool
) -> None:
    r = random.Random(seed)
    table = random_delta(r, names, count)
    with mock.patch.object(hashing, "hash_columns", few_hashes if collide else hashing.hash_columns):
        got = delta.consolidate(table)
        again = delta.consolidate(shuffled(r, table))
    model: Counter[Any] = Counter()
    for row in table.to_pylist():
        weight = row.pop("_w")
        model[canon(row)] += weight
    rows = [(canon({n: row[n] for n in names}), row["_w"]) for row in got.to_pylist()]
    assert len({row for row, _ in rows}) == len(rows)
    assert dict(rows) == {row: weight for row, weight in model.items() if weight}
    assert got.schema.equals(table.schema)
    assert text(got) == text(again)


def test_consolidate_gives_one_zero_and_one_nan() -> None:
    odd = np.array([0x8000000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    got = delta.consolidate(pa.table({"f": odd})).sort_by("f")["f"].to_numpy()
    assert got.tobytes() == np.array([0.0, np.nan]).tobytes()


def test_consolidate_projects_before_it_sums() -> None:
    table = pa.table(
        {"a": [1, 1, 2], "b": ["x", "y", "z"], "_h": pa.array([1, 1, 2], pa.uint64()), "_w": [1, 1, -1]}
    )
    got = delta.consolidate(table, columns=["a"])
    assert sorted(got.to_pylist(), key=str) == [{"a": 1, "_w": 2}, {"a": 2, "_w": -1}]
    assert delta.consolidate(table).column_names == ["a", "b", "_h", "_w"]
    kept = {row["b"]: row["_h"] for row in delta.consolidate(table).to_pylist()}
    assert kept == {"x": 1, "y": 1, "z": 2}


def test_consolidate_without_columns_is_a_count() -> None:
    assert delta.consolidate(pa.table({"_w": [2, 3, -1]})).to_pylist() == [{"_w": 4}]
    assert delta.consolidate(pa.table({"_w": [2, -2]})).to_pylist() == []


def test_consolidate_keeps_an_encoding() -> None:
    table = pa.table({"s": pa.array(["b", "a", "b"]).dictionary_encode()})
    got = delta.consolidate(table)
    assert pa.types.is_dictionary(got.schema.field("s").type)
    assert sorted((r["s"], r["_w"]) for r in got.to_pylist()) == [("a", 1), ("b", 2)]
    plain = delta.consolidate(pa.table({"s": ["a", "b", "b"]}))
    assert got["s"].cast(pa.string()).to_pylist() == plain["s"].to_pylist()


def test_consolidate_an_empty_delta() -> None:
    got = delta.consolidate(pa.table({"s": pa.array([], pa.string())}))
    assert got.schema.equals(pa.schema([("s", pa.string()), ("_w", pa.int64())]))


def test_weights_default_to_one() -> None:
    table = pa.table({"x": [1, 2]})
    assert delta.weights(table).tolist() == [1, 1]
    assert delta.weights(delta.negate(table)).tolist() == [-1, -1]
    assert delta.weights(delta.negate(delta.negate(table))).tolist() == [1, 1]


def test_weights_must_be_whole_numbers() -> None:
    for bad in (pa.array([1.0, 2.0]), pa.array([1, None], pa.int64())):
        with pytest.raises(InternalError, match="int64 without NULL"):
            delta.weights(pa.table({"x": [1, 2], "_w": bad}))
    with pytest.raises(InternalError, match="one weight per row"):
        delta.with_weights(pa.table({"x": [1, 2]}), np.array([1]))


def test_with_weights_keeps_the_column_order() -> None:
    table = pa.table({"_w": [1, 1], "x": [7, 8]})
    assert delta.with_weights(table, np.array([3, 4])).to_pylist() == [{"_w": 3, "x": 7}, {"_w": 4, "x": 8}]


def test_assert_non_negative_names_the_row() -> None:
    delta.assert_non_negative(pa.table({"x": [1], "_w": [0]}))
    with pytest.raises(InternalError, match="negative weight") as caught:
        delta.assert_non_negative(pa.table({"x": [1, 2], "_w": [1, -3]}), step="count", epoch=7)
    assert "1 of 2 rows" in str(caught.value.detail) and "'x': 2" in str(caught.value.detail)
    assert (caught.value.step, caught.value.epoch) == ("count", 7)


def test_concat_fills_weights_and_drops_half_a_hash() -> None:
    plain = pa.table({"x": [1]})
    weighted = pa.table({"_w": [-1], "x": [2], "_h": pa.array([9], pa.uint64())})
    assert delta.concat([plain, weighted]).to_pylist() == [{"x": 1, "_w": 1}, {"x": 2, "_w": -1}]
    assert delta.concat([weighted, weighted]).column_names == ["_w", "x", "_h"]
    assert delta.concat([plain, plain]).column_names == ["x"]
    assert delta.concat([plain]) is plain


def test_concat_decodes_where_encodings_differ() -> None:
    plain = pa.table({"s": ["a"]})
    coded = pa.table({"s": pa.array(["b"]).dictionary_encode()})
    other = pa.table({"s": pa.array(["c", "b"]).dictionary_encode()})
    assert delta.concat([plain, coded])["s"].to_pylist() == ["a", "b"]
    both = delta.concat([coded, other])
    assert both["s"].to_pylist() == ["b", "c", "b"]
    assert sorted(r["s"] + str(r["_w"]) for r in delta.consolidate(both).to_pylist()) == ["b2", "c1"]


def test_concat_refuses_other_schemas() -> None:
    with pytest.raises(InternalError, match="one schema") as caught:
        delta.concat([pa.table({"x": [1]}), pa.table({"x": ["a"]})])
    assert "int64" in str(caught.value.detail) and "string" in str(caught.value.detail)
    for other in (pa.table({"y": [1]}), pa.table({"x": [1], "y": [1]})):
        with pytest.raises(InternalError, match="one schema"):
            delta.concat([pa.table({"x": [1]}), other])
    with pytest.raises(InternalError, match="at least one"):
        delta.concat([])


def test_field_metadata_stays() -> None:
    field = pa.field("u", pa.string(), metadata={"logical": "UUID"})
    table = pa.table([pa.array(["a", "b"])], schema=pa.schema([field]))
    for got in (delta.consolidate(table), delta.concat([table, table]), delta.negate(table)):
        assert got.schema.field("u").metadata == {b"logical": b"UUID"}
