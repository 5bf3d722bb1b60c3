"""The input of Nexmark: people, auctions and bids in Parquet, made once and kept.

Law: the files are a function of the numbers in `Events` and of nothing else. File n of every table holds the
events [n * k, (n + 1) * k) of that kind, in order, and is younger than file n - 1: who takes files by age or
by name, one of each table at a time, sees the events in order. A folder under its final name is complete.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data
from millpond.sources.nexmark_events import Kind, NexmarkConfig, generate

TABLES: tuple[Kind, ...] = ("person", "auction", "bid")
SIDE_ROWS = 10_000
_FORMAT = 1  # part of the folder name: raise it when the files made from the same numbers change
_FIRST_MTIME_S = 1_500_000_000


@dataclass(frozen=True)
class Events:
    """Which events: all that decides the rows."""

    events: int
    events_per_file: int = 1_000_000
    events_per_second: int = 10_000  # of event time
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("events", "events_per_file", "events_per_second"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def name(self) -> str:
        how = f"{self.events_per_file}-{self.events_per_second}-{self.seed}"
        return f"nexmark-{self.events}-{how}-v{_FORMAT}"

    @property
    def config(self) -> NexmarkConfig:
        return NexmarkConfig(seed=self.seed, events_per_second=self.events_per_second)


def of_size(events: int) -> Events:
    """Files of a million events, or twenty files where that would be fewer."""
    return Events(events, events_per_file=max(1, min(1_000_000, events // 20)))


def side_table() -> pa.Table:
    """The bounded table of q13: a value for every key."""
    keys = range(SIDE_ROWS)
    return pa.table({"key": pa.array(keys, pa.int64()), "value": [f"side-{key}" for key in keys]})


def _write(table: pa.Table, path: Path, number: int) -> None:
    pq.write_table(table, path, compression="snappy", row_group_size=250_000)
    os.utime(path, (_FIRST_MTIME_S + number, _FIRST_MTIME_S + number))


def ensure(wanted: Events) -> Path:
    """The folder holding this input, made now if it is not there: one folder for each table in it."""
    folder = data.scratch() / "data" / wanted.name
    if folder.exists():
        return folder
    making = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        for table in (*TABLES, "side_input"):
            (making / table).mkdir(parents=True)
        _write(side_table(), making / "side_input" / "part-00000.parquet", 0)
        for number, first in enumerate(range(0, wanted.events, wanted.events_per_file)):
            last = min(first + wanted.events_per_file, wanted.events)
            for kind in TABLES:
                rows = generate(kind, first, last, wanted.config)
                _write(rows, making / kind / f"part-{number:05d}.parquet", number)
        making.rename(folder)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return folder


def count(folder: Path) -> int:
    """Events in the folder, whatever tables a query reads."""
    return sum(data.count(folder / table) for table in TABLES)


def warm(folder: Path) -> None:
    for table in TABLES:
        data.warm(folder / table)
