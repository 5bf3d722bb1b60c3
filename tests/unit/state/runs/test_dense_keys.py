"""Keys that are found by place are those that are found by sorting hashes, bit for bit (law 3)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond import hashing, tuning
from millpond.errors import InternalError
from millpond.state.runs import dense_keys
from millpond.state.tables import table
from millpond.state.tables.table import KeySet


@pytest.mark.parametrize("low", [-70, 0, 5, 2**62])
@pytest.mark.parametrize("given", [True, False])
def test_dense_keys(low: int, given: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    batch = pa.table({"k": rng.integers(low, low + 300, 1000)})
    hashes = hashing.hash_columns([batch["k"]], 1000) if given else None
    slow = KeySet.of(batch, ["k"], hashes)
    monkeypatch.setattr(tuning, "DENSE_ROWS_MIN", 1)
    assert dense_keys.numbered([batch["k"].combine_chunks()]) is not None
    fast = KeySet.of(batch, ["k"], hashes)
    assert (fast.hashes == slow.hashes).all() and (fast.inverse == slow.inverse).all()
    assert fast.columns.equals(slow.columns)


@pytest.mark.parametrize(
    "columns",
    [
        [],
        [pa.array([1, 2, None])],
        [pa.array(["a", "b", "a"])],
        [pa.array([1, 2, 10**9])],
        [pa.array([1, 2, 3]), pa.array([1, 2, 3])],
    ],
)
def test_what_is_not_dense(columns: list[pa.Array], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "DENSE_ROWS_MIN", 1)
    assert dense_keys.numbered(columns) is None


def test_sorted_stretches_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "numbered", None)  # would be called otherwise
    hashes = np.arange(1000, dtype=np.uint64)
    KeySet.of(pa.table({"k": np.arange(1000)}), ["k"], hashes)


def test_wrong_hashes_are_refused() -> None:
    with pytest.raises(InternalError, match="one per row"):
        KeySet.of(pa.table({"k": [1, 2]}), ["k"], np.array([1], np.uint64))
