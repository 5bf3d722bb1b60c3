"""Cost follows change: the same small epoch on states of very different size.

Law 5, measured.  Every figure is a ratio within one run on one Spark session:
the small state is the yardstick for the large one.
"""

from __future__ import annotations

import os
import runpy
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import millpond
from benchmarks import called, data
from benchmarks.contenders import require_known
from benchmarks.numbers import NumberSource
from millpond.engine.spark.engine import SparkEngine
from millpond.engine.spark.session import make_session

DELTA = 10_000
LOAD = 2_000_000  # rows of one loading epoch
WINDOW_US = 10_000_000
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Figure:
    name: str
    size: int
    value: float
    unit: str


class Bench:
    def __init__(self, session: Any, folder: Path) -> None:
        self.session = session
        self.folder = folder
        self.figures: list[Figure] = []

    def note(self, name: str, size: int, value: float, unit: str = "ms") -> None:
        self.figures.append(Figure(name, size, value, unit))
        print(f"{name:42} {size:>12,} {value:>10.1f} {unit}", flush=True)

    @contextmanager
    def pond(
        self,
        name: str,
        build: Callable[[millpond.Pond, NumberSource], None],
        source: NumberSource,
        **settings: Any,
    ) -> Iterator[millpond.Pond]:
        options = {"epoch_rows_max": 4 * LOAD, "target_ms": 60_000, "catch_up_ms": 60_000, "parallelism": 2}
        with millpond.open(self.folder / name, spark=self.session, **{**options, **settings}) as pond:
            build(pond, source)
            yield pond


def epoch_ms(pond: millpond.Pond, source: NumberSource, **item: Any) -> float:
    """Push one item and run the one epoch that takes it; wall time from push to commit."""
    source.push(**item)
    started = time.perf_counter()
    pond.drain()
    return (time.perf_counter() - started) * 1000


def load(pond: millpond.Pond, source: NumberSource, keys: int, **item: Any) -> None:
    for first in range(0, keys, LOAD):
        source.push(keys=(first, min(first + LOAD, keys)), **item)
    pond.drain()
    pond.compact()


def counting(pond: millpond.Pond, source: NumberSource) -> None:
    pond.stream("in", source).key_by("k").aggregate(n="count(*)", total="sum(v)", id="by_key").view("by_key")


def updates(bench: Bench, keys: int, epochs: int = 25) -> None:
    """10 K changed keys an epoch: warm without compaction, with compaction, cold; restart; worker memory."""
    source = NumberSource()
    name = f"updates-{keys}"
    peak = Peak()
    with bench.pond(name, counting, source, compact=False) as pond:
        load(pond, source, keys)
        bench.note("worker RssAnon, peak while loading", keys, peak.worker_anon_bytes() / 2**20, "MiB")
        for warm in range(5):
            epoch_ms(pond, source, random=DELTA, of=keys, seed=warm)
        peak = Peak()
        times = [epoch_ms(pond, source, random=DELTA, of=keys, seed=100 + n) for n in range(epochs)]
        bench.note("update epoch, warm, p50", keys, statistics.median(times))
        bench.note("worker RssAnon, peak", keys, peak.worker_anon_bytes() / 2**20, "MiB")
        drop_page_cache(bench.folder / name)
        bench.note("update epoch, cold files", keys, epoch_ms(pond, source, random=DELTA, of=keys, seed=7))
    with bench.pond(name, counting, source) as pond:
        source.push(random=DELTA, of=keys, seed=8)
        started = time.perf_counter()
        pond.drain()
        bench.note("restart to first new epoch", keys, (time.perf_counter() - started) * 1000)
        times = [epoch_ms(pond, source, random=DELTA, of=keys, seed=500 + n) for n in range(2 * epochs)]
        bench.note("update epoch, with compaction, mean", keys, statistics.mean(times))
    shutil.rmtree(bench.folder / name)


def expiry(bench: Bench, rows: int, epochs: int = 8) -> None:
    """One window of 100 K rows closes per epoch, out of a table of so many."""
    windows = rows // 100_000
    source = NumberSource()

    def build(pond: millpond.Pond, source: NumberSource) -> None:
        stream = pond.stream("in", source, event_time="ts", delay="1h")
        stream.tumble("10s").key_by("window_end", "k").aggregate(
            on_close=True, n="count(*)", id="w"
        ).aggregate(windows="count(*)", id="closed").view("closed")

    with bench.pond(f"expiry-{rows}", build, source) as pond:
        load(pond, source, rows, spread_us=(windows, WINDOW_US))
        first = 3_600_000_000 + WINDOW_US
        epoch_ms(pond, source, keys=(0, 1), at_us=first)
        times = [
            epoch_ms(pond, source, keys=(0, 1), at_us=first + (n + 1) * WINDOW_US) for n in range(epochs)
        ]
        bench.note("expiry epoch, one bucket of 100 K, p50", rows, statistics.median(times))
    shutil.rmtree(bench.folder / f"expiry-{rows}")


def hot_top(bench: Bench, rows: int, epochs: int = 15) -> None:
    """A top 10 over one key with so many rows, 1,000 changes an epoch, retractions among them."""
    source = NumberSource(append_only=False)

    def build(pond: millpond.Pond, source: NumberSource) -> None:
        pond.stream("in", source).key_by("k").top_n(10, "v desc", id="top").view("top")

    with bench.pond(f"top-{rows}", build, source, compact=False) as pond:
        for first in range(0, rows, LOAD):
            source.push(keys=(first, min(first + LOAD, rows)), one_key=1, weight=1)
        pond.drain()
        pond.compact()
        times = []
        for n in range(epochs):
            top = rows - 1000 * (n + 1)
            times.append(epoch_ms(pond, source, keys=(top, top + 1000), one_key=1, weight=-1))
        bench.note("top-10 of one key, 1 K retractions, p50", rows, statistics.median(times[3:]))
    shutil.rmtree(bench.folder / f"top-{rows}")


def rescale(bench: Bench, keys: int = 1_000_000, rows: int = 200_000) -> None:
    """2 -> 7 -> 1 under load: the first epoch at a new parallelism against the steady ones after it."""
    source = NumberSource()
    with bench.pond("rescale", counting, source) as pond:
        load(pond, source, keys)
        for step, n in enumerate((2, 7, 1)):
            if step:
                pond.rescale(n)
            times = [epoch_ms(pond, source, random=rows, of=keys, seed=step * 100 + e) for e in range(9)]
            bench.note("rescale: first epoch", n, times[0])
            bench.note("rescale: steady epoch, p50", n, statistics.median(times[3:]))
    shutil.rmtree(bench.folder / "rescale")


def partitions(bench: Bench, tasks: Sequence[int] = (1, 2, 4, 8, 16, 32), keys: int = 1_000_000) -> None:
    """10 K changed keys an epoch, cut into so many tasks at every level; and read from so many splits.

    Left to itself one task would do all of it.
    """
    source = NumberSource()
    alone = patch.object(SparkEngine, "single_task_rows_max", 0)
    with alone, bench.pond("partitions", counting, source) as pond:
        load(pond, source, keys)
        for n in tasks:
            pond.rescale(n)
            times = [epoch_ms(pond, source, random=DELTA, of=keys, seed=n * 100 + e) for e in range(25)]
            bench.note("update epoch by tasks a level, p50", n, statistics.median(times[5:]))
        pond.rescale(2)
        for n in (2, 8, 32, 128):
            times = [
                epoch_ms(pond, source, random=DELTA, of=keys, seed=n * 977 + e, pieces=n) for e in range(25)
            ]
            bench.note("update epoch by splits of its input, p50", n, statistics.median(times[5:]))
    shutil.rmtree(bench.folder / "partitions")


def floor(bench: Bench, epochs: int = 80) -> None:
    """An epoch with one exchange and 1,000 rows."""
    source = NumberSource()
    with bench.pond("floor", counting, source) as pond:
        for n in range(10):
            epoch_ms(pond, source, random=1000, of=1000, seed=n)
        times = sorted(epoch_ms(pond, source, random=1000, of=1000, seed=n) for n in range(epochs))
        bench.note("epoch floor, 1,000 rows, p50", 1000, statistics.median(times))
        bench.note("epoch floor, 1,000 rows, p99", 1000, times[int(len(times) * 0.99) - 1])
    shutil.rmtree(bench.folder / "floor")


def manifests(bench: Bench, runs: int, epochs: int = 200) -> None:
    """Bytes of manifests and pages written per epoch, with so many live runs."""
    source = NumberSource()

    def build(pond: millpond.Pond, source: NumberSource) -> None:
        stream = pond.stream("in", source, event_time="ts", delay="1000h")
        stream.tumble("10s").key_by("window_end", "k").aggregate(on_close=True, n="count(*)", id="w").view(
            "w"
        )

    folder = bench.folder / f"manifests-{runs}"
    with millpond.open(folder, engine="inline", parallelism=1, durable=False, compact=False) as pond:
        build(pond, source)
        source.push(keys=(0, runs), spread_us=(runs, WINDOW_US))
        pond.drain()
        before = _metadata_bytes(folder)
        for n in range(epochs):
            epoch_ms(pond, source, keys=(0, 2), at_us=n * WINDOW_US)
        bench.note(
            "manifest and page bytes per epoch", runs, (_metadata_bytes(folder) - before) / epochs, "bytes"
        )
    shutil.rmtree(folder)


def _metadata_bytes(folder: Path) -> int:
    return sum(f.stat().st_size for kind in ("manifests", "pages") for f in (folder / kind).glob("*"))


def drop_page_cache(folder: Path) -> None:
    """Forget the cached pages of a pond's files."""
    os.sync()
    for file in folder.rglob("*"):
        if file.is_file():
            fd = os.open(file, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


class Peak:
    """The highest anonymous memory that any one Python worker was seen to hold."""

    def __init__(self) -> None:
        self._highest = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            self._highest = max(self._highest, _worker_anon_bytes())

    def worker_anon_bytes(self) -> int:
        self._stop.set()
        self._thread.join()
        return self._highest


def _worker_anon_bytes() -> int:
    found = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The JVM has the module's name among its settings; a worker runs it.
            if "-m\0millpond.engine.spark.daemon" not in (entry / "cmdline").read_text():
                continue
            lines = (entry / "status").read_text().splitlines()
        except OSError:
            continue  # it ended while we looked
        status = dict(line.split(":", 1) for line in lines if ":" in line)
        if "RssAnon" in status:
            found = max(found, int(status["RssAnon"].split()[0]) * 1024)
    return found


def each(part: Callable[[Bench, int], None], bench: Bench, sizes: Sequence[int]) -> None:
    for size in sizes:
        part(bench, size)


SIZES = (100_000, 1_000_000, 10_000_000)
PARTS: dict[str, Callable[[Bench, Sequence[int]], None]] = {  # the sizes are those of `updates`
    "floor": lambda bench, _: floor(bench),
    "updates": lambda bench, sizes: each(updates, bench, sizes),
    "expiry": lambda bench, _: each(expiry, bench, (1_000_000, 10_000_000)),
    "top": lambda bench, _: each(hot_top, bench, (20_000, 1_000_000)),
    "rescale": lambda bench, _: rescale(bench),
    "partitions": lambda bench, _: partitions(bench),
    "manifests": lambda bench, _: each(manifests, bench, (10, 100, 1000, 5000)),
}


def choose(names: Sequence[str]) -> list[str]:
    """The parts asked for, in the order in which they run; all of them when none is named.

    >>> choose(["rescale", "floor"])
    ['floor', 'rescale']
    >>> choose(["flour"])
    Traceback (most recent call last):
    ValueError: unknown part flour; there are floor, updates, expiry, top, rescale, partitions, manifests
    """
    require_known("part", names, PARTS)
    return [name for name in PARTS if name in names or not names]


def run(parts: Sequence[str] = (), sizes: Sequence[int] = SIZES) -> list[Figure]:
    wanted = choose(parts)
    record = called.Record("growth", {"sizes": list(sizes), "changes": DELTA})
    session = make_session(extra={"spark.executorEnv.PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"})
    with tempfile.TemporaryDirectory(dir=data.scratch()) as place:
        bench = Bench(session, Path(place))
        for name in wanted:
            PARTS[name](bench, sizes)
            record.outcomes = [asdict(figure) for figure in bench.figures]
            record.save()
    print(f"written: benchmarks/results/{record.path.name}")
    return bench.figures


if __name__ == "__main__":  # `python -m benchmarks.growth …` is `python -m benchmarks growth …`
    sys.argv.insert(1, "growth")
    runpy.run_module("benchmarks", run_name="__main__")
