"""The input of Nexmark in Kafka: a topic for each kind of event, made once for each broker.

Law: the messages of a topic are the rows of the folder, as JSON objects, in two partitions that take turns,
so each partition has its events in order. A topic is complete when it has a message for each row.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from benchmarks import broker, data
from benchmarks.nexmark import events
from benchmarks.nexmark.events import Events
from millpond.sources.kafka_client import Cluster, look
from millpond.sources.nexmark_events import SCHEMAS

PARTITIONS = 2
_ROWS = 100_000  # made at once


@dataclass(frozen=True)
class Topics:
    """Where the events are: topics named after the input and the kind of event."""

    brokers: str
    prefix: str

    def of(self, table: str) -> str:
        return f"{self.prefix}-{table}"


@contextmanager
def cluster(brokers: str | None) -> Iterator[str]:
    """The one that was named, or one that lives as long as the block."""
    if brokers is not None:
        yield brokers
        return
    with broker.running() as found:
        yield found.address


def ensure(wanted: Events, folder: Path, brokers: str) -> Topics:
    """The topics that hold the rows of this folder, made now if they are not there."""
    found = Topics(brokers, wanted.name)
    for table in events.TABLES:
        rows = data.count(folder / table)
        _make(brokers, found.of(table))
        if not _messages(brokers, found.of(table)):
            _send(folder / table, brokers, found.of(table))
        there = _messages(brokers, found.of(table))
        if there != rows:
            raise RuntimeError(f"topic {found.of(table)} has {there} messages of {rows}: delete it")
    return found


def _messages(brokers: str, topic: str) -> int:
    return sum(last - first for first, last in look(Cluster(brokers), topic).ends.values())


def _make(brokers: str, topic: str) -> None:
    """Have the topic, whether it was there before or not."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    config = {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}
    admin = AdminClient({"bootstrap.servers": brokers})
    try:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(30)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return
    time.sleep(1)  # until all of the broker knows


def values(table: str, path: Path) -> Iterator[list[bytes]]:
    """The rows of the files of a table, in order, as JSON."""
    fields = ", ".join(
        f"{field.name} := "
        + (
            f"strftime({field.name}, '%Y-%m-%d %H:%M:%S.%g')"
            if str(field.type).startswith("time")
            else field.name
        )
        for field in SCHEMAS[table]
    )
    connection = duckdb.connect()
    for file in sorted(path.glob("*.parquet")):
        rows = connection.execute(f"SELECT to_json(struct_pack({fields}))::BLOB FROM read_parquet('{file}')")
        while found := rows.fetchmany(_ROWS):
            yield [value for (value,) in found]


def _send(path: Path, brokers: str, topic: str) -> None:
    from confluent_kafka import Producer

    settings = {"linger.ms": 50, "batch.size": 1 << 20, "queue.buffering.max.messages": 4 * _ROWS}
    producer = Producer({"bootstrap.servers": brokers, "acks": "all", "compression.type": "lz4", **settings})
    failed: list[Any] = []

    def told(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    number = 0
    for block in values(path.name, path):
        for value in block:
            producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=told)
            number += 1
        producer.flush()
        if failed:
            raise RuntimeError(f"topic {topic} could not be written: {failed[0]}")
