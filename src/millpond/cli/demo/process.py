"""Starts, kills and stops the process of the pipeline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from millpond.cli.demo import child
from millpond.cli.demo.feed import DemoFeed
from millpond.errors import UnavailableError
from millpond.pond import EngineName

LOG_LINES = 15
STOP_S = 60.0


class PipelineProcess:
    """A child process in a separate session, so that a kill includes Spark's JVM."""

    def __init__(self, pond: str, feed: DemoFeed, engine: EngineName, log: Path) -> None:
        self._log = log
        self.started_s = time.monotonic()
        self.ready_s: float | None = None  # when Spark was up
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", child.__name__, pond, feed.encode(), engine],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(os.environ),
                start_new_session=True,
                text=True,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raise if the process ended unexpectedly."""
        code = self._process.poll()
        if code is not None:
            raise UnavailableError(
                "the pipeline's process ended",
                detail=f"exit code {code}; its last words:\n{self._last_words()}",
                hint=f"the whole log is in {self._log}",
            )

    def kill(self) -> None:
        """Send SIGKILL to the process and Spark's JVM, so that neither can clean up."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close()

    def stop(self) -> None:
        """Ask it to stop after the epoch that is running."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise UnavailableError(
                "the pipeline's process did not stop", detail=f"waited {STOP_S:.0f} s"
            ) from None
        self._close()
        if code != 0:
            raise UnavailableError(
                "the pipeline's process failed",
                detail=f"exit code {code}; its last words:\n{self._last_words()}",
                hint=f"the whole log is in {self._log}",
            )

    def end(self) -> None:
        """Leave nothing behind, whatever happened."""
        if self._process.poll() is None:
            self.kill()

    def _close(self) -> None:
        self._listener.join(5)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == child.READY:
                self.ready_s = time.monotonic()

    def _last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_LINES:])


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The child imports the same tree as we do, installed or not."""
    tree = str(Path(__file__).resolve().parents[3])
    return {**ours, "PYTHONPATH": os.pathsep.join(filter(None, (tree, ours.get("PYTHONPATH"))))}
