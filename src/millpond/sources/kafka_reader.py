"""Reads exactly a range of offsets of one partition.

Law: a range is complete when a message at or after its end is read, or the end of the partition is reached.
Gaps (transaction markers, aborted messages, compaction) are not messages, and the reader does not wait for
them.  Deleted offsets are an error, never skipped (law 9).

A process reuses its readers: one whose offset is the start of the next range has already fetched its first
messages.  One at another offset would first wait for its last fetch, half a second at the end of a partition;
a new reader is faster.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from millpond.errors import InternalError, MillpondError
from millpond.sources import kafka_client
from millpond.sources.kafka_client import (
    Cluster,
    called,
    deleted,
    error_callback,
    library,
    refused,
    unknown_offset,
)
from millpond.sources.unavailable import away

if TYPE_CHECKING:
    from confluent_kafka import Message

BATCH = 4_000  # messages per batch: larger ones live longer, and cost the garbage collector a quarter more
PATIENCE_S = 30.0  # the longest wait without a message
_SAMPLE = 100
_KEPT = 8  # idle readers of a process
_AHEAD_KB = 16 << 10  # fetched in advance
_FULL_MS = 5  # the pause before it checks again whether there is room

PartitionOffset = tuple[str, int, int]  # topic, partition, offset


class PartitionReader:
    """One connection to a cluster, at some offset of one partition."""

    def __init__(self, cluster: Cluster) -> None:
        kafka = library()
        self.cluster = cluster
        self.place: PartitionOffset | None = None
        self._fetched_ahead: list[Message] = []  # fetched, but after the requested range
        self._end = -1  # an end of the partition that was reached
        settings = cluster.settings(
            **{
                "group.id": "millpond",  # required by the library; no group is joined
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "queued.max.messages.kbytes": _AHEAD_KB,
                # Otherwise the library pauses for a second after it has fetched that much.
                "fetch.queue.backoff.ms": _FULL_MS,
                "error_cb": error_callback(cluster),
            }
        )
        try:
            self._consumer = kafka.Consumer(settings)
        except kafka.KafkaException as error:
            raise refused(cluster, error) from error

    def messages(self, topic: str, partition: int, first: int, last: int) -> Iterator[list[Message]]:
        """The messages with offsets in [first, last), in batches."""
        if self.place is None:
            start = library().TopicPartition(topic, partition, first)
            called(self.cluster, topic, self._consumer.assign, [start])
        elif self.place != (topic, partition, first):
            raise InternalError("a reader was asked for another offset than its own", detail=repr(self.place))
        self.place = None
        at = first
        give_up = time.monotonic() + PATIENCE_S
        while at < last and (self._fetched_ahead or self._end < last):
            found = self._fetched_ahead or self._fetch(topic, partition, at)
            cut = bisect_left(found, last, key=_offset)
            found, self._fetched_ahead = found[:cut], found[cut:]
            if found:
                at = _offset(found[-1]) + 1
                give_up = time.monotonic() + PATIENCE_S
                yield found
            elif self._fetched_ahead:
                break
            elif time.monotonic() > give_up:
                raise away(
                    "the Kafka cluster gives no more messages",
                    f"no message for {PATIENCE_S:.0f} s from topic {topic!r}, partition {partition}, offsets "
                    f"{at} to {last} ({self.cluster.brokers})",
                )
        self.place = topic, partition, last

    def sample(self, topic: str, partition: int, first: int, last: int) -> list[Message]:
        """Some of the first messages of a range, to measure them; none if it has only gaps."""
        for found in self.messages(topic, partition, first, last):
            self._fetched_ahead = found + self._fetched_ahead
            self.place = topic, partition, first
            return found[:_SAMPLE]
        return []

    def _fetch(self, topic: str, partition: int, at: int) -> list[Message]:
        one = called(self.cluster, topic, self._consumer.poll, 1.0)
        if one is None:
            return []
        found = [one, *called(self.cluster, topic, self._consumer.consume, BATCH - 1, 0)]
        failed = [message for message in found if message.error() is not None]
        if not failed:
            return found
        codes = library().KafkaError
        for message in failed:
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
        """The error for an offset that cannot be read: it is deleted, or the broker has just started."""
        place = library().TopicPartition(topic, partition)
        ask = partial(self._consumer.get_watermark_offsets, place, timeout=kafka_client.ANSWER_S)
        found = called(self.cluster, topic, ask)
        low = -1 if found is None else found[0]
        if at < low:
            return deleted(topic, partition, at, low)
        return unknown_offset(self.cluster, topic, partition, low)

    def close(self) -> None:
        self._consumer.close()


def _offset(message: Any) -> int:
    return int(message.offset())


_lock = threading.Lock()
_waiting: list[PartitionReader] = []  # of this process, the one used last at the end
_owner = os.getpid()


@contextlib.contextmanager
def reader(cluster: Cluster, place: PartitionOffset) -> Iterator[PartitionReader]:
    """A reader for one range: an idle one at this offset, or a new one; kept after a complete read."""
    made = _taken(cluster, place) or PartitionReader(cluster)
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


def _taken(cluster: Cluster, place: PartitionOffset) -> PartitionReader | None:
    global _owner
    with _lock:
        if _owner != os.getpid():  # connections do not survive a fork
            _owner = os.getpid()
            _waiting.clear()
        for found in _waiting:
            if found.cluster == cluster and found.place == place:
                _waiting.remove(found)
                return found
    return None
