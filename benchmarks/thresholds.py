"""The thresholds of `millpond.tuning`: what the same work costs with smaller and larger values.

Law: all values of a threshold are measured in turns in one process, on the same rows, so they have the same
noise.  The cost is the CPU time of this process; a figure is the median over the turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table as Printed

import millpond
from benchmarks import report
from millpond import tuning
from millpond.delta import HASH, WEIGHT
from millpond.engine.task.partitioning import cut_by_owner
from millpond.engine.task.wire import narrow, widen
from millpond.kernels.join_match import Matcher
from millpond.kernels.keyed_rows import Keyed
from millpond.ordering import Order
from millpond.state.runs.packed import PackedFile
from millpond.state.runs.packed_writer import PackedWriter
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables.table import KeySet, Table
from millpond.state.tables.table_scan import TableScan
from millpond.state.tables.table_spec import TableSpec

Values = Mapping[str, int]  # by name of a threshold
Call = Callable[[], object]
NEVER = 1 << 30
SPARK_S_PER_MIB = 0.005  # CPU of Spark for a MiB of frames (decision 22)
SPEC = TableSpec("t", pa.schema([("k", pa.int64()), ("n", pa.int64()), ("text", pa.string())]), ("k",))
ORDERED = TableSpec("o", pa.schema([("k", pa.int64()), ("n", pa.int64())]), ("k",), (Order("n"),))


@dataclass(frozen=True)
class Case:
    """Some work at one size, and the values of thresholds to do it with; `ours` is the value we have."""

    threshold: str
    about: str
    values: Mapping[str, Values]
    call: Call
    extra_s: Callable[[], float] | None = None  # what the same call costs elsewhere, added to the CPU time


@dataclass(frozen=True)
class Figure:
    threshold: str
    about: str
    us: dict[str, float]  # by label of the value: median CPU of a call


# -- state in memory ---------------------------------------------------------------------


class Files:
    """Run files in memory."""

    def __init__(self) -> None:
        self._files: dict[str, PackedFile] = {}

    def write(self, spec: TableSpec, rows: pa.Table, epoch: int) -> RunRef:
        writer = PackedWriter()
        writer.add(spec, rows)
        buffers, infos = writer.finish()
        name = f"runs/1/{epoch}"
        self._files[name] = PackedFile.open(name, pa.py_buffer(b"".join(bytes(b) for b in buffers)))
        return infos[0].ref(name, lo=epoch, hi=epoch, kind="delta")

    def open(self, name: str) -> PackedFile:
        return self._files[name]


def _rows(keys: Any) -> pa.Table:
    keys = np.asarray(keys)
    texts = pa.array([f"text {k % 1000}" for k in keys.tolist()])
    weights = np.ones(len(keys), np.int64)
    return pa.table({"k": keys, "n": keys * 7, "text": texts, WEIGHT: weights})


def _scan(sizes: Sequence[int], shared: float) -> Call:
    """A scan of runs of these sizes; this share of the rows of each later run is in the first one, too."""
    files, refs = Files(), []
    rng = np.random.default_rng(7)
    for epoch, size in enumerate(sizes):
        first = 0 if epoch == 0 else epoch * 100_000_000
        keys = np.arange(first, first + size)
        if epoch:
            keys[: int(size * shared)] = rng.choice(sizes[0], int(size * shared), replace=False)
        refs.append(files.write(SPEC, _rows(keys), epoch))
    return lambda: TableScan(SPEC, refs, files.open, ["k", "n", "text"]).unsorted()


# -- the cases ---------------------------------------------------------------------------


def _two_ways(name: str, below: str, above: str) -> dict[str, Values]:
    """The way that is used below a threshold, and the one from it on."""
    return {below: {name: NEVER}, above: {name: 0}}


def _around(name: str) -> dict[str, Values]:
    ours = getattr(tuning, name)
    return {"a quarter": {name: ours // 4}, "ours": {name: ours}, "four times": {name: ours * 4}}


def _dealt() -> Iterator[Case]:
    for size in (2048, 4096, 8192, 16_384):
        rng = np.random.default_rng(7)
        chunks = []
        for _ in range(262_144 // size):
            numbers = rng.integers(0, 1 << 40, size)
            hashes = rng.integers(0, 1 << 63, size).astype(np.uint64) * 2
            chunks.append(
                pa.table({"a": numbers, "b": numbers, "text": _rows(numbers)["text"], HASH: hashes})
            )
        rows = pa.concat_tables(chunks)
        values = _two_ways("DEAL_CHUNK_ROWS_MIN", "combined", "by chunk")
        yield Case("DEAL_CHUNK_ROWS_MIN", f"262,144 rows in chunks of {size:,}", values, _dealing(rows))


def _dealing(rows: pa.Table) -> Call:
    return lambda: list(cut_by_owner(rows, 4))


def _narrow() -> Iterator[Case]:
    for size in (300, 1000, 2000, 4000):
        numbers = np.arange(size)
        at = pa.array(numbers * 1000, pa.timestamp("us"))
        rows = pa.table({"a": numbers % 100, "b": numbers, "n": numbers % 30_000, "at": at})
        sent = [0]

        def call(rows: pa.Table = rows, sent: list[int] = sent) -> object:
            sink = pa.BufferOutputStream()
            small = narrow(rows)
            with pa.ipc.new_stream(sink, small.schema) as writer:
                writer.write_table(small)
            frame = sink.getvalue()
            sent[0] = frame.size
            with pa.ipc.open_stream(frame) as stream:
                return widen(stream.read_all())

        values = _two_ways("NARROW_ROWS_MIN", "unchanged", "narrowed")
        about = f"{size:,} rows of 4 columns, with 5 ms a MiB for Spark"
        yield Case("NARROW_ROWS_MIN", about, values, call, _in_spark(sent))


def _in_spark(sent: Sequence[int]) -> Callable[[], float]:
    return lambda: sent[0] / 2**20 * SPARK_S_PER_MIB


def _join() -> Iterator[Case]:
    """The size of a chunk is a field of the matcher, so the values are different matchers."""
    keys = 200
    schema = pa.schema([(name, pa.int64()) for name in ("a", "b", "c", "d", WEIGHT)])
    columns = tuple((name, int(name in "cd"), name) for name in "abcd")
    side = np.repeat(np.arange(keys), 150)
    number = pa.array(np.arange(len(side)))
    left = Keyed({"a": number, "b": number}, np.ones(len(side), np.int64), side)
    right = Keyed({"c": number, "d": number}, np.ones(len(side), np.int64), side)
    values = _around("JOIN_CHUNK_ROWS")

    def call() -> object:
        matcher = Matcher(columns, schema, None, True, tuning.JOIN_CHUNK_ROWS)
        return sum(part.num_rows for part in matcher.meet(left, right).out)

    yield Case("JOIN_CHUNK_ROWS", "4.5 M pairs of 4 columns", values, call)


def _lookups() -> Iterator[Case]:
    rng = np.random.default_rng(7)
    for distinct in (200, 2000, 50_000):
        rows = pa.table({"k": rng.integers(0, distinct, 200_000)})

        def call(rows: pa.Table = rows) -> object:
            return KeySet.of(rows, ["k"])

        about = f"200,000 rows with {distinct:,} keys"
        yield Case("LOOKUP_SAMPLE_ROWS", about, _around("LOOKUP_SAMPLE_ROWS"), call)


def _comparing() -> Iterator[Case]:
    for keys, each in ((20, 20), (20, 100), (20, 400), (500, 10)):
        files = Files()
        numbers = np.arange(keys * each)
        weights = np.ones(len(numbers), np.int64)
        rows = pa.table({"k": numbers // each, "n": numbers % each, WEIGHT: weights})
        table = Table(ORDERED, [files.write(ORDERED, rows, 0)], files.open)
        asked = KeySet.of(pa.table({"k": np.arange(keys)}), ["k"])
        at = pa.array(np.full(keys, each // 2))

        def call(table: Table = table, asked: KeySet = asked, at: pa.Array = at) -> object:
            return table.neighbours(asked, at)

        values = _two_ways("LOOKUP_COMPARE_ROWS", "compared at once", "by probes")
        # `by probes` still compares at once what has at most four rows for each range
        yield Case("LOOKUP_COMPARE_ROWS", f"{keys} keys of {each} rows each", values, call)


def _scans() -> Iterator[Case]:
    for times in (4, 16, 64, 256):
        values: dict[str, Values] = {
            "search the largest": {"SCAN_OVERLAY_FACTOR": 0},
            "sort all hashes": {"SCAN_OVERLAY_FACTOR": NEVER, "SCAN_MERGE_ROWS_MAX": 0},
        }
        call = _scan([1_000_000, 1_000_000 // times], 0.1)
        yield Case("SCAN_OVERLAY_FACTOR", f"runs of 1,000,000 rows and of 1/{times} of that", values, call)
    for size in (500, 2000, 4000, 16_000):
        values = {
            "merge all": {"SCAN_OVERLAY_FACTOR": NEVER, "SCAN_MERGE_ROWS_MAX": NEVER},
            "find what to merge": {"SCAN_OVERLAY_FACTOR": NEVER, "SCAN_MERGE_ROWS_MAX": 0},
        }
        call = _scan([size // 2, size // 2], 0.1)
        yield Case("SCAN_MERGE_ROWS_MAX", f"two runs of {size // 2:,} rows", values, call)
    for share in (0.05, 0.2, 0.5, 1.0):
        base = {"SCAN_OVERLAY_FACTOR": NEVER, "SCAN_MERGE_ROWS_MAX": 0}
        values = {
            "merge all": {**base, "SCAN_SHARED_ROWS_FACTOR": NEVER},
            "merge what is shared": {**base, "SCAN_SHARED_ROWS_FACTOR": 0},
        }
        call = _scan([100_000, 100_000], share)
        yield Case("SCAN_SHARED_ROWS_FACTOR", f"two runs of 100,000 rows, {share:.0%} shared", values, call)
    for apart in (500, 2000, 8000, 32_000):
        base = {"SCAN_OVERLAY_FACTOR": 0}
        values = {
            "copied": {**base, "SCAN_SLICE_ROWS": NEVER},
            "in slices": {**base, "SCAN_SLICE_ROWS": 0},
        }
        call = _scan([1_000_000, 1_000_000 // apart], 1.0)
        yield Case("SCAN_SLICE_ROWS", f"1,000,000 rows, one in {apart:,} is replaced", values, call)


def _per_key() -> Iterator[Case]:
    sql = "CREATE TABLE t (k bigint, n bigint); CREATE MATERIALIZED VIEW v AS SELECT k, n, {} FROM t"
    shown = "sum(n) OVER (PARTITION BY k ORDER BY n ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS s"
    yield Case(
        "PER_KEY_KEYS_PER_QUERY",
        "window over 40,000 new rows of 20,000 keys",
        _around("PER_KEY_KEYS_PER_QUERY"),
        _epochs(sql.format(shown), "t", lambda number: _fresh(number, 40_000, 2)),
    )


def _fresh(number: int, rows: int, each: int) -> pa.Table:
    """Rows of keys that no epoch has seen."""
    at = np.arange(number * rows, (number + 1) * rows)
    return pa.table({"k": at // each, "n": at})


def _recursion() -> Iterator[Case]:
    sql = """
        CREATE TABLE edge (a bigint, b bigint);
        CREATE MATERIALIZED VIEW reach AS WITH RECURSIVE r(a, b) AS (
            SELECT a, b FROM edge UNION SELECT r.a, edge.b FROM r JOIN edge ON r.b = edge.a
        ) SELECT * FROM r
    """
    for name in ("RECURSION_FIRST_ROWS", "RECURSION_CALL_ROWS"):
        call = _epochs(sql, "edge", _edges)
        yield Case(name, "70,000 pairs reached over 1,200 new edges", _around(name), call)


def _edges(number: int) -> pa.Table:
    """Sixty graphs of twenty layers, of two nodes each, that no epoch has seen."""
    rng = np.random.default_rng(number)
    graph, layer = np.divmod(np.arange(60 * 20), 20)
    base = (number * 60 + graph) * 1000 + layer * 2
    return pa.table(
        {"a": base + rng.integers(0, 2, len(base)), "b": base + 2 + rng.integers(0, 2, len(base))}
    )


def _epochs(sql: str, table: str, rows: Callable[[int], pa.Table]) -> Call:
    """One epoch with new rows of a table."""
    pond = millpond.open("memory://", engine="inline", compact=False, parallelism=1)
    pond.sql(sql)
    count = 0

    def call() -> object:
        nonlocal count
        pond.insert(table, rows(count))
        count += 1
        return pond.drain()

    return call


CASES: Mapping[str, Callable[[], Iterator[Case]]] = {
    "deal": _dealt,
    "narrow": _narrow,
    "join": _join,
    "lookup": _lookups,
    "compare": _comparing,
    "scan": _scans,
    "per-key": _per_key,
    "recursion": _recursion,
}


def choose(text: str) -> list[str]:
    """The groups that a list names; ValueError if there is no such group."""
    names = list(CASES) if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in CASES:
            raise ValueError(f"no thresholds named {name!r}: {', '.join(CASES)}")
    return names


def run(names: Sequence[str], turns: int, console: Console) -> None:
    printed = Printed("threshold", "work", "CPU µs a call")
    figures = []
    for name in names:
        for case in CASES[name]():
            figure = measured(case, turns)
            figures.append(figure)
            shown = ", ".join(f"{label} {us:,.0f}" for label, us in figure.us.items())
            printed.add_row(figure.threshold, figure.about, shown)
    console.print(printed)
    path = report.keep("thresholds", {"thresholds": [asdict(one) for one in figures]})
    console.print(f"written: benchmarks/results/{path.name}")


def measured(case: Case, turns: int) -> Figure:
    """The figure of a case: its values in turns, in the opposite order every other time."""
    seconds: dict[str, list[float]] = {label: [] for label in case.values}
    for turn in range(turns + 1):
        for label in list(case.values)[:: 1 if turn % 2 else -1]:
            with thresholds(case.values[label]):
                took = _cpu(case.call)
            extra = 0.0 if case.extra_s is None else case.extra_s()
            if turn:  # the first one only warms
                seconds[label].append(took + extra)
    return Figure(
        case.threshold,
        case.about,
        {label: round(1e6 * statistics.median(each), 1) for label, each in seconds.items()},
    )


def _cpu(call: Call) -> float:
    """CPU seconds of one call; short ones are repeated, as the clock is coarse."""
    started = time.process_time()
    call()
    once = time.process_time() - started
    if once > 0.02:
        return once
    times = max(1, int(0.02 / max(once, 1e-6)))
    started = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - started) / times


@contextmanager
def thresholds(values: Values) -> Iterator[None]:
    """Use other values of some thresholds inside the block."""
    before = {name: getattr(tuning, name) for name in values}
    for name, value in values.items():
        setattr(tuning, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(tuning, name, value)
