"""The command line and the working folder every peer shares."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import data


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
    shutil.rmtree(folder)
