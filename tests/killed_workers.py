"""Kills the processes that run one pond, between random steps, while they take it over from each other."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence


def kill_workers(
    script: str,
    arguments: Callable[[], Sequence[str]],
    kills: int,
    workers: int,
    rng: random.Random,
    pause_s: float = 0.2,
) -> None:
    """Run a script in several processes; kill each, in turn, soon after it printed a line with "fed"."""

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", script, *arguments()]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    alive = [start() for _ in range(workers)]
    try:
        for number in range(kills):
            one = alive[number % workers]
            assert one.stdout is not None
            while "fed" not in (line := one.stdout.readline()):
                assert line, "a worker ended"
            time.sleep(rng.random() * pause_s)
            os.kill(one.pid, signal.SIGKILL)
            one.wait()
            one.stdout.close()
            alive[number % workers] = start()
    finally:
        for one in alive:
            one.kill()
            one.wait()
            if one.stdout is not None:
                one.stdout.close()
