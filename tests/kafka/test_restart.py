"""A broker that is killed and started again, under a pond that runs: it waits, and no message is lost."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import millpond
from benchmarks.broker import Broker, running
from benchmarks.maven import MissingError
from millpond.sources.kafka import KafkaSource

from .topic import Topic

pytestmark = pytest.mark.e2e


@pytest.fixture
def broker() -> Iterator[Broker]:
    """One of our own: others must not meet one that is away."""
    try:
        with running(("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")) as found:
            yield found
    except MissingError as error:
        pytest.skip(str(error))


def until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "took too long"
        time.sleep(0.02)


def test_a_pond_outlives_restarts_of_the_broker(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Topic(broker.address, f"restart{os.getpid()}", 2)
    sent = 0
    with millpond.open(tmp_path / "p", engine="inline", durable=False, poll_ms=10) as pond:
        pond.stream("orders", KafkaSource(broker.address, topic.name, {"n": int})).view("v")
        pond.start()

        def shown() -> int:
            return 0 if pond.status.epoch is None else pond.read("v").num_rows

        def said() -> bool:
            return any("source 'orders' is unavailable" in r.getMessage() for r in caplog.records)

        for _ in range(2):
            topic.send([{"n": n} for n in range(sent, sent + 10)], partition=sent // 10 % 2)
            sent += 10
            until(functools.partial(lambda rows: shown() == rows, sent))
            caplog.clear()
            broker.stop()
            until(said)
            broker.start()
            assert pond.status.state == "running"
        topic.send([{"n": n} for n in range(sent, sent + 10)])
        sent += 10
        until(lambda: shown() == sent)
        assert sorted(pond.read("v").column("n").to_pylist()) == list(range(sent))
