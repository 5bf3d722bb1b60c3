"""Averages as numerics against fractions, together and one by one."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from millpond.kernels import numeric_quotients
from millpond.kernels.numeric_quotients import NUMERIC_SCALE, quotients


def expected(total: int, count: int, scale: int) -> Decimal | None:
    if count <= 0:
        return None
    shifted = Fraction(abs(total) * 10**NUMERIC_SCALE, count * 10**scale)
    rounded = int(shifted + Fraction(1, 2))  # half away from zero
    with localcontext(prec=60):
        return Decimal(rounded if total >= 0 else -rounded).scaleb(-NUMERIC_SCALE)


@pytest.mark.parametrize("scale", [0, 1, 2, 7, 8, 9, 15, 16, 18])
def test_every_way_to_divide_is_exact(scale: int) -> None:
    rng = np.random.default_rng(scale)
    totals = [0, 1, -1, 5, -5, 2**63 - 1, -(2**63) + 1, *rng.integers(-(10**18), 10**18, 200).tolist()]
    totals += rng.integers(-99, 99, 200).tolist()
    counts = [
        1,
        2,
        3,
        8,
        0,
        10**9,
        7,
        *rng.integers(1, 10**6, 200).tolist(),
        *rng.integers(0, 16, 200).tolist(),
    ]
    wanted = [expected(t, c, scale) for t, c in zip(totals, counts, strict=True)]
    words = (np.zeros(len(totals), np.int64), np.array(totals))
    assert quotients(words, np.array(counts), scale).to_pylist() == wanted
    assert numeric_quotients._one_by_one(words, np.array(counts), scale).to_pylist() == wanted


def test_sums_and_counts_of_any_size() -> None:
    totals, counts = [2**70 + 1, -(2**63), 12], [3, 7, 2**62]
    words = (np.array([2**6, 0, 0]), np.array([1, -(2**63), 12]))
    wanted = [expected(t, c, 0) for t, c in zip(totals, counts, strict=True)]
    assert quotients(words, np.array(counts), 0).to_pylist() == wanted
    assert quotients((np.zeros(0, np.int64),), np.zeros(0, np.int64), 2).to_pylist() == []
