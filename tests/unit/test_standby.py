"""A standby takes over within seconds of the writer's death, and two writers never both go on: real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond.control import lease
from millpond.errors import ConflictError, InvalidError
from millpond.pond import Pond
from millpond.state.manifest import history
from millpond.state.store.store import open_store
from tests.waiting import until

ROOT = Path(__file__).parents[2]
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
LEASE_MS = 1500

WRITER = f"""
import sys; sys.path[:0] = [{str(ROOT / "src")!r}]
import pyarrow as pa, millpond
schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
pond = millpond.open(
    sys.argv[1], engine="inline", durable=False, lease_ms={LEASE_MS}, poll_ms=5, standby=sys.argv[2] == "standby"
)
pond.table("t", schema, key="k")
pond.start()
print("running", flush=True)
try:
    for line in sys.stdin:
        pond.flush()
        print(pond.epoch, flush=True)
except millpond.errors.MillpondError as error:
    print(type(error).__name__, error.message, flush=True)
"""


class Writer:
    """A process that runs the pipeline in the background."""

    def __init__(self, path: Path, role: str = "first") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), role],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def flush(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write("flush\n")
        self.process.stdin.flush()
        return self.said()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[list[Writer]]:
    made: list[Writer] = []
    yield made
    for writer in made:
        writer.process.kill()
        writer.process.communicate()


def client(path: Path) -> Pond:
    return millpond.open(path, engine="inline", durable=False, lease_ms=LEASE_MS)


def rows(pond: Pond) -> dict[int, int]:
    return {r["k"]: r["v"] for r in pond.read("t").to_pylist()}


def test_a_standby_takes_over_from_a_killed_writer(tmp_path: Path, writers: list[Writer]) -> None:
    path = tmp_path / "pond"
    writers.append(Writer(path))
    assert writers[0].said() == "running"
    pond = client(path)
    pond.insert("t", [{"k": 1, "v": 1}])
    int(writers[0].flush())
    writers.append(Writer(path, "standby"))
    pond.insert("t", [{"k": 2, "v": 2}])
    int(writers[0].flush())
    token = pond.head().token
    assert token == 1, "the standby waits as long as the first is alive"

    writers[0].signal(signal.SIGKILL)
    pond.insert("t", [{"k": 3, "v": 3}])
    start = time.monotonic()
    assert writers[1].said() == "running"
    waited = time.monotonic() - start
    int(writers[1].flush())
    assert rows(pond) == {1: 1, 2: 2, 3: 3}
    assert pond.head().token == 2
    assert waited < 20 * LEASE_MS / 1000  # a loaded machine; without load about one lease


@pytest.mark.parametrize("standby", [False, True])
def test_nobody_waits_for_a_process_of_this_machine_that_has_ended(
    tmp_path: Path, writers: list[Writer], standby: bool
) -> None:
    path = tmp_path / "pond"
    writers.append(Writer(path))
    assert writers[0].said() == "running"
    client(path).insert("t", [{"k": 1, "v": 1}])
    int(writers[0].flush())
    writers[0].signal(signal.SIGKILL)
    start = time.monotonic()
    with millpond.open(path, engine="inline", durable=False, lease_ms=30_000, standby=standby) as pond:
        pond.table("t", SCHEMA, key="k")
        pond.drain()
        assert pond.head().token == 2
        assert rows(pond) == {1: 1}
    assert time.monotonic() - start < 20, "the silence of its lease is 30 s"


def test_a_writer_that_slept_finds_out_and_stops(tmp_path: Path, writers: list[Writer]) -> None:
    """SIGSTOP is what a long pause looks like: when it wakes it is a zombie, and its commits lose."""
    path = tmp_path / "pond"
    writers.append(Writer(path))
    assert writers[0].said() == "running"
    pond = client(path)
    pond.insert("t", [{"k": 1, "v": 1}])
    int(writers[0].flush())
    writers[0].signal(signal.SIGSTOP)
    writers.append(Writer(path, "standby"))
    assert writers[1].said() == "running"
    pond.insert("t", [{"k": 2, "v": 2}])
    int(writers[1].flush())
    writers[0].signal(signal.SIGCONT)
    pond.insert("t", [{"k": 3, "v": 3}])
    told = writers[0].flush()
    assert told.startswith("ConflictError another coordinator committed epoch"), told
    int(writers[1].flush())
    assert rows(pond) == {1: 1, 2: 2, 3: 3}
    # The loser renews no more: or a standby would wait for the lease of a pipeline that is dead.
    writers[1].signal(signal.SIGKILL)
    writers.append(Writer(path, "standby"))
    assert writers[2].said() == "running"
    assert pond.head().token == 3


def test_a_writer_that_ends_well_leaves_at_once(tmp_path: Path, writers: list[Writer]) -> None:
    path = tmp_path / "pond"
    with client(path) as pond:
        pond.table("t", SCHEMA, key="k")
        pond.drain()
    last = lease.latest(open_store(path.as_uri()))
    assert last is not None
    assert last.released
    writers.append(Writer(path))
    assert writers[0].said() == "running"
    with pytest.raises(ConflictError, match="being written by another process") as caught:
        client(path).drain()
    assert str(writers[0].process.pid) in (caught.value.detail or "")


@pytest.mark.parametrize("way", ["drain", "run", "start"])
def test_a_standby_says_whom_it_waits_for_and_can_be_stopped(tmp_path: Path, way: str) -> None:
    path = tmp_path / "pond"
    with client(path) as pond:
        pond.table("t", SCHEMA, key="k")
        epoch = pond.drain()
    last = lease.latest(pond.store)
    assert last is not None
    lease.beat(pond.store, last.number + 1, "elsewhere:1")  # alive for a lease
    with millpond.open(path, engine="inline", durable=False, lease_ms=600_000, standby=True) as standby:
        waits: list[str] = []

        def waiting(holder: str) -> None:
            waits.append(holder)
            threading.Timer(0.05, standby.stop).start()

        standby.on_wait(waiting)
        assert getattr(standby, way)() in (None, epoch)
        assert waits == ["elsewhere:1"]
        assert standby.epoch == epoch, "it was never the writer"


def test_a_standby_reads_the_pond_again_after_it_waited(tmp_path: Path, writers: list[Writer]) -> None:
    """What it saw before it waited is old: tokens, positions, the plan."""
    path = tmp_path / "pond"
    writers.append(Writer(path))
    assert writers[0].said() == "running"
    writers.append(Writer(path, "standby"))
    pond = client(path)
    for value in range(5):
        pond.insert("t", [{"k": 1, "v": value}])
        int(writers[0].flush())
    writers[0].signal(signal.SIGTERM)
    assert writers[1].said() == "running"
    int(writers[1].flush())
    assert rows(pond) == {1: 4}
    chain = [history.read_manifest(pond.store, e) for e in history.epochs(pond.store)]
    assert [m.token for m in chain] == sorted(m.token for m in chain)
    assert all(b.parent_nonce == a.nonce for a, b in pairwise(chain))


def holding(path: Path, number: int, stop: threading.Event, **told: int) -> None:
    """Another machine that runs the pond: it renews its lease until it is stopped."""
    store = open_store(path.as_uri())
    lease_ms = told.get("lease_ms", LEASE_MS)
    while not stop.wait(lease_ms / 4000):
        number = lease.beat(store, number, "far:77", **told)


@pytest.mark.parametrize("lease_ms", [200, LEASE_MS])
def test_a_second_writer_is_refused_while_the_first_lives(
    tmp_path: Path, writers: list[Writer], lease_ms: int
) -> None:
    """Also where it is less patient than the first renews."""
    path = tmp_path / "pond"
    writers.append(Writer(path))
    assert writers[0].said() == "running"
    with millpond.open(path, engine="inline", durable=False, lease_ms=lease_ms) as second:
        second.table("t", SCHEMA, key="k")
        for call in (second.drain, second.start, second.run, second.compact):
            with pytest.raises(ConflictError, match="being written by another process") as caught:
                call()
            detail = caught.value.detail or ""
            assert f"process {writers[0].process.pid} on " in detail
            assert "since 20" in detail and "lease last renewed at 20" in detail
            assert "--take-over" in (caught.value.hint or "")
        assert second.head().token == 1
        second.insert("t", [{"k": 1, "v": 1}])
        int(writers[0].flush())
        assert rows(second) == {1: 1}


def test_a_second_writer_can_take_over(tmp_path: Path, writers: list[Writer]) -> None:
    path = tmp_path / "pond"
    writers.append(Writer(path))
    assert writers[0].said() == "running"
    pond = client(path)
    pond.insert("t", [{"k": 1, "v": 1}])
    int(writers[0].flush())
    with millpond.open(path, engine="inline", durable=False, take_over=True) as second:
        second.table("t", SCHEMA, key="k")
        second.drain()
        assert second.head().token == 2
        pond.insert("t", [{"k": 2, "v": 2}])
        told = writers[0].flush()
        assert told.startswith("ConflictError another coordinator committed epoch"), told
        second.drain()
        assert rows(second) == {1: 1, 2: 2}
    last = lease.latest(pond.store)
    assert last is not None and last.released, "the first does not renew what it has lost"


def test_one_that_lost_the_pond_while_it_rested_renews_no_more(tmp_path: Path) -> None:
    with client(tmp_path / "pond") as first:
        first.table("t", SCHEMA, key="k")
        first.drain()
        keeper = first._execution.keeper
        assert keeper is not None
        with millpond.open(tmp_path / "pond", engine="inline", durable=False, take_over=True) as second:
            second.table("t", SCHEMA, key="k")
            second.drain()
        keeper._thread.join(120)
        assert not keeper._thread.is_alive()
        last = lease.latest(first.store)
        assert last is not None and last.released


def test_taking_over_and_standing_by_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="exclude each other"):
        millpond.open(tmp_path, standby=True, take_over=True)


@pytest.mark.parametrize("standby", [False, True])
def test_a_holder_of_another_machine_is_waited_for_as_long_as_its_own_lease(
    tmp_path: Path, standby: bool
) -> None:
    path = tmp_path / "pond"
    with client(path) as pond:
        pond.table("t", SCHEMA, key="k")
        pond.drain()
    last = lease.latest(pond.store)
    assert last is not None
    lease.beat(pond.store, last.number + 1, "far:77", lease_ms=1000)  # and then it is gone
    start = time.monotonic()
    with millpond.open(path, engine="inline", durable=False, lease_ms=50, standby=standby) as second:
        second.drain()
        assert second.head().token == 2
    assert time.monotonic() - start >= 0.9


def test_a_holder_of_another_machine_that_renews_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pond"
    with client(path) as pond:
        pond.table("t", SCHEMA, key="k")
        pond.drain()
    stop = threading.Event()
    told = {"lease_ms": 4000, "since_us": 1_700_000_000_000_000, "at_us": 1_700_000_001_000_000}
    far = threading.Thread(target=holding, args=(path, 1000, stop), kwargs=told)
    far.start()
    try:
        while not (last := lease.latest(pond.store)) or last.holder != "far:77":
            time.sleep(0.01)
        with (
            millpond.open(path, engine="inline", durable=False, lease_ms=20) as second,
            pytest.raises(ConflictError) as caught,
        ):
            second.drain()
    finally:
        stop.set()
        far.join()
    assert caught.value.detail == (
        "process 77 on far, since 2023-11-14 22:13:20 UTC, lease last renewed at 2023-11-14 22:13:21 UTC"
    )


def test_a_standby_starts_its_engine_while_it_waits(tmp_path: Path) -> None:
    """A takeover must not wait for a Spark session."""
    path = str(tmp_path / "p")
    with millpond.open(path, engine="inline", durable=False, lease_ms=600_000) as pond:
        pond.table("t", {"a": int})
        pond.drain()
        with millpond.open(path, engine="inline", durable=False, lease_ms=600_000, standby=True) as standby:
            execution = standby._execution
            waiting = threading.Thread(target=standby.drain)
            waiting.start()
            until(lambda: execution.standing_by and execution._engine is not None)
            assert execution.runner is None
            standby.stop()
            waiting.join(60)
