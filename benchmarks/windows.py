"""What windows cost: CPU of an epoch by what it touches, and by the number of windows of a row.

Each figure is the median CPU time of epochs on the inline engine, in this process.  The ratios are within
one run.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import millpond
from millpond.sources.memory import MemorySource
from millpond.triggers import after_watermark, always
from millpond.windows import sessions, sliding, tumbling

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("at", pa.timestamp("us"))])
BASE_US = 1_704_067_200_000_000


def rows(keys: Any, seconds: Any) -> pa.Table:
    at = pa.array(BASE_US + (np.asarray(seconds) * 1e6).astype(np.int64)).cast(pa.timestamp("us"))
    return pa.table([pa.array(np.asarray(keys)), pa.array(np.ones(len(at), np.int64)), at], schema=SCHEMA)


def epochs(define: Callable[[Any], None], first: list[pa.Table], then: list[pa.Table]) -> float:
    """The median CPU seconds of the later epochs."""
    with (
        tempfile.TemporaryDirectory() as folder,
        millpond.open(folder, engine="inline", durable=False, parallelism=1) as pond,
    ):
        source = MemorySource(SCHEMA)
        define(pond.stream("s", source).watermark("at", "1d"))
        for table in first:
            source.push(table)
            pond.drain()
        took = []
        for table in then:
            source.push(table)
            started = time.process_time()
            pond.drain()
            took.append(time.process_time() - started)
    return statistics.median(took)


def open_sessions(count: int, touched: int = 10_000, times: int = 7) -> float:
    def define(stream: Any) -> None:
        stream.key_by("k").window(sessions("1h")).aggregate(n="count(*)").view("v")

    chance = np.random.default_rng(1)
    first = [
        rows(np.arange(n, min(n + 250_000, count)), np.zeros(min(250_000, count - n)))
        for n in range(0, count, 250_000)
    ]
    then = [
        rows(chance.choice(count, touched, replace=False), np.full(touched, float(n))) for n in range(times)
    ]
    return epochs(define, first, then)


def early_firings(count: int, touched: int = 10_000, times: int = 7) -> float:
    def define(stream: Any) -> None:
        windowed = stream.key_by("k").window(tumbling("1h"), trigger=after_watermark(early=always()))
        windowed.aggregate(n="count(*)").view("v")

    chance = np.random.default_rng(1)
    first = [
        rows(np.arange(n, min(n + 250_000, count)), np.zeros(min(250_000, count - n)))
        for n in range(0, count, 250_000)
    ]
    then = [
        rows(chance.choice(count, touched, replace=False), np.full(touched, float(n))) for n in range(times)
    ]
    return epochs(define, first, then)


def sliding_windows(size: str, slide: str, span: float, keys: int = 20, times: int = 5) -> float:
    def define(stream: Any) -> None:
        stream.key_by("k").window(sliding(size, slide), on_close=True).aggregate(n="count(*)").view("v")

    chance = np.random.default_rng(1)
    return epochs(
        define,
        [],
        [
            rows(chance.integers(0, keys, 20_000), n * span + chance.random(20_000) * span)
            for n in range(times)
        ],
    )


def run(console: Console) -> None:
    table = Table("what", "CPU ms of an epoch", "ratio")
    small, large = open_sessions(10_000), open_sessions(1_000_000)
    table.add_row("10 K of 10 K open sessions touched", f"{small * 1e3:.0f}", "1")
    table.add_row("10 K of 1 M open sessions touched", f"{large * 1e3:.0f}", f"{large / small:.2f}")
    small, large = early_firings(10_000), early_firings(1_000_000)
    table.add_row("early panes of 10 K of 10 K open windows", f"{small * 1e3:.0f}", "1")
    table.add_row("early panes of 10 K of 1 M open windows", f"{large * 1e3:.0f}", f"{large / small:.2f}")
    small, large = sliding_windows("10s", "1s", 20.0), sliding_windows("1h", "1s", 20.0)
    table.add_row("sliding windows, size / slide = 10", f"{small * 1e3:.0f}", "1")
    table.add_row("sliding windows, size / slide = 3600", f"{large * 1e3:.0f}", f"{large / small:.2f}")
    console.print(table)
