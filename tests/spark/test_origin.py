"""The origin of rows on Spark: the same order as in this process (law 3)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import millpond
from millpond.sources.memory import MemorySource
from tests.unit.engine.recorder import recorder
from tests.unit.engine.test_origin import SCHEMA, items, numbered, recorded, told

# The workers cannot import this file: send what is defined here by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def twice(row: Any) -> list[tuple[int, int]]:
    return [(row.k, row.v * 2), (row.k, row.v * 2 - 1)]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_order_of_admission_is_told_on_spark_too(session: Any, tmp_path: Path, parallelism: int) -> None:
    with millpond.open(
        tmp_path / "pond", spark=session, parallelism=parallelism, durable=False, checks=True
    ) as pond:
        source = MemorySource(SCHEMA)
        made = pond.stream("in", source).filter("v <> 5").flat_map(twice, schema=SCHEMA.remove(2))
        made._then("seen", recorder(), "record").view("seen")
        given = items(1, 11)
        source.push(*given)
        pond.drain()
        came = [r for r in numbered(given) if r[2] != 5]
        assert recorded(pond) == told([(o, k, v * 2 - i) for o, k, v in came for i in (0, 1)])
