"""Sends messages to Kafka: all of one delivery, in a transaction or not.

Law: when `sent` returns, the brokers have every message; when `commit` returns, readers see all of them.
After any error the producer is closed, and another one is opened: its `init_transactions` ends the
transaction of the old one, whatever became of it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millpond.errors import ConflictError, InvalidError, MillpondError, UnavailableError
from millpond.sources.kafka_client import Cluster, error_callback, gave_up, library, lost_error, refused
from millpond.sources.unavailable import away

ANSWER_S = 30.0  # for the calls of transactions
ID_HEADER = "millpond-id"
CLOSE_S = 5.0
RECORD_BYTES = 1_000_000
QUEUE_KB = 128 << 10  # of messages that wait to be sent
_FULL_S = 0.05

Message = tuple[bytes | None, bytes | None, str, int]  # key, value, identity, partition (-1: by the key)


@dataclass(frozen=True)
class ProducerSettings:
    transactional_id: str | None  # None: no transactions
    timeout_ms: int
    message_bytes_max: int


class KafkaProducer:
    def __init__(self, cluster: Cluster, settings: ProducerSettings) -> None:
        kafka = library()
        self._cluster, self._settings = cluster, settings
        self._failed: Any = None  # the first message that could not be sent
        self._is_open = False  # is there a transaction?
        ours: dict[str, Any] = {
            "enable.idempotence": True,  # sends again without duplicates, and in order
            "partitioner": "murmur2_random",  # as Java's clients do
            "delivery.report.only.error": True,
            "queue.buffering.max.kbytes": QUEUE_KB,
            # Messages are checked before they are sent; that of the progress may be larger than others.
            "message.max.bytes": max(RECORD_BYTES, settings.message_bytes_max),
            "batch.size": max(1, min(RECORD_BYTES, settings.message_bytes_max)),
            "on_delivery": self._on_delivery,
            "error_cb": error_callback(cluster),
        }
        if settings.transactional_id is not None:
            ours["transactional.id"] = settings.transactional_id
            ours["transaction.timeout.ms"] = settings.timeout_ms
        else:
            ours["message.timeout.ms"] = settings.timeout_ms
        try:
            self._producer = kafka.Producer(cluster.settings(**ours))
        except kafka.KafkaException as error:
            raise refused(cluster, error) from None

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None and self._failed is None:
            self._failed = error

    # -- transactions ---------------------------------------------------------

    def init_transactions(self) -> None:
        """Keep out older producers of this transactional id, and end their transactions."""
        self._called(self._producer.init_transactions, ANSWER_S)

    def begin(self) -> None:
        self._called(self._producer.begin_transaction)
        self._is_open = True

    def commit(self) -> None:
        self._called(self._producer.commit_transaction, ANSWER_S)
        self._is_open = False

    def abort(self) -> None:
        """Give the transaction up; the next `init_transactions` does so, too, if this fails."""
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(MillpondError):
                self._called(self._producer.abort_transaction, CLOSE_S)

    # -- messages -------------------------------------------------------------

    def send(self, topic: str, messages: Sequence[Message]) -> None:
        """Queue messages, in their order; waits while the queue is full."""
        produce, header = self._producer.produce, ID_HEADER
        end = time.monotonic() + self._settings.timeout_ms / 1000
        for key, value, identity, partition in messages:
            while True:
                try:
                    produce(topic, value, key, partition, headers=[(header, identity)])
                    break
                except BufferError:
                    self._wait(end)
                except library().KafkaException as error:
                    raise self._error(error.args[0]) from None
        self._called(self._producer.poll, 0)

    def _wait(self, end: float) -> None:
        self._called(self._producer.poll, _FULL_S)
        if self._failed is not None:
            raise self._error(self._failed)
        if time.monotonic() > end:
            raise self._too_slow()

    def sent(self) -> None:
        """Wait until the brokers have all messages."""
        left = self._called(self._producer.flush, self._settings.timeout_ms / 1000)
        if self._failed is not None:
            raise self._error(self._failed)
        if left:
            raise self._too_slow()

    def close(self) -> None:
        self.abort()
        with contextlib.suppress(MillpondError):
            self._called(self._producer.purge)
            self._called(self._producer.flush, 0)  # forgets the purged messages
        del self._producer

    # -- errors ---------------------------------------------------------------

    def _called(self, act: Any, *arguments: Any) -> Any:
        try:
            return act(*arguments)
        except library().KafkaException as error:
            raise self._error(error.args[0]) from None
        except SystemError as error:  # the library raised inside one of its callbacks
            told = lost_error(error) or self._fatal() or self._failed
            if told is None:
                raise gave_up(self._cluster, error) from error
            raise self._error(told) from None

    def _fatal(self) -> Any:
        """The error that ended this producer for good; None if there is none.

        Every call of transactions answers with it; that of `begin` runs no callbacks.
        """
        if self._settings.transactional_id is None:
            return None
        try:
            self._producer.begin_transaction()
        except library().KafkaException as error:
            return error.args[0] if error.args[0].fatal() else None
        return None

    def _too_slow(self) -> MillpondError:
        return away(
            "the Kafka cluster takes messages too slowly",
            f"not all within {self._settings.timeout_ms} ms ({self._cluster.brokers})",
            hint="raise transaction_timeout if deliveries are large",
        )

    def _error(self, error: Any) -> MillpondError:
        codes = library().KafkaError
        name = self._settings.transactional_id
        said = self._cluster.masked(str(error.str()))
        if error.code() in (codes._FENCED, codes.INVALID_PRODUCER_EPOCH, _code("PRODUCER_FENCED")):
            return ConflictError(
                "another process writes for this sink, or the transaction took too long",
                detail=f"transactional.id {name!r}: {said}; the timeout is {self._settings.timeout_ms} ms",
                hint="the delivery is repeated by the process that runs the pond",
            )
        if error.code() == codes.INVALID_TRANSACTION_TIMEOUT:
            return InvalidError(
                "the broker does not allow such long transactions",
                detail=f"the timeout is {self._settings.timeout_ms} ms: {said}",
                hint="lower transaction_timeout, or raise transaction.max.timeout.ms of the broker",
            )
        if error.code() == _code("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            return InvalidError(
                "the user of the sink may not use its transactional.id",
                detail=f"{name!r}: {said}",
                hint="allow it, or use guarantee at_least_once",
            )
        if error.code() == codes.MSG_SIZE_TOO_LARGE:
            return UnavailableError("the limit of a topic for messages has changed", detail=said)
        return refused(self._cluster, library().KafkaException(error))


def _code(name: str) -> int | None:
    found: int | None = getattr(library().KafkaError, name, None)
    return found
