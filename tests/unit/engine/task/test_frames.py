"""Frames: a receiver believes nothing that it cannot prove whole (law 9), and order does not matter (law 3)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from millpond.clock import ManualClock
from millpond.engine.coordinator.coordinator import Coordinator
from millpond.engine.coordinator.policy import Policy
from millpond.engine.coordinator.protocol import ProgramSummary
from millpond.engine.coordinator.runner import Runner
from millpond.engine.coordinator.shell import Shell
from millpond.engine.engine import collect_reports
from millpond.engine.inline import InlineEngine
from millpond.engine.task import frames
from millpond.engine.task.level import run_task
from millpond.engine.task.spec import EpochSpec, Report
from millpond.engine.task.worker import Worker
from millpond.errors import InternalError
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.operators.scan import Scan
from millpond.plan import codec
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan
from millpond.plan.tables import table_specs
from millpond.sources.memory import MemorySource
from millpond.state.store.memory_store import MemoryStore

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
SOURCES = [(0, 0), (0, 1)]


def data(source: int, sequence: int, value: int, *, task: int = 2, edge: int = 0) -> bytes:
    (payload,) = frames.encode_table(pa.table({"v": [value]}))
    return frames.make(frames.DATA, (1, task), (0, source), edge, sequence, *payload)


def header(source: int, sent: list[bytes], *, task: int = 2, attempt: str = "a") -> bytes:
    digest = sum(frames.parse(raw).digest() for raw in sent) & 0xFFFFFFFFFFFFFFFF
    payload = frames.Header(attempt, len(sent), digest, {}).encode()
    return frames.make(frames.HEADER, (1, task), (0, source), 0, 0, payload)


def sent_by(source: int, *values: int) -> list[bytes]:
    made = [data(source, number, value) for number, value in enumerate(values)]
    return [*made, header(source, made)]


def receive(raw: list[bytes]) -> frames.Received:
    return frames.receive(1, 2, iter(raw), SOURCES)


def values(received: frames.Received, edge: int = 0) -> list[int]:
    return [v for table in received.tables.get(edge, []) for v in table.column("v").to_pylist()]


def test_all_that_was_sent_arrives_in_order_whatever_the_shuffle_did() -> None:
    raw = [*sent_by(0, 1, 2, 3), *sent_by(1, 4, 5)]
    for seed in range(20):
        random.Random(seed).shuffle(raw)
        got = receive(raw)
        assert values(got) == [1, 2, 3, 4, 5]
        assert sorted(got.headers) == SOURCES


def test_nothing_sent_is_not_the_same_as_nothing_heard() -> None:
    assert receive([*sent_by(0), *sent_by(1)]).tables == {}
    with pytest.raises(InternalError, match="no header arrived") as caught:
        receive([])
    assert "level 1 task 2 heard nothing from level 0 task 0" in (caught.value.detail or "")


def torn(raw: bytes) -> bytes:
    return raw[: len(raw) - 20]


def flipped(raw: bytes) -> bytes:
    return raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:]


ONE, TWO = sent_by(0, 1, 2), sent_by(1, 3)
BAD: dict[str, tuple[list[bytes], str]] = {
    "missing header": ([*ONE[:-1], *TWO], "no header"),
    "doubled header": ([*ONE, ONE[-1], *TWO], "two headers"),
    "lost frame": ([*ONE[1:], *TWO], "missing or damaged"),
    "doubled frame": ([ONE[0], *ONE, *TWO], "missing or damaged"),
    "frame of another attempt": ([data(0, 0, 9), *ONE[1:], *TWO], "missing or damaged"),
    "torn frame": ([torn(ONE[0]), *ONE[1:], *TWO], "missing or damaged"),
    "flipped frame": ([flipped(ONE[0]), *ONE[1:], *TWO], "missing or damaged"),
    "torn header": ([*ONE[:-1], torn(ONE[-1]), *TWO], "header"),
    "wrong task": ([*ONE, *TWO, data(0, 0, 1, task=3)], "wrong task"),
    "header of a task that is not": ([*ONE, *TWO, header(7, [])], "should not exist"),
    "frame of a task that is not": ([*ONE, *TWO, data(7, 0, 1)], "should not exist"),
    "half a head": ([*ONE, *TWO, b"mp\0"], "too short"),
    "no frame at all": ([*ONE, *TWO, b"x" * 40], "wrong magic"),
    "unknown kind": ([*ONE, *TWO, frames.make(9, (1, 2), (0, 0), 0, 0, b"")], "unknown kind"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_whole_is_refused(name: str) -> None:
    raw, said = BAD[name]
    for seed in range(4):
        shuffled = list(raw)
        random.Random(seed).shuffle(shuffled)
        with pytest.raises(InternalError, match=said):
            receive(shuffled)


def test_frames_for_others_pass_through_unread() -> None:
    far = frames.make(frames.DATA, (2, 0), (0, 0), 1, 0, b"not arrow")
    report = frames.make(frames.REPORT, (3, 0), (0, 1), 0, 0, b"not json")
    got = receive([far, *ONE, report, *TWO])
    assert [f.raw for f in got.passing] == [far, report]


def test_large_tables_are_cut_into_frames() -> None:
    table = pa.table({"v": pa.array([n << 40 for n in range(10_000)], pa.int64())})
    pieces = [
        frames.decode_table(memoryview(b"".join(p))) for p in frames.encode_table(table, max_bytes=10_000)
    ]
    assert len(pieces) == 8
    assert pa.concat_tables(pieces).equals(table)
    assert list(frames.encode_table(table.slice(0, 0))) == []


# -- a whole chain ---------------------------------------------------------------


def plan_with_skip(source: MemorySource, other: MemorySource) -> Plan:
    """other goes from level 0 to level 2, past level 1."""
    builder = Builder()
    left = Stream(builder, builder.add("in", Scan(source, SCHEMA, True), (), "in"))
    right = Stream(builder, builder.add("other", Scan(other, SCHEMA, True), (), "other"))
    counted = left.key_by("v").aggregate(id="a", n="count(*)")
    counted.join(right, [("n", "k")], id="j").view("j")
    return builder.plan


Tamper = Callable[[int, int, int, bytes], list[tuple[int, bytes]]]


class TamperingEngine(InlineEngine):
    """Inline, but what travels between tasks goes through `tamper`."""

    def __init__(self, worker: Worker, tamper: Tamper) -> None:
        super().__init__(worker)
        self.tamper = tamper
        self.runs = 0

    def run(self, spec: EpochSpec) -> list[Report]:
        self.runs += 1
        depth = len(spec.parallelism)
        inboxes: list[list[bytes]] = [[] for _ in range(spec.parallelism[0])]
        for level in range(depth):
            width = 1 if level == depth - 1 else spec.parallelism[level + 1]
            outboxes: list[list[bytes]] = [[] for _ in range(width)]
            for task, incoming in enumerate(inboxes):
                for target, raw in run_task(spec, level, task, iter(incoming), self.worker):
                    for to, frame in self.tamper(self.runs, level, target, raw):
                        outboxes[to].append(frame)
            inboxes = outboxes
        return collect_reports(spec, inboxes[0])


def runner_over(plan: Plan, tamper: Tamper, parallelism: int = 3) -> tuple[Runner, TamperingEngine]:
    worker = Worker(MemoryStore())
    catalog = "catalog/test"
    worker.store.put_new(catalog, codec.dumps(plan))
    worker.know_plan(catalog, plan)
    numbers: Iterator[int] = iter(range(10**9))
    coordinator = Coordinator(
        pond="p",
        program=ProgramSummary(
            catalog, tuple(s for s, n in plan.nodes.items() if isinstance(n.operator, Scan))
        ),
        parallelism=parallelism,
        policy=Policy(),
        ids=lambda: f"{next(numbers):x}",
    )
    engine = TamperingEngine(worker, tamper)
    shell = Shell(worker, engine, plan, cut(plan), catalog, ManualClock(1), checks=True)
    runner = Runner(coordinator, shell)
    runner.boot()
    return runner, engine


def rows_of(runner: Runner, view: str) -> list[dict[str, object]]:
    plan, head = runner.shell.plan, runner.coordinator.head
    assert head is not None
    spec = table_specs(plan)[plan.views[view].table]
    names = plan.shape(plan.views[view].step).schema.names
    return sorted(runner.shell.snapshot(head).scan(spec, names).to_pylist(), key=str)


def feeds() -> tuple[MemorySource, MemorySource]:
    left, right = MemorySource(SCHEMA), MemorySource(SCHEMA)
    left.push(*[[{"k": i, "v": i % 3}] for i in range(9)])
    right.push(*[[{"k": i, "v": 10 * i}] for i in range(5)])
    return left, right


JOINED = [{"v": v, "n": 3, "k": 3, "v_right": 30} for v in range(3)]


def honest(run: int, level: int, target: int, raw: bytes) -> list[tuple[int, bytes]]:
    return [(target, raw)]


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_an_edge_past_a_level_is_relayed(parallelism: int) -> None:
    runner, engine = runner_over(plan_with_skip(*feeds()), honest, parallelism)
    runner.drain()
    assert rows_of(runner, "j") == JOINED
    assert engine.runs == 1


def once(change: Callable[[frames.Frame], list[bytes] | None], kind: int, level: int) -> Tamper:
    """In the first run, the first frame of a kind that leaves a level is changed."""
    done: list[int] = []

    def tamper(run: int, at: int, target: int, raw: bytes) -> list[tuple[int, bytes]]:
        frame = frames.parse(raw)
        if run > 1 or done or at != level or frame.kind != kind:
            return [(target, raw)]
        done.append(1)
        return [(target, other) for other in change(frame) or []]

    return tamper


TAMPERED: dict[str, Tamper] = {
    "lost data": once(lambda f: [], frames.DATA, 0),
    "lost header": once(lambda f: [], frames.HEADER, 0),
    "lost report": once(lambda f: [], frames.REPORT, 1),
    "doubled header": once(lambda f: [f.raw, f.raw], frames.HEADER, 1),
    "doubled report": once(lambda f: [f.raw, f.raw], frames.REPORT, 0),
    "torn data": once(lambda f: [f.raw[:-30]], frames.DATA, 1),
    "torn report": once(lambda f: [f.raw[:-30]], frames.REPORT, 2),
    "report of a task that is not": once(
        lambda f: [f.raw, f.raw.replace(b'"task":0', b'"task":9')], frames.REPORT, 2
    ),
    "flipped report": once(lambda f: [f.raw.replace(b'"task":0', b'"task":1')], frames.REPORT, 2),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_broken_run_is_run_again_and_leaves_no_trace(name: str) -> None:
    runner, engine = runner_over(plan_with_skip(*feeds()), TAMPERED[name])
    runner.drain()
    assert engine.runs == 2
    assert rows_of(runner, "j") == JOINED


def test_an_epoch_of_two_attempts_is_run_again() -> None:
    """A header whose attempt is not the one that reported: Spark can mix stage attempts."""

    def other_attempt(frame: frames.Frame) -> list[bytes]:
        told = frames.Header.decode(frame.payload)
        mixed = frames.Header("other", told.frames, told.digest, told.watermarks)
        to, source = (frame.to_level, frame.to_task), (frame.from_level, frame.from_task)
        return [frames.make(frames.HEADER, to, source, 0, 0, mixed.encode())]

    runner, engine = runner_over(plan_with_skip(*feeds()), once(other_attempt, frames.HEADER, 0))
    runner.drain()
    assert engine.runs == 2
    assert rows_of(runner, "j") == JOINED


def test_a_chain_that_stays_broken_halts_with_what_is_wrong() -> None:
    def never_whole(run: int, level: int, target: int, raw: bytes) -> list[tuple[int, bytes]]:
        return [] if frames.parse(raw).kind == frames.HEADER else [(target, raw)]

    runner, engine = runner_over(plan_with_skip(*feeds()), never_whole)
    with pytest.raises(InternalError, match="no header arrived"):
        runner.drain()
    assert engine.runs == Policy().tries
    head = runner.coordinator.head
    assert head is not None
    assert head.epoch == 0, "nothing may be committed by a run that is not whole"


def test_an_edge_with_two_consumers_is_sent_once() -> None:
    source = MemorySource(SCHEMA)
    source.push([{"k": 1, "v": 2}, {"k": 2, "v": 3}])
    builder = Builder()
    stream = Stream(builder, builder.add("in", Scan(source, SCHEMA, True), (), "in"))
    query = "SELECT k, {}(v) AS v FROM input GROUP BY k"
    stream.key_by("k").apply(sql=query.format("max"), id="p").view("p")
    stream.key_by("k").apply(sql=query.format("min"), id="q").view("q")
    edges = [e for e in cut(builder.plan).edges if e.producer == "in"]
    seen: list[frames.Frame] = []

    def watch(run: int, level: int, target: int, raw: bytes) -> list[tuple[int, bytes]]:
        frame = frames.parse(raw)
        if frame.kind == frames.DATA:
            seen.append(frame)
        return [(target, raw)]

    runner, _ = runner_over(builder.plan, watch, parallelism=1)
    runner.drain()
    assert rows_of(runner, "p") == rows_of(runner, "q") == [{"k": 1, "v": 2}, {"k": 2, "v": 3}]
    assert len(seen) == len(edges)
    assert len(edges) == (2 if edges[0].prepared_by else 1)
