"""The benchmark's input: bids in Parquet, made once and kept.

Law: the same (rows, keys, rows per file, seed) gives the same rows on any machine; every file
is a function of the seed and its own number, so files can be made in any order. A folder under its final name
is complete: it is written beside it and renamed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent / ".bench"
SCHEMA = pa.schema(
    [
        pa.field("auction", pa.int64(), nullable=False),
        pa.field("bidder", pa.int64(), nullable=False),
        pa.field("price", pa.int64(), nullable=False),
        pa.field("date_time", pa.timestamp("ms"), nullable=False),
    ]
)
_FIRST_ID = 1000
_BIDDERS = 100_000
_EPOCH_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
_FORMAT = 1  # part of the folder name: raise it when the rows made from the same numbers change


@dataclass(frozen=True)
class Input:
    """Which bids: everything that decides the rows."""

    rows: int
    keys: int
    rows_per_file: int = 1_000_000
    rows_per_group: int = 250_000
    seed: int = 7

    def __post_init__(self) -> None:
        for name in ("rows", "keys", "rows_per_file", "rows_per_group"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def name(self) -> str:
        return (
            f"bids-{self.rows}-{self.keys}-{self.rows_per_file}-{self.rows_per_group}-{self.seed}-v{_FORMAT}"
        )

    def slices(self) -> Iterator[tuple[int, int, int]]:
        """(file number, first row, rows) of every file."""
        for number, first in enumerate(range(0, self.rows, self.rows_per_file)):
            yield number, first, min(self.rows_per_file, self.rows - first)


def bids(wanted: Input, number: int, first: int, rows: int) -> pa.Table:
    """The rows of one file: auctions uniform over the keys, prices log-uniform, one bid a millisecond."""
    random = np.random.default_rng([wanted.seed, number])
    auction = random.integers(_FIRST_ID, _FIRST_ID + wanted.keys, rows, dtype=np.int64)
    bidder = random.integers(_FIRST_ID, _FIRST_ID + _BIDDERS, rows, dtype=np.int64)
    price = np.rint(np.power(10.0, random.random(rows) * 6.0) * 100.0).astype(np.int64)
    at = (_EPOCH_MS + first + np.arange(rows, dtype=np.int64)).astype("datetime64[ms]")
    return pa.table([auction, bidder, price, at], schema=SCHEMA)


def scratch() -> Path:
    """The folder for everything the benchmarks make; it keeps itself out of version control."""
    ROOT.mkdir(exist_ok=True)
    ignore = ROOT / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    return ROOT


def ensure(wanted: Input) -> Path:
    """The folder holding this input, made now if it is not there."""
    folder = scratch() / "data" / wanted.name
    if folder.exists():
        return folder
    making = folder.with_name(f".{folder.name}.{os.getpid()}")
    making.mkdir(parents=True)
    try:
        for number, first, rows in wanted.slices():
            pq.write_table(
                bids(wanted, number, first, rows),
                making / f"part-{number:05d}.parquet",
                compression="snappy",
                row_group_size=wanted.rows_per_group,
            )
        making.rename(folder)
    except BaseException:
        shutil.rmtree(making)
        raise
    return folder


def files(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*.parquet"))
    if not found:
        raise FileNotFoundError(f"no Parquet files in {folder}")
    return found


def count(folder: Path) -> int:
    """Rows in the folder, from the Parquet footers."""
    return sum(pq.read_metadata(path).num_rows for path in files(folder))


def warm(folder: Path) -> None:
    """Read every byte once, so that no contender pays for the disk and the next does not."""
    for path in files(folder):
        with path.open("rb", buffering=0) as handle:
            while handle.read(1 << 22):
                pass
