"""The Kafka source passes the conformance suite, with the real broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millpond.sources.kafka import KafkaSource
from millpond.sources.source import Source
from millpond.testing.sources import CHECKS, SourceCase

from .topic import Topic

pytestmark = pytest.mark.e2e


class TopicCase(SourceCase):
    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.rows: list[dict[str, Any]] = []
        self.partitions = 2

    def open(self) -> Source:
        return KafkaSource(self.topic.brokers, self.topic.name, {"n": int, "word": str})

    def add(self, rows: int, partition: int | None = None) -> None:
        made = [{"n": n, "word": f"w{n}"} for n in range(len(self.rows), len(self.rows) + rows)]
        self.rows += made
        for p in range(self.partitions) if partition is None else [partition]:
            mine = [row for row in made if partition is not None or row["n"] % self.partitions == p]
            self.topic.send(mine, p)

    def expected(self) -> list[dict[str, Any]]:
        return self.rows

    def add_bad(self) -> int:
        self.topic.send([b"{", {"n": "text"}, None], 1)
        return 3

    def add_partition(self) -> None:
        self.topic.grow(3)
        self.topic._producer = None  # one that runs does not know the new partition
        self.add(2, 2)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_kafka(check: Callable[[SourceCase], None], make_topic: Any) -> None:
    check(TopicCase(make_topic(2)))
