"""Shards: state that belongs to no key, the same at any parallelism (law 3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond import ListState, ValueState
from millpond.errors import InvalidError
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("user", pa.string()), ("x", pa.int64())])


def sample(row: Any, seen: Any = ValueState(int, default=0), kept: Any = ListState(int)) -> Any:
    """Every third row of each shard."""
    seen.value += 1
    if seen.value % 3 == 0:
        kept.append(row.x)
        return {"shard": row.shard, "x": row.x}


def sampled(folder: Path, parallelism: int) -> tuple[list[str], list[str]]:
    pond = millpond.open(folder, engine="inline", parallelism=parallelism, checks=True)
    source = MemorySource(SCHEMA)
    rows = pond.stream("s", source)
    rows.shards(4).process(sample, {"shard": pa.int32(), "x": int}, id="sample").view("kept")
    for epoch in range(3):
        source.push([{"user": f"u{n % 7}", "x": epoch * 100 + n} for n in range(40)])
        pond.drain()
    found = sorted(map(str, pond.read("kept").to_pylist()))
    states = sorted(map(str, pond.state("sample", "seen").to_pylist()))
    pond.close()
    return found, states


def test_operator_state_is_the_same_at_any_parallelism(tmp_path: Path) -> None:
    one = sampled(tmp_path / "1", 1)
    assert len(one[1]) == 4 and 30 <= len(one[0]) <= 40
    assert sampled(tmp_path / "5", 5) == one


def test_rows_of_one_value_share_a_shard(tmp_path: Path) -> None:
    pond = millpond.open(tmp_path / "pond", engine="inline", parallelism=3, checks=True)
    source = MemorySource(SCHEMA, append_only=False)
    shards = pond.stream("s", source).shards(5, "user")
    shards.aggregate(n="count(*)").view("sizes")
    shards.stream.distinct("user", "shard").view("where")
    source.push([{"user": f"u{n % 9}", "x": n} for n in range(90)])
    pond.drain()
    assert pond.read("where").num_rows == 9
    source.push([{"user": f"u{n % 9}", "x": n, "_w": -1} for n in range(90)])
    pond.drain()
    assert pond.read("sizes").num_rows == 0


@pytest.mark.parametrize("n", [0, -1, 2.5, True, 10**6])
def test_a_number_of_shards_that_cannot_work_is_refused(tmp_path: Path, n: Any) -> None:
    pond = millpond.open(tmp_path / "pond", engine="inline")
    with pytest.raises(InvalidError, match="number of shards"):
        pond.stream("s", MemorySource(SCHEMA)).shards(n)
