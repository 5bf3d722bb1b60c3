"""Rows that may be among the first of their key: by words as by rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond import tuning
from millpond.kernels import top_n_candidates
from millpond.ordering import Order


def _rows(prices: int, count: int = 5000) -> pa.Table:
    chance = np.random.default_rng(prices)
    return pa.table(
        {
            "k": pa.array(chance.integers(0, 300, count), mask=chance.random(count) < 0.1),
            "price": pa.array(chance.integers(-prices, prices, count), mask=chance.random(count) < 0.1),
            "at": chance.integers(0, 50, count),
            "row": np.arange(count),
        }
    )


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("prices", [2, 10_000, 2**60])
@pytest.mark.parametrize("descending", [False, True])
def test_they_are_the_rows_with_fewer_before_them(n: int, prices: int, descending: bool) -> None:
    orders = [Order("price", descending), Order("at")]
    rows = _rows(prices)
    found = top_n_candidates.candidates(rows, ["k"], orders, n)
    exact = set(top_n_candidates._by_rows(rows, ["k"], orders, n).tolist())
    assert exact <= set(found["row"].to_pylist())
    assert found.num_rows <= tuning.TOP_N_SPARE * len(exact)
    assert found["row"].to_pylist() == sorted(found["row"].to_pylist())


@pytest.mark.parametrize("order", [Order("price", True), Order("price", nulls_first=True), Order("at")])
def test_one_column_of_order_is_exact(order: Order) -> None:
    rows = _rows(50)
    orders = [order]
    packed = top_n_candidates._by_words(rows, ["k"], orders, 2)
    assert packed is not None
    assert set(packed[0].tolist()) == set(top_n_candidates._by_rows(rows, ["k"], orders, 2).tolist())


def test_a_word_too_short_is_no_word() -> None:
    assert top_n_candidates._by_words(_rows(2**62), ["k"], [Order("price")], 1) is None
