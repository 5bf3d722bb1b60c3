"""min and max of integers and times are taken as numbers: the same as by rank, NULL or not (law 1)."""

from __future__ import annotations

import datetime
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.kernels.accumulators import Extremum

KINDS = [
    pa.int8(),
    pa.int32(),
    pa.int64(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("ms", "UTC"),
    pa.uint64(),
]


def _some(kind: pa.DataType, count: int, chance: random.Random, nulls: bool) -> pa.Array:
    numbers = [None if nulls and chance.random() < 0.3 else chance.randint(-100, 100) for _ in range(count)]
    if kind == pa.uint64():
        return pa.array([None if n is None else abs(n) + 2**63 for n in numbers], kind)
    if pa.types.is_date(kind):
        day = datetime.date(1970, 1, 1)
        return pa.array([None if n is None else day + datetime.timedelta(n) for n in numbers], kind)
    return pa.array(numbers, pa.int64()).cast(kind)


def _best(values: list[Any], largest: bool) -> Any:
    known = [v for v in values if v is not None]
    return (max if largest else min)(known) if known else None


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("nulls", [False, True])
def test_numbers_are_as_good_as_ranks(kind: pa.DataType, largest: bool, nulls: bool) -> None:
    chance = random.Random(f"{kind} {largest} {nulls}")
    extremum = Extremum(kind, largest)
    for _ in range(20):
        values = _some(kind, chance.randint(1, 30), chance, nulls)
        starts = np.array(sorted({0, *(chance.randrange(len(values)) for _ in range(4))}))
        groups = np.split(np.arange(len(values)), starts[1:])
        held = values.to_pylist()
        found = extremum.combine({"value": values}, starts)["value"]
        assert found.type == kind
        assert found.to_pylist() == [_best([held[i] for i in g], largest) for g in groups]
        old = _some(kind, len(groups), chance, True)
        added = extremum.add({"value": old}, {"value": found})["value"]
        pairs = zip(old.to_pylist(), found.to_pylist(), strict=True)
        assert added.type == kind and added.to_pylist() == [_best([a, b], largest) for a, b in pairs]
