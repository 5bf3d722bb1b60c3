"""The sink for Kafka, with a real broker (law 7)."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

import millpond
from millpond.errors import ConflictError, InvalidError, MillpondError
from millpond.pond import Pond
from millpond.sinks import kafka_progress
from millpond.sinks.delivery import Delivery, EpochDelta, SinkBinding
from millpond.sinks.kafka import KafkaSink
from millpond.sinks.kafka_producer import KafkaProducer
from millpond.testing.sinks import CHECKS, run_check
from tests.registry import Registry

from .kafka_target import Committed, KafkaTarget
from .topic import Topic

pytestmark = pytest.mark.e2e


def opened(folder: Path, **options: Any) -> Pond:
    return millpond.open(folder, engine="inline", durable=False, **options)


@pytest.fixture
def target(brokers: str) -> Iterator[Callable[..., KafkaTarget]]:
    made: list[KafkaTarget] = []

    def make(*modes: Any, **settings: Any) -> KafkaTarget:
        made.append(KafkaTarget(brokers, modes, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("check", [check for check in CHECKS if check != "whole epochs"])
def test_conforms(check: str, target: Any) -> None:
    run_check(check, target(*(("upsert",) if check == "crashes" else ("upsert", "append", "changelog"))))


def test_epochs_are_whole_in_a_partition(target: Any) -> None:
    run_check("whole epochs", target("upsert", partitions=1, patience_s=0.2))


@pytest.mark.slow
def test_conforms_in_other_modes(target: Any) -> None:
    run_check("crashes", target("append", "changelog"))
    run_check("whole epochs", target("append", "changelog", partitions=1, patience_s=0.2))


def some(*checks: str, slow: tuple[str, ...] = ()) -> list[Any]:
    return [*checks, *(pytest.param(check, marks=pytest.mark.slow) for check in slow)]


@pytest.mark.parametrize("check", some("adds up", "refused rows", "every type", slow=("repeats", "rollback")))
def test_debezium_conforms(check: str, target: Any) -> None:
    run_check(check, target("changelog", envelope="debezium"))


@pytest.mark.parametrize("check", some("adds up", "every type", slow=("refused rows",)))
def test_avro_conforms(check: str, target: Any) -> None:
    run_check(check, target("upsert", "append", "changelog", format="avro"))
    run_check(check, target("changelog", format="avro", envelope="debezium"))


@pytest.mark.parametrize("check", some("adds up", slow=("refused rows",)))
def test_protobuf_conforms(check: str, target: Any) -> None:
    run_check(check, target("upsert", "append", "changelog", format="protobuf"))


# -- views ----------------------------------------------------------------------


def seen(topic: Topic) -> list[Any]:
    reader = Committed(topic.brokers, topic.name, 2)
    try:
        return sorted(reader.read(), key=lambda m: (m.partition(), m.offset()))
    finally:
        reader.close()


def latest(topic: Topic) -> dict[str, Any]:
    newest = {m.key().decode(): m.value() for m in seen(topic)}
    return {key: json.loads(value) for key, value in newest.items() if value is not None}


def test_a_view_is_a_compacted_topic(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    with opened(tmp_path) as pond:
        table = pond.table("orders", {"who": str, "n": int})
        totals = table.key_by("who").aggregate(n="sum(n)", c="count(*)").view("totals")
        totals.sink("out", KafkaSink(topic.brokers, topic.name))
        pond.insert("orders", [{"who": "ann", "n": 1}, {"who": None, "n": 2}])
        pond.drain()
        before = pond.head().epoch
        pond.insert("orders", [{"who": "ann", "n": 5}, {"who": "bob", "n": 1}])
        pond.drain()
        assert latest(topic) == {
            '{"who":"ann"}': {"who": "ann", "n": 6, "c": 2},
            '{"who":null}': {"who": None, "n": 2, "c": 1},
            '{"who":"bob"}': {"who": "bob", "n": 1, "c": 1},
        }
        pond.rollback(before)
        pond.drain()
        assert sorted(latest(topic)) == ['{"who":"ann"}', '{"who":null}']
        tombstones = [m for m in seen(topic) if m.value() is None]
        assert [m.key() for m in tombstones] == [b'{"who":"bob"}']
        ids = Counter(dict(m.headers())["millpond-id"] for m in seen(topic))
        assert set(ids.values()) == {1}
        pond_id = pond.head().pond
        assert all(one.decode().startswith(f"{pond_id}:") for one in ids)


def test_keys_are_in_the_partition_of_java_clients(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (k text PRIMARY KEY, n int)")
        pond.sql(
            "CREATE SINK out FROM t WITH (connector = 'kafka', properties.bootstrap.server = ?, topic = ?)"
            " FORMAT UPSERT ENCODE JSON KEY ENCODE TEXT",
            params=[topic.brokers, topic.name],
        )
        pond.sql("INSERT INTO t SELECT 'key' || i, i FROM range(50) r(i)")
        pond.drain()
    theirs = make_topic(2)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": topic.brokers, "partitioner": "murmur2_random", "log_level": 0}
    )
    for n in range(50):
        producer.produce(theirs.name, b"", f"key{n}")
    producer.flush(20)
    assert {m.key(): m.partition() for m in seen(topic)} == {m.key(): m.partition() for m in seen(theirs)}


def test_keys_stay_in_their_partition_when_the_topic_gets_more(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    for more in (0, 1):
        with opened(tmp_path) as pond:
            table = pond.table("t", {"k": int, "n": int})
            table.key_by("k").aggregate(n="sum(n)").view("v").sink(
                "out", KafkaSink(topic.brokers, topic.name)
            )
            pond.insert("t", [{"k": k, "n": 1} for k in range(20)])
            pond.drain()
        if not more:
            topic.grow(5)
    reader = Committed(topic.brokers, topic.name, 5)
    places = {(m.key(), m.partition()) for m in reader.read()}
    reader.close()
    assert len(places) == 20
    assert {p for _, p in places} <= {0, 1}


def test_a_topic_that_is_missing_is_created(brokers: str, tmp_path: Path) -> None:
    name = f"made-{tmp_path.name}-{time.time_ns()}"
    with opened(tmp_path) as pond:
        table = pond.table("t", {"k": int, "n": int})
        sink = KafkaSink(brokers, name, partitions=2)
        table.key_by("k").aggregate(n="sum(n)").view("v").sink("out", sink)
        pond.insert("t", {"k": 1, "n": 1})
        pond.drain()
    reader = Committed(brokers, name, 2)
    assert len(reader.read()) == 1
    reader.close()


def test_rows_that_are_too_large_are_error_rows(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(2, **{"max.message.bytes": "5000"})
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (k int PRIMARY KEY, s text)")
        pond.sql(
            "CREATE SINK out FROM t WITH (connector = 'kafka', brokers = ?, topic = ?) FORMAT UPSERT ENCODE JSON",
            params=[topic.brokers, topic.name],
        )
        pond.sql("INSERT INTO t SELECT i, 'small' FROM range(10) r(i)")
        pond.drain()
        pond.sql("UPDATE t SET s = repeat('x', 10000) WHERE k = 3")
        pond.sql("INSERT INTO t VALUES (10, 'last')")
        pond.drain()
        held = latest(topic)
        assert sorted(row["k"] for row in held.values()) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]
        (error,) = pond.errors().to_pylist()
        assert error["step"] == "out" and "too large" in error["reason"] and '"k": 3' in error["row"]
        pond.sql("UPDATE t SET s = 'small again' WHERE k = 3")
        pond.drain()
        assert latest(topic)['{"k":3}'] == {"k": 3, "s": "small again"}


def test_a_limit_that_is_lowered_while_the_sink_is_open(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (k int PRIMARY KEY, s text)")
        pond.sql(
            "CREATE SINK out FROM t WITH (connector = 'kafka', brokers = ?, topic = ?) FORMAT UPSERT ENCODE JSON",
            params=[topic.brokers, topic.name],
        )
        pond.sql("INSERT INTO t VALUES (1, 'a')")
        pond.drain()
        topic.configure("max.message.bytes", "2000")
        pond.sql(
            "INSERT INTO t SELECT i, 'b' FROM range(2, 200) r(i); INSERT INTO t VALUES (999, repeat('x', 5000))"
        )
        drained(pond)
        assert len(latest(topic)) == 199
        assert [row["step"] for row in pond.errors().to_pylist()] == ["out"]


def drained(pond: Pond, tries: int = 30) -> None:
    """Drain a pond whose sinks fail for a while."""
    for _ in range(tries):
        try:
            pond.drain()
        except MillpondError:
            time.sleep(0.1)
            continue
        return
    pond.drain()


# -- changelogs -----------------------------------------------------------------


def test_events_of_debezium(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (k int PRIMARY KEY, v text)")
        pond.sql(
            "CREATE SINK out FROM t WITH (connector = 'kafka', brokers = ?, topic = ?) FORMAT DEBEZIUM ENCODE JSON",
            params=[topic.brokers, topic.name],
        )
        for text in ("INSERT INTO t VALUES (1, 'a')", "UPDATE t SET v = 'b'", "DELETE FROM t"):
            pond.sql(text)
            pond.drain()
    messages = seen(topic)
    found = [None if m.value() is None else json.loads(m.value()) for m in messages]
    assert [None if e is None else (e["op"], e["before"], e["after"]) for e in found] == [
        ("c", None, {"k": 1, "v": "a"}),
        ("u", {"k": 1, "v": "a"}, {"k": 1, "v": "b"}),
        ("d", {"k": 1, "v": "b"}, None),
        None,
    ]
    assert {m.key() for m in messages} == {b'{"k":1}'}
    assert found[0]["source"]["connector"] == "millpond"


def test_a_changelog_without_a_key_keeps_a_row_and_its_retraction_in_order(
    make_topic: Any, tmp_path: Path
) -> None:
    topic = make_topic(2)
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (k int, x double)")
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT k, x FROM t")
        pond.sql(
            "CREATE SINK out FROM v WITH (connector = 'kafka', brokers = ?, topic = ?, mode = 'changelog')",
            params=[topic.brokers, topic.name],
        )
        pond.sql("INSERT INTO t SELECT i % 5, -0.0 FROM range(20) r(i)")
        pond.drain()
        pond.sql("DELETE FROM t WHERE k < 3")
        pond.drain()
    signs = {"insert": 1, "delete": -1}
    held: Counter[Any] = Counter()
    for m in seen(topic):
        row = json.loads(m.value())
        held[m.partition(), row["k"]] += signs[row["_op"]]
        assert held[m.partition(), row["k"]] >= 0
    assert {k: n for (_, k), n in held.items() if n} == {3: 4, 4: 4}


# -- coordinators ---------------------------------------------------------------


def delivery(token: int, epoch: int, name: str = "out", guarantee: Any = "exactly_once") -> Delivery:
    delta = pa.table({"k": [epoch], "_w": [1]})
    binding = SinkBinding(f"pond{name}", name, token, "append", guarantee, (), pa.schema([("k", pa.int64())]))
    return Delivery(binding, epoch, epoch - 1, (EpochDelta(epoch, delta),))


def test_a_zombie_is_fenced_and_cannot_come_back(make_topic: Any) -> None:
    topic = make_topic(2)
    sink = KafkaSink(topic.brokers, topic.name)
    name = topic.name
    old = sink.open(delivery(1, 1, name).binding)
    old.write(delivery(1, 1, name))
    new = sink.open(delivery(2, 2, name).binding)
    with pytest.raises(ConflictError, match="another process writes for this sink"):
        old.write(delivery(1, 2, name))
    old.close()
    with pytest.raises(ConflictError, match="belongs to another coordinator"):
        sink.open(delivery(1, 2, name).binding)
    new.write(delivery(2, 2, name))  # the zombie that came back has not fenced it
    new.write(delivery(2, 1, name))  # an old epoch
    new.close()
    assert sorted(json.loads(m.value())["k"] for m in seen(topic)) == [1, 2]


def test_progress_is_read_after_the_old_process_is_fenced(
    make_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old process commits at the last moment before it is fenced."""
    topic = make_topic(2)
    name = topic.name
    sink = KafkaSink(topic.brokers, name)
    old = sink.open(delivery(1, 1, name).binding)
    fence = KafkaProducer.init_transactions

    def at_the_last_moment(self: KafkaProducer) -> None:
        old.write(delivery(1, 1, name))
        fence(self)

    monkeypatch.setattr(KafkaProducer, "init_transactions", at_the_last_moment)
    new = sink.open(delivery(2, 1, name).binding)
    new.write(delivery(2, 1, name))
    new.close()
    old.close()
    assert len(seen(topic)) == 1


def test_a_transaction_that_takes_too_long_is_repeated(
    make_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(2)
    name = topic.name
    sink = KafkaSink(topic.brokers, name, transaction_timeout="1s")
    writer = sink.open(delivery(1, 1, name).binding)
    sent = KafkaProducer.sent

    def slowly(self: KafkaProducer) -> None:
        sent(self)
        reader = Committed(topic.brokers, name, 2, patience_s=30)  # waits until the broker has ended it
        assert reader.read() == []
        reader.close()

    monkeypatch.setattr(KafkaProducer, "sent", slowly)
    with pytest.raises(MillpondError):
        writer.write(delivery(1, 1, name))
    writer.close()
    monkeypatch.undo()
    assert seen(topic) == []
    writer = sink.open(delivery(1, 1, name).binding)
    writer.write(delivery(1, 1, name))
    writer.close()
    assert len(seen(topic)) == 1


def test_a_commit_whose_answer_is_lost_is_not_repeated(
    make_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(2)
    name = topic.name
    sink = KafkaSink(topic.brokers, name)
    writer = sink.open(delivery(1, 1, name).binding)
    commit = KafkaProducer.commit

    def lost(self: KafkaProducer) -> None:
        commit(self)
        raise MillpondError("the answer is lost")

    monkeypatch.setattr(KafkaProducer, "commit", lost)
    with pytest.raises(MillpondError, match="lost"):
        writer.write(delivery(1, 1, name))
    writer.close()
    monkeypatch.undo()
    writer = sink.open(delivery(1, 1, name).binding)
    writer.write(delivery(1, 1, name))
    writer.write(delivery(1, 2, name))
    writer.close()
    assert len(seen(topic)) == 2


def test_epochs_that_are_gathered_in_another_way_come_once(make_topic: Any) -> None:
    """The target has epoch 2 when a delivery of the epochs 1 to 3 comes."""
    topic = make_topic(2)
    name = topic.name
    writer = KafkaSink(topic.brokers, name).open(delivery(1, 1, name).binding)
    for epoch in (1, 2):
        writer.write(delivery(1, epoch, name))
    gathered = replace(
        delivery(1, 3, name), after=0, parts=tuple(delivery(1, epoch, name).parts[0] for epoch in (1, 2, 3))
    )
    writer.write(gathered)
    writer.close()
    assert sorted(json.loads(m.value())["k"] for m in seen(topic)) == [1, 2, 3]


def test_added_columns_are_a_new_schema(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    registry = Registry()
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (k int PRIMARY KEY, v text)")
        for sink, encode in (("a", "AVRO"), ("p", "PROTOBUF")):
            pond.sql(
                f"CREATE SINK {sink} FROM t WITH (connector = 'kafka', brokers = ?, topic = ?)"
                f" FORMAT UPSERT ENCODE {encode} (schema.registry = ?)",
                params=[topic.brokers, f"{topic.name}{sink}", registry.url],
            )
        pond.sql("INSERT INTO t VALUES (1, 'a')")
        pond.drain()
        pond.sql("ALTER TABLE t ADD COLUMN more int")
        pond.sql("INSERT INTO t VALUES (2, 'b', 7)")
        pond.drain()
    assert len(registry.subjects[f"{topic.name}a-value"]) == 2
    assert len(registry.subjects[f"{topic.name}a-key"]) == 1
    texts = [registry.schemas[n] for n in registry.subjects[f"{topic.name}p-value"]]
    assert "optional string v = 2;" in texts[1] and "optional int32 more = 3;" in texts[1]
    registry.close()


def test_at_least_once_needs_no_transactions(make_topic: Any) -> None:
    topic = make_topic(2)
    name = topic.name
    sink = KafkaSink(topic.brokers, name)
    writer = sink.open(delivery(1, 1, name, "at_least_once").binding)
    for _ in range(2):
        writer.write(delivery(1, 1, name, "at_least_once"))
    writer.close()
    ids = [dict(m.headers())["millpond-id"] for m in seen(topic)]
    assert len(ids) == 2 and len(set(ids)) == 1
    assert (
        len({m.partition() for m in seen(topic)}) == 1
    )  # so that a reader of one partition can remove doubles


def test_an_open_transaction_of_another_sink_hides_no_progress(
    make_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sinks with one progress topic: nothing is written twice because a record could not be seen."""
    topic = make_topic(2)
    shared = make_topic(1, **{"cleanup.policy": "compact"})
    sink = KafkaSink(topic.brokers, topic.name, progress_topic=shared.name)
    other = shared.transactional()
    other.begin_transaction()
    other.produce(shared.name, b"{}", b"another")
    other.flush(20)
    monkeypatch.setattr(kafka_progress, "DECIDED_S", 0.5)
    with pytest.raises(MillpondError, match="are not complete"):
        sink.open(delivery(1, 1, topic.name).binding)
    other.abort_transaction(20)
    opened_again = sink.open(delivery(1, 1, topic.name).binding)
    opened_again.write(delivery(1, 1, topic.name))
    opened_again.close()
    assert len(seen(topic)) == 1


# -- settings -------------------------------------------------------------------


def test_secrets_are_references_and_are_never_shown(
    make_topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(2)
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    # The broker asks for no password; the client reads the setting all the same.
    sink = KafkaSink(topic.brokers, topic.name, client={"sasl.password": "${env:KAFKA_PASSWORD}"})
    with opened(tmp_path) as pond:
        table = pond.table("orders", {"who": str, "n": int})
        table.key_by("who").aggregate(n="sum(n)").view("totals").sink("out", sink)
        pond.insert("orders", {"who": "ann", "n": 1})
        pond.drain()
        assert "hunter2" not in pond.explain() and "hunter2" not in repr(sink)
    stored = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"hunter2" not in stored and b"${env:KAFKA_PASSWORD}" in stored
    monkeypatch.delenv("KAFKA_PASSWORD")
    with opened(tmp_path) as pond:
        pond.insert("orders", {"who": "ann", "n": 1})
        with pytest.raises(InvalidError, match="KAFKA_PASSWORD is not set"):
            pond.drain()


def test_a_secret_of_the_pond(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    with opened(tmp_path) as pond:
        pond.sql("CREATE SECRET kafka_password AS 'hunter2'")
        pond.sql("CREATE TABLE t (k int PRIMARY KEY)")
        pond.sql(
            "CREATE SINK out FROM t WITH (connector = 'kafka', brokers = ?, topic = ?,"
            " client.sasl.password = '${secret:kafka_password}')",
            params=[topic.brokers, topic.name],
        )
        pond.sql("INSERT INTO t VALUES (1)")
        pond.drain()
        assert len(seen(topic)) == 1
        assert "hunter2" not in str(pond.sql("SHOW CREATE SINK out").fetchall()) + pond.explain()


def test_without_the_client_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(InvalidError, match="Kafka client is not installed") as caught:
        KafkaSink("localhost:1", "t").open(delivery(1, 1).binding)
    assert "millpond[kafka]" in str(caught.value)
