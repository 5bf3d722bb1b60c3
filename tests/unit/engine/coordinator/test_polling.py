"""The inbox is polled before the sources: a source that is away does not hold up commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import UnavailableError
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("k", pa.int64())])


@dataclass(frozen=True)
class Away(MemorySource):
    """A source whose server cannot be reached while `away` is not empty."""

    away: list[str] = field(default_factory=list, compare=False, metadata={"durable": False})
    asked: list[str] = field(default_factory=list, compare=False, metadata={"durable": False})

    def poll(self, position: Any, seen: Any, max_rows: int) -> Any:
        self.asked.append("poll")
        if self.away:
            raise UnavailableError("connection refused")
        return super().poll(position, seen, max_rows)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Away:
    monkeypatch.setattr("millpond.engine.coordinator.runner.PAUSE_S_MAX", 0.001)
    return Away(SCHEMA)


def test_definitions_work_while_a_source_is_away(tmp_path: Path, source: Away) -> None:
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        pond.stream("orders", source).view("v")
        pond.drain()
        source.away.append("down")
        source.asked.clear()
        pond.sql("CREATE TABLE t (k BIGINT)")
        pond.savepoint("before")
        assert len(source.asked) < 5, "the commands did not wait until the coordinator gave up"
        with pytest.raises(UnavailableError, match="source 'orders' is unavailable: connection refused"):
            pond.drain()
        source.away.clear()
        source.push([{"k": 1}])
        pond.drain()
        assert pond.read("v").num_rows == 1


def test_a_source_that_is_away_can_be_dropped(tmp_path: Path, source: Away) -> None:
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        pond.stream("orders", source).view("v")
        pond.stream("others", MemorySource(SCHEMA)).view("w")
        pond.drain()
        source.away.append("down")
        pond.drop_view("v")
        pond.drain()
        assert pond.views() == ["w"]


def test_rows_before_a_command_do_not_keep_it_waiting_for_a_source_that_is_away(
    tmp_path: Path, source: Away
) -> None:
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        pond.stream("orders", source).view("v")
        pond.table("t", SCHEMA, key="k")
        pond.drain()
        source.away.append("down")
        pond.insert("t", [{"k": 1}])
        pond.drop_view("v")
        pond.drain()
        assert pond.views() == ["t"] and pond.read("t").num_rows == 1
