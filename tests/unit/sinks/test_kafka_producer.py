"""Errors that the Kafka library loses: a SystemError becomes an error of ours, and the client is made anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millpond.errors import ConflictError, MillpondError, UnavailableError
from millpond.sinks.kafka_producer import KafkaProducer, ProducerSettings
from millpond.sources.kafka_client import Cluster
from millpond.sources.kafka_reader import PartitionReader

confluent_kafka = pytest.importorskip("confluent_kafka")

LOST = SystemError(
    "<built-in method flush of cimpl.Producer object> returned NULL without setting an exception"
)
FENCED = confluent_kafka.KafkaError(
    confluent_kafka.KafkaError._FENCED, "Producer was fenced by a newer instance", fatal=True
)
PURGED = confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT, "broker is down")


def with_cause(cause: BaseException) -> SystemError:
    error = SystemError("returned a result with an exception set")
    error.__cause__ = cause
    return error


class FailingClient:
    """A client whose polls and flushes fail as the real one does."""

    failure: BaseException = LOST
    fatal: Any = None  # what ended the producer for good
    delivery: Any = None  # the error of a message

    def __init__(self, settings: dict[str, Any]) -> None:
        self.on_delivery: Callable[..., None] | None = settings.get("on_delivery")

    def _fail(self) -> None:
        if self.delivery is not None and self.on_delivery is not None:
            self.on_delivery(self.delivery, None)
        raise self.failure

    def begin_transaction(self) -> None:
        if self.fatal is not None:
            raise confluent_kafka.KafkaException(self.fatal)
        raise confluent_kafka.KafkaException(
            confluent_kafka.KafkaError(confluent_kafka.KafkaError._STATE, "InTransaction")
        )

    def flush(self, timeout: float) -> int:
        self._fail()
        return 0

    def poll(self, timeout: float) -> None:
        self._fail()

    def abort_transaction(self, timeout: float) -> None:
        self._fail()

    def produce(self, *arguments: Any, **more: Any) -> None:
        pass

    def purge(self) -> None:
        self._fail()

    def assign(self, places: Any) -> None:
        pass

    def close(self) -> None:
        pass


def failed(
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
    *,
    fatal: Any = None,
    delivery: Any = None,
    transactions: bool = True,
) -> MillpondError:
    kind = type("Client", (FailingClient,), {"failure": failure, "fatal": fatal, "delivery": delivery})
    monkeypatch.setattr(confluent_kafka, "Producer", kind)
    made = KafkaProducer(Cluster("b:9092"), ProducerSettings("sink-1" if transactions else None, 1000, 1000))
    with pytest.raises(MillpondError) as caught:
        made.sent()
    with pytest.raises(type(caught.value)):
        made.send("t", [(None, b"x", "id", -1)])
    made.close()
    return caught.value


def test_a_fenced_producer_conflicts_although_the_library_lost_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = failed(monkeypatch, LOST, fatal=FENCED)
    assert isinstance(error, ConflictError)
    assert "fenced by a newer instance" in str(error.detail)


@pytest.mark.parametrize("transactions", [True, False])
def test_a_failed_message_is_the_reason(monkeypatch: pytest.MonkeyPatch, transactions: bool) -> None:
    error = failed(monkeypatch, LOST, delivery=PURGED, transactions=transactions)
    assert isinstance(error, UnavailableError)
    assert "broker is down" in str(error.detail)


def test_without_a_reason_the_client_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    error = failed(monkeypatch, LOST)
    assert isinstance(error, UnavailableError)
    assert "returned NULL" in str(error.detail) and "b:9092" in str(error.detail)


def test_a_cause_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    error = failed(monkeypatch, with_cause(confluent_kafka.KafkaException(FENCED)), delivery=PURGED)
    assert isinstance(error, ConflictError)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (LOST, "returned NULL"),
        (with_cause(confluent_kafka.KafkaException(PURGED)), "broker is down"),
        (confluent_kafka.KafkaException(PURGED), "broker is down"),
    ],
)
def test_a_reader_that_fails_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, failure: BaseException, said: str
) -> None:
    monkeypatch.setattr(confluent_kafka, "Consumer", type("Client", (FailingClient,), {"failure": failure}))
    reader = PartitionReader(Cluster("b:9092"))
    with pytest.raises(UnavailableError) as caught:
        list(reader.messages("t", 0, 0, 10))
    assert said in str(caught.value.detail)
