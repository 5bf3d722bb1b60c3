"""Formats of messages and changes of tables in topics, with the real broker, a registry and crashes."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.sources.kafka_changes import KafkaChanges
from tests.docs.test_source_pages import CONNECTORS, run_page
from tests.registry import Registry

from .topic import Topic

pytestmark = pytest.mark.e2e


@pytest.fixture
def registry() -> Iterator[Registry]:
    found = Registry()
    yield found
    found.close()


def opened(place: Path, **settings: Any) -> millpond.Pond:
    return millpond.open(place, engine="inline", parallelism=2, durable=False, checks=True, **settings)


def with_(topic: Topic, more: str = "") -> str:
    return f"WITH (connector = 'kafka', brokers = '{topic.brokers}', topic = '{topic.name}'{more})"


ROW = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "x", "type": ["null", "string"]}],
}


def test_avro_csv_and_bytes(make_topic: Any, registry: Registry, tmp_path: Path) -> None:
    number = registry.add(ROW)
    avro, csv, raw = make_topic(1), make_topic(1), make_topic(1)
    avro.send([registry.message(number, {"id": n, "x": f"v{n}"}) for n in range(3)] + [b"junk"])
    csv.send([b"1;a", b"2;", b'3;"q;q"', b"x;y"])
    raw.send([b"\xff\0", b"text"], key=b"k", headers=[("trace", b"1"), ("none", None)])
    with opened(tmp_path / "p") as pond:
        pond.sql(
            f"CREATE SOURCE a (id BIGINT, x TEXT) {with_(avro)} FORMAT PLAIN ENCODE AVRO (schema.registry = '{registry.url}');"
            f"CREATE SOURCE c (id BIGINT, x TEXT) {with_(csv)} FORMAT PLAIN ENCODE CSV (delimiter = ';');"
            "CREATE SOURCE r (data BYTEA, kafka_key TEXT, kafka_headers MAP(VARCHAR, BLOB), kafka_topic TEXT)"
            f" {with_(raw)} FORMAT PLAIN ENCODE BYTES;"
            "CREATE MATERIALIZED VIEW va AS SELECT * FROM a; CREATE MATERIALIZED VIEW vc AS SELECT * FROM c;"
            "CREATE MATERIALIZED VIEW vr AS SELECT data, kafka_key, kafka_headers['trace'] AS trace, kafka_topic FROM r"
        )
        pond.drain()
        assert sorted(pond.sql("SELECT * FROM va").fetchall()) == [(0, "v0"), (1, "v1"), (2, "v2")]
        assert sorted(pond.sql("SELECT * FROM vc").fetchall()) == [(1, "a"), (2, None), (3, "q;q")]
        assert sorted(pond.sql("SELECT * FROM vr").fetchall()) == [
            (b"text", "k", b"1", raw.name),
            (b"\xff\0", "k", b"1", raw.name),
        ]
        reasons = sorted(pond.errors()["reason"].to_pylist())
        assert len(reasons) == 2
        assert any(f"{avro.name}, partition 0, offset 3: it does not begin with the id" in r for r in reasons)


def test_protobuf(make_topic: Any, tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    from millpond.sources.protobuf_messages import message_class

    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="who", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="tags", number=3, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    place = tmp_path / "o.desc"
    place.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    made = message_class(place.read_bytes(), "shop.Order")
    topic, framed = make_topic(1), make_topic(1)
    rows = [made(id=n, who=f"w{n}", tags=["a"] * n).SerializeToString() for n in range(3)]
    topic.send([*rows, b"\xff\xff\xff"])
    framed.send([b"\0\0\0\0\7\0" + row for row in rows])
    with opened(tmp_path / "p") as pond:
        where = f"(message = 'shop.Order', schema.location = '{place}')"
        pond.sql(
            f"CREATE SOURCE p (id BIGINT, who TEXT, tags TEXT[]) {with_(topic)} FORMAT PLAIN ENCODE PROTOBUF {where};"
            f"CREATE SOURCE f (id BIGINT) {with_(framed)} FORMAT PLAIN ENCODE PROTOBUF"
            f" (message = 'shop.Order', schema.location = 'file://{place}', schema.registry = 'http://127.0.0.1:1');"
            "CREATE MATERIALIZED VIEW v AS SELECT * FROM p; CREATE MATERIALIZED VIEW w AS SELECT * FROM f"
        )
        pond.drain()
        assert sorted(pond.sql("SELECT * FROM v").fetchall()) == [
            (0, "w0", []),
            (1, "w1", ["a"]),
            (2, "w2", ["a", "a"]),
        ]
        assert sorted(pond.sql("SELECT * FROM w").fetchall()) == [(0,), (1,), (2,)]
        assert "offset 3: it cannot be read as shop.Order" in pond.errors()["reason"].to_pylist()[0]


def test_start_at_offsets(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    for p in (0, 1):
        topic.send([{"n": n + 10 * p} for n in range(5)], p)
    for start, wanted in (("offset:3", [3, 4, 13, 14]), ("offset:0=4,1=9", [4])):
        with opened(tmp_path / start) as pond:
            said = with_(topic, f", start = '{start}'")
            pond.sql(f"CREATE SOURCE s (n BIGINT) {said}; CREATE MATERIALIZED VIEW v AS SELECT * FROM s")
            pond.drain()
            assert sorted(n for (n,) in pond.sql("SELECT n FROM v").fetchall()) == wanted


def test_names_of_other_systems(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    topic.send([{"n": 1}])
    with opened(tmp_path / "p") as pond:
        pond.sql(
            f"CREATE SOURCE s (n BIGINT) WITH (connector = 'kafka', topic = '{topic.name}',"
            f" properties.bootstrap.server = '{topic.brokers}', scan.startup.mode = 'earliest',"
            " properties.client.id = 'me') FORMAT PLAIN ENCODE JSON; CREATE MATERIALIZED VIEW v AS SELECT * FROM s"
        )
        pond.drain()
        assert pond.sql("SELECT n FROM v").fetchall() == [(1,)]
        for text, match in (
            ("CREATE SOURCE t (n BIGINT) {} FORMAT DEBEZIUM ENCODE JSON", "needs a table"),
            ("CREATE SOURCE t (n BIGINT) {} FORMAT PLAIN ENCODE XML", "there is no ENCODE XML"),
            (
                "CREATE TABLE t (n BIGINT PRIMARY KEY) {} FORMAT PLAIN ENCODE JSON",
                "FORMAT UPSERT or FORMAT DEBEZIUM",
            ),
            ("CREATE TABLE t (n BIGINT) {} FORMAT UPSERT ENCODE JSON", "needs its primary key"),
            ("CREATE TABLE t (n BIGINT PRIMARY KEY) {} FORMAT UPSERT ENCODE CSV", "JSON or Avro"),
            ("CREATE SOURCE t (n BIGINT) {} FORMAT PLAIN ENCODE AVRO", "need a schema registry"),
        ):
            with pytest.raises(InvalidError, match=match):
                pond.sql(text.format(with_(topic)))


def test_debezium_events(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    gone = "__debezium_unavailable_value"

    def event(op: str, before: Any, after: Any, **more: Any) -> dict[str, Any]:
        return {"op": op, "before": before, "after": after, "source": {"db": "x"}, "ts_ms": 1, **more}

    row = {"id": 1, "who": "a", "at": 1_700_000_000_000_000, "day": 19_000, "price": "1.50", "large": "L"}
    schema = {
        "type": "struct",
        "fields": [{"field": "after", "fields": [{"field": "at", "name": "io.debezium.time.Timestamp"}]}],
    }
    events = [
        event("r", None, row),
        event("r", None, {**row, "id": 2, "price": "AN4="}),  # bytes of 222, in base64
        event("c", None, {**row, "id": 3, "at": "2024-01-01T00:00:00Z"}),
        event("u", {**row, "large": gone}, {**row, "who": "b", "large": gone}),
        {"schema": schema, "payload": event("c", None, {**row, "id": 4, "at": 1_700_000_000_000})},
        event("u", {"id": 3}, {**row, "id": 30}),  # the key changes
        event("d", {"id": 2}, None),
    ]
    topic.send(events)
    topic.send([None, event("d", {"id": 9}, None)])  # a tombstone; a delete that comes again
    topic.send([event("d", None, None)], key=b'{"id": 4}')
    topic.send([event("x", None, None), {"no": "event"}, b"{", event("c", None, {"who": "x"})])
    with opened(tmp_path / "p") as pond:
        pond.sql(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, who TEXT, at TIMESTAMP, day DATE, price DECIMAL(10, 2), large TEXT)"
            f" {with_(topic)} FORMAT DEBEZIUM ENCODE JSON"
        )
        pond.drain()
        at = datetime.datetime(2023, 11, 14, 22, 13, 20)
        day = datetime.date(1970, 1, 1) + datetime.timedelta(days=19_000)
        assert pond.sql("SELECT * FROM t ORDER BY id").fetchall() == [
            (1, "b", at, day, Decimal("1.50"), "L"),
            (30, "a", at, day, Decimal("1.50"), "L"),
        ]
        reasons = "\n".join(pond.errors()["reason"].to_pylist())
        assert pond.errors().num_rows == 4
        assert f"{topic.name}, partition 0, offset 10: an event with op 'x' cannot be applied" in reasons
        assert "key column 'id' has no value" in reasons


def test_debezium_avro(make_topic: Any, registry: Registry, tmp_path: Path) -> None:
    value = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "connect.name": "io.debezium.time.Timestamp"}},
        ],
    }
    envelope = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "op", "type": "string"},
        ],
    }
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    number, keys = registry.add(envelope), registry.add(key)
    topic = make_topic(1)
    row = {"id": 1, "at": 1_700_000_000_000}

    def send(op: str, before: Any, after: Any) -> None:
        topic.send(
            [registry.message(number, {"op": op, "before": before, "after": after})],
            key=registry.message(keys, {"id": 1}),
        )

    send("c", None, row)
    with opened(tmp_path / "p") as pond:
        pond.sql(
            f"CREATE TABLE t (id BIGINT PRIMARY KEY, at TIMESTAMP) {with_(topic)}"
            f" FORMAT DEBEZIUM ENCODE AVRO (schema.registry = '{registry.url}')"
        )
        pond.drain()
        assert pond.sql("SELECT * FROM t").fetchall() == [(1, datetime.datetime(2023, 11, 14, 22, 13, 20))]
        send("d", None, None)
        pond.drain()
        assert pond.sql("SELECT * FROM t").fetchall() == []
        assert pond.errors().num_rows == 0


class Crash(BaseException):
    """The process ends here."""


def test_upserts_are_a_dict_over_crashes(
    make_topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(3)
    chance = random.Random(4)
    wanted: dict[int, str] = {}
    left = [0]
    real = KafkaChanges._tables

    def fragile(self: KafkaChanges, *args: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise Crash
        return real(self, *args)

    monkeypatch.setattr(KafkaChanges, "_tables", fragile)
    crashes = 0
    for turn in range(7):
        for _ in range(30):
            k = chance.randrange(12)
            key = json.dumps({"k": k}).encode() if chance.random() < 0.5 else str(k).encode()
            if chance.random() < 0.3:
                wanted.pop(k, None)
                topic.send([None], k % 3, key=key)
            else:
                wanted[k] = f"v{chance.randrange(99)}"
                topic.send([{"x": wanted[k]}], k % 3, key=key)
        left[0] = 0 if turn == 6 else chance.randrange(2, 9)
        with opened(tmp_path / "p", epoch_rows_max=9) as pond:
            if turn == 0:
                pond.sql(
                    f"CREATE TABLE t (k BIGINT PRIMARY KEY, x TEXT) {with_(topic)} FORMAT UPSERT ENCODE JSON"
                )
            try:
                pond.drain()
            except Crash:
                crashes += 1
    with opened(tmp_path / "p") as pond:
        pond.drain()
        assert dict(pond.sql("SELECT k, x FROM t").fetchall()) == wanted
        assert pond.errors().num_rows == 0
    assert crashes >= 3


def test_the_page_runs(
    make_topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clicks, customers = make_topic(1), make_topic(1)
    clicks.send([b"home;12", b"help;3"])
    customers.send([{"op": "c", "after": {"id": 1, "name": "ann", "since": 0}}])
    monkeypatch.chdir(tmp_path)
    given = {
        "localhost:9092": clicks.brokers,
        "'clicks'": f"'{clicks.name}'",
        "shop.public.customers": customers.name,
    }
    run_page(CONNECTORS / "kafka-formats.md", monkeypatch, given)
    assert "[(1, 'ann', datetime.date(1970, 1, 1))]" in capsys.readouterr().out
