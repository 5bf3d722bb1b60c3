"""A soak: an hour of Nexmark with disorder and late rows, and whether anything grows.

Law: one process runs the pond with its own settings, as a user would; a thread of it looks once a minute.
Nothing is tidied up from outside: disk is bounded by retention and collection, or it is not. The verdict is
in the file with every look it follows from; results are compared with the batch answer at the end.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

import millpond
from benchmarks import called
from benchmarks.measure import confine
from benchmarks.peers.command import work_folder
from benchmarks.soak import pipeline, sample
from benchmarks.soak.pipeline import COLUMNS, Soak
from benchmarks.soak.sample import Epoch, Look
from benchmarks.soak.verdict import Verdict, chart, judge
from millpond.engine.spark.engine import SparkEngine
from millpond.engine.spark.session import make_session
from millpond.state.manifest.manifest import Manifest

MIB = 2**20
DRAIN_S = 300.0  # what the last rows may take
WARM_SHARE = 0.1  # of the looks: the JVM compiles, retention fills


@dataclass(frozen=True)
class Figure:
    """One series of the looks, and how much it may grow."""

    name: str
    unit: str
    limit: float

    def of(self, look: Look) -> float:
        match self.name:
            case "driver memory":
                return look.driver_bytes / MIB
            case "JVM memory":
                return look.jvm_bytes / MIB
            case "workers' memory":
                return look.workers_bytes / MIB
            case "disk of the pond, less late rows":
                return (look.disk_bytes - look.late_bytes) / MIB
            case "disk of Spark":
                return look.spark_bytes / MIB
            case "files of the pond":
                return float(look.files)
            case "live runs":
                return float(look.runs)
            case "epoch p50":
                return look.epoch_p50_ms
            case "epoch p99":
                return look.epoch_p99_ms
            case "open files of the driver":
                return float(look.handles)
        raise LookupError(self.name)


FIGURES = (
    Figure("driver memory", "MiB", 0.05),
    Figure("JVM memory", "MiB", 0.05),
    Figure("workers' memory", "MiB", 0.05),
    Figure("disk of the pond, less late rows", "MiB", 0.05),
    Figure("disk of Spark", "MiB", 0.05),
    Figure("files of the pond", "", 0.05),
    Figure("live runs", "", 0.1),
    Figure("open files of the driver", "", 0.05),
    Figure("epoch p50", "ms", 0.1),
    Figure("epoch p99", "ms", 0.25),
)


class Watch:
    """Looks at a running pond at a fixed interval, from a thread of the process that runs it."""

    def __init__(
        self, pond: millpond.Pond, folder: Path, spark: Path, interval_s: float, live_heap: Callable[[], int]
    ) -> None:
        self.looks: list[Look] = []
        self.failure: Exception | None = None
        self._pond, self._folder, self._spark = pond, folder, spark
        self._interval_s = interval_s
        self._live_heap = live_heap
        self._epochs: list[Epoch] = []
        self._started = time.time()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-watch", daemon=True)

    def committed(self, manifest: Manifest) -> None:
        now = time.time()
        rows = int(manifest.metrics.get("rows", 0))
        self._epochs.append(Epoch(now - self._started, now * 1000 - manifest.now_us / 1000, rows))

    def start(self) -> None:
        self._started = time.time()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            number = 1
            while not self._stop.wait(max(0.0, self._started + number * self._interval_s - time.time())):
                self._look()
                number += 1
        except Exception as failure:  # handed to the thread that runs the soak
            self.failure = failure

    def _look(self) -> None:
        epochs, self._epochs = self._epochs, []
        held, cpu = sample.memory(os.getpid())
        disk, files = sample.disk(self._folder)
        states = self._pond.states()
        late = sum(one.bytes for one in states if one.state == "late")
        count, rows, p50, p99 = sample.times(epochs)
        head = self._pond.head()
        self.looks.append(
            Look(
                at=time.time() - self._started,
                driver_bytes=held["driver"],
                jvm_bytes=held["jvm"],
                live_bytes=self._live_heap(),
                workers_bytes=held["workers"],
                disk_bytes=disk,
                late_bytes=late,
                spark_bytes=sample.disk(self._spark)[0],
                floor=head.floor,
                runs=sum(page.runs for page in head.pages) + len(head.recent) - len(head.gone),
                files=files,
                epochs=count,
                rows=rows,
                epoch_p50_ms=p50,
                epoch_p99_ms=p99,
                backlog_rows=self._pond.backlog_rows,
                handles=len(os.listdir("/proc/self/fd")),
                cpu_seconds=cpu,
            )
        )


def verdicts(looks: Sequence[Look]) -> list[Verdict]:
    """Of the looks since there is something to collect, and after the first tenth: before, all fills."""
    full = next((n for n, look in enumerate(looks) if look.floor > 0), len(looks))
    steady = looks[max(int(len(looks) * WARM_SHARE), full) :]
    return [judge(one.name, one.unit, [one.of(look) for look in steady], one.limit) for one in FIGURES]


def table(looks: Sequence[Look], found: Sequence[Verdict]) -> Table:
    made = Table(title="a soak under disorder and late rows", box=box.SIMPLE)
    made.add_column("figure", no_wrap=True)
    for column in ("first third", "last third", "growth", "allowed"):
        made.add_column(column, justify="right", no_wrap=True)
    made.add_column("flat", no_wrap=True)
    made.add_column("over time", no_wrap=True)
    for one, figure in zip(found, FIGURES, strict=True):
        series = [figure.of(look) for look in looks]
        made.add_row(
            one.name,
            f"{one.first:,.1f} {one.unit}",
            f"{one.last:,.1f} {one.unit}",
            f"{one.growth:+.1%}",
            f"{one.limit:.0%}",
            "yes" if one.flat else "NO",
            chart(series, 30),
        )
    return made


def _read_all(pond: millpond.Pond, wanted: Soak) -> bool:
    positions = pond.head().positions
    return all((positions.get(kind) or {"next": 0})["next"] >= wanted.events for kind in COLUMNS)


def run(wanted: Soak, interval_s: float, retain: int, cores: int, console: Console) -> bool:
    """Whether everything is flat and right."""
    confine(cores)
    record = called.Record(
        "soak", {**asdict(wanted), "delay_seconds": pipeline.DELAY_S, "cores": cores, "retain_epochs": retain}
    )
    with work_folder("soak") as work:
        (work / "spark").mkdir()
        session = make_session(f"local[{cores}]", extra={"spark.local.dir": str(work / "spark")})
        SparkEngine(session)  # checks the session and rehearses, as the first pond on it would
        pond = millpond.open(work / "pond", spark=session, parallelism=cores, retain_epochs=retain)
        jvm = session.sparkContext._jvm
        watch = Watch(pond, work / "pond", work / "spark", interval_s, lambda: sample.live_heap(jvm))
        pond.on_epoch(watch.committed)
        pipeline.define(pond, wanted)
        pond.start()
        watch.start()
        began = time.time()
        while time.time() - began < wanted.seconds + DRAIN_S and not _read_all(pond, wanted):
            time.sleep(min(5.0, interval_s))
            if watch.failure is not None:
                raise watch.failure
            if watch.looks and len(watch.looks) > len(record.outcomes):
                _tell(watch.looks[-1], console)
                record.outcomes = [asdict(look) for look in watch.looks]
                record.save()
        watch.stop()
        done = _read_all(pond, wanted)
        pond.stop()
        late, epoch = pipeline.late_counts(pond), pond.epoch
        errors = pond.errors().num_rows
        checking = time.time()
        wrong = pipeline.differences(pond, wanted, work / "check") if done else {"input": "not all was read"}
        console.print(f"compared with the batch answer in {time.time() - checking:.0f} s")
        pond.close()
        session.stop()
    found = verdicts(watch.looks)
    record.outcomes = [asdict(look) for look in watch.looks]
    flat = all(one.flat for one in found)
    record.save(
        verdicts=[{**asdict(one), "flat": one.flat} for one in found],
        flat=flat,
        late_rows=late,
        error_rows=errors,
        epochs=epoch,
        wrong=wrong,
    )
    console.print(table(watch.looks, found))
    console.print(f"{epoch:,} epochs, {wanted.events:,} events, late rows {late}, error rows {errors}")
    console.print("all views equal the batch answer" if not wrong else f"WRONG: {wrong}", markup=False)
    record.told(console)
    return flat and not wrong


def _tell(look: Look, console: Console) -> None:
    console.print(
        f"{look.at / 60:6.1f} min: anon MiB driver {look.driver_bytes / MIB:,.0f}, "
        f"JVM {look.jvm_bytes / MIB:,.0f} ({look.live_bytes / MIB:,.0f} alive), "
        f"workers {look.workers_bytes / MIB:,.0f}; "
        f"disk MiB {look.disk_bytes / MIB:,.0f} "
        f"(late {look.late_bytes / MIB:,.1f}); {look.files:,} files, {look.runs} runs; "
        f"{look.epochs} epochs, p50 {look.epoch_p50_ms:,.0f} ms, p99 {look.epoch_p99_ms:,.0f} ms; "
        f"{look.rows:,} rows, {look.backlog_rows:,} behind",
        highlight=False,
    )
