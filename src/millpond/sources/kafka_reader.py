"""Reading a range of offsets of one partition, exactly.

Law: a range is read when a message at or behind its end is met, or the end of the partition is; gaps
(markers of transactions, aborted messages, compaction) are no messages, and nobody waits for them.
Offsets that are gone are an error, never skipped (law 9).

A process keeps its readers: one that stands where the next range begins has its
first messages already.  One that stands elsewhere would first wait for what it
asked for last, half a second at the end of a partition; a new one is faster.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millpond.errors import InternalError, MillpondError
from millpond.sources import kafka_client
from millpond.sources.kafka_client import Cluster, deleted, heard, library, refused, unknown_offset
from millpond.sources.unavailable import away

if TYPE_CHECKING:
    from confluent_kafka import Message

BATCH = (
    4_000  # messages handed on at once: more of them grow old, and cost the garbage collector a quarter more
)
PATIENCE_S = 30.0  # without a message
_SAMPLE = 100
_KEPT = 8  # readers of a process that wait for more
_AHEAD_KB = 16 << 10  # what a reader fetches before it is asked to
_FULL_MS = 5  # and how soon it looks again whether that was taken

Place = tuple[str, int, int]  # topic, partition, offset


class Reader:
    """One connection to a cluster, which stands somewhere in one partition."""

    def __init__(self, cluster: Cluster) -> None:
        kafka = library()
        self.cluster = cluster
        self.place: Place | None = None
        self._held: list[Message] = []  # fetched, and behind the range that was asked for
        self._end = -1  # an end of the partition that was met
        settings = cluster.settings(
            **{
                "group.id": "millpond",  # the library wants one; nothing joins it
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "queued.max.messages.kbytes": _AHEAD_KB,
                # Having fetched that much, it would otherwise rest for a second although we took it at once.
                "fetch.queue.backoff.ms": _FULL_MS,
                "error_cb": heard(cluster),
            }
        )
        try:
            self._consumer = kafka.Consumer(settings)
        except kafka.KafkaException as error:
            raise refused(cluster, error) from error

    def messages(self, topic: str, partition: int, first: int, last: int) -> Iterator[list[Message]]:
        """The messages with offsets in [first, last), some at a time."""
        if self.place is None:
            self._consumer.assign([library().TopicPartition(topic, partition, first)])
        elif self.place != (topic, partition, first):
            raise InternalError("a reader is used elsewhere than where it stands", detail=repr(self.place))
        self.place = None
        at = first
        give_up = time.monotonic() + PATIENCE_S
        while at < last and (self._held or self._end < last):
            found = self._held or self._fetch(topic, partition, at)
            cut = bisect_left(found, last, key=_offset)
            found, self._held = found[:cut], found[cut:]
            if found:
                at = _offset(found[-1]) + 1
                give_up = time.monotonic() + PATIENCE_S
                yield found
            elif self._held:
                break
            elif time.monotonic() > give_up:
                raise away(
                    "the Kafka cluster gives no more messages",
                    f"no message for {PATIENCE_S:.0f} s from topic {topic!r}, partition {partition}, offsets "
                    f"{at} to {last} ({self.cluster.brokers})",
                )
        self.place = topic, partition, last

    def sample(self, topic: str, partition: int, first: int, last: int) -> list[Message]:
        """Some of the first messages of a range, none where it has only gaps; they are read again."""
        for found in self.messages(topic, partition, first, last):
            self._held = found + self._held
            self.place = topic, partition, first
            return found[:_SAMPLE]
        return []

    def _fetch(self, topic: str, partition: int, at: int) -> list[Message]:
        one = self._consumer.poll(1.0)
        if one is None:
            return []
        found = [one, *self._consumer.consume(BATCH - 1, 0)]
        told = [message for message in found if message.error() is not None]
        if not told:
            return found
        codes = library().KafkaError
        for message in told:
            error = message.error()
            code = error.code()
            if code == codes._PARTITION_EOF:  # a special offset is negative, and no end
                self._end = max(self._end, _offset(message))
            elif code in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
                raise self._gone(topic, partition, at)
            elif not (error.retriable() or code in (codes._TRANSPORT, codes._ALL_BROKERS_DOWN)):
                raise refused(self.cluster, library().KafkaException(error), topic)
        return [message for message in found if message.error() is None]

    def _gone(self, topic: str, partition: int, at: int) -> MillpondError:
        """Why an offset cannot be read: deleted, or not known to a broker that has just started."""
        kafka = library()
        place = kafka.TopicPartition(topic, partition)
        try:
            found = self._consumer.get_watermark_offsets(place, timeout=kafka_client.ANSWER_S)
        except kafka.KafkaException as error:
            return refused(self.cluster, error, topic)
        low = -1 if found is None else found[0]
        if at < low:
            return deleted(topic, partition, at, low)
        return unknown_offset(self.cluster, topic, partition, low)

    def close(self) -> None:
        self._consumer.close()


def _offset(message: Any) -> int:
    return int(message.offset())


_lock = threading.Lock()
_waiting: list[Reader] = []  # of this process, the one used last at the end
_owner = os.getpid()


@contextlib.contextmanager
def reader(cluster: Cluster, place: Place) -> Iterator[Reader]:
    """A reader for one range, which stands there already if one does; kept when the range was read whole."""
    made = _taken(cluster, place) or Reader(cluster)
    try:
        yield made
    except BaseException:
        made.close()
        raise
    with _lock:
        _waiting.append(made)
        over = [_waiting.pop(0) for _ in range(len(_waiting) - _KEPT)]
    for old in over:
        old.close()


def _taken(cluster: Cluster, place: Place) -> Reader | None:
    global _owner
    with _lock:
        if _owner != os.getpid():  # a fork has none of its parent's connections
            _owner = os.getpid()
            _waiting.clear()
        for found in _waiting:
            if found.cluster == cluster and found.place == place:
                _waiting.remove(found)
                return found
    return None
