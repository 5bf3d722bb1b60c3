"""What windows cost: CPU of an epoch by what it touches, and by the number of windows of a row.

Each figure is the median CPU time of epochs on the inline engine, in this process.  The ratios are within
one run.  `--flat` streams ten million rows through windows that close, and shows their state.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import millpond
from millpond import tuning
from millpond.sources.memory import MemorySource
from millpond.state.manifest.listing import Listing
from millpond.triggers import after_watermark, always
from millpond.windows import sessions, sliding, tumbling

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("at", pa.timestamp("us"))])
BASE_US = 1_704_067_200_000_000
COUNT = {"n": "count(*)"}


def rows(keys: Any, seconds: Any) -> pa.Table:
    at = pa.array(BASE_US + (np.asarray(seconds) * 1e6).astype(np.int64)).cast(pa.timestamp("us"))
    return pa.table([pa.array(np.asarray(keys)), pa.array(np.ones(len(at), np.int64)), at], schema=SCHEMA)


def epochs(
    define: Callable[[Any], None], first: list[pa.Table], then: list[pa.Table], delay: str = "1d"
) -> float:
    """The median CPU seconds of the later epochs."""
    with (
        tempfile.TemporaryDirectory() as folder,
        millpond.open(folder, engine="inline", durable=False, parallelism=1) as pond,
    ):
        source = MemorySource(SCHEMA)
        define(pond.stream("s", source).watermark("at", delay))
        for table in first:
            source.push(table)
            pond.drain()
        pond.compact()  # else runs of these epochs are merged beside the later ones
        took = []
        for table in then:
            source.push(table)
            started = time.process_time()
            pond.drain()
            took.append(time.process_time() - started)
    return statistics.median(took)


def open_sessions(count: int, touched: int = 10_000, times: int = 15) -> float:
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


def early_firings(count: int, touched: int = 10_000, times: int = 15) -> float:
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


def sliding_windows(
    size: str,
    slide: str,
    span: float,
    keys: int = 20,
    times: int = 5,
    aggregates: Mapping[str, str] = COUNT,
) -> float:
    """Rows of windows that are still open."""

    chance = np.random.default_rng(1)
    return epochs(
        _sliding_view(size, slide, aggregates), [], [_span(chance, n, span, keys) for n in range(times)]
    )


def closing_windows(
    size: str,
    slide: str,
    span: float,
    keys: int = 20,
    times: int = 7,
    warm: int = 0,
    aggregates: Mapping[str, str] = COUNT,
) -> float:
    """Rows of windows of which one closes for every slide; before that, `warm` epochs fill the first one."""

    chance = np.random.default_rng(1)
    first = [_span(chance, n, span, keys) for n in range(warm)]
    then = [_span(chance, warm + n, span, keys) for n in range(times)]
    return epochs(_sliding_view(size, slide, aggregates), first, then, delay="0s")


def following_windows(
    size: str,
    slide: str,
    span: float,
    keys: int = 20,
    times: int = 7,
    aggregates: Mapping[str, str] = COUNT,
) -> float:
    """Rows of windows that are emitted in each epoch that changes them, and have been before."""
    chance = np.random.default_rng(1)
    first = [_span(chance, n, span, keys) for n in range(2)]
    then = [_span(chance, 2 + n, span, keys) for n in range(times)]
    return epochs(_sliding_view(size, slide, aggregates, on_close=False), first, then)


def _sliding_view(
    size: str, slide: str, aggregates: Mapping[str, str], on_close: bool = True
) -> Callable[[Any], None]:
    def define(stream: Any) -> None:
        windowed = stream.key_by("k").window(sliding(size, slide), on_close=on_close)
        windowed.aggregate(**aggregates).view("v")

    return define


def _span(chance: np.random.Generator, number: int, span: float, keys: int) -> pa.Table:
    """20,000 rows of one stretch of time."""
    return rows(chance.integers(0, keys, 20_000), (number + chance.random(20_000)) * span)


FLAT_KEYS = 1_000
FLAT_ROWS = 100_000  # of an epoch
FLAT_SPAN = 50.0  # seconds of an epoch


def flat(console: Console, millions: int = 10) -> None:
    """Stream rows through windows that close, and show that their state does not grow."""

    def define(pond: Any, source: MemorySource) -> None:
        keyed = pond.stream("s", source).watermark("at", "10s").key_by("k")
        several = {"n": "count(*)", "total": "sum(n)", "hi": "max(n)"}
        keyed.window(tumbling("1m"), on_close=True).aggregate(**several).filter("n < 0").view("by_tumbling")
        keyed.window(sliding("5m", "5s"), on_close=True).aggregate(**several).filter("n < 0").view(
            "by_sliding"
        )
        keyed.window(sessions("2s"), on_close=True).aggregate(**several).filter("n < 0").view("by_session")

    chance = np.random.default_rng(1)
    epochs_wanted = millions * 1_000_000 // FLAT_ROWS
    table = Table(
        "rows", "CPU s", "state rows", "state KiB", "runs", "Aggregate", "SlidingAggregate", "others"
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        millpond.open(folder, engine="inline", durable=False, parallelism=1, retain_epochs=1) as pond,
    ):
        source = MemorySource(SCHEMA)
        define(pond, source)
        started = time.process_time()
        for number in range(1, epochs_wanted + 1):
            seconds = (number + np.sort(chance.random(FLAT_ROWS))) * FLAT_SPAN
            source.push(rows(chance.integers(0, FLAT_KEYS, FLAT_ROWS), seconds))
            pond.drain()
            if number % max(epochs_wanted // 10, 1) == 0:
                pond.compact()
                facts = _state(pond)
                table.add_row(
                    f"{number * FLAT_ROWS:,}",
                    f"{time.process_time() - started:.0f}",
                    *(f"{f:,}" for f in facts),
                )
    console.print(table)


def _state(pond: Any) -> tuple[int, ...]:
    """Rows, KiB and runs of all state that is no view, and the rows by operator."""
    listing = Listing.of(pond.head(), pond._worker.pages)
    shown = {view.table for view in pond.plan.views.values()}
    own: dict[str, int] = {}
    runs = []
    for node in pond.plan.nodes.values():
        for spec in node.binding.tables:
            if spec.name in shown:
                continue
            found = listing.runs(spec.name)
            runs += found
            own[type(node.operator).__name__] = own.get(type(node.operator).__name__, 0) + sum(
                r.rows for r in found
            )
    merged = sum(n for name, n in own.items() if name not in ("Aggregate", "SlidingAggregate"))
    return (
        sum(r.rows for r in runs),
        sum(r.bytes for r in runs) // 1024,
        len(runs),
        own.get("Aggregate", 0),
        own.get("SlidingAggregate", 0),
        merged,
    )


def _repeated(measure: Callable[[], float]) -> float:
    """A measurement with rows that are repeated for each of their windows, instead of slices."""
    before, tuning.SLICED_WINDOWS_MIN = tuning.SLICED_WINDOWS_MIN, 10**9
    try:
        return measure()
    finally:
        tuning.SLICED_WINDOWS_MIN = before


def run(console: Console) -> None:
    table = Table("what", "CPU ms of an epoch", "ratio")
    small, large = open_sessions(10_000), open_sessions(1_000_000)
    table.add_row("10 K of 10 K open sessions touched", f"{small * 1e3:.0f}", "1")
    table.add_row("10 K of 1 M open sessions touched", f"{large * 1e3:.0f}", f"{large / small:.2f}")
    small, large = early_firings(10_000), early_firings(1_000_000)
    table.add_row("early panes of 10 K of 10 K open windows", f"{small * 1e3:.0f}", "1")
    table.add_row("early panes of 10 K of 1 M open windows", f"{large * 1e3:.0f}", f"{large / small:.2f}")
    flat_ms = _repeated(lambda: sliding_windows("10s", "1s", 20.0))
    small = sliding_windows("10s", "1s", 20.0)
    several = {"n": "count(*)", "total": "sum(n)", "lo": "min(n)"}
    for what, took in (
        ("size / slide = 10, rows repeated", flat_ms),
        ("size / slide = 10", small),
        ("size / slide = 3600", sliding_windows("1h", "1s", 20.0)),
        ("size / slide = 86400", sliding_windows("1d", "1s", 20.0)),
    ):
        table.add_row(f"sliding windows, {what}", f"{took * 1e3:.0f}", f"{took / small:.2f}")
    small = closing_windows("10s", "1s", 20.0)
    for what, took in (
        ("size / slide = 10, rows repeated", _repeated(lambda: closing_windows("10s", "1s", 20.0))),
        ("size / slide = 10", small),
        ("size / slide = 3600", closing_windows("1h", "1s", 20.0, warm=185)),
        (
            "size / slide = 3600, count, sum, min",
            closing_windows("1h", "1s", 20.0, warm=185, aggregates=several),
        ),
    ):
        table.add_row(f"20 sliding windows close, {what}", f"{took * 1e3:.0f}", f"{took / small:.2f}")
    small = following_windows("10s", "1s", 20.0)
    for what, windows, took in (
        ("size / slide = 10, rows repeated", 29, _repeated(lambda: following_windows("10s", "1s", 20.0))),
        ("size / slide = 10", 29, small),
        ("size / slide = 3600", 3619, following_windows("1h", "1s", 20.0)),
        (
            "size / slide = 3600, count, sum, min",
            3619,
            following_windows("1h", "1s", 20.0, aggregates=several),
        ),
        (
            "size / slide = 3600, rows repeated",
            3619,
            _repeated(lambda: following_windows("1h", "1s", 20.0, times=1)),
        ),
    ):
        table.add_row(
            f"{20 * windows:,} sliding windows change, {what}", f"{took * 1e3:.0f}", f"{took / small:.2f}"
        )
    console.print(table)
