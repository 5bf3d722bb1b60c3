"""What a contender on the cluster is asked to do, and what it answers.

Law: both contenders get the same task: a floor (files of few rows, one in each epoch or micro-batch) and then
a backlog, in one session.  Answers are compared with DuckDB's over the same files.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.data import Input

SMALL = Input(rows=40_000, keys=1_000, rows_per_file=1_000)
WARM = 10  # epochs of the floor that are not counted
Answer = Mapping[int, tuple[int, int]]  # by auction: how many bids, and the sum of their prices


@dataclass(frozen=True)
class Task:
    master: str
    conf: Mapping[str, str]  # of the session
    place: str  # of state and checkpoints: a folder, or an address such as s3://bucket/prefix
    small: str  # input of the floor, in the same storage
    large: str  # the backlog
    small_files: str  # the same on this machine's disk, for the comparison
    large_files: str
    s3: Mapping[str, str] | None  # endpoint and region; None for a folder
    local: str  # a folder of the driver for its temporary files

    @staticmethod
    def given() -> Task:
        return Task(**json.loads(sys.argv[1]))

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Floor:
    p50_ms: float
    p90_ms: float
    epochs: int
    cpu_ms: float  # of the whole machine, an epoch
    phases_ms: Mapping[str, float] = field(default_factory=dict)  # medians


@dataclass(frozen=True)
class CatchUp:
    rows: int
    seconds: float
    commits: int
    cpu_s: float  # of the whole machine

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds


@dataclass(frozen=True)
class Answered:
    floor: Floor
    catch_up: CatchUp

    @staticmethod
    def from_json(text: str) -> Answered:
        data = json.loads(text)
        return Answered(Floor(**data["floor"]), CatchUp(**data["catch_up"]))

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def floor_of(
    ms: Sequence[float], phases: Sequence[Mapping[str, float]], machine_s: float, all_epochs: int
) -> Floor:
    """Of the epochs after the warm ones.

    >>> floor_of([1.0, 3.0, 2.0], [{"commit": 1.0}, {"commit": 3.0}], 0.5, 10).phases_ms
    {'commit': 2.0}
    """
    names = sorted({name for one in phases for name in one})
    medians = {name: round(statistics.median(one.get(name, 0.0) for one in phases), 1) for name in names}
    p90 = sorted(ms)[min(len(ms) - 1, int(0.9 * len(ms)))]
    return Floor(statistics.median(ms), p90, len(ms), machine_s / all_epochs * 1000, medians)


def machine_cpu_s() -> float:
    """What all processes of the machine have used: driver, executors, workers, the S3 server, and others."""
    first = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(ticks) for ticks in first[:8])
    return (user + nice + system + irq + softirq + steal) / 100


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """What a call gives, how long it took, and the processor time of the machine meanwhile."""
    cpu, began = machine_cpu_s(), time.perf_counter()
    found = call()
    return found, time.perf_counter() - began, machine_cpu_s() - cpu


def batch_answer(folder: str) -> Answer:
    found = duckdb.sql(
        f"SELECT auction, count(*), sum(price)::BIGINT FROM '{folder}/*.parquet' GROUP BY auction"
    )
    assert found is not None
    return {auction: (n, total) for auction, n, total in found.fetchall()}


def answer_of(rows: pa.Table) -> Answer:
    columns = (rows.column(name).to_pylist() for name in ("auction", "n", "total"))
    return {auction: (n, total) for auction, n, total in zip(*columns, strict=True)}


def compare(who: str, got: Answer, folder: str) -> None:
    want = batch_answer(folder)
    if dict(got) != dict(want):
        raise RuntimeError(f"{who}: {len(got)} groups differ from the {len(want)} of the batch answer")
