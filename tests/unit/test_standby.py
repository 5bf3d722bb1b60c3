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
from millpond.errors import ConflictError
from millpond.pond import Pond
from millpond.state import history
from millpond.state.store import open_store

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

        standby._watch.on_wait = waiting
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
