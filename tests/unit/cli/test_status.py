"""`millpond status`, and what `run` says when another process has the pond."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond.control import lease
from millpond.errors import InvalidError
from millpond.sinks.callback import CallbackSink
from millpond.sources.memory import MemorySource
from tests.unit.cli.ponds import ask, ask_json

SCHEMA = pa.schema([("v", pa.int64())])


def broken(table: pa.Table) -> pa.Table:
    if 13 in table["v"].to_pylist():
        raise ValueError("not today")
    return table


def opened(path: Path, source: MemorySource) -> millpond.Pond:
    pond = millpond.open(path, engine="inline", durable=False, lease_ms=400)

    view = pond.stream("in", source).map_batches(broken, SCHEMA, id="m").view("v")
    view.sink("out", CallbackSink(lambda id, delta: None))
    return pond


def test_stopped_running_and_failed(tmp_path: Path) -> None:
    path, source = tmp_path / "pond", MemorySource(SCHEMA)
    pond = opened(path, source)
    source.push([{"v": 1}])
    pond.drain()
    told = ask_json("status", str(path))
    assert (told["state"], told["epoch"], told["error"], told["inbox"]) == ("running", pond.epoch, None, 0)
    assert told["holder"].startswith("process ")
    (sink,) = told["sinks"]
    assert (sink["name"], sink["state"], sink["behind"]) == ("out", "current", 0)
    pond.close()
    assert ask_json("status", str(path))["state"] == "stopped"
    with opened(path, source) as pond:
        source.push([{"v": 13}])
        with pytest.raises(InvalidError):
            pond.drain()
        told = ask_json("status", str(path))
        assert (told["state"], told["error"]) == (
            "failed",
            "InvalidError: broken failed on a batch of 1 rows",
        )
    shown = ask("status", str(path))
    assert shown.code == 0 and "failed" in shown.out and "broken failed" in shown.out


def test_killed_and_silent(tmp_path: Path) -> None:
    path = tmp_path / "pond"
    program = (
        "import os, millpond\n"
        f"pond = millpond.open({str(path)!r}, engine='inline', durable=False)\n"
        "pond.table('t', {'k': int}); pond.drain(); os._exit(1)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=False, timeout=180)
    told = ask_json("status", str(path))
    assert told["state"] == "killed"
    store = millpond.open(path).store
    last = lease.latest(store)
    assert last is not None
    number = lease.beat(store, last.number + 1, "far:7", lease_ms=100)
    assert ask_json("status", str(path))["state"] == "silent"
    stop = threading.Event()

    def renew() -> None:
        at = number
        while not stop.wait(0.02):
            at = lease.beat(store, at, "far:7", lease_ms=5000)

    far = threading.Thread(target=renew)
    far.start()
    try:
        while (last := lease.latest(store)) is None or last.lease_ms != 5000:
            pass
        assert ask_json("status", str(path))["state"] == "running"
        file = tmp_path / "p.py"
        file.write_text("def pipeline(pond):\n    pond.table('t', {'k': int})\n")
        args = ("run", str(file), "-p", str(path), "--engine", "inline", "--drain")
        refused = ask(*args)
        assert refused.code == 3 and "process 7 on far" in refused.err
        taken = ask(*args, "--take-over")
        assert taken.code == 0, taken.err
    finally:
        stop.set()
        far.join()


def test_there_is_no_pond(tmp_path: Path) -> None:
    assert ask("status", str(tmp_path / "none")).code == 2


def test_detached_sinks_and_forced_rollbacks(tmp_path: Path) -> None:
    from millpond.sinks.parquet import ParquetSink

    path, source = tmp_path / "pond", MemorySource(SCHEMA)
    with millpond.open(path, engine="inline", durable=False) as pond:
        pond.stream("in", source).view("v").sink("out", ParquetSink(tmp_path / "out", "append"))
        source.push([{"v": 1}])
        first = pond.drain()
        source.push([{"v": 2}])
        pond.drain()
    made = ask_json("fork", str(path), str(tmp_path / "fork"))
    assert made["detached"] == ["out"]
    (sink,) = ask_json("status", str(tmp_path / "fork"))["sinks"]
    assert sink["state"] == "detached"
    refused = ask("rollback", str(path), str(first))
    assert (
        refused.code == 2 and "older than what 'out' has written" in refused.err and "--force" in refused.err
    )
    assert ask_json("status", str(path))["inbox"] == 0, "nothing was sent"
    forced = ask_json("rollback", str(path), str(first), "--force", "--wait", "0")
    assert forced["status"] == "queued"
    with millpond.open(path, engine="inline", durable=False) as pond:
        pond.stream("in", source).view("v").sink("out", ParquetSink(tmp_path / "out", "append"))
        pond.drain()
        assert [e.epoch for e in pond.epochs() if e.kind == "rollback"]
        assert pond.read("v").num_rows == 2
