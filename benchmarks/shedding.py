"""Load shedding on a running pond: lag at twice the sustainable rate, recovery, and what it costs when idle.

Law: the sustainable rate is measured first, on the same pond; rows are functions of their numbers, so the
exact views are known.  Lag is the time since the oldest row that the last commit does not contain was due.
"""

from __future__ import annotations

import contextlib
import itertools
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import millpond
from millpond.kernels.synopses.item_hashes import mixed
from millpond.sources.source import Advance, Poll, Split
from millpond.state.tables.table_spec import TableSpec

SCHEMA = pa.schema([("auction", pa.int64()), ("bidder", pa.int64()), ("price", pa.int64())])
AUCTIONS, BIDDERS = 50_000, 20_000
SPLITS = 8  # of a poll
WARM = 1_000_000  # rows by which the sustainable rate is measured


@dataclass(frozen=True)
class Pace:
    """How many rows were due at a time: phases of (start in seconds, rows per second)."""

    phases: list[tuple[float, float]] = field(default_factory=list)

    def due(self, now: float) -> int:
        total = 0.0
        for (start, rate), end in zip(self.phases, [*(s for s, _ in self.phases[1:]), now], strict=True):
            total += rate * max(0.0, min(end, now) - start)
        return int(total)

    def when(self, row: int) -> float:
        """When a row was due."""
        total = 0.0
        ends = [*(s for s, _ in self.phases[1:]), float("inf")]
        for (start, rate), end in zip(self.phases, ends, strict=True):
            here = rate * (end - start) if rate else 0.0
            if rate and total + here > row:
                return start + (row - total) / rate
            total += here
        return time.monotonic()


@dataclass(frozen=True)
class PacedSource:
    """Rows that become due at a pace; the position is how many were read."""

    append_only: bool = True
    pace: Pace = field(default_factory=Pace, compare=False, repr=False, metadata={"durable": False})

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def table(self, step: str) -> TableSpec | None:
        return None

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        first, end = int(position or 0), self.pace.due(time.monotonic())
        last = min(end, first + max(SPLITS, max_rows))
        edges = [first + (last - first) * n // SPLITS for n in range(SPLITS + 1)]
        splits = [
            Split({"first": lo, "last": hi}, hi - lo, 24 * (hi - lo))
            for lo, hi in itertools.pairwise(edges)
            if lo < hi
        ]
        return Poll(tuple(splits), backlog_rows=max(0, end - last))

    def advance(self, position: Any, admitted: Sequence[Split], rejects: Sequence[Any]) -> Advance:
        return Advance(int(admitted[-1].what["last"]))

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        yield rows(split.what["first"], split.what["last"]).select(list(columns))


def rows(first: int, last: int) -> pa.Table:
    number = np.arange(first, last, dtype=np.uint64)
    auction = (mixed(number, 1) % np.uint64(AUCTIONS)).astype(np.int64)
    bidder = (mixed(number, 2) % np.uint64(BIDDERS)).astype(np.int64)
    return pa.table([auction, bidder, (number % np.uint64(997)).astype(np.int64)], schema=SCHEMA)


@dataclass(frozen=True)
class LoadRun:
    engine: str
    sustainable: float  # rows per second
    offered: float
    lag_median: float  # seconds
    lag_max: float
    kept: float  # share of rows during the overload
    behind_without: float  # seconds by which the pond would have been behind without shedding
    recovery_s: float
    exact: bool


def run_load(folder: Path, engine: Any, seconds: float, times: float = 2.0, target_s: float = 2.0) -> LoadRun:
    """Offer more rows than the pond can take for a while, then few."""
    pond = millpond.open(folder, engine=engine, target_ms=300)
    pace = Pace()
    source = PacedSource(pace=pace)
    stream = pond.stream("bids", source)
    sums: dict[str, Any] = {"n": "count(*)", "total": "sum(price)", "mean": "avg(price)"}
    stream.key_by("auction").aggregate(**sums).view("by_auction")
    stream.key_by("bidder").aggregate(**sums).view("by_bidder")
    stream.key_by("auction", "bidder").aggregate(n="count(*)").view("pairs")
    marks: list[tuple[float, int, int, int]] = []  # time, rows admitted, kept, shed
    pond.on_epoch(
        lambda m: marks.append(
            (
                time.monotonic(),
                int(m.positions.get("bids") or 0),
                m.counts.get("rows/bids", 0),
                m.counts.get("shed/bids", 0),
            )
        )
    )
    try:
        for count in (WARM, WARM, 3 * WARM):  # the first epochs of a process are slow
            begin, done = time.monotonic(), len(marks)
            pace.phases.extend([(begin - 1, float(count)), (begin, 0.0)])
            pond.drain()
        sustainable = 3 * WARM / (marks[-1][0] - marks[done - 1][0])
        pond.shed("bids", f"{target_s}s", floor=0.05)
        offered = times * sustainable
        overload = time.monotonic()
        pace.phases.append((overload, offered))
        pond.start()
        time.sleep(seconds)
        calm = time.monotonic()
        pace.phases.append((calm, 0.1 * sustainable))
        during = [m for m in marks if overload < m[0] <= calm]
        lags = [now - pace.when(admitted) for now, admitted, _, _ in during]
        first, last = during[0], during[-1]
        kept = (last[2] - first[2]) / max(1, last[1] - first[1])
        while _owed(pond) or pond.backlog_rows > sustainable:
            if time.monotonic() - calm > 4 * seconds:
                break
            time.sleep(0.1)
        recovery = time.monotonic() - calm
        pace.phases.append((time.monotonic(), 0.0))
        pond.stop()
        pond.drain()
        exact = _is_exact(pond, int(pond.head().positions["bids"]))
    finally:
        pond.close()
    behind = seconds * (times - 1) / times
    return LoadRun(
        engine,
        sustainable,
        offered,
        statistics.median(lags),
        max(lags),
        kept,
        behind,
        recovery,
        exact,
    )


def _owed(pond: Any) -> bool:
    return bool(pond.head().shedding.get("bids", {}).get("owed"))


def _is_exact(pond: Any, count: int) -> bool:
    """Are the views those of the first rows, each counted once?"""
    n, total = np.zeros(AUCTIONS, np.int64), np.zeros(AUCTIONS, np.int64)
    for first in range(0, count, 1_000_000):
        table = rows(first, min(count, first + 1_000_000))
        key, price = table["auction"].to_numpy(), table["price"].to_numpy()
        n += np.bincount(key, minlength=AUCTIONS)
        total += np.bincount(key, price, AUCTIONS).astype(np.int64)
    shown = pond.read("by_auction")
    mine = {r["auction"]: (r["n"], r["total"]) for r in shown.to_pylist()}
    return mine == {k: (int(n[k]), int(total[k])) for k in np.flatnonzero(n).tolist()}


@dataclass(frozen=True)
class IdleCost:
    """CPU milliseconds of an epoch of 1,000 rows, medians; the two ponds without shedding show the noise."""

    off_ms: float
    off_again_ms: float
    idle_ms: float

    @property
    def noise(self) -> float:
        return self.off_again_ms / self.off_ms - 1

    @property
    def share(self) -> float:
        return 2 * self.idle_ms / (self.off_ms + self.off_again_ms) - 1


def idle_cost(folder: Path, epochs: int = 300, warm: int = 30) -> IdleCost:
    """What shedding costs that has nothing to do: three ponds take turns, one epoch each, in one process."""
    with contextlib.ExitStack() as stack:
        sides = []
        for name in ("off", "off again", "idle"):
            pond = stack.enter_context(contextlib.closing(millpond.open(folder / name, engine="inline")))
            source = PacedSource()
            source.pace.phases.append((0.0, 0.0))
            pond.stream("bids", source).key_by("auction").aggregate(n="count(*)", s="sum(price)").view("v")
            pond.drain()
            if name == "idle":
                pond.shed("bids", "1h")
            sides.append((pond, source, list[float]()))
        for number in range(warm + epochs):
            for pond, source, took in sides[number % 3 :] + sides[: number % 3]:
                now = time.monotonic()
                source.pace.phases[:] = [(now - 1, float(source.pace.due(now) + 1_000)), (now, 0.0)]
                before = _cpu()
                pond.drain()
                if number >= warm:
                    took.append((_cpu() - before) * 1_000)
        return IdleCost(*(statistics.median(took) for _, _, took in sides))


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(engines: Sequence[str], seconds: float, console: Console) -> Mapping[str, Any]:
    table = Table(
        "engine", "sustainable rows/s", "offered", "lag median", "lag max", "kept", "recovery", "exact"
    )
    found: list[LoadRun] = []
    with tempfile.TemporaryDirectory() as folder:
        for engine in engines:
            one = run_load(Path(folder) / engine, engine, seconds)
            found.append(one)
            console.print(one, highlight=False)
            table.add_row(
                engine,
                f"{one.sustainable:,.0f}",
                f"{one.offered:,.0f}",
                f"{one.lag_median:.2f} s",
                f"{one.lag_max:.2f} s",
                f"{one.kept:.0%}",
                f"{one.recovery_s:.0f} s",
                str(one.exact),
            )
        idle = idle_cost(Path(folder) / "cost")
    console.print(table)
    console.print(
        f"an epoch of 1,000 rows: {idle.off_ms:.2f} ms of CPU without shedding, {idle.idle_ms:.2f} ms with "
        f"it idle: {idle.share:+.1%}; another pond without it {idle.noise:+.1%}"
    )
    return {"load": [asdict(one) for one in found], "idle": asdict(idle)}
