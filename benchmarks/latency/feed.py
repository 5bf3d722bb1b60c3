"""The feed of a latency run: files that appear in followed folders at the pace of their events.

Law: event n is due n / rate seconds after the feed began, by its own event time, and is in the folder at the
end of its tick: never before, and all files of a tick appear whole (they are linked, not written). The rows
are a function of the numbers in `Feed`; only when they appear is a matter of the clock, and how late the feed
itself was is told.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.nexmark.events import TABLES
from millpond.sources.nexmark_events import NexmarkConfig, generate

LEAD_S = 0.5  # from the start of the feeding process to the first event
_FORMAT = 1  # part of the folder name: raise it when the files made from the same numbers change
_FIRST_MTIME_S = 1_500_000_000


@dataclass(frozen=True)
class Feed:
    rate: int  # events a second: people, auctions and bids
    seconds: int
    tick_ms: int = 100  # how often files appear
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("rate", "seconds", "tick_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.rate * self.tick_ms < 50_000:
            raise ValueError(f"{self.rate} events a second leave a tick of {self.tick_ms} ms without people")

    @property
    def name(self) -> str:
        return f"feed-{self.rate}-{self.seconds}-{self.tick_ms}-{self.seed}-v{_FORMAT}"

    @property
    def ticks(self) -> int:
        return self.seconds * 1000 // self.tick_ms

    @property
    def config(self) -> NexmarkConfig:
        return NexmarkConfig(seed=self.seed, events_per_second=self.rate)

    def first_event(self, tick: int) -> int:
        return tick * self.tick_ms * self.rate // 1000

    def due_s(self, event_ms: float) -> float:
        """When an event of this event time is due, in seconds after the feed began.

        >>> Feed(1000, 10).due_s(NexmarkConfig().base_time_ms + 1500)
        1.5
        """
        return (event_ms - self.config.base_time_ms) / 1000


def file_name(tick: int) -> str:
    return f"part-{tick:06d}.parquet"


def tick_of(path: str) -> int:
    """
    >>> tick_of("/some/where/part-000012.parquet")
    12
    """
    return int(path.rsplit("part-", 1)[1].split(".", 1)[0])


def ensure(wanted: Feed) -> Path:
    """The folder holding all files of the feed, made now if it is not there: a folder for each table."""
    folder = data.scratch() / "data" / wanted.name
    if folder.exists():
        return folder
    making = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        for kind in TABLES:
            (making / kind).mkdir(parents=True)
            for tick in range(wanted.ticks):
                first, last = wanted.first_event(tick), wanted.first_event(tick + 1)
                path = making / kind / file_name(tick)
                pq.write_table(generate(kind, first, last, wanted.config), path, compression="snappy")
                # Who takes files by age takes them in order.
                os.utime(path, (_FIRST_MTIME_S + tick, _FIRST_MTIME_S + tick))
        making.rename(folder)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return folder


def folders(place: Path, tables: Sequence[str]) -> None:
    """Empty folders to follow."""
    for table in tables:
        (place / table).mkdir(parents=True)


def publish(staged: Path, into: Path, tables: Sequence[str], tick_ms: int, start: float) -> float:
    """Link the files of each tick when it ends; by how many milliseconds the latest tick was late."""
    worst = 0.0
    for tick, name in enumerate(sorted(path.name for path in (staged / tables[0]).iterdir())):
        due = start + (tick + 1) * tick_ms / 1000
        while (left := due - time.time()) > 0:
            time.sleep(left)
        for table in tables:
            os.link(staged / table / name, into / table / name)
        worst = max(worst, time.time() - due)
    return worst * 1000


@dataclass(frozen=True)
class Fed:
    start: float  # wall clock: event n is due n / rate seconds later
    late_ms: float  # the latest tick


def run(staged: Path, into: Path, tables: Sequence[str], tick_ms: int) -> Fed:
    """Publish everything, from a process of its own so that none waits for the contender's."""
    words = [sys.executable, "-m", __spec__.name, str(staged), str(into), ",".join(tables), str(tick_ms)]
    done = subprocess.run(words, check=True, capture_output=True, text=True, cwd=data.ROOT.parent)
    return Fed(**json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("staged", type=Path)
    parser.add_argument("into", type=Path)
    parser.add_argument("tables")
    parser.add_argument("tick_ms", type=int)
    asked = parser.parse_args()
    start = time.time() + LEAD_S
    late_ms = publish(asked.staged, asked.into, asked.tables.split(","), asked.tick_ms, start)
    print(json.dumps({"start": start, "late_ms": late_ms}))


if __name__ == "__main__":
    main()
