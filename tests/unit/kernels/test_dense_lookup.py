"""Partners by place are those that a search for every row finds."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from millpond import tuning
from millpond.kernels.dense_lookup import Ints, Partners


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "DENSE_LOOKUP_ROWS_MIN", 1)


class Held:
    """A table by key, that notes what it is asked for."""

    def __init__(self, rows: dict[int, list[int]]) -> None:
        self.rows = rows
        self.asked: list[int] = []

    def fetch(self, keys: pa.Array) -> tuple[pa.Table, Ints]:
        self.asked += keys.to_pylist()
        found = [(n, k, w) for n, k in enumerate(keys.to_pylist()) for w in self.rows.get(k, [])]
        table = pa.table(
            {
                "k": pa.array([k for _, k, _ in found], keys.type),
                "_w": pa.array([w for *_, w in found], pa.int64()),
            }
        )
        return table, np.array([n for n, *_ in found], np.int64)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64()])
@pytest.mark.parametrize("seed", range(4))
def test_partners_are_found_and_asked_for_once(seed: int, kind: pa.DataType) -> None:
    rng = random.Random(seed)
    held = Held({k: [1] for k in range(-100, 100) if rng.random() < 0.7})
    known = Partners(held.fetch)
    for _ in range(10):
        low = rng.randrange(-100, 80)
        keys = [rng.randrange(low, low + 20) for _ in range(60)]
        places = known.find(pa.chunked_array([keys[:7], keys[7:]], kind))
        assert places is not None and known.plain
        there = None if known.rows is None else known.rows.column("k").to_pylist()
        assert [there[p] if there and p >= 0 else None for p in places.tolist()] == [
            k if k in held.rows else None for k in keys
        ]
    assert len(held.asked) == len(set(held.asked))


def test_what_lies_far_off_is_forgotten() -> None:
    """Places are bounded by the rows of a batch, and not by all keys there ever were."""
    held = Held({k: [1] for k in range(10_000)})
    known = Partners(held.fetch)
    for low in range(0, 10_000, 100):
        places = known.find(pa.chunked_array([np.arange(low, low + 100)]))
        assert places is not None and known.rows is not None
        assert known.rows.column("k").take(pa.array(places)).to_pylist() == list(range(low, low + 100))
        assert known.rows.num_rows <= 5 * 100
    assert sorted(held.asked) == list(range(10_000))


def test_when_they_are_not_found_so() -> None:
    known = Partners(Held({1: [1], 2: [3], 4: [1, 1]}).fetch)
    assert known.find(pa.chunked_array([[1, None]])) is None, "NULL meets nobody"
    assert known.find(pa.chunked_array([["a"]])) is None
    assert known.find(pa.chunked_array([[1, 2**62]])) is None, "not dense"
    assert known.find(pa.chunked_array([[1, 3]])).tolist() == [0, -1] and known.plain  # type: ignore[union-attr]
    assert known.find(pa.chunked_array([[1, 2]])).tolist() == [0, 1] and not known.plain  # type: ignore[union-attr]
    assert known.find(pa.chunked_array([[4]])) is None, "several"
    assert known.find(pa.chunked_array([[1, 2]])) is None, "and from then on it is not asked"
