"""Nobody starves: not a source beside another, not a command behind a backlog."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import millpond
from millpond.control.admission import admit
from millpond.sources.memory import MemorySource
from millpond.sources.source import Split

SCHEMA = pa.schema([("k", pa.int64())])


def splits(*rows: int) -> list[Split]:
    return [Split({"n": n}, r, 8 * r) for n, r in enumerate(rows)]


def test_a_source_with_large_splits_does_not_wait_for_one_with_small_ones() -> None:
    taken = admit({"small": splits(*[40] * 10), "wide": splits(90, 90)}, rows=100, bytes_max=1 << 20)
    assert len(taken["wide"]) == 1
    assert len(taken["small"]) == 1


def test_the_budget_bounds_what_follows_the_first() -> None:
    taken = admit({"a": splits(*[10] * 100)}, rows=55, bytes_max=1 << 20)
    assert len(taken["a"]) == 5


def test_a_command_is_taken_before_the_backlog_is_gone(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    seen: list[tuple[int, int]] = []
    pond = millpond.open(
        tmp_path,
        engine="inline",
        parallelism=1,
        durable=False,
        epoch_rows_max=1,
        on_epoch=lambda m: seen.append((m.positions.get("in", 0), m.parallelism)),
    )
    pond.stream("in", source).aggregate(n="count(*)", id="n").view("n")
    source.push(*([{"k": n}] for n in range(30)))
    millpond.open(tmp_path).rescale(3)  # another process asks, while rows are waiting
    pond.drain()
    assert seen[-1][1] == 3
    assert min(position for position, parallelism in seen if parallelism == 3) < 5
    pond.close()
