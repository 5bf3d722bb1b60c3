"""A system that follows a folder until it is killed, and what it was seen to do.

Law: a follower is a process group of its own. It tells when it was *ready* (its interpreter, JVM and session
stand, and nothing of the state was read) and of every *commit* how far its input went: the number of the
newest file. Moments are of the wall clock. `kill` is SIGKILL to the whole group: nothing is tidied up.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import data

POLL_S = 0.25


@dataclass(frozen=True)
class Commit:
    at: float
    newest: int  # the number of the newest file in it
    parallelism: int | None = None


@dataclass(frozen=True)
class Seen:
    ready: float | None
    commits: tuple[Commit, ...]


class Follower(ABC):
    """One life of a system over a work folder; the next one goes on from what it left there."""

    name: str
    system: str
    committed: str  # what counts as committed, in words
    rescales: bool = False  # while it runs

    def __init__(self, work: Path, folder: Path, cores: int) -> None:
        self.work, self.folder, self.cores = work, folder, cores
        self.life = 0
        self.process: subprocess.Popen[str] | None = None

    @abstractmethod
    def command(self, parallelism: int) -> tuple[Sequence[str], Mapping[str, str]]:
        """The words that start it, and its environment beside ours."""

    @abstractmethod
    def seen(self) -> Seen:
        """Of this life, so far."""

    @property
    def place(self) -> Path:
        """Where this life leaves its logs."""
        return self.work / f"life-{self.life}"

    def start(self, parallelism: int) -> None:
        self.life += 1
        self.place.mkdir()
        words, environment = self.command(parallelism)
        with (self.place / "output").open("wb") as output:
            self.process = subprocess.Popen(
                words,
                cwd=data.ROOT.parent,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
            )

    def kill(self) -> float:
        """When it was killed."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        at = time.time()
        self.process.wait()
        return at

    def say(self, line: str) -> None:
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self, done: Callable[[Seen], bool], limit_s: float, what: str) -> Seen:
        assert self.process is not None
        until = time.time() + limit_s
        while True:
            found = self.seen()
            if done(found):
                return found
            if self.process.poll() is not None or time.time() > until:
                tail = (self.place / "output").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{self.name} did not come to {what}; the end of its output:\n{tail}")
            time.sleep(POLL_S)  # moments are those that were told: how often is asked changes none


def ours(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def told(path: Path) -> Seen:
    """What a follower of ours wrote, a line of JSON for each thing; the last line may be cut off.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "told")
    >>> _ = path.write_text('{"ready": 1.5}\\n{"at": 2.0, "newest": 7, "parallelism": 2}\\n{"at": 3')
    >>> told(path)
    Seen(ready=1.5, commits=(Commit(at=2.0, newest=7, parallelism=2),))
    """
    ready, commits = None, []
    if path.exists():
        for line in path.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                break
            found = json.loads(line)
            if "ready" in found:
                ready = found["ready"]
            else:
                commits.append(Commit(**found))
    return Seen(ready, tuple(commits))
