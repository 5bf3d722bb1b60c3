"""A contender's process, from start to end, and the file that a benchmark leaves behind.

Law: a contender runs alone, in a session of its own that ends with the call, whatever it started. What is
saved holds the machine's facts, the commit and the versions, and no names of hosts, users or folders.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import data, report

SAID_CHARS = 4000  # of a process that failed


class FailedError(RuntimeError):
    """A contender's process did not end as it should."""


def call(module: str, arguments: Sequence[str], limit_s: float) -> None:
    """Run a module of ours; FailedError with the end of what it said, when it failed or took too long."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=data.ROOT.parent,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired as error:
            raise FailedError(f"it took more than {limit_s:.0f} s") from error
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code:
            said.seek(0)
            tail = without_folders(said.read()[-SAID_CHARS:])
            raise FailedError(f"its process ended with code {code}; the end of what it said:\n{tail}")


def without_folders(text: str) -> str:
    """
    >>> without_folders('File "/home/ada/here/on_flink.py", line 3: 4/5 of /tmp/x-1/y')
    'File "on_flink.py", line 3: 4/5 of y'
    """
    return re.sub(r"(?<![\w.])(?:/[\w.@+-]+)+/(?=[\w.@+-])", "", text)


@dataclass
class Record:
    """The file of one run; saved after every outcome, so that a failure loses only itself."""

    name: str
    wanted: Mapping[str, Any]
    at: datetime = field(default_factory=lambda: datetime.now().astimezone())
    machine: dict[str, Any] = field(default_factory=report.machine)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return report.RESULTS / f"{self.at:%Y-%m-%d-%H%M}-{self.name}.json"

    def save(self, **more: Any) -> None:
        content = {
            "name": self.name,
            "at": self.at.isoformat(timespec="seconds"),
            "machine": self.machine,
            "input": dict(self.wanted),
            **more,
            "failed": self.failed,
            "outcomes": self.outcomes,
        }
        report.RESULTS.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(content, indent=2) + "\n")

    def told(self, console: Console) -> None:
        for one in self.failed:
            console.print(json.dumps(one)[:600], markup=False, highlight=False)
        console.print(f"written: benchmarks/results/{self.path.name}")
