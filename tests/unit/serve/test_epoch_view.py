"""A moment stays what it was, whatever the pond does; summaries tell what each epoch did."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("k", pa.string()), ("at", pa.timestamp("us"))])


def row(key: str, second: int) -> dict[str, Any]:
    return {"k": key, "at": datetime(2026, 1, 1, 0, 0, second)}


def define(path: Path, source: MemorySource, **settings: Any) -> Pond:
    pond = millpond.open(path, engine="inline", durable=False, **settings)
    stream = pond.stream("s", source, event_time="at", delay="1s")
    stream.key_by("k").aggregate(n="count(*)").view("by_k")
    stream.flat_map(lambda r: [{"n": 1 // len(r.k)}], pa.schema([("n", pa.int64())]), id="split").view(
        "split"
    )
    return pond


def test_a_moment_is_not_touched_by_later_epochs(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with define(tmp_path / "pond", source, retain_epochs=2, collect_every=1) as pond:
        source.push([row("a", 10), row("", 20)])
        first = pond.drain()
        pond.savepoint("begun")
        then = pond.at("begun")
        plain = pond.at(first + 1)
        for second in range(21, 30):
            source.push([row("a", second), row("a", 1), row("", second)])
            pond.drain()
        pond.compact()
        assert pond.head().floor > plain.epoch
        for moment in (then, plain):
            assert moment.lookup("by_k", "a").to_pylist() == [{"k": "a", "n": 1}]
            assert moment.read("by_k").num_rows == 2
            assert moment.errors().num_rows == moment.errors("split").num_rows == 1
            assert moment.errors("by_k").num_rows == moment.late("s.watermark").num_rows == 0
            assert moment.views() == ["by_k", "split"]
            assert "Aggregate by (k)" in moment.explain() and moment.explain("mermaid").startswith(
                "flowchart"
            )
        assert (then.epoch, plain.epoch, repr(then)) == (first, first + 1, f"Moment(epoch {first})")
        assert pond.late("s.watermark").num_rows == 9
        plain.close()
        pond.savepoint("again")  # collects what nobody holds any more
        assert pond._runner is not None
        pond._runner.drain(settle=True)  # the collection runs beside the epochs
        with pytest.raises(InvalidError, match="no longer kept"):
            plain.read("by_k")
        with pond.at() as now:
            assert now.lookup("by_k", "a").to_pylist() == [{"k": "a", "n": 10}]
        with pytest.raises(InvalidError, match="no savepoint named 'nope'"):
            pond.at("nope")


def test_epochs_and_savepoints(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with define(tmp_path / "pond", source, parallelism=2) as pond:
        source.push([row("a", 10), row("b", 20)])
        pond.drain()
        pond.savepoint("x")
        made, epoch, named = pond.epochs()
        assert (made.kind, made.rows, made.tasks, made.changed) == ("create", None, (), {})
        assert (epoch.epoch, epoch.rows, epoch.tasks, epoch.note) == (1, 2, (1, 2), "savepoint x")
        assert epoch.changed == {"s.watermark.by-k/groups": 2, "split.view/rows": 1}  # equal rows are one
        assert epoch.watermarks == {"s.watermark": datetime(2026, 1, 1, 0, 0, 19, tzinfo=UTC)}
        assert epoch.bytes > 0 and epoch.ms is not None and epoch.when <= named.when
        assert [e.epoch for e in pond.epochs(last=1)] == [2] and pond.epochs(last=0) == []
        assert pond.savepoints() == {"x": 1}
        pond.drop_savepoint("x")
        assert pond.savepoints() == {}
