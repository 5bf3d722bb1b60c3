"""A rollback behind what an append-only sink has shown: refused, or forced in a defined way."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.sinks.callback import CallbackSink
from millpond.sinks.parquet import ParquetSink
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def opened(
    path: Path, source: MemorySource, out: Path, mode: Literal["append", "changes"], **more: Any
) -> Pond:
    pond = millpond.open(path, engine="inline", durable=False, checks=True, poll_ms=5, **more)
    pond.stream("in", source).view("v").sink("out", ParquetSink(out, mode))
    return pond


def shown(out: Path) -> list[int]:
    return [r["k"] for file in sorted(out.glob("*.parquet")) for r in pq.read_table(file).to_pylist()]


def fed(pond: Pond, source: MemorySource, *keys: int) -> int:
    source.push([{"k": k, "v": k} for k in keys])
    return pond.drain()


@pytest.mark.parametrize("background", [False, True])
def test_refused_up_front_and_nothing_changes(tmp_path: Path, background: bool) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path / "p", source, tmp_path / "out", "append") as pond:
        first = fed(pond, source, 1)
        fed(pond, source, 2)
        if background:
            pond.start()
        before = pond.epoch
        with pytest.raises(InvalidError, match="older than what 'out' has written") as caught:
            pond.rollback(first)
        assert "force=True" in (caught.value.hint or "")
        assert pond.epoch == before, "it did not even become a command"
        fed(pond, source, 3)
        assert shown(tmp_path / "out") == [1, 2, 3]


def test_forced_it_goes_on_and_rows_stay(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path / "p", source, tmp_path / "out", "append") as pond:
        first = fed(pond, source, 1)
        fed(pond, source, 2)
        pond.rollback(first, force=True)
        fed(pond, source, 3)
        assert sorted(r["k"] for r in pond.read("v").to_pylist()) == [1, 2, 3]
        assert sorted(shown(tmp_path / "out")) == [1, 2, 2, 3], "2 was read again, and is appended again"
        assert pond.status.sinks[0].state == "current"
    with opened(tmp_path / "p", source, tmp_path / "out", "append") as pond:
        fed(pond, source, 4)
        assert sorted(shown(tmp_path / "out")) == [1, 2, 2, 3, 4]


def test_allowed_where_nothing_has_to_go(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path / "p", source, tmp_path / "out", "append") as pond:
        first = fed(pond, source, 1)
        pond.savepoint("s")  # an epoch without rows
        pond.rescale(2)
        pond.rollback(first)
        fed(pond, source, 2)
        assert shown(tmp_path / "out") == [1, 2]


def test_other_sinks_take_rows_back(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    told: list[tuple[int, int]] = []
    with opened(tmp_path / "p", source, tmp_path / "out", "changes") as pond:
        with pond.changing():
            pond.stream_of("v").view("w").sink(
                "calls",
                CallbackSink(lambda id, delta: told.extend((r["k"], r["_w"]) for r in delta.to_pylist())),
            )
        first = fed(pond, source, 1)
        fed(pond, source, 2)
        pond.rollback(first)
        pond.drain()
        assert shown(tmp_path / "out") == [1, 2, 2, 2]
        assert told == [(1, 1), (2, 1), (2, -1), (2, 1)]


def test_a_detached_sink_refuses_nothing(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path / "p", source, tmp_path / "out", "append") as pond:
        first = fed(pond, source, 1)
        pond.detach_sink("out")
        fed(pond, source, 2)
        pond.rollback(first)
        pond.drain()
        assert shown(tmp_path / "out") == [1]


def test_a_command_that_came_otherwise_is_refused_by_who_runs_it(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path / "p", source, tmp_path / "out", "append") as pond:
        first = fed(pond, source, 1)
        fed(pond, source, 2)
        pond._inbox.command("rollback", {"epoch": first})
        assert "older than what 'out' has written" in str(pond.head().metrics["refused"])
        fed(pond, source, 3)
        assert shown(tmp_path / "out") == [1, 2, 3]
