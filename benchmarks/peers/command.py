"""The command line and the working folder every peer shares."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import data

CLEARING_SECONDS = 15.0  # a JVM that was told to end may write its last files for so long


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--input", type=Path, required=True, help="folder of Parquet files with the bids")
    made.add_argument("--cores", type=int, default=2, help="processors the peer may use")
    wanted = made.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--out", type=Path, help="time the run and write its outcome here as JSON")
    wanted.add_argument("--verify", type=Path, help="write the final row of each key here as Parquet instead")
    return made


@contextmanager
def work_folder(name: str) -> Iterator[Path]:
    """An empty folder for checkpoints and logs, on the same disk for everyone; kept if the block fails."""
    parent = data.scratch() / "work"
    parent.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
    yield folder
    clear(folder)


def clear(folder: Path, patience_seconds: float = CLEARING_SECONDS) -> bool:
    """Delete a folder into which dying processes may still write; what stays is told, and fails no run."""
    until = time.monotonic() + patience_seconds
    while folder.exists():
        try:
            shutil.rmtree(folder)
        except OSError as error:  # a file came or went meanwhile
            if time.monotonic() >= until:
                print(f"{folder} is left behind: {error}", file=sys.stderr)
                return False
            time.sleep(0.2)
    return True
