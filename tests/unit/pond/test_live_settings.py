"""Settings change while a pond runs, in order with the data, and stay changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.sources.memory import MemorySource
from millpond.state import inbox


def opened(folder: Path, source: MemorySource, **options: Any) -> Any:
    pond = millpond.open(folder, engine="inline", **options)
    pond.stream("hits", source).key_by("k").aggregate(n="count(*)").view("v")
    pond.drain()
    return pond


def counted(pond: Any) -> int:
    return sum(pond.read("v").column("n").to_pylist())


def test_a_paused_pond_runs_no_epoch_until_it_is_resumed(tmp_path: Path) -> None:
    source = MemorySource({"k": int})
    pond = opened(tmp_path / "pond", source)
    pond.pause()
    source.push([{"k": 1}] * 3)
    epoch = pond.drain()
    assert counted(pond) == 0 and pond.drain() == epoch
    pond.rescale(3)  # commands are executed
    assert pond.head().parallelism == 3
    pond.close()
    again = opened(tmp_path / "pond", source)  # a takeover keeps it
    assert counted(again) == 0 and again.head().settings == {"paused": True}
    again.resume()
    again.drain()
    assert counted(again) == 3 and again.head().settings == {}
    again.close()


def test_rows_in_front_of_a_command_do_not_keep_a_paused_pond_from_it(tmp_path: Path) -> None:
    """Commands are executed in order with the rows of the inbox: those before it come in, the source waits."""
    source = MemorySource({"k": int})
    with opened(tmp_path / "pond", source) as pond:
        pond.sql("CREATE TABLE t (k BIGINT PRIMARY KEY)")
        pond.pause()
        source.push([{"k": 1}])
        pond.insert("t", [{"k": 1}])
        pond.drain()
        assert pond.read("t").num_rows == 0
        pond.rescale(3)
        assert pond.head().parallelism == 3
        assert pond.read("t").num_rows == 1 and counted(pond) == 0
        pond.sql("INSERT INTO t VALUES (2); UPDATE t SET k = 3 WHERE k = 2")
        pond.resume()
        assert pond.head().settings == {}
        pond.drain()
        assert sorted(pond.read("t").column("k").to_pylist()) == [1, 3] and counted(pond) == 1


def test_a_paused_pond_finds_a_command_behind_very_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox.beyond, "__defaults__", (2, 256 << 20))  # entries that one poll reads
    with opened(tmp_path / "pond", MemorySource({"k": int})) as pond:
        pond.sql("CREATE TABLE t (k BIGINT PRIMARY KEY)")
        pond.pause()
        for number in range(5):
            pond.insert("t", [{"k": number}])
        pond.drain()
        assert pond.read("t").num_rows == 0
        pond.resume()
        assert pond.read("t").num_rows == 5 and pond.head().settings == {}


def test_bounds_of_epochs_change_while_it_runs(tmp_path: Path) -> None:
    source = MemorySource({"k": int})
    pond = opened(tmp_path / "pond", source)
    read: list[int] = []
    pond.on_epoch(lambda m: read.append(m.metrics.get("rows", 0)))
    for _ in range(6):
        source.push([{"k": 1}] * 100)
    pond.set(epoch_rows_max=200)
    pond.drain()
    assert [n for n in read if n] == [200, 200, 200]
    pond.set(epoch_rows_max=None)
    for _ in range(6):
        source.push([{"k": 1}] * 100)
    pond.drain()
    assert read[-1] == 600 and counted(pond) == 1_200
    pond.close()


def test_autoscaling_is_switched_on_while_it_runs(tmp_path: Path) -> None:
    source = MemorySource({"k": int})
    pond = opened(tmp_path / "pond", source)
    pond.set(autoscale="on", tasks_max=3, tasks_min=3, scaling_pause_ms=1)
    for n in range(6):
        source.push([{"k": n}] * 100)
        pond.drain()
    assert pond.head().parallelism == 3
    assert "on" in pond.scaling().column("mode").to_pylist()
    pond.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target_ms": 0}, "cannot be 0"),
        ({"fan_in": 3}, "cannot change while"),
        ({"target_m": 3}, "no setting"),
        ({"autoscale": "maybe"}, "cannot be 'maybe'"),
    ],
)
def test_what_cannot_change_is_refused(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    pond = opened(tmp_path / "pond", MemorySource({"k": int}))
    with pytest.raises(InvalidError, match=message):
        pond.set(**given)
    pond.close()
