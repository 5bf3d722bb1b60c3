"""A sink that hangs holds up nobody else: neither other sinks nor merges nor collections, nor the end."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import DataError, UnavailableError
from millpond.pond import Pond
from millpond.sinks.callback import CallbackSink

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
HANGING = 5  # more than any pool would have had


class Gate:
    """Sinks that hang until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered: set[str] = set()

    def hangs(self, name: str) -> Any:
        def target(id: str, delta: pa.Table) -> None:
            self.entered.add(name)
            self.open.wait(60)

        return target


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


def opened(path: Path, gate: Gate, **options: Any) -> tuple[Pond, list[str]]:
    pond = millpond.open(path, engine="inline", durable=False, poll_ms=5, **options)
    table = pond.table("t", SCHEMA, key="k")
    for n in range(HANGING):
        table.sink(f"hangs{n}", CallbackSink(gate.hangs(f"hangs{n}")))
    told: list[str] = []
    table.sink("good", CallbackSink(lambda id, delta: told.append(id)))
    return pond, told


def until(condition: Any) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "took too long"
        time.sleep(0.005)


def test_others_merges_and_collections_go_on(tmp_path: Path, gate: Gate) -> None:
    pond, told = opened(tmp_path / "p", gate, sink_close_ms=100, retain_epochs=1, collect_every=1)
    pond.start()
    for k in range(30):
        pond.insert("t", [{"k": k, "v": k}])
        pond.flush()
    until(lambda: len(told) == 30)
    assert gate.entered == {f"hangs{n}" for n in range(HANGING)}
    until(lambda: any("merged runs" in (e.note or "") for e in pond.epochs(last=None)))
    until(lambda: {s.name: s.state for s in pond.status.sinks}["good"] == "current")
    assert {s.state for s in pond.status.sinks if s.name != "good"} == {"behind"}
    pond.close()


def test_closing_does_not_wait_for_ever(tmp_path: Path, gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    pond, _ = opened(tmp_path / "p", gate, sink_close_ms=50)
    pond.start()
    pond.insert("t", [{"k": 1, "v": 1}])
    until(lambda: len(gate.entered) == HANGING)
    start = time.monotonic()
    pond.close()
    assert time.monotonic() - start < 20
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert any("sink 'hangs0' did not return within 0.05 s" in w for w in warned)
    gate.open.set()
    with opened(tmp_path / "p", gate)[0] as again:  # it is delivered again
        again.drain()
        assert {s.state for s in again.status.sinks} == {"current"}


def test_a_drain_that_waits_for_a_sink_can_be_stopped(tmp_path: Path, gate: Gate) -> None:
    pond, _ = opened(tmp_path / "p", gate, sink_close_ms=50)
    pond.insert("t", [{"k": 1, "v": 1}])

    def stop() -> None:
        until(lambda: len(gate.entered) == HANGING)
        pond.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    pond.drain()
    stopper.join()
    assert pond.read("t").num_rows == 1
    pond.close()


def test_a_process_ends_though_a_sink_hangs(tmp_path: Path) -> None:
    program = f"""
import threading, millpond
from millpond.sinks.callback import CallbackSink
entered = threading.Event()
def hangs(id, delta):
    entered.set()
    threading.Event().wait()
pond = millpond.open({str(tmp_path / "p")!r}, engine="inline", durable=False, poll_ms=5, sink_close_ms=50)
pond.table("t", {{"k": int}}, key="k").sink("out", CallbackSink(hangs))
pond.start()
pond.insert("t", [{{"k": 1}}])
entered.wait(120)
pond.close()
print("closed")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=180, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "closed"), done.stderr
    assert "sink 'out' did not return" in done.stderr


def test_a_target_whose_data_is_damaged_does_not_stop_the_pond(tmp_path: Path) -> None:
    """A DataError about the pond's own files stops it; one about the target only fails that sink (law 7)."""
    damaged = [DataError("'part' exists, but cannot be read", hint="move it away")]

    def target(id: str, delta: pa.Table) -> None:
        if damaged:
            raise damaged[0]

    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        pond.table("t", SCHEMA, key="k").sink("out", CallbackSink(target))
        for number in range(3):
            pond.insert("t", [{"k": number, "v": 1}])
            with pytest.raises(UnavailableError, match="sink 'out' failed: 'part' exists") as found:
                pond.drain()
            assert found.value.hint == "move it away"
            assert pond.read("t").num_rows == number + 1
        damaged.clear()
        pond.drain()
