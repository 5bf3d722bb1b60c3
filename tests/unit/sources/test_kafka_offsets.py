"""Special offsets of librdkafka are no places in a partition: the source waits, and is named."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import millpond
from millpond.errors import DataError, UnavailableError
from millpond.sources import kafka_client
from millpond.sources.kafka import KafkaSource

confluent_kafka = pytest.importorskip("confluent_kafka")

SPECIAL = [-1, -2, -1000, -1001]
TOPIC = "orders"


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


class FakeAdmin:
    """A cluster that knows one topic, and answers with the ends it is given."""

    def __init__(self, *ends: tuple[int, int]) -> None:
        self.ends = dict(enumerate(ends))
        self.id = "id-1"
        self.since: int = -1  # the offset at a time
        self.down: Exception | None = None
        self.asked = 0

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        self.asked += 1
        if self.down is not None:
            return {TOPIC: done(self.down)}
        partitions = [SimpleNamespace(id=p) for p in self.ends]
        return {TOPIC: done(SimpleNamespace(partitions=partitions, topic_id=self.id))}

    def list_offsets(self, asked: dict[Any, Any], **options: Any) -> dict[Any, Future[Any]]:
        found = {}
        for place, spec in asked.items():
            low, high = self.ends[place.partition]
            kind = type(spec).__name__
            at = self.since
            if kind != "TimestampSpec":
                at = low if spec is confluent_kafka.admin.OffsetSpec.earliest() else high
            found[place] = done(SimpleNamespace(offset=at))
        return found

    def poll(self, timeout: float) -> int:
        return 0


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    made = FakeAdmin((0, 5), (0, 7))
    monkeypatch.setattr(kafka_client, "admin", lambda cluster: made)
    return made


def source(start: str = "earliest") -> KafkaSource:
    return KafkaSource("broker1:9092", TOPIC, {"k": int}, start=start)


def position(*reached: int) -> dict[str, Any]:
    return {"topic_id": "id-1", "partitions": {str(p): [0, at] for p, at in enumerate(reached)}}


def test_where_it_was_read_to_the_end(admin: FakeAdmin) -> None:
    assert source().poll(position(5, 7), None, 100).splits == ()


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("end", ["low", "high"])
@pytest.mark.parametrize("at", [None, position(5, 7)])
def test_a_special_offset_is_waited_for(admin: FakeAdmin, special: int, end: str, at: Any) -> None:
    admin.ends[1] = (special, 7) if end == "low" else (0, special)
    with pytest.raises(UnavailableError, match="offsets of topic 'orders' are not known yet"):
        source().poll(at, None, 100)


@pytest.mark.parametrize("special", [-2, -1000, -1001])
def test_a_special_offset_is_no_time(admin: FakeAdmin, special: int) -> None:
    admin.since = special
    with pytest.raises(UnavailableError, match="not known yet"):
        source("2026-05-01 12:00:00").poll(None, None, 100)


def test_nothing_since_a_time_is_the_end(admin: FakeAdmin) -> None:
    begin, *rest = source("2026-05-01 12:00:00").poll(None, None, 100).splits
    assert begin.what["begin"] == {"0": 5, "1": 7}
    assert rest == []


def test_a_broker_that_knows_less_for_a_moment(admin: FakeAdmin) -> None:
    del admin.ends[1]
    with pytest.raises(UnavailableError, match="a partition of topic 'orders' is not known yet"):
        source().poll(position(5, 7), None, 100)
    admin.ends[1] = (0, 7)
    admin.id = kafka_client.NO_ID
    with pytest.raises(UnavailableError, match="the id of topic 'orders' is not known yet"):
        source().poll(position(5, 7), None, 100)


def test_messages_that_are_lost_still_stop_the_pond(admin: FakeAdmin) -> None:
    admin.ends[1] = (0, 6)
    with pytest.raises(DataError, match="has lost messages that were read before"):
        source().poll(position(5, 7), None, 100)


def test_a_pond_goes_on_after_a_restart(
    admin: FakeAdmin, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    admin.ends = {0: (0, 0)}
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        pond.stream("orders_in", source()).view("v")
        pond.drain()
        asked = admin.asked
        admin.ends = {0: (-1001, -1001)}
        answers = iter([-1001, -1, 0])

        def describe(*args: Any, **more: Any) -> Any:
            at = next(answers, 0)
            admin.ends = {0: (at, at)}
            return FakeAdmin.describe_topics(admin, *args, **more)

        admin.describe_topics = describe  # type: ignore[method-assign]
        pond.drain()
        assert admin.asked >= asked + 3
    assert (
        "source 'orders_in' is unavailable: partition 0 of topic 'orders' has no offsets yet" in caplog.text
    )
    assert "trying again" in caplog.text


def test_a_cluster_that_is_away_is_told_with_the_name_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_client, "ANSWER_S", 0.1)
    away = KafkaSource("127.0.0.1:1", TOPIC, {"k": int})
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        pond.stream("orders", away).view("v")
        with pytest.raises(UnavailableError) as caught:
            pond.drain()
        assert caught.value.message == "source 'orders' is unavailable: connection refused (127.0.0.1:1)"


def test_a_secret_that_has_changed_makes_another_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = kafka_client.Cluster("127.0.0.1:1", (("sasl.password", "${env:CHANGED}"),))
    monkeypatch.setenv("CHANGED", "old")
    first = kafka_client.admin(cluster)
    assert kafka_client.admin(cluster) is first
    monkeypatch.setenv("CHANGED", "new")
    assert kafka_client.admin(cluster) is not first
