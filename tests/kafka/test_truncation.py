"""Truncations of Debezium (`op: t`) empty the table, in their place among the changes; messages (`m`) say nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.sources.kafka_changes import KafkaChanges
from tests.registry import Registry

from .topic import Topic

pytestmark = pytest.mark.e2e

TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, city TEXT, n BIGINT) WITH ({}) FORMAT DEBEZIUM ENCODE JSON"
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT city, count(*) AS c, sum(n) AS n FROM t GROUP BY city"
MESSAGE = {"op": "m", "ts_ms": 1, "source": {"db": "x"}, "message": {"prefix": "p", "content": "aGk="}}


def opened(place: Path, **more: Any) -> millpond.Pond:
    return millpond.open(place, engine="inline", parallelism=2, durable=False, checks=True, **more)


def options(topic: Topic) -> str:
    return f"connector = 'kafka', topic = '{topic.name}', brokers = '{topic.brokers}'"


def put(k: int, city: str, n: int) -> dict[str, Any]:
    return {"op": "u", "before": None, "after": {"id": k, "city": city, "n": n}}


TRUNCATE = {"op": "t", "before": None, "after": None, "source": {"table": "t"}, "ts_ms": 1}


def test_a_truncation_retracts_what_was_before_it(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    with opened(tmp_path / "p") as pond:
        pond.sql(f"{TABLE.format(options(topic))}; {VIEW}")
        topic.send([put(1, "a", 1), put(2, "b", 2)])
        pond.drain()
        topic.send([put(3, "a", 5), TRUNCATE, put(2, "b", 7), MESSAGE])  # in one epoch
        pond.drain()
        assert pond.sql("SELECT * FROM t").fetchall() == [(2, "b", 7)]
        assert pond.sql("SELECT * FROM v").fetchall() == [("b", 1, 7)]
        topic.send([TRUNCATE])
        pond.drain()
        assert pond.sql("SELECT * FROM t").fetchall() == pond.sql("SELECT * FROM v").fetchall() == []
        topic.send([TRUNCATE, TRUNCATE, put(2, "c", 1)])
        pond.drain()
        assert pond.sql("SELECT * FROM v").fetchall() == [("c", 1, 1)]
        assert pond.errors().num_rows == 0


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("seed", range(3))
def test_a_table_is_a_dict_over_truncations_and_crashes(
    seed: int, make_topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, chance, left = make_topic(1), random.Random(seed), [0]
    wanted: dict[int, tuple[str, int]] = {}
    real = KafkaChanges._tables

    def fragile(self: KafkaChanges, *args: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise Crash
        return real(self, *args)

    monkeypatch.setattr(KafkaChanges, "_tables", fragile)
    crashes = truncations = 0
    for turn in range(6):
        for _ in range(40):
            k = chance.randrange(12)
            what = chance.random()
            if what < 0.08:
                wanted.clear()
                truncations += 1
                topic.send([TRUNCATE])
            elif what < 0.25:
                wanted.pop(k, None)
                topic.send([{"op": "d", "before": {"id": k}, "after": None}, None])
            elif what < 0.3:
                topic.send([MESSAGE])
            else:
                wanted[k] = chance.choice("abc"), chance.randrange(9)
                topic.send([put(k, *wanted[k])])
        left[0] = 0 if turn == 5 else chance.randrange(2, 7)
        with opened(tmp_path / "p", epoch_rows_max=11) as pond:
            if turn == 0:
                pond.sql(f"{TABLE.format(options(topic))}; {VIEW}")
            try:
                pond.drain()
            except Crash:
                crashes += 1
    with opened(tmp_path / "p") as pond:
        pond.drain()
        assert {k: (city, n) for k, city, n in pond.sql("SELECT * FROM t").fetchall()} == wanted
        cities = {city for city, _ in wanted.values()}
        sums = {c: [n for city, n in wanted.values() if city == c] for c in cities}
        found = {city: (c, n) for city, c, n in pond.sql("SELECT * FROM v").fetchall()}
        assert found == {c: (len(ns), sum(ns)) for c, ns in sums.items()}
        assert pond.errors().num_rows == 0
    assert crashes >= 2 and truncations >= 5


def _with_new_producer(topic: Topic) -> Topic:
    """A producer that knows the new partitions."""
    topic._producer = None
    return topic


def test_a_truncation_among_several_partitions_is_an_error_row(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    with opened(tmp_path / "p") as pond:
        pond.sql(f"{TABLE.format(options(topic))}; {VIEW}")
        topic.send([put(1, "a", 1), TRUNCATE, put(2, "a", 1)])
        pond.drain()
        topic.grow(2)
        topic.send([put(3, "a", 1), TRUNCATE])
        _with_new_producer(topic).send([put(4, "a", 1)], 1)
        pond.drain()
        assert pond.sql("SELECT id FROM t ORDER BY id").fetchall() == [(2,), (3,), (4,)]
        (reason,) = pond.errors()["reason"].to_pylist()
        assert "partition 0, offset 4: a truncation has no order among" in reason


def test_truncations_in_avro(make_topic: Any, tmp_path: Path) -> None:
    registry = Registry()
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
    fields = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
    ]
    number = registry.add({"type": "record", "name": "Envelope", "fields": fields})
    topic = make_topic(1)
    events = [("c", {"id": 1}), ("t", None), ("c", {"id": 2}), ("m", None)]
    topic.send([registry.message(number, {"before": None, "after": row, "op": op}) for op, row in events])
    with opened(tmp_path / "p") as pond:
        pond.sql(
            f"CREATE TABLE t (id BIGINT PRIMARY KEY) WITH ({options(topic)}) "
            f"FORMAT DEBEZIUM ENCODE AVRO (schema.registry = '{registry.url}')"
        )
        pond.drain()
        assert pond.sql("SELECT * FROM t").fetchall() == [(2,)]
        assert pond.errors().num_rows == 0
    registry.close()
