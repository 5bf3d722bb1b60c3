"""What fails in a running pond is seen: on the log, in the status, and by the next call."""

from __future__ import annotations

import dataclasses
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidError, UnavailableError
from millpond.pond import Pond
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def until(condition: Callable[[], bool], timeout_s: float = 30) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "took too long"
        time.sleep(0.005)


def broken(table: pa.Table) -> pa.Table:
    if 13 in table["v"].to_pylist():
        raise ValueError("not today")
    return table


@pytest.fixture
def source() -> MemorySource:
    return MemorySource(SCHEMA)


@pytest.fixture
def pond(tmp_path: Path, source: MemorySource) -> Iterator[Pond]:
    made = millpond.open(tmp_path / "pond", engine="inline", durable=False, poll_ms=5)
    made.stream("in", source).map_batches(broken, SCHEMA, id="m").view("v")
    yield made
    made._execution.close(raises=False)


def failed(pond: Pond, source: MemorySource) -> None:
    """Let the background thread die."""
    pond.start()
    source.push([{"k": 1, "v": 13}])
    until(lambda: pond.status.state == "failed")


def test_the_log_has_the_error_with_its_cause(
    pond: Pond, source: MemorySource, caplog: pytest.LogCaptureFixture
) -> None:
    failed(pond, source)
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.name.startswith("millpond")
    assert "broken failed on a batch of 1 rows" in record.getMessage()
    assert record.exc_info is not None
    assert "ValueError: not today" in caplog.text


def test_the_status_is_a_frozen_value(pond: Pond, source: MemorySource) -> None:
    new = pond.status
    assert (new.state, new.epoch, new.lag, new.last_error, new.holder) == ("new", None, None, None, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        new.state = "running"  # type: ignore[misc]
    source.push([{"k": 1, "v": 1}])
    epoch = pond.drain()
    stopped = pond.status
    assert (stopped.state, stopped.epoch, stopped.lag, stopped.last_error) == ("stopped", epoch, 0, None)
    assert "process" in (stopped.holder or "")
    pond.start()
    assert pond.status.state == "running"
    failed(pond, source)
    told = pond.status
    assert (told.state, told.epoch, told.lag) == ("failed", epoch, None)
    assert isinstance(told.last_error, InvalidError)
    with pytest.raises(InvalidError):
        pond.stop()
    assert pond.status.state == "failed", "until it runs again"
    assert new.state == "new", "a value does not change"


def test_a_run_in_the_foreground_that_fails_is_in_the_status_too(pond: Pond, source: MemorySource) -> None:
    source.push([{"k": 1, "v": 13}])
    with pytest.raises(InvalidError):
        pond.drain()
    assert pond.status.state == "failed"
    assert isinstance(pond.status.last_error, InvalidError)


@pytest.mark.parametrize(
    "call",
    [
        lambda pond: pond.drain(),
        lambda pond: pond.flush(),
        lambda pond: pond.start(),
        lambda pond: pond.stop(),
        lambda pond: pond.compact(),
        lambda pond: pond.rescale(2),
        lambda pond: pond.run(),
        lambda pond: pond.close(),
        lambda pond: list(pond.changes("v", follow=True)),
    ],
    ids=["drain", "flush", "start", "stop", "compact", "rescale", "run", "close", "changes"],
)
def test_the_next_call_raises_it(pond: Pond, source: MemorySource, call: Callable[[Pond], Any]) -> None:
    failed(pond, source)
    with pytest.raises(InvalidError, match="broken failed on a batch"):
        call(pond)


def test_close_raises_what_nobody_heard_and_only_that(pond: Pond, source: MemorySource) -> None:
    failed(pond, source)
    with pytest.raises(InvalidError):
        pond.drain()
    pond.close()
    assert pond.status.state == "failed"


def test_close_releases_everything_before_it_raises(pond: Pond, source: MemorySource, tmp_path: Path) -> None:
    failed(pond, source)
    with pytest.raises(InvalidError):
        pond.close()
    pond.close()
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as again:
        assert again.status.holder is None
        again.stream("in", MemorySource(SCHEMA)).map_batches(broken, SCHEMA, id="m").view("v")
        again.drain()


def test_a_block_is_left_by_its_own_exception(pond: Pond, source: MemorySource) -> None:
    with pytest.raises(KeyError, match="mine"), pond:
        failed(pond, source)
        raise KeyError("mine")
    with pytest.raises(InvalidError, match="closed"):
        pond.drain()


def test_it_runs_again_after_it_was_told(pond: Pond, source: MemorySource) -> None:
    failed(pond, source)
    with pytest.raises(InvalidError):
        pond.stop()
    pond.stop()
    assert pond.status.state == "failed"


def test_one_line_for_each_epoch(
    pond: Pond, source: MemorySource, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "millpond")
    source.push([{"k": 1, "v": 1}, {"k": 2, "v": 2}])
    epoch = pond.drain()
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO]
    (line,) = [one for one in lines if one.startswith(f"epoch {epoch}: ")]
    assert line.startswith(f"epoch {epoch}: 2 rows in ") and line.endswith(" ms")
    assert [one.split(":")[0] for one in lines] == [f"epoch {e}" for e in range(epoch + 1)]
    with pond.changing():
        pond.stream_of("v").key_by("k").aggregate(n="count(*)", id="again").view("again")
    (change,) = [r.getMessage() for r in caplog.records if "the program changed" in r.getMessage()]
    assert change.startswith(f"epoch {pond.epoch}: 2 rows in ") and "again" in change
    assert capfd.readouterr().out == "", "a library prints nothing"


def test_what_is_tried_again_is_on_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fails = [True]

    def target(id: str, delta: pa.Table) -> None:
        if fails:
            raise OSError("the target is away")

    from millpond.sinks.callback import CallbackSink

    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        source = MemorySource(SCHEMA)
        pond.stream("in", source).view("v").sink("out", CallbackSink(target))
        source.push([{"k": 1, "v": 1}])
        with pytest.raises(UnavailableError, match="sink 'out' failed"):
            pond.drain()
        (sink,) = pond.status.sinks
        assert (sink.name, sink.state) == ("out", "failed")  # until a delivery succeeds
        assert "sink 'out' failed: OSError: the target is away; trying again later" in caplog.text
        fails.clear()
        pond.drain()
        assert pond.status.sinks[0].state == "current"


def test_millpond_run_ends_with_the_error(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.py"
    file.write_text(
        "import pyarrow as pa\n"
        "from millpond.sources.nexmark import NexmarkSource\n"
        "def broken(table):\n    raise ValueError('not today')\n"
        "def pipeline(pond):\n"
        "    rows = pond.stream('in', NexmarkSource('bid', 10))\n"
        "    rows.map_batches(broken, pa.schema([('x', pa.int64())]), id='m').view('v')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "millpond", "run", str(file), "-p", str(tmp_path / "p"), "--engine", "inline"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2, done
    assert "broken failed on a batch" in done.stderr
