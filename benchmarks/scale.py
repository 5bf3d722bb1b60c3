"""What a driver does for many tasks, views and runs: the real coordinator over a simulated engine and store.

Law: nothing is computed and no state exists.  The engine answers every epoch with the reports that so many
tasks would send, as bytes, and the store waits before every answer, as a bucket does.  Admission, the checks
of reports, the listing, the manifest, merges and commits are those of a pond.
"""

from __future__ import annotations

import gc
import itertools
import pickle
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from millpond.clock import ManualClock
from millpond.engine.change.programs import program_of
from millpond.engine.coordinator.coordinator import Coordinator
from millpond.engine.coordinator.policy import Policy
from millpond.engine.coordinator.protocol import (
    BACKGROUND,
    Compact,
    Compacted,
    Event,
    Instruction,
    PutManifest,
    RunEpoch,
    Wait,
    Woke,
)
from millpond.engine.coordinator.shell import Shell
from millpond.engine.engine import collect_reports
from millpond.engine.task import frames
from millpond.engine.task.spec import EpochSpec, Report, heard
from millpond.engine.task.worker import Worker
from millpond.kernels.aggregate_feeds import Agg, feeds_for
from millpond.operators.aggregate import Aggregate
from millpond.operators.scan import Scan
from millpond.plan import codec
from millpond.plan.levels import cut
from millpond.plan.nodes import Node, Plan, View
from millpond.sources.memory import MemorySource
from millpond.state.manifest import history
from millpond.state.manifest.listing import Listing
from millpond.state.manifest.manifest import (
    PAGE_RUNS,
    Page,
    encode_page,
    manifest_name,
)
from millpond.state.runs.compaction import MergeJob
from millpond.state.runs.run_ref import RunRef
from millpond.state.store.memory_store import MemoryStore
from millpond.state.store.store import Data, Put

LAST_HASH = (1 << 64) - 1
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
ROW = pa.table({"k": [1], "v": [1]}, schema=SCHEMA)


class DistantStore(MemoryStore):
    """A store in memory whose every answer takes a while."""

    latency_s = 0.0

    def put_new(self, name: str, data: Data) -> Put:
        time.sleep(self.latency_s)
        return super().put_new(name, data)

    def get(self, name: str) -> bytes:
        time.sleep(self.latency_s)
        return super().get(name)


@dataclass(frozen=True)
class Size:
    """How much there is of everything."""

    tasks: int
    views: int
    touched: int  # tables that an epoch changes
    runs: int  # that are live before the first epoch

    @property
    def state_tb(self) -> float:
        return self.runs * (64 << 20) / 1e12


def plan_of(views: int) -> Plan:
    """Many views over one source; each is a step of its own."""
    scan = Scan(MemorySource(SCHEMA), SCHEMA, True)
    nodes = {"in": Node("in", scan, (), scan.bind("in", ()))}
    shown = {}
    for n in range(views):
        aggs = (Agg(f"n{n}", "count"), Agg(f"s{n}", "sum", "v"))
        operator = Aggregate(("k",), aggs, feeds_for(aggs, True))
        step = f"by_key_{n}"
        nodes[step] = Node(step, operator, ("in",), operator.bind(step, (nodes["in"].binding.shape,)))
        shown[f"view_{n}"] = View(f"view_{n}", step, f"{step}/groups")
    return Plan(nodes, shown)


class SimulatedEngine:
    """Answers every epoch with the reports of its tasks, which wrote a run of every touched table."""

    single_task_rows_max = 0

    def __init__(self, size: Size) -> None:
        self.default_parallelism = size.tasks
        self._size = size
        self._raw: dict[int, list[bytes]] = {}
        self.spec_bytes = 0

    def prepare(self, epoch: int, parallelism: Sequence[int], token: int) -> None:
        """Make the reports before the epoch runs: their cost is that of the tasks."""
        raw = []
        every = {(0, task): _attempt(0, task) for task in range(parallelism[0])}
        told = heard(parallelism, every)
        for level, tasks in enumerate(parallelism):
            for task in range(tasks):
                runs = self._runs(epoch, task, tasks, token) if level == len(parallelism) - 1 else ()
                metrics = {
                    "us": 1_000,
                    "steps_us": {"in": 10},
                    "ran": {},
                    "rows_in": 10,
                    "bytes_written": 1_000 * len(runs),
                }
                report = Report(
                    level, task, _attempt(level, task), told if level else (), runs, (), {}, {}, metrics
                )
                raw.append(frames.make(frames.REPORT, (2, 0), (level, task), 0, 0, report.encode()))
        self._raw[epoch] = raw

    def _runs(self, epoch: int, task: int, tasks: int, token: int) -> tuple[RunRef, ...]:
        file = f"runs/{token}/{epoch:016d}-1-{task}-0123456789abcdef"
        low, high = LAST_HASH // tasks * task, LAST_HASH // tasks * (task + 1)
        first = epoch * self._size.touched
        return tuple(
            RunRef(
                f"by_key_{(first + n) % self._size.views}/groups",
                file,
                n,
                None,
                epoch,
                epoch,
                100,
                1_000,
                low,
                high,
                "delta",
            )
            for n in range(self._size.touched)
        )

    def run(self, spec: EpochSpec) -> list[Report]:
        self.spec_bytes = len(pickle.dumps(replace(spec, splits=spec.splits[:1])))
        return collect_reports(spec, self._raw.pop(spec.epoch))

    def map(self, function: Callable[[bytes], bytes], items: Sequence[bytes]) -> list[bytes]:
        return []

    def cancel(self) -> None: ...

    def close(self) -> None: ...


def _attempt(level: int, task: int) -> str:
    return f"{level:016x}{task:016x}"


class SimulatedShell(Shell):
    """A shell whose merges cost nothing: their output is known by size."""

    def _compact(self, ask: Compact) -> Event:
        return Compacted(ask.job, _merged(ask.job), tuple((job, _merged(job)) for job in ask.also))


def _merged(job: MergeJob) -> tuple[RunRef, ...]:
    rows = sum(r.rows for r in job.refs) // len(job.units)
    return tuple(
        RunRef(
            job.table,
            f"runs/merged-{job.table}-{job.hi}",
            n,
            job.bucket,
            job.lo,
            job.hi,
            rows,
            job.bytes // len(job.units),
            low,
            high,
            "merge",
        )
        for n, (low, high) in enumerate(job.units)
    )


@dataclass(frozen=True)
class ScaleResult:
    size: Size
    plan_s: float  # to read, check and cut the plan
    takeover_s: float
    epoch_cpu_ms: float  # of the driver
    run_cpu_ms: float  # of it: reports
    commit_ms: float  # by the clock, with the latency of the store
    manifest_kb: float
    puts: float  # of an epoch
    spec_kb: float  # what a task receives
    listing_s: float  # for a task that has read no page yet
    warm_listing_ms: float  # CPU, for a task that knows all pages
    memory_mb: float


def measure(size: Size, epochs: int, latency_s: float) -> ScaleResult:
    gc.collect()
    store = DistantStore()
    worker = Worker(store)
    began = time.process_time()
    plan = plan_of(size.views)
    raw = codec.dumps(plan)
    store.put_new("catalog/plan", raw)
    worker.know_plan("catalog/plan", plan)
    program = program_of("catalog/plan", plan)
    levels = cut(plan)
    plan_s = time.process_time() - began
    ids = map(str, itertools.count(10**15))
    clock = ManualClock(1_000_000)

    def coordinator() -> Coordinator:
        return Coordinator(
            pond="simulated",
            program=program,
            parallelism=size.tasks,
            policy=Policy(retain_epochs=5),
            ids=lambda: next(ids),
            now_us=clock.now_us(),
        )

    engine = SimulatedEngine(size)
    first = coordinator()
    _until_idle(first, SimulatedShell(worker, engine, plan, levels, "catalog/plan", clock), clock)
    _fill(store, size)
    worker = Worker(store)
    worker.know_plan("catalog/plan", plan)
    store.latency_s = latency_s
    shell = SimulatedShell(worker, engine, plan, levels, "catalog/plan", clock)
    driven, began = coordinator(), time.perf_counter()
    _until_idle(driven, shell, clock)
    takeover_s = time.perf_counter() - began
    source = plan.nodes["in"].operator.source  # type: ignore[attr-defined]
    cpu, run_cpu, commit, puts, kb = [], [], [], [], []
    for _ in range(epochs):
        source.push(*[ROW] * size.tasks)
        assert driven.head is not None
        engine.prepare(driven.head.epoch + 1, (size.tasks, size.tasks), driven.token)
        took = _until_idle(driven, shell, clock)
        cpu.append(took.cpu_s * 1_000)
        run_cpu.append(took.run_cpu_s * 1_000)
        commit.append(took.commit_s * 1_000)
        puts.append(took.puts)
        assert driven.head is not None
        kb.append(len(driven.head.encode()) / 1_000)
    began = time.perf_counter()
    assert driven.head is not None
    listed = len(Listing.of(driven.head, Worker(store).pages))
    listing_s = time.perf_counter() - began
    warm = Worker(store)
    for _ in range(2):
        began_cpu = time.process_time()
        Listing.of(driven.head, warm.pages)
        warm_ms = (time.process_time() - began_cpu) * 1_000
    assert listed >= size.runs
    return ScaleResult(
        size,
        plan_s,
        takeover_s,
        statistics.median(cpu),
        statistics.median(run_cpu),
        statistics.median(commit),
        statistics.median(kb),
        statistics.median(puts),
        engine.spec_bytes / 1_000,
        listing_s,
        warm_ms,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000,
    )


def _fill(store: MemoryStore, size: Size) -> None:
    """Commit an epoch that lists the runs of the state, behind the coordinator's back."""
    head = history.read_head(store)
    assert head is not None
    per = max(1, size.runs // size.views)
    refs = (
        RunRef(
            f"by_key_{n // per % size.views}/groups",
            f"runs/1/0000000000000000-state-{n}",
            0,
            None,
            0,
            0,
            1_000_000,
            64 << 20,
            LAST_HASH // per * (n % per),
            LAST_HASH // per * (n % per + 1),
            "merge",
        )
        for n in range(size.runs)
    )
    pages: list[Page] = []
    while chunk := tuple(itertools.islice(refs, PAGE_RUNS)):
        name = f"pages/{len(pages):016d}-state"
        store.put_new(name, encode_page(chunk))
        pages.append(Page(name, len(chunk)))
    child = replace(
        head, epoch=head.epoch + 1, nonce="filled", parent_nonce=head.nonce, pages=tuple(pages), added=()
    )
    store.put_new(manifest_name(child.epoch), child.encode())


@dataclass
class _Took:
    cpu_s: float = 0.0
    run_cpu_s: float = 0.0
    commit_s: float = 0.0
    puts: int = 0


def _until_idle(coordinator: Coordinator, shell: Shell, clock: ManualClock) -> _Took:
    """Drive the coordinator until its sources are empty; merges are answered at once."""
    took, began = _Took(), time.process_time()
    waiting: list[Instruction] = coordinator.start() if not coordinator.owner else []
    if coordinator.owner:
        waiting = coordinator.handle(Woke())
    while waiting:
        beside = [i for i in waiting if isinstance(i, BACKGROUND)]
        chain = [i for i in waiting if not isinstance(i, BACKGROUND)]
        waiting = []
        for instruction in (*beside, *chain):
            if isinstance(instruction, Wait):
                continue
            clock.advance(1_000)
            started, cpu = time.perf_counter(), time.process_time()
            event = shell.perform(instruction)
            if isinstance(instruction, PutManifest):
                took.commit_s += time.perf_counter() - started
                took.puts += len(instruction.pages) + 1
                shell.committed(instruction.manifest)
            elif isinstance(instruction, RunEpoch):
                took.run_cpu_s += time.process_time() - cpu
            waiting += coordinator.handle(event)
    took.cpu_s = time.process_time() - began
    return took


SIZES = (
    Size(10, 10, 10, 1_000),
    Size(100, 10, 10, 1_000),
    Size(1_000, 10, 10, 1_000),
    Size(100, 100, 100, 1_000),
    Size(100, 1_000, 1_000, 10_000),
    Size(100, 10_000, 100, 20_000),
    Size(1_000, 100, 10, 16_000),
    Size(1_000, 100, 10, 160_000),
    Size(1_000, 100, 10, 1_600_000),
)


def run(latency_ms: float, epochs: int, largest: int, console: Console) -> None:
    table = Table(
        "tasks", "views", "touched", "live runs", "state", "plan", "takeover", "driver CPU", "of it reports",
        "commit", "manifest", "puts", "spec", "cold listing", "warm", "memory",
    )  # fmt: skip
    for size in SIZES:
        if size.runs > largest:
            continue
        got = measure(size, epochs, latency_ms / 1_000)
        table.add_row(
            f"{size.tasks:,}", f"{size.views:,}", f"{size.touched:,}", f"{size.runs:,}",
            f"{size.state_tb:.1f} TB",
            f"{got.plan_s:.1f} s", f"{got.takeover_s:.1f} s", f"{got.epoch_cpu_ms:,.0f} ms",
            f"{got.run_cpu_ms:,.0f} ms", f"{got.commit_ms:,.0f} ms", f"{got.manifest_kb:,.0f} kB",
            f"{got.puts:.0f}", f"{got.spec_kb:,.0f} kB", f"{got.listing_s:.1f} s",
            f"{got.warm_listing_ms:,.0f} ms", f"{got.memory_mb:,.0f} MB",
        )  # fmt: skip
        console.print(f"{size}: {got}", highlight=False)
    console.print(table)
