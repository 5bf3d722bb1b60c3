"""What groups add to their windows, against repeating each group for every window of it."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.kernels.accumulated import Accumulated
from millpond.kernels.accumulators import Accumulator
from millpond.kernels.aggregate_functions import aggregate_function
from millpond.kernels.window_spread import can_spread, partial_columns, repeated, spread
from tests.sampling import first

STEP = 10


def some(rng: random.Random, count: int, trimmed: int | None) -> tuple[list[int], list[int], list[int]]:
    """Keys, and the first and the last window of groups that may have lost their first windows."""
    widths, keys, firsts, lasts = rng.choice([1, 3, 7]), [], [], []
    for _ in range(count):
        last = rng.randrange(-6, 6) * STEP
        first_one = last - (widths - 1) * STEP
        keys.append(rng.randrange(3))
        firsts.append(first_one if trimmed is None else min(max(first_one, trimmed), last))
        lasts.append(last)
    return keys, firsts, lasts


@pytest.mark.parametrize("seed", first(3, range(40)))
def test_it_adds_up_the_groups_of_each_window(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice([1, 2, 9, 40])
    keys, firsts, lasts = some(rng, count, rng.choice([None, -20, 0]))
    numbers = [rng.choice([-3, 0, 5, 2**62]) for _ in keys]
    names = [rng.choice(["a", "b", "ä"]) for _ in keys]
    weights = [rng.choice([1, 1, 2, -1]) for _ in keys]
    total = aggregate_function("sum", pa.int64(), step="s")
    least = aggregate_function("min", pa.string(), step="s")
    kinds: list[Accumulator | None] = [None, total, least]
    each = np.arange(len(keys))
    fields = total.partial(pa.array(numbers), np.array(weights), each, np.array(weights))
    given = Accumulated(
        tuple(kinds),
        np.array(weights),
        ({}, fields, least.partial(pa.array(names), None, each, each * 0 + 1)),
    )
    parts = spread(np.array(keys), np.array(firsts), np.array(lasts), STEP, given)
    assert can_spread(kinds)
    wanted: dict[tuple[int, int], list[int]] = defaultdict(list)
    for n, (key, start, last) in enumerate(zip(keys, firsts, lasts, strict=True)):
        for window in range(start, last + 1, STEP):
            wanted[key, window].append(n)
    windows = [(keys[g], int(s)) for g, s in zip(parts.group, parts.start, strict=True)]
    assert sorted(windows) == sorted(wanted)
    sums = total.finish(parts.fields[1], parts.rows)
    lows = parts.fields[2]["value"].to_pylist()
    for window, rows, found, low in zip(windows, parts.rows.tolist(), sums.to_pylist(), lows, strict=True):
        mine = wanted[window]
        assert rows == sum(weights[n] for n in mine)
        whole = sum(weights[n] * numbers[n] for n in mine)
        assert found == (whole if rows > 0 and -(2**63) <= whole < 2**63 else None) or rows <= 0
        assert low == min(names[n] for n in mine)


def test_groups_are_repeated_where_they_cannot_be_taken_back() -> None:
    group, start = repeated(np.array([0, 30]), np.array([20, 30]), STEP)
    assert list(zip(group.tolist(), start.tolist(), strict=True)) == [(0, 0), (0, 10), (0, 20), (1, 30)]


def test_columns_that_are_zero_everywhere_are_left_out() -> None:
    total = aggregate_function("sum", pa.int64(), step="s")
    fields: dict[str, Any] = total.partial(pa.array([1, 2]), None, np.array([0, 1]), np.array([1, 1]))
    given = Accumulated((total,), np.array([1, 1]), (fields,))
    parts = spread(np.array([0, 0]), np.array([0, 0]), np.array([10, 20]), STEP, given)
    assert set(partial_columns(parts)) == {"_n", "_a0_lo"}
