"""User code that wants to end the process: an error row, never somebody's exit code; and Ctrl-C still works."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond import Process, ValueState
from millpond.errors import InvalidError, MillpondError
from millpond.kernels.user_code import is_interrupt, is_row_fault
from millpond.pond import Pond
from millpond.sinks.callback import CallbackSink
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


class Own(BaseException):
    """Of a user's, who did not know better."""


def exits(row: Any) -> None:
    if row.v == 13:
        sys.exit(7)


def interrupts(row: Any) -> None:
    if row.v == 13:
        raise KeyboardInterrupt


def own(row: Any) -> None:
    if row.v == 13:
        raise Own("mine")


def cancels(row: Any) -> None:
    if row.v == 13:
        raise asyncio.CancelledError


def ends_generator(row: Any) -> None:
    if row.v == 13:
        raise GeneratorExit


ENDS = {
    "SystemExit": exits,
    "KeyboardInterrupt": interrupts,
    "Own": own,
    "CancelledError": cancels,
    "GeneratorExit": ends_generator,
}


class Ending(Process):
    seen = ValueState(int, default=0)

    def __init__(self, end: Callable[[Any], None]) -> None:
        self.end = end

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.seen.value += 1
        self.end(row)
        return {"k": row.k, "v": row.v}


class Timed(Ending):
    def on_row(self, row: Any, ctx: Any) -> Any:
        ctx.set_timer("x", after=0, clock="processing")
        return super().on_row(row, ctx)

    def on_timer(self, timer: Any, ctx: Any) -> None:
        return None


def _row(end: Callable[[Any], None], row: Any) -> Any:
    end(row)
    return {"k": row.k, "v": row.v}


def _rows(end: Callable[[Any], None], row: Any) -> Any:
    yield {"k": row.k, "v": row.v}
    end(row)


def _plain(end: Callable[[Any], None], row: Any, seen: Any = ValueState(int, default=0)) -> Any:
    seen.value += 1
    end(row)
    return {"k": row.k, "v": row.v}


STEPS: dict[str, Callable[[Any, Callable[[Any], None]], Any]] = {
    "map": lambda s, end: s.map(functools.partial(_row, end), SCHEMA, id="it"),
    "flat_map": lambda s, end: s.flat_map(functools.partial(_rows, end), SCHEMA, id="it"),
    "filter": lambda s, end: s.filter(lambda row: _row(end, row) is not None, id="it"),
    "process": lambda s, end: s.key_by("k").process(Ending(end), SCHEMA, id="it"),
    "timers": lambda s, end: s.key_by("k").process(Timed(end), SCHEMA, id="it"),
    "function": lambda s, end: s.key_by("k").process(
        lambda row, seen=ValueState(int, default=0): _plain(end, row, seen), SCHEMA, id="it"
    ),
}


def opened(path: Path) -> Pond:
    return millpond.open(path, engine="inline", durable=False, checks=True)


CASES = [(step, kind, False) for step in STEPS for kind in ENDS]
CASES += [("map", "KeyboardInterrupt", True), ("process", "SystemExit", True)]


@pytest.mark.parametrize(("step", "kind", "background"), CASES)
def test_the_row_is_an_error_row(tmp_path: Path, step: str, kind: str, background: bool) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path / "pond") as pond:
        STEPS[step](pond.stream("in", source), ENDS[kind]).view("out")
        source.push([{"k": 1, "v": 1}, {"k": 1, "v": 13}, {"k": 2, "v": 2}, {"k": 1, "v": 3}])
        if background:
            pond.start()
        pond.drain()
        assert sorted(pond.read("out")["v"].to_pylist()) == [1, 2, 3]
        (error,) = pond.errors().to_pylist()
        assert error["step"] == "it" and error["reason"].startswith(kind), error
        assert "test_user_code_ends.py:" in error["reason"]
        if step in ("process", "timers"):
            assert pond.state("it", "seen").sort_by("k").to_pylist() == [
                {"k": 1, "seen": 2},
                {"k": 2, "seen": 1},
            ]


@pytest.mark.parametrize("kind", ENDS)
def test_functions_of_sql(tmp_path: Path, kind: str) -> None:
    class Row:
        def __init__(self, v: int) -> None:
            self.v = v

    def scalar(v: int) -> int:
        ENDS[kind](Row(v))
        return v

    class Sum:
        def __init__(self) -> None:
            self.n = 0

        def accumulate(self, v: int) -> None:
            ENDS[kind](Row(v))
            self.n += v

        def retract(self, v: int) -> None:
            self.n -= v

        def finish(self) -> int:
            return self.n

    with opened(tmp_path / "pond") as pond:
        pond.function("scalar", scalar)
        pond.function("sums", Sum, arguments=[int], returns=int)
        pond.sql("""
            CREATE TABLE t (k int, v int);
            CREATE MATERIALIZED VIEW a AS SELECT scalar(v) AS v FROM t;
            CREATE MATERIALIZED VIEW b AS SELECT k, sums(v) AS s FROM t GROUP BY k;
            INSERT INTO t VALUES (1, 1), (1, 13), (2, 2);
            FLUSH
        """)
        assert sorted(pond.read("a")["v"].to_pylist()) == [1, 2]
        assert pond.read("b").to_pylist() == [{"k": 2, "s": 2}]
        reasons = [r["reason"] for r in pond.errors().to_pylist()]
        assert len(reasons) == 2 and all(f": {kind}" in reason for reason in reasons), reasons
        with pytest.raises(MillpondError, match=kind):
            pond.sql("SELECT scalar(v) FROM t").fetchall()


@pytest.mark.parametrize("kind", ENDS)
def test_whole_batches_stop_the_epoch_with_the_step(tmp_path: Path, kind: str) -> None:
    def batch(table: pa.Table) -> pa.Table:
        class Row:
            v = 13

        ENDS[kind](Row())
        return table

    source = MemorySource(SCHEMA)
    with opened(tmp_path / "pond") as pond:
        pond.stream("in", source).map_batches(batch, SCHEMA, id="it").view("out")
        source.push([{"k": 1, "v": 1}])
        with pytest.raises(InvalidError) as caught:
            pond.drain()
        assert caught.value.step == "it" and kind in str(caught.value)


def test_a_sink_that_exits_is_told_as_one_that_failed(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path / "pond") as pond:
        pond.stream("in", source).view("out").sink("target", CallbackSink(lambda id, delta: sys.exit(3)))
        source.push([{"k": 1, "v": 1}])
        with pytest.raises(MillpondError, match="target"):
            pond.drain()
        assert pond.read("out").num_rows == 1


# -- interrupts -----------------------------------------------------------------------------


def raised(function: Callable[[], Any]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def _raise(error: BaseException) -> Any:
    raise error


def test_what_code_raises_is_no_interrupt() -> None:
    for error in (KeyboardInterrupt(), SystemExit(3), Own()):
        assert is_row_fault(raised(lambda error=error: _raise(error)))  # type: ignore[misc]


def test_what_a_signal_raises_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def spin() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        error = raised(spin)
        assert isinstance(error, KeyboardInterrupt) and is_interrupt(error) and not is_row_fault(error)

        def caught_and_raised() -> None:
            try:
                spin()
            except KeyboardInterrupt:
                raise

        assert is_interrupt(raised(caught_and_raised))
        signal.signal(signal.SIGINT, lambda number, frame: sys.exit(1))  # as services do
        error = raised(spin)
        assert isinstance(error, SystemExit) and is_interrupt(error) and not is_row_fault(error)
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_get_no_signals() -> None:
    found: list[bool] = []
    thread = threading.Thread(
        target=lambda: found.append(is_interrupt(raised(lambda: _raise(KeyboardInterrupt()))))
    )
    thread.start()
    thread.join()
    assert found == [False]


PROGRAM = """
import os, signal, sys, threading, time
import millpond
from millpond.sources.memory import MemorySource

def slow(row):
    if row.k == 5:
        print("in user code", flush=True)
        {wait}
    return {{"k": row.k}}

source = MemorySource({{"k": int}})
pond = millpond.open(sys.argv[1], engine="inline")
pond.stream("in", source).map(slow, {{"k": int}}, id="slow").view("out")
source.push([{{"k": k}} for k in range(10)])
try:
    pond.drain()
    print("drained", pond.errors().num_rows)
except KeyboardInterrupt:
    print("interrupted", pond.epoch)
"""


@pytest.mark.parametrize("wait", ["time.sleep(60)", "while True: pass", "threading.Event().wait(60)"])
def test_ctrl_c_interrupts_user_code(tmp_path: Path, wait: str) -> None:
    program = PROGRAM.format(wait=wait)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "pond")], stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "in user code\n"
            running.send_signal(signal.SIGINT)
            out, _ = running.communicate(timeout=60)
        finally:
            running.kill()
    assert out.startswith("interrupted 0"), out


def test_an_exit_in_user_code_is_not_the_exit_of_the_program(tmp_path: Path) -> None:
    program = PROGRAM.format(wait="sys.exit(42)")
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "pond")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout.endswith("drained 1\n"), (done.stdout, done.stderr)


def test_folds_and_code_that_runs_in_lanes(tmp_path: Path) -> None:
    def fold(a: Any, b: Any) -> Any:
        if b.v == 13:
            sys.exit(7)
        return {"v": a.v + b.v}

    def lane(row: Any, total: Any = ValueState(int, default=0)) -> Any:
        if row.v == 13:
            raise SystemExit
        total.value = total.value + row.v
        return (row.k, total.value)

    source = MemorySource(SCHEMA)
    with opened(tmp_path / "pond") as pond:
        stream = pond.stream("in", source)
        stream.key_by("k").reduce(fold, id="fold").view("folded")
        stream.key_by("k").process(lane, {"k": int, "v": int}, latest=True, id="lane").view("laned")
        source.push([{"k": k, "v": v} for k in range(50) for v in (1, 13 if k == 7 else 2, 3)])
        pond.drain()
        folded = {r["k"]: r["v"] for r in pond.read("folded").to_pylist()}
        assert folded == {k: 6 for k in range(50) if k != 7}
        assert {r["k"]: r["v"] for r in pond.read("laned").to_pylist()} == {
            k: 4 if k == 7 else 6 for k in range(50)
        }
        assert sorted(r["step"] for r in pond.errors().to_pylist()) == ["fold", "lane"]
