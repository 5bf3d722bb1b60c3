"""A fork's sinks are detached until somebody attaches them, in the flow API and in SQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.sinks.parquet import ParquetSink

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
Make = Callable[..., Pond]


def flow(path: Path, out: Path, **options: Any) -> Pond:
    pond = millpond.open(path, engine="inline", durable=False, checks=True, **options)
    pond.table("t", SCHEMA, key="k").sink("out", ParquetSink(out))
    return pond


def sql(path: Path, out: Path, **options: Any) -> Pond:
    pond = millpond.open(path, engine="inline", durable=False, checks=True, **options)
    pond.sql(
        "CREATE TABLE IF NOT EXISTS t (k BIGINT PRIMARY KEY, v BIGINT);"
        f"CREATE SINK IF NOT EXISTS out FROM t WITH (connector = 'files', path = '{out}')"
    )
    return pond


def shown(out: Path) -> list[tuple[int, int]]:
    return sorted(
        (r["k"], r["_w"]) for file in sorted(out.glob("*.parquet")) for r in pq.read_table(file).to_pylist()
    )


def put(pond: Pond, *keys: int) -> None:
    pond.insert("t", [{"k": k, "v": k} for k in keys])
    pond.drain()


@pytest.fixture(params=[flow, sql])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


@pytest.fixture
def out(tmp_path: Path, make: Make) -> Path:
    """The target of a pond that was forked."""
    with make(tmp_path / "parent", tmp_path / "out") as parent:
        put(parent, 1, 2)
        parent.fork(tmp_path / "fork")
    assert shown(tmp_path / "out") == [(1, 1), (2, 1)]
    return tmp_path / "out"


def test_a_fork_writes_nothing_there(tmp_path: Path, make: Make, out: Path) -> None:
    for key in (3, 4):  # also after a restart
        with make(tmp_path / "fork", out) as fork:
            put(fork, key)
            (sink,) = fork.status.sinks
            assert (sink.name, sink.state) == ("out", "detached")
            assert "(detached)" in fork.explain()
            assert [row[:2] for row in fork.sql("SHOW SINKS").fetchall()] == [("out", "detached sink")]
            assert ("out", "detached sink") in [row[:2] for row in fork.sql("SHOW OBJECTS").fetchall()]
            assert "(detached)" in str(fork.sql("EXPLAIN").fetchall())
    assert shown(out) == [(1, 1), (2, 1)]


@pytest.mark.parametrize("way", ["python", "sql"])
@pytest.mark.parametrize("replay", [False, True])
def test_attached_it_gets_what_comes_or_all_since_the_fork(
    tmp_path: Path, make: Make, out: Path, way: str, replay: bool
) -> None:
    with make(tmp_path / "fork", out) as fork:
        put(fork, 3)
        if way == "python":
            fork.attach_sink("out", replay=replay)
        else:
            fork.sql(f"ALTER SINK out ATTACH{' WITH REPLAY' if replay else ''}")
        put(fork, 4)
        assert fork.status.sinks[0].state == "current"
        fork.attach_sink("out")  # it is
    expected = [(1, 1), (2, 1), *([(3, 1)] if replay else []), (4, 1)]
    assert shown(out) == expected
    with make(tmp_path / "fork", out) as fork:
        put(fork, 5)
        assert "(detached)" not in fork.explain()
    assert shown(out) == [*expected, (5, 1)]


def test_attaching_before_it_runs(tmp_path: Path, make: Make, out: Path) -> None:
    with make(tmp_path / "fork", out) as fork:
        fork.attach_sink("out")
        put(fork, 3)
    assert shown(out) == [(1, 1), (2, 1), (3, 1)]


def test_a_sink_can_be_detached_for_a_while(tmp_path: Path, make: Make) -> None:
    out = tmp_path / "out"
    with make(tmp_path / "p", out) as pond:
        put(pond, 1)
        pond.detach_sink("out")
        pond.detach_sink("out")
        put(pond, 2)
        pond.sql("ALTER SINK out ATTACH WITH REPLAY")
        put(pond, 3)
        pond.sql("ALTER SINK out DETACH")
        put(pond, 4)
        pond.attach_sink("out")
        put(pond, 5)
    assert shown(out) == [(1, 1), (2, 1), (3, 1), (5, 1)]


def test_a_detached_sink_does_not_keep_history(tmp_path: Path, make: Make, out: Path) -> None:
    with make(tmp_path / "fork", out, retain_epochs=2) as fork:
        for key in range(3, 9):
            put(fork, key)
        assert fork.head().floor > 1
        with pytest.raises(InvalidError, match="cannot be shown all changes since it was detached"):
            fork.attach_sink("out", replay=True)
        fork.attach_sink("out")
        put(fork, 9)
    assert shown(out) == [(1, 1), (2, 1), (9, 1)]


def test_names_and_new_sinks(tmp_path: Path, make: Make, out: Path) -> None:
    other = tmp_path / "other"
    with make(tmp_path / "fork", out) as fork:
        with pytest.raises(InvalidError, match="no sink named 'aut'") as caught:
            fork.attach_sink("aut")
        assert caught.value.hint == "did you mean 'out'?"
        fork.sql(f"CREATE SINK mine FROM t WITH (connector = 'files', path = '{other}')")
        put(fork, 3)
        if make is sql:
            with pytest.raises(InvalidError, match="sink 'out' cannot be renamed, its target knows it"):
                fork.sql("ALTER SINK out RENAME TO away")
        assert {s.name: s.state for s in fork.status.sinks} == {"out": "detached", "mine": "current"}
    assert (3, 1) in shown(other)
    assert (3, 1) not in shown(out)


def test_dropped_and_made_anew_it_stays_detached(tmp_path: Path, out: Path, make: Make) -> None:
    if make is flow:
        pytest.skip("only SQL drops sinks")
    again = f"CREATE SINK out FROM t WITH (connector = 'files', path = '{out}')"
    with make(tmp_path / "fork", out) as fork:
        fork.sql("DROP SINK out")
        put(fork, 3)
        assert "ALTER SINK out ATTACH" in fork.sql(again).warnings[0]
        put(fork, 4)
        assert fork.status.sinks[0].state == "detached"
        assert shown(out) == [(1, 1), (2, 1)]
        fork.sql("ALTER SINK out ATTACH; DROP SINK out")
        assert not fork.sql(again).warnings
        put(fork, 5)
    assert (5, 1) in shown(out)


def test_a_rollback_does_not_attach(tmp_path: Path, make: Make, out: Path) -> None:
    with make(tmp_path / "fork", out) as fork:
        put(fork, 3)
        before = fork.epoch
        put(fork, 4)
        fork.rollback(before)
        put(fork, 5)
        assert fork.status.sinks[0].state == "detached"
    assert shown(out) == [(1, 1), (2, 1)]
