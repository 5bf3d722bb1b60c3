"""Real faults on a real small cluster: workers, executors and the driver are killed, again and again.

Retries and speculation exist only on local-cluster, not on local[2].  The
number of rounds is MILLPOND_CHAOS_ROUNDS; `make chaos` runs 20.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import millpond

from .pipeline import check
from .targets import VARIABLE, Targets, check_targets

ROUNDS = int(os.environ.get("MILLPOND_CHAOS_ROUNDS", "1"))
ITEMS_A_LIFE = 30  # more than one life gets through
CLUSTER = "local-cluster[2,1,1024]"
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


class Child:
    """The pipeline in a process of its own, with everything it starts."""

    def __init__(self, pond: Path, log: Path, items: int, targets: Targets) -> None:
        self.log = log
        environment = {VARIABLE: targets.to_json(), "SPARK_WORKER_DIR": str(log.parent / "work")}
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.pipeline", str(pond), str(items), CLUSTER],
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **environment},
            )
        self.start = log.stat().st_size

    def text(self) -> str:
        return self.log.read_bytes()[self.start :].decode(errors="replace")

    def position(self) -> int:
        found = re.findall(r"position (\d+)", self.text())
        return int(found[-1]) if found else 0

    def descendants(self, what: str) -> list[int]:
        """Processes below this one whose command line has the text."""
        parents: dict[int, int] = {}
        lines: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                    lines[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
                except OSError:
                    continue  # it ended while we looked
        found = []
        for pid, line in lines.items():
            at = pid
            while at in parents and at != self.process.pid:
                at = parents[at]
            if at == self.process.pid and what in line:
                found.append(pid)
        return found

    def wait_until(self, done: object, seconds: float) -> None:
        assert callable(done)
        until = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < until, f"waited {seconds} s; the log ends:\n{self.text()[-3000:]}"
            assert self.process.poll() is None or done(), f"the pipeline ended:\n{self.text()[-3000:]}"
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9 of the driver and of everything it started, at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def test_killed_workers_executors_and_drivers_change_nothing(tmp_path: Path) -> None:
    """One pond, many lives: in each, workers and an executor are killed in mid-epoch, then all at once."""
    rng = random.Random(0)
    pond, log = tmp_path / "pond", tmp_path / "log"
    targets = Targets(str(tmp_path / "targets"))
    log.touch()
    kills = {"python worker": 0, "executor": 0, "driver": 0}
    items, position = ITEMS_A_LIFE * (ROUNDS + 1), 0
    for _ in range(ROUNDS):
        child = Child(pond, log, items, targets)
        child.wait_until(lambda: child.position() > position, 180)  # noqa: B023
        for _ in range(2):
            workers = child.descendants("-m millpond.engine.spark.daemon")
            if workers:
                os.kill(rng.choice(workers), signal.SIGKILL)
                kills["python worker"] += 1
            time.sleep(rng.random())
        executors = child.descendants("CoarseGrainedExecutorBackend")
        if executors:
            os.kill(rng.choice(executors), signal.SIGKILL)
            kills["executor"] += 1
        time.sleep(rng.uniform(0.0, 3.0))
        assert child.process.poll() is None, f"the pipeline ended by itself:\n{child.text()[-3000:]}"
        position = max(position, child.position())
        child.kill()
        kills["driver"] += 1
    child = Child(pond, log, items, targets)
    child.wait_until(lambda: "done" in child.text(), 600)
    child.process.wait(60)
    assert child.process.returncode == 0, child.text()[-3000:]
    with millpond.open(pond) as reader:
        check(reader, items)
        print(f"all sinks equal the views; rows read from them: {check_targets(reader, targets)}")
    print(kills)
    assert all(number >= ROUNDS for number in kills.values()), f"not everything was killed: {kills}"
