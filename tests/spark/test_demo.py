"""The demo as people run it: on Spark, killed with SIGKILL, with its output in a log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from millpond.cli.arguments import open_reader
from millpond.cli.commands.demo import FAST_EVENTS, FAST_SECONDS
from millpond.cli.demo.feed import DemoFeed
from millpond.cli.demo.pipeline import batch, same
from millpond.state.manifest import history


def test_demo(tmp_path: Path) -> None:
    path = tmp_path / "pond"
    done = subprocess.run(
        [sys.executable, "-m", "millpond", "demo", "--fast", "--path", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr + Path(f"{path}.log").read_text()
    assert "\x1b" not in done.stdout
    for words in (
        "1. ",
        "2. kill -9",
        "3. From 2 tasks to 5",
        "4. A read in the past",
        f"millpond epochs {path}",
        "This takes one to two minutes",
    ):
        assert words in done.stdout, words
    assert "WRONG" not in done.stdout and done.stdout.count("  ok: ") == 3

    # The commands it prints work as printed, whatever folder is on the PATH.
    printed = done.stdout.partition("Three things to try:")[2].partition("Done in")[0]
    commands = [line.strip() for line in printed.splitlines() if line.strip()]
    assert len(commands) == 3
    for command in commands:
        tried = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, check=False, timeout=120
        )
        assert tried.returncode == 0 and tried.stdout, f"{command}: {tried.stderr}"

    # What it claims, looked at once more from outside.
    reader = open_reader(str(path))
    head = reader.head()
    manifests = [history.read_manifest(reader.store, e) for e in range(head.epoch + 1)]
    assert sum(m.kind == "takeover" for m in manifests) == 1
    tasks = [(m.parallelism, m.metrics["tasks"]) for m in manifests if m.metrics.get("tasks")]
    ran = {
        n: max(t for m, t in tasks if m == n) for n, _ in tasks
    }  # a few rows are one task's, whatever is set
    assert set(ran) == {1, 2, 5}
    assert ran[5][1:] == [5, 5, 5]
    feed = DemoFeed(FAST_EVENTS, FAST_EVENTS // FAST_SECONDS)
    assert feed.done(head.positions) == FAST_EVENTS
    for view, wanted in batch(feed, head).items():
        assert same(reader.read(view), wanted), view
