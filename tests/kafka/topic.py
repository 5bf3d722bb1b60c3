"""A topic of the broker that the tests started, and what a producer does to it."""

from __future__ import annotations

import itertools
import json
from typing import Any

import confluent_kafka
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

_numbers = itertools.count()


def _sent(error: Any, message: Any) -> None:
    assert error is None, error


class Topic:
    """One that no other test uses."""

    def __init__(self, brokers: str, name: str, partitions: int, **config: str) -> None:
        self.brokers = brokers
        self.name = name
        self.admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
        self.admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(20)
        self._producer: Any = None

    @property
    def producer(self) -> Any:
        if self._producer is None:
            self._producer = confluent_kafka.Producer(
                {"bootstrap.servers": self.brokers, "linger.ms": 0, "log_level": 0}
            )
        return self._producer

    def send(self, rows: list[Any], partition: int = 0, **more: Any) -> None:
        for row in rows:
            value = row if isinstance(row, bytes) or row is None else json.dumps(row).encode()
            self.producer.produce(self.name, value, partition=partition, on_delivery=_sent, **more)
        assert self.producer.flush(20) == 0

    def transactional(self) -> Any:
        name = f"{self.name}-{next(_numbers)}"
        made = confluent_kafka.Producer(
            {"bootstrap.servers": self.brokers, "transactional.id": name, "log_level": 0}
        )
        made.init_transactions(30)
        return made

    def grow(self, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(self.name, partitions)])[self.name].result(20)

    def delete_before(self, partition: int, offset: int) -> None:
        place = confluent_kafka.TopicPartition(self.name, partition, offset)
        self.admin.delete_records([place])[place].result(20)

    def configure(self, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(20)

    def make_anew(self, partitions: int) -> Topic:
        self.admin.delete_topics([self.name])[self.name].result(20)
        return Topic(self.brokers, self.name, partitions)
