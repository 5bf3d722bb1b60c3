"""Several topics by a pattern, lag by partition, schemas that refer to others, secrets as references."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.sources.kafka import KafkaSource
from millpond.sources.kafka_topics import KafkaTopicsSource
from millpond.sources.source import Source
from millpond.testing.sources import CHECKS, SourceCase
from tests.registry import Registry

from .topic import Topic

pytestmark = pytest.mark.e2e


class TopicsCase(SourceCase):
    """Rows alternate between two topics."""

    def __init__(self, brokers: str, name: str) -> None:
        self.name, self.topics = name, [Topic(brokers, f"{name}.{n}", 1) for n in range(2)]
        self.brokers = brokers
        self.rows: list[dict[str, Any]] = []

    def open(self) -> Source:
        source = KafkaSource(self.brokers, "any", {"n": int, "word": str})
        return KafkaTopicsSource(source, f"{self.name}[.].*")

    def add(self, rows: int, partition: int | None = None) -> None:
        made = [{"n": n, "word": f"w{n}"} for n in range(len(self.rows), len(self.rows) + rows)]
        self.rows += made
        for number, topic in enumerate(self.topics):
            topic.send([row for row in made if row["n"] % len(self.topics) == number])

    def expected(self) -> list[dict[str, Any]]:
        return self.rows

    def add_bad(self) -> int:
        self.topics[1].send([b"{", {"n": "text"}, None])
        return 3

    def add_partition(self) -> None:
        self.topics.append(Topic(self.brokers, f"{self.name}.{len(self.topics)}", 1))
        self.add(4)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_topics_conform(check: Callable[[SourceCase], None], brokers: str) -> None:
    check(TopicsCase(brokers, f"many{os.getpid()}-{time.time_ns()}"))


def opened(place: Path) -> millpond.Pond:
    return millpond.open(place, engine="inline", parallelism=2, durable=False, checks=True)


def test_topics_come_and_go(brokers: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    name = f"shop{os.getpid()}-{time.time_ns()}"
    with opened(tmp_path) as pond:
        pond.sql(
            "CREATE SOURCE s (n BIGINT, kafka_topic VARCHAR) WITH (connector = 'kafka', brokers = ?, topic.pattern = ?,"
            " start = 'latest'); CREATE MATERIALIZED VIEW v AS SELECT * FROM s",
            params=[brokers, f"{name}[.](a|b|c)"],
        )
        pond.drain()
        made = {
            x: Topic(brokers, f"{name}.{x}", 2) for x in "abx"
        }  # after the start: read from the beginning
        for n, topic in enumerate(made.values()):
            topic.send([{"n": 10 * n}], 0)
            topic.send([{"n": 10 * n + 1}], 1)
        pond.drain()
        found = sorted(pond.sql("SELECT n FROM v").fetchall())
        assert found == [(0,), (1,), (10,), (11,)]
        made["a"].admin.delete_topics([made["a"].name])[made["a"].name].result(20)
        made["b"].send([{"n": 12}], 0)
        until(lambda: made["a"].name not in made["a"].admin.list_topics(timeout=5).topics)
        pond.drain()
        assert sorted(pond.sql("SELECT n FROM v").fetchall()) == [*found, (12,)]
        assert any("was deleted, and is no longer read" in r.getMessage() for r in caplog.records)
        rows = pond.sql("SHOW LAG").fetchall()
        assert [(row[1], row[2], row[3], row[4]) for row in rows] == [
            (f"{name}.b/0", 2, 2, 0),
            (f"{name}.b/1", 1, 1, 0),
        ]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_view_that_is_added_later_reads_all_topics_again(brokers: str, tmp_path: Path) -> None:
    name = f"again{os.getpid()}-{time.time_ns()}"
    for n in range(3):
        Topic(brokers, f"{name}.{n}", 1).send([{"n": n}, {"n": n}])
    with opened(tmp_path) as pond:
        pond.sql(
            "CREATE SOURCE s (n BIGINT) WITH (connector = 'kafka', brokers = ?, topic.pattern = ?);"
            "CREATE MATERIALIZED VIEW v AS SELECT * FROM s",
            params=[brokers, f"{name}[.].*"],
        )
        pond.drain()
        pond.sql("CREATE MATERIALIZED VIEW w AS SELECT n, count(*) AS c FROM s GROUP BY n")
        pond.drain()
        assert sorted(pond.sql("SELECT * FROM w").fetchall()) == [(0, 2), (1, 2), (2, 2)]


def test_lag_by_partition(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    with opened(tmp_path) as pond:
        pond.stream("s", KafkaSource(topic.brokers, topic.name, {"n": int})).view("v")
        topic.send([{"n": 1}, {"n": 2}], 1)
        assert pond.source_lag().column("lag").to_pylist() == [0, 2]
        pond.drain()
        topic.send([{"n": 3}], 1)
        assert pond.source_lag().to_pylist() == [
            {"source": "s", "partition": "0", "position": 0, "end": 0, "lag": 0},
            {"source": "s", "partition": "1", "position": 2, "end": 3, "lag": 1},
        ]


@pytest.fixture
def registry() -> Iterator[Registry]:
    found = Registry()
    yield found
    found.close()


def test_a_schema_that_refers_to_others(make_topic: Any, registry: Registry, tmp_path: Path) -> None:
    money = registry.add(
        {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    )
    registry.subjects["money"] = [money]
    line = {"type": "record", "name": "shop.Line", "fields": [{"name": "price", "type": "Money"}]}
    lines = registry.add(line)
    registry.subjects["line"] = [lines]
    registry.references[lines] = [{"name": "shop.Money", "subject": "money", "version": 1}]
    fields = [
        {"name": "id", "type": "long"},
        {"name": "line", "type": "shop.Line"},
        {"name": "tip", "type": "Money"},
    ]
    bid = registry.add({"type": "record", "name": "Bid", "namespace": "shop", "fields": fields})
    registry.references[bid] = [
        {"name": "shop.Line", "subject": "line", "version": 1},
        {"name": "shop.Money", "subject": "money", "version": 1},
    ]
    topic = make_topic(1)
    # By hand: id 3, price 300, tip 5.
    topic.send([b"\0" + bid.to_bytes(4, "big") + bytes([6, 0xD8, 4, 10])])
    with opened(tmp_path) as pond:
        pond.sql(
            "CREATE SOURCE s (id BIGINT, line STRUCT(price STRUCT(cents BIGINT)), tip STRUCT(cents BIGINT))"
            f" WITH (connector = 'kafka', brokers = '{topic.brokers}', topic = '{topic.name}')"
            f" FORMAT PLAIN ENCODE AVRO (schema.registry = '{registry.url}');"
            "CREATE MATERIALIZED VIEW v AS SELECT id, line, tip FROM s"
        )
        pond.drain()
        assert pond.errors().to_pylist() == []
        assert pond.sql("SELECT * FROM v").fetchall() == [(3, {"price": {"cents": 300}}, {"cents": 5})]


def test_secrets_of_a_source_are_references(
    make_topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(1)
    topic.send([{"n": 1}])
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    with opened(tmp_path) as pond:
        source = KafkaSource(
            topic.brokers, topic.name, {"n": int}, client={"sasl.password": "${env:KAFKA_PASSWORD}"}
        )
        pond.stream("s", source).view("v")
        pond.drain()
        assert pond.read("v").num_rows == 1
    stored = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"hunter2" not in stored and b"${env:KAFKA_PASSWORD}" in stored


def test_lag_of_a_source_with_a_secret_of_the_pond(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    topic.send([{"n": 1}])
    with opened(tmp_path) as pond:
        pond.sql("CREATE SECRET word WITH (value = 'hunter2')")
        pond.sql(
            f"CREATE SOURCE s (n BIGINT) WITH (connector = 'kafka', brokers = '{topic.brokers}',"
            f" topic = '{topic.name}', client.sasl.password = '${{secret:word}}');"
            "CREATE MATERIALIZED VIEW v AS SELECT * FROM s"
        )
        pond.drain()
    with opened(tmp_path) as pond:  # one that does not run
        assert pond.source_lag().column("lag").to_pylist() == [0]


def test_patterns_that_cannot_be(tmp_path: Path, brokers: str) -> None:
    said = "CREATE SOURCE s (n BIGINT) WITH (connector = 'kafka', brokers = '{}', topic.pattern = '{}'{})"
    with opened(tmp_path) as pond:
        for pattern, more, message in (
            ("(", "", "not a pattern"),
            ("a", ", topic = 'b'", "leave one of them out"),
        ):
            with pytest.raises(InvalidError, match=message):
                pond.sql(said.format(brokers, pattern, more))
