"""The hash of one key is the hash of a column with that key."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pyarrow as pa
import pytest

from millpond import hashing
from millpond.scalar_hashing import key_hasher

DAY = datetime.date(1970, 1, 1)
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, 0, 127],
    pa.int64(): [-(2**63), -1, 0, 7, 2**63 - 1],
    pa.uint32(): [0, 2**32 - 1],
    pa.uint64(): [0, 2**63 - 1, 2**63, 2**64 - 1],
    pa.string(): ["", "a", "sieben7", "achtacht", "neun neun", "é" * 33, "x" * 64, "x" * 65, "y" * 300],
    pa.date32(): [DAY, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    pa.float64(): [0.0, -0.0, 1.5],
    pa.decimal128(20, 2): [1, -5],
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_one_column(kind: pa.DataType) -> None:
    for value in VALUES[kind]:
        assert key_hasher([kind])([value]) == int(hashing.hash_array(pa.array([value], kind))[0]), value


def test_several_columns() -> None:
    chance = random.Random(1)
    for _ in range(200):
        kinds = chance.choices(list(VALUES), k=chance.randint(1, 4))
        key = [chance.choice(VALUES[kind]) for kind in kinds]
        wanted = hashing.hash_columns([pa.array([v], k) for v, k in zip(key, kinds, strict=True)], 1)
        assert key_hasher(kinds)(key) == int(wanted[0]), (kinds, key)
