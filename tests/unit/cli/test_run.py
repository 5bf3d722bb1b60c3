"""`millpond run`: a pipeline file, from its first epoch to its end."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

import millpond
from millpond.cli.commands.run import RunProgress, interrupts
from millpond.cli.loading import load, open_for
from millpond.cli.screen import LiveScreen, LogScreen, SilentScreen
from millpond.cli.text_output import TextOutput
from millpond.control import lease
from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.pond.listeners import Listeners
from millpond.state.store.store import open_store
from tests.unit.cli.ponds import ask, ask_json, define, sales

FILE = """
from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


@dataclass(frozen=True)
class Scaled:
    factor: int

    def __call__(self, row):
        yield {"k": row.k, "v": row.v * self.factor}


def pipeline(pond):
    source = MemorySource(SCHEMA)
    source.push(*([{"k": "a", "v": n}] for n in range(5)))
    pond.stream("s", source).flat_map(Scaled(2), SCHEMA, id="scaled").view("rows")


if __name__ == "__main__":
    raise SystemExit("a block for running the file by itself is left out")
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "my-pipeline.py"
    path.write_text(FILE)
    return str(path)


def test_until_idle(file: str, tmp_path: Path) -> None:
    where = str(tmp_path / "pond")
    done = ask_json("run", file, "--pond", where, "--engine", "inline", "--until-idle")
    assert (done["ended"], done["rows"], done["epoch"]) == ("idle", 5, done["epochs"])
    assert done["pond"].endswith("/pond")
    rows = ask_json("read", where, "rows")["rows"]
    assert sorted(r["v"] for r in rows) == [0, 2, 4, 6, 8]
    again = ask("run", file, "-p", where, "--engine", "inline", "--drain", "--parallelism", "2")
    assert again.code == 0 and "0 rows in 0 epochs" in again.out and "no more rows" in again.out
    assert ask_json("show", where, "2")["parallelism"] == 2


def test_a_standby_says_whom_it_waits_for(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "pond"
    ask_json("run", file, "--pond", str(where), "--engine", "inline", "--drain")
    store = open_store(where.as_uri())
    last = lease.latest(store)
    assert last is not None
    number = lease.beat(store, last.number + 1, "elsewhere:1")
    waits_for = Listeners.waits_for

    def released(watch: Listeners, holder: str) -> None:
        waits_for(watch, holder)
        lease.beat(store, number, "elsewhere:1", released=True)

    monkeypatch.setattr(Listeners, "waits_for", released)
    done = ask("run", file, "-p", str(where), "--engine", "inline", "--drain", "--standby")
    assert done.code == 0 and "elsewhere:1 runs this pond" in done.out


def test_code_of_the_file_is_in_the_pond(file: str, tmp_path: Path) -> None:
    """Whoever reads the pond later needs no file: its classes are stored by value."""
    where = tmp_path / "pond"
    ask_json("run", file, "--pond", str(where), "--engine", "inline", "--drain")
    Path(file).unlink()
    import subprocess
    import sys

    code = (
        f"import millpond; function = millpond.open({str(where)!r}).plan.nodes['scaled'].operator.function;"
        "print(function.name, type(function.load()).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["Scaled()", "Scaled"], done.stderr


def test_some_epochs(tmp_path: Path) -> None:
    path = tmp_path / "live.py"
    path.write_text(
        "from millpond.sources.nexmark import NexmarkSource\n"
        "def pipeline(pond):\n"
        "    source = NexmarkSource('bid', events_per_second_live=100_000)\n"
        "    pond.stream('bids', source).key_by('auction').aggregate(n='count(*)').view('n')\n"
    )
    done = ask("run", str(path), "--pond", str(tmp_path / "pond"), "--engine", "inline", "--epochs", "3")
    assert done.code == 0 and "3 was reached" in done.out
    assert "epoch 0, 0 rows" in done.out  # the progress, as a log


def test_a_file_with_its_own_pond(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "import millpond, pyarrow as pa\n"
        "from millpond.sources.memory import MemorySource\n"
        f"pond = millpond.open({str(tmp_path / 'pond')!r}, engine='inline', durable=False)\n"
        "source = MemorySource(pa.schema([('k', pa.int64())]))\n"
        "source.push([{'k': 1}])\n"
        "pond.stream('s', source).view('rows')\n"
    )
    refused = ask("run", str(path), "--engine", "inline")
    assert refused.code == 2 and "opens its own pond" in refused.err
    assert ask_json("run", str(path), "--drain")["rows"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "defines no pipeline"),
        ("def pipeline(pond:\n", "SyntaxError"),
        ("x = 1\nraise ValueError('no')", "ValueError: no (bad.py:2)"),
        ("def pipeline(pond):\n    1 / 0", "ZeroDivisionError: division by zero (bad.py:2)"),
        ("def pipeline(pond):\n    pond.stream('a/b', None)", "cannot be the name of a stream"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    found = ask("run", str(path), "--pond", str(tmp_path / "pond"), "--engine", "inline", "--drain")
    assert found.code == 2 and message in found.err
    assert not (tmp_path / "pond").exists()


def test_wrong_calls(file: str, tmp_path: Path) -> None:
    assert "the option --pond is missing" in ask("run", file).err
    assert "cannot be read" in ask("run", str(tmp_path / "nowhere.py"), "--pond", "p").err
    found = ask("run", file, "--pond", str(tmp_path / "p"), "--engine", "flink")
    assert found.code == 2 and "no engine named 'flink'" in found.err


def test_the_plan_of_a_file_touches_no_pond(file: str) -> None:
    assert set(load(file).plan().nodes) == {"s", "scaled", "rows.view"}


class Interrupting(SilentScreen):
    """A person who presses Ctrl-C, once or twice, as soon as an epoch is there."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.said: list[str] = []

    def status(self, text: str, done: float | None = None) -> None:
        for _ in range(self.times):
            signal.raise_signal(signal.SIGINT)

    def say(self, text: str, *, good: bool | None = None) -> None:
        self.said.append(text)


def test_a_changed_view_is_replaced(tmp_path: Path) -> None:
    where, path = str(tmp_path / "pond"), tmp_path / "shop.py"
    program = """
from millpond.sources.nexmark import NexmarkSource
def pipeline(pond):
    pond.stream("bids", NexmarkSource("bid", events=50)).key_by("auction").aggregate({}).view("v")
"""
    path.write_text(program.format('n="count(*)"'))
    ask_json("run", str(path), "--pond", where, "--engine", "inline", "--drain")
    path.write_text(program.format('n="count(*)", top="max(price)"'))
    refused = ask("run", str(path), "--pond", where, "--engine", "inline", "--drain")
    assert refused.code == 2 and "--replace v" in refused.err
    done = ask("run", str(path), "--pond", where, "--engine", "inline", "--drain", "--replace", "v")
    assert done.code == 0, done.err
    ask_json("run", str(path), "--pond", where, "--engine", "inline", "--drain")
    with millpond.open(where, engine="inline") as pond:
        assert pond.read("v").column_names == ["auction", "n", "top"]
        assert sum(pond.read("v")["n"].to_pylist()) == sum(pond.read("v", epoch=1)["n"].to_pylist()) > 0


def running(tmp_path: Path, times: int) -> tuple[RunProgress, Pond]:
    pond = define(tmp_path / "pond", sales(), poll_ms=10)
    made = RunProgress(Interrupting(times), pond, None)
    pond.on_epoch(made.committed)
    return made, pond


def test_ctrl_c_ends_after_the_epoch(tmp_path: Path) -> None:
    made, pond = running(tmp_path, 1)
    before = signal.getsignal(signal.SIGINT)
    with pond, interrupts(made):
        pond.run()
    assert made.ended == "interrupted" and made.epoch == pond.epoch
    assert isinstance(made.screen, Interrupting) and "Ctrl-C again" in made.screen.said[0]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    made, pond = running(tmp_path, 2)
    with pond, interrupts(made), pytest.raises(KeyboardInterrupt):
        pond.drain()
    assert made.ended == "forced"


def test_an_impatient_person_is_told_with_an_exit_code(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TextOutput, "screen", lambda self: Interrupting(2))
    done = ask("run", file, "--pond", str(tmp_path / "pond"), "--engine", "inline")
    assert done.code == 130 and "ended at once" in done.out


def test_a_drain_can_be_stopped_from_another_thread(tmp_path: Path) -> None:
    source = sales()
    with define(tmp_path / "pond", source, epoch_rows_max=1) as pond:
        pond.on_epoch(lambda manifest: source.push([{"shop": "a", "price": 1}]))  # never runs dry
        threading.Timer(0.3, pond.stop).start()
        started = time.monotonic()
        pond.drain()
        assert time.monotonic() - started < 10
        assert pond.read("by_shop").num_rows >= 1


def test_a_drain_shows_how_much_is_done(tmp_path: Path) -> None:
    path = tmp_path / "many.py"
    path.write_text(
        "from millpond.sources.nexmark import NexmarkSource\n"
        "def pipeline(pond):\n"
        "    pond.stream('bids', NexmarkSource('bid', events=2_000)).aggregate(n='count(*)').view('n')\n"
    )
    shown: list[float | None] = []

    class Watching(SilentScreen):
        def status(self, text: str, done: float | None = None) -> None:
            shown.append(done)

    opened = open_for(load(str(path)), str(tmp_path / "pond"), "inline", None, epoch_rows_max=500)
    with opened:
        made = RunProgress(Watching(), opened, None, until_idle=True)
        opened.on_epoch(made.committed)
        opened.drain()
    parts = [done for done in shown if done is not None]
    assert len(parts) >= 3 and parts == sorted(parts) and parts[0] < 0.6 and parts[-1] == 1.0


def test_a_bar_is_drawn_in_a_terminal_and_told_in_a_log() -> None:
    out = io.StringIO()
    with LiveScreen(Console(file=out, width=100, force_terminal=True)) as screen:
        screen.status("epoch 3", 0.25)
        screen.status("epoch 4")
    assert "25%" in out.getvalue() and "━" in out.getvalue() and "epoch 4" in out.getvalue()
    log = io.StringIO()
    LogScreen(Console(file=log, width=100)).status("epoch 3", 0.25)
    assert log.getvalue().strip() == "25%  epoch 3"


def test_open_ponds_need_a_definition(tmp_path: Path) -> None:
    with (
        millpond.open(tmp_path / "p", engine="inline") as pond,
        pytest.raises(InvalidError, match="nothing to run"),
    ):
        pond.drain()
    assert os.listdir(tmp_path) == [] or not (tmp_path / "p" / "manifests").exists()
