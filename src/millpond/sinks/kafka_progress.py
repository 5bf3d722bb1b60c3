"""How far a sink has come, as records of a topic in the target cluster.

Law 7: the record of an epoch is in the same transaction as its messages.
The topic has one partition and belongs to one sink, so no transaction of another sink can hide a record: a
reader of committed messages sees nothing after the first message of an open transaction.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from dataclasses import dataclass
from typing import Any

from millpond.errors import DataError, InvalidError
from millpond.sinks.delivery import RefusedRow, SinkBinding
from millpond.sinks.kafka_topics import KNOWN_S, made_topic
from millpond.sources.kafka_client import ANSWER_S, Cluster, admin, library, refused
from millpond.sources.kafka_reader import PartitionReader
from millpond.sources.unavailable import away

REMEMBERED_BYTES = 500_000  # of refused rows, in one record
DECIDED_S = 10.0  # within which the transactions of others end
_NEWEST = 100  # offsets at the end of the topic that are read first
_NAME_MAX = 200
_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "16777216",  # so that old records are removed soon
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}


@dataclass(frozen=True)
class SinkProgress:
    epoch: int  # the last one that the target has; -1 if it has none
    token: int  # of the coordinator that wrote this
    partitions: int  # by which keys are spread, also when the topic has more of them later
    refused: tuple[RefusedRow, ...] = ()  # rows of this epoch

    def record(self) -> bytes:
        """The value of the record; rows that do not fit are not remembered."""
        kept, size = [], 0
        for one in self.refused:
            size += len(one.row) * 4 + len(one.reason) * 4
            if size > REMEMBERED_BYTES:
                break
            kept.append([one.row, one.reason])
        found = {"epoch": self.epoch, "token": self.token, "partitions": self.partitions, "refused": kept}
        return json.dumps(found).encode()


def progress_topic(binding: SinkBinding) -> str:
    """The name of the topic of a sink.

    >>> import pyarrow as pa
    >>> progress_topic(SinkBinding("f00d", "out", 1, "append", "exactly_once", (), pa.schema([])))
    'millpond.progress.f00d.out'
    """
    name = re.sub(r"[^A-Za-z0-9_-]", "_", binding.sink)[: _NAME_MAX - len(binding.pond)]
    if name != binding.sink:  # other sinks may become the same name
        name += "." + hashlib.sha256(binding.sink.encode()).hexdigest()[:12]
    return f"millpond.progress.{binding.pond}.{name}"


def progress_key(binding: SinkBinding) -> bytes:
    return json.dumps([binding.pond, binding.sink]).encode()


def make_progress_topic(cluster: Cluster, topic: str, replicas: int) -> None:
    facts = made_topic(cluster, topic, 1, replicas, **_SETTINGS)
    if facts.partitions != 1 or not facts.compacts:
        policy = "compacted" if facts.compacts else "not compacted, so records may be deleted"
        raise InvalidError(
            f"topic {topic!r} cannot hold the progress of a sink",
            detail=f"it has {facts.partitions} partitions and is {policy}; it needs one, compacted",
            hint="name another progress topic, or let the sink create it",
        )


def peek_progress(cluster: Cluster, topic: str, key: bytes) -> SinkProgress | None:
    """A committed record of a sink; a transaction that is still open may hide newer ones."""
    first, stable, _ = _offsets(cluster, topic)
    return _found(cluster, topic, key, first, stable)


def read_progress(cluster: Cluster, topic: str, key: bytes) -> SinkProgress | None:
    """The newest committed record of a sink; None if there is none.

    Called after `init_transactions`: then no transaction of this sink is open.
    """
    give_up = time.monotonic() + DECIDED_S
    while True:
        first, stable, end = _offsets(cluster, topic)
        if stable >= end:
            return _found(cluster, topic, key, first, stable)
        if time.monotonic() > give_up:
            raise away(
                f"the records of topic {topic!r} are not complete",
                f"a transaction is open at offset {stable} of topic {topic!r} ({cluster.brokers})",
                hint="another sink uses this topic; it ends when its process continues, or by its timeout",
            )
        time.sleep(0.02)


def _found(cluster: Cluster, topic: str, key: bytes, first: int, stable: int) -> SinkProgress | None:
    found = _newest(cluster, topic, key, max(first, stable - _NEWEST), stable)
    if found is None and first < stable - _NEWEST:
        found = _newest(cluster, topic, key, first, stable)
    return None if found is None else _progress(topic, found)


def _newest(cluster: Cluster, topic: str, key: bytes, first: int, last: int) -> bytes | None:
    if first >= last:
        return None
    found: bytes | None = None
    # The last offset is that of a commit, and no message: the reader must not wait for one behind it.
    reader = PartitionReader(Cluster(cluster.brokers, (*cluster.client, ("fetch.wait.max.ms", "5"))))
    try:
        for messages in reader.messages(topic, 0, first, last):
            for message in messages:
                if message.key() == key:
                    found = message.value()
    finally:
        reader.close()
    return found


def _progress(topic: str, value: bytes) -> SinkProgress:
    try:
        found = json.loads(value)
        rows = tuple(RefusedRow(str(row), str(reason)) for row, reason in found["refused"])
        return SinkProgress(int(found["epoch"]), int(found["token"]), int(found["partitions"]), rows)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"topic {topic!r} has a record that is not the progress of a sink", detail=repr(value[:200])
        ) from error


def _offsets(cluster: Cluster, topic: str) -> tuple[int, int, int]:
    """The first offset, the end of the stable messages, and the end of all messages.

    The broker may know a topic that was just created before its partition has a leader.
    """
    kafka, give_up = library(), time.monotonic() + KNOWN_S
    codes = kafka.KafkaError
    while True:
        try:
            return _asked_offsets(cluster, topic)
        except kafka.KafkaException as error:
            early = (codes.NOT_LEADER_FOR_PARTITION, codes.LEADER_NOT_AVAILABLE, codes.UNKNOWN_TOPIC_OR_PART)
            if error.args[0].code() not in early or time.monotonic() > give_up:
                raise refused(cluster, error, topic) from None
        time.sleep(0.02)


def _asked_offsets(cluster: Cluster, topic: str) -> tuple[int, int, int]:
    kafka = library()
    place = kafka.TopicPartition(topic, 0)
    spec, levels = kafka.admin.OffsetSpec, kafka.IsolationLevel

    def asked(which: Any, level: Any) -> int:
        found = admin(cluster).list_offsets({place: which}, isolation_level=level, request_timeout=ANSWER_S)
        return int(found[place].result().offset)

    # The end is asked first: what happens in between can only move the stable end up.
    end = asked(spec.latest(), levels.READ_UNCOMMITTED)
    stable = asked(spec.latest(), levels.READ_COMMITTED)
    first = asked(spec.earliest(), levels.READ_COMMITTED)
    if min(first, stable, end) < 0:
        raise away(
            f"the offsets of topic {topic!r} are not known yet",
            f"topic {topic!r} has no offsets yet ({cluster.brokers})",
        )
    return first, stable, end
