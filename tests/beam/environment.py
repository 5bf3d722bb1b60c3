"""The Python that has Apache Beam, and the oracle that runs in it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import apart

BEAM = "apache-beam==2.77.0"
ORACLE = Path(__file__).with_name("oracle.py")


def interpreter() -> Path:
    """The environment that has Beam, created on first use; MILLPOND_BEAM_PYTHON names another one.

    Raises CalledProcessError where Beam cannot be installed.
    """
    given = os.environ.get("MILLPOND_BEAM_PYTHON")
    return Path(given) if given else apart.python("beam", BEAM)


class Oracle:
    """A running oracle, which answers transcripts one by one; starting it costs more than most answers."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [python, ORACLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.communicate()

    def answers(self, cases: Sequence[Mapping[str, Any]], steps: Sequence[Any]) -> list[Any]:
        """The driver's answer to each case."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"cases": cases, "steps": steps}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the oracle ended with code {self._process.wait()}")
        return list(json.loads(line))
