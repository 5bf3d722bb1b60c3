"""The command line as a process: signals, terminals, completion and exit codes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import millpond

FILE = """
from millpond.sources.nexmark import NexmarkSource

def pipeline(pond):
    source = NexmarkSource("bid", events_per_second_live=20_000)
    pond.stream("bids", source).key_by("auction").aggregate(n="count(*)").view("n")
"""
MILLPOND = (sys.executable, "-m", "millpond")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "live.py"
    path.write_text(FILE)
    return path


def wait_for_epochs(pond: Path, wanted: int) -> None:
    until = time.monotonic() + 180
    while time.monotonic() < until:
        if (pond / "manifests").is_dir() and len(list((pond / "manifests").iterdir())) > wanted:
            return
        time.sleep(0.05)
    raise AssertionError("the pipeline made no epochs")


def test_ctrl_c_ends_a_run_cleanly(file: Path, tmp_path: Path) -> None:
    pond = tmp_path / "pond"
    args = [*MILLPOND, "run", str(file), "--pond", str(pond), "--engine", "inline", "-o", "json"]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_epochs(pond, 3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=180)
    finally:
        process.kill()
    assert process.returncode == 0, err
    done = json.loads(out)
    assert done["ended"] == "interrupted" and done["epochs"] >= 2
    with millpond.open(pond, engine="inline") as after:
        assert after.epoch == done["epoch"]  # nothing came after it told
        assert sum(after.read("n")["n"].to_pylist()) == done["rows"]
        after.rescale(2)  # and the lease is free: nobody is waited for


@pytest.mark.slow
def test_a_running_pond_is_controlled_from_another_process(file: Path, tmp_path: Path) -> None:
    pond = tmp_path / "pond"
    args = [*MILLPOND, "run", str(file), "--pond", str(pond), "--engine", "inline"]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for_epochs(pond, 2)

        def ask(*more: str) -> dict[str, object]:
            done = subprocess.run(
                [*MILLPOND, *more, "-o", "json"], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            found: dict[str, object] = json.loads(done.stdout)
            return found

        assert ask("savepoint", str(pond), "here")["status"] == "done"
        assert ask("compact", str(pond))["status"] == "done"
        asked = ask("gc", str(pond), "--keep", "3")
        assert asked["status"] == "done" and asked["running"]
        other = subprocess.run(
            [*MILLPOND, "run", str(file), "--pond", str(pond), "--engine", "inline"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert other.returncode == 3 and "being written by another process" in other.stderr
    finally:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=180)
    assert process.returncode == 0 and "interrupted" in out


def test_a_terminal_gets_a_line_that_moves(file: Path, tmp_path: Path) -> None:
    pond = tmp_path / "pond"
    master, slave = pty.openpty()
    args = [*MILLPOND, "run", str(file), "--pond", str(pond), "--engine", "inline", "--epochs", "3"]
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    env.pop("NO_COLOR", None)
    process = subprocess.Popen(args, stdout=slave, stderr=slave, stdin=slave, env=env)
    os.close(slave)
    heard: list[bytes] = []

    def listen() -> None:
        while True:
            try:
                heard.append(os.read(master, 65536))
            except OSError:
                return
            if not heard[-1]:
                return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    assert process.wait(180) == 0
    thread.join(60)
    os.close(master)
    text = b"".join(heard).decode()
    assert "\x1b[" in text and "rows in all" in text and "3 was reached" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    env = {**os.environ, "_MILLPOND_COMPLETE": f"source_{shell}"}
    code = "from millpond.cli import main; import sys; sys.argv = ['millpond']; main()"
    script = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert f"complete_{shell}" in script.stdout, script.stderr


def test_completion_completes() -> None:
    env = {
        **os.environ,
        "_MILLPOND_COMPLETE": "complete_bash",
        "COMP_WORDS": "millpond sa",
        "COMP_CWORD": "1",
    }
    code = "from millpond.cli import main; import sys; sys.argv = ['millpond']; main()"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["savepoint"], done.stderr


def test_exit_codes(tmp_path: Path) -> None:
    def code(*args: str) -> int:
        return subprocess.run([*MILLPOND, *args], capture_output=True, check=False).returncode

    assert code("epochs", str(tmp_path / "nowhere")) == 2  # the call is wrong
    assert code("epochs") == 2  # usage
    broken = tmp_path / "broken"
    (broken / "manifests").mkdir(parents=True)
    (broken / "manifests" / f"{0:016d}").write_text("{}")
    assert code("epochs", str(broken)) == 5  # stored data is wrong
    assert code("--version") == 0
