"""The Kafka sink under kills: a consumer of committed messages sees each change once, and epochs whole (law 7)."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from benchmarks.broker import Broker, running
from benchmarks.maven import MissingError
from millpond.errors import MillpondError
from millpond.sinks import kafka_topics
from millpond.sinks.kafka import KafkaSink
from tests.killed_workers import kill_workers

from .kafka_target import Committed
from .topic import Topic

pytestmark = pytest.mark.e2e

WORKER = """
import random, sys, time
import millpond
from millpond.errors import MillpondError
from millpond.sinks.kafka import KafkaSink

folder, brokers, topic, log, seed = sys.argv[1:]
rng = random.Random(int(seed))
while True:
    try:
        with millpond.open(folder, engine="inline", durable=False, take_over=True) as pond:
            table = pond.table("orders", {"who": int, "n": int})
            totals = table.key_by("who").aggregate(n="sum(n)", c="count(*)").view("totals")
            totals.sink("out", KafkaSink(brokers, topic))
            totals.sink("log", KafkaSink(brokers, log, envelope="debezium"), mode="changelog")
            for _ in range(rng.randint(1, 20)):
                rows = [{"who": rng.randint(0, 9), "n": rng.randint(0, 99)} for _ in range(20)]
                pond.insert("orders", rows)
                pond.drain()
                print("fed", flush=True)
    except MillpondError as error:
        print("lost", type(error).__name__, flush=True)
        time.sleep(0.01)
"""


class Reader(threading.Thread):
    """A consumer that reads while the ponds are killed."""

    def __init__(self, topic: Topic) -> None:
        super().__init__()
        self.messages = Committed(topic.brokers, topic.name, 2)
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.05):
            self.messages.read()

    def close(self) -> list[Any]:
        self.ended.set()
        self.join()
        found = self.messages.read()
        self.messages.close()
        return sorted(found, key=lambda m: (m.partition(), m.offset()))


def _kills(folder: Path, topic: Topic, log: Topic, kills: int, workers: int, seed: int) -> None:
    """Kill workers between random steps; several of them take the pond over from each other all the time."""
    rng = random.Random(seed)
    readers = [Reader(topic), Reader(log)]

    for reader in readers:
        reader.start()
    places = [str(folder / "pond"), topic.brokers, topic.name, log.name]
    kill_workers(WORKER, lambda: [*places, str(rng.randint(0, 999))], kills, workers, rng)
    with millpond.open(folder / "pond", engine="inline", durable=False) as pond:
        pond.drain()
        held = sorted((r["who"], r["n"], r["c"]) for r in pond.read("totals").to_pylist())
    upserts, events = (reader.close() for reader in readers)
    for messages in (upserts, events):
        ids = Counter(dict(m.headers())["millpond-id"] for m in messages)
        assert set(ids.values()) <= {1}, [one for one, n in ids.items() if n > 1][:5]
    newest = {m.key(): m.value() for m in upserts}
    assert sorted(_row(json.loads(v)) for v in newest.values() if v is not None) == held
    assert sorted(_replayed(events)) == held


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["who"], row["n"], row["c"]


def _replayed(messages: list[Any]) -> set[tuple[Any, ...]]:
    """The rows after all events; each event must fit the rows before it."""
    rows: set[tuple[Any, ...]] = set()
    for m in messages:
        if m.value() is None:
            continue
        event = json.loads(m.value())
        if event["before"] is not None:
            rows.remove(_row(event["before"]))
        if event["after"] is not None:
            assert _row(event["after"]) not in rows
            rows.add(_row(event["after"]))
    return rows


def test_kills_between_steps(make_topic: Any, tmp_path: Path) -> None:
    _kills(tmp_path, make_topic(2), make_topic(2), kills=2, workers=2, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_fifty_kills_with_two_coordinators(seed: int, make_topic: Any, tmp_path: Path) -> None:
    _kills(tmp_path, make_topic(2), make_topic(2), kills=50, workers=2, seed=seed)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """One of our own: others must not meet one that is away."""
    try:
        with running(("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")) as found:
            yield found
    except MissingError as error:
        pytest.skip(str(error))


def test_a_restart_of_the_broker(broker: Broker, tmp_path: Path) -> None:
    topic = Topic(broker.address, "restarted", 2)
    with millpond.open(tmp_path / "p", engine="inline", durable=False, poll_ms=10) as pond:
        table = pond.table("t", {"k": int, "n": int})
        totals = table.key_by("k").aggregate(n="sum(n)").view("v")
        totals.sink("out", KafkaSink(topic.brokers, topic.name), mode="changelog")
        pond.start()
        for number in range(2):
            pond.insert("t", [{"k": k, "n": 1} for k in range(10)])
            if number:
                time.sleep(0.3)  # the delivery is on its way
                broker.stop()
                pond.insert("t", [{"k": k, "n": 1} for k in range(10)])
                time.sleep(0.3)
                broker.start()
        pond.flush()
        end = time.monotonic() + 120
        while any(s.state != "current" for s in pond.sinks()):
            assert time.monotonic() < end, pond.sinks()
            time.sleep(0.1)
        held = sorted((r["k"], r["n"]) for r in pond.read("v").to_pylist())
    reader = Committed(topic.brokers, topic.name, 2)
    messages = reader.read()
    reader.close()
    ids = Counter(dict(m.headers())["millpond-id"] for m in messages)
    assert set(ids.values()) == {1}
    rows: Counter[Any] = Counter()
    for m in messages:
        row = json.loads(m.value())
        rows[row["k"], row["n"]] += 1 if row["_op"] in ("insert", "update_after") else -1
    assert sorted(row for row, n in rows.items() if n) == held == [(k, 3) for k in range(10)]


def test_a_broker_that_is_away_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_topics, "ANSWER_S", 0.5)
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        table = pond.table("t", {"k": int, "n": int})
        sink = KafkaSink("127.0.0.1:1", "nowhere")
        table.key_by("k").aggregate(n="sum(n)").view("v").sink("out", sink)
        pond.insert("t", {"k": 1, "n": 1})
        with pytest.raises(MillpondError, match="sink 'out' failed: the Kafka cluster does not answer"):
            pond.drain()
        assert pond.read("v").num_rows == 1
