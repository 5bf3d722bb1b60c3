"""Key, headers, timestamp, partition and offset of messages as columns, as Flink, RisingWave and we write them."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.sources.kafka import KafkaSource

from .topic import Topic

pytestmark = pytest.mark.e2e

AT_MS = 1_714_564_800_123
AT = datetime.datetime(2024, 5, 1, 12, 0, 0, 123_000)


def opened(place: Path) -> millpond.Pond:
    return millpond.open(place, engine="inline", parallelism=2, durable=False, checks=True)


def options(topic: Topic) -> str:
    return f"connector = 'kafka', topic = '{topic.name}', properties.bootstrap.server = '{topic.brokers}'"


def send(topic: Topic) -> None:
    topic.send([{"a": 1}], 1, key=b"k1", timestamp=AT_MS, headers=[("h", b"1"), ("h", b"2"), ("n", None)])
    topic.send([{"a": 2}], 1, timestamp=AT_MS)


def test_include_of_risingwave(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    send(topic)
    made = f"""CREATE SOURCE s (a INT) INCLUDE KEY AS k INCLUDE partition AS p INCLUDE OFFSET AS o
        INCLUDE timestamp AS ts INCLUDE header AS hs INCLUDE header 'h' VARCHAR AS h INCLUDE header 'n' AS n
        WITH ({options(topic)}, scan.startup.mode = 'earliest') FORMAT PLAIN ENCODE JSON"""
    at = AT.replace(tzinfo=datetime.UTC)
    pairs = [{"key": "h", "value": b"1"}, {"key": "h", "value": b"2"}, {"key": "n", "value": None}]
    for dialect in ("risingwave", "postgres"):
        with opened(tmp_path / dialect) as pond:
            pond.sql(
                f"{made}; CREATE MATERIALIZED VIEW v AS SELECT * FROM s;"
                "CREATE MATERIALIZED VIEW parts AS SELECT o::bigint + 1 AS o, (hs[1]).key AS first FROM s",
                dialect=dialect,
            )
            pond.drain()
            assert pond.sql("SELECT * FROM v ORDER BY a").fetchall() == [
                (1, b"k1", "1", "0", at, pairs, "2", None),
                (2, None, "1", "1", at, [], None, None),
            ]
            assert pond.sql("SELECT * FROM parts ORDER BY o").fetchall() == [(1, "h"), (2, None)]
        with opened(tmp_path / dialect) as pond:  # what is stored means the same
            topic.send([{"a": 3}], 1, key=b"k3", timestamp=AT_MS)
            pond.drain()
            assert pond.sql("SELECT k, o FROM v WHERE a = 3").fetchall() == [(b"k3", "2")]
            assert "INCLUDE" in str(pond.sql("SHOW CREATE s").fetchall())
        topic = make_topic(2)
        send(topic)
        made = made.replace(made.split("topic = '")[1].split("'")[0], topic.name)


def test_metadata_of_flink(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(2)
    send(topic)
    out = make_topic(1)
    server = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{topic.brokers}', 'format' = 'json'"
    with opened(tmp_path / "p") as pond:
        pond.sql(
            f"""
            CREATE TABLE s (
                a INT, sent TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', `partition` BIGINT METADATA VIRTUAL,
                o BIGINT NOT NULL METADATA FROM 'offset' VIRTUAL, named STRING METADATA FROM 'topic',
                hs MAP<STRING, BYTES> METADATA FROM 'headers',
                WATERMARK FOR sent AS sent - INTERVAL '5' SECOND
            ) WITH ({server}, 'topic' = '{topic.name}', 'scan.startup.mode' = 'earliest-offset');
            CREATE MATERIALIZED VIEW v AS SELECT a, sent, `partition`, o, named, hs['h'] AS h FROM s;
            CREATE TABLE target (a INT, o BIGINT METADATA FROM 'offset' VIRTUAL)
                WITH ({server}, 'topic' = '{out.name}', 'sink.delivery-guarantee' = 'exactly-once');
            INSERT INTO target SELECT a FROM s
            """,
            dialect="flink",
        )
        pond.drain()
        at = AT.replace(tzinfo=datetime.UTC)
        assert pond.sql("SELECT * FROM v ORDER BY a").fetchall() == [
            (1, at, 1, 0, topic.name, b"2"),
            (2, at, 1, 1, topic.name, None),
        ]
        with pytest.raises(InvalidError, match=r"'timestamp' .* is not supported for connector 'kafka'"):
            pond.sql(
                f"CREATE TABLE x (a INT, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp') WITH ({server}, 'topic' = 'y');"
                "INSERT INTO x SELECT a, CURRENT_TIMESTAMP FROM s",
                dialect="flink",
            )


def test_the_whole_key_of_messages_is_the_primary_key(make_topic: Any, tmp_path: Path) -> None:
    """RisingWave's upserts: PRIMARY KEY names the column of INCLUDE KEY."""
    topic = make_topic(3)
    for n in range(6):
        topic.send([{"id": n, "x": f"old{n}"}], n % 3, key=json.dumps({"ID": n}).encode())
    with opened(tmp_path / "p") as pond:
        pond.sql(
            f"""CREATE TABLE t (id INT, x VARCHAR, PRIMARY KEY (rw_key)) INCLUDE KEY AS rw_key INCLUDE OFFSET AS o
                WITH ({options(topic)}) FORMAT UPSERT ENCODE JSON;
                CREATE MATERIALIZED VIEW n AS SELECT left(x, 3) AS w, count(*) AS n FROM t GROUP BY 1""",
            dialect="risingwave",
        )
        pond.drain()
        topic.send([{"id": 0, "x": "new0"}], 0, key=b'{"ID": 0}')
        topic.send([None], 1, key=b'{"ID": 1}')
        topic.send([{"id": 9}], 1)  # without a key
        pond.drain()
        assert pond.sql("SELECT id, x, rw_key, o FROM t ORDER BY id").fetchall()[:2] == [
            (0, "new0", b'{"ID": 0}', "2"),
            (2, "old2", b'{"ID": 2}', "0"),
        ]
        assert pond.sql("SELECT * FROM n ORDER BY w").fetchall() == [("new", 1), ("old", 4)]
        (reason,) = pond.errors()["reason"].to_pylist()
        assert reason.endswith("the message has no key")
        with pytest.raises(
            InvalidError, match="'o' with the offset of messages cannot be in the primary key"
        ):
            pond.sql(
                f"CREATE TABLE u (id INT, PRIMARY KEY (id, o)) INCLUDE OFFSET AS o WITH ({options(topic)}) "
                "FORMAT UPSERT ENCODE JSON"
            )


def test_events_of_debezium_with_metadata(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    with opened(tmp_path / "p") as pond:
        pond.sql(
            f"""CREATE TABLE t (id INT PRIMARY KEY, o BIGINT METADATA FROM 'offset', h VARCHAR METADATA FROM 'header:h')
                WITH ({options(topic)}) FORMAT DEBEZIUM ENCODE JSON"""
        )
        topic.send([{"op": "c", "after": {"id": 1, "h": "not this"}}], headers=[("h", b"one")])
        topic.send(
            [{"op": "u", "after": {"id": 1}}, {"op": "c", "after": {"id": 2}}], headers=[("h", b"two")]
        )
        topic.send([{"op": "c", "after": {"id": 3}}], headers=[("h", b"\xff")])
        pond.drain()
        assert pond.sql("SELECT * FROM t ORDER BY id").fetchall() == [(1, 1, "two"), (2, 2, "two")]
        (reason,) = pond.errors()["reason"].to_pylist()
        assert "offset 3: column 'h': header:h is not text" in reason


def test_a_key_that_is_not_text_is_an_error_row(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    topic.send([{"a": 1}], key=b"good")
    topic.send([{"a": 2}], key=b"\xff\xfe")
    topic.send([{"a": "bad"}], key=b"good")
    topic.send([{"a": 4}])
    source = KafkaSource(topic.brokers, topic.name, {"a": int, "k": str}, metadata={"k": "key"})
    with opened(tmp_path / "p") as pond:
        pond.stream("s", source).view("v")
        pond.drain()
        rows = sorted((r["a"], r["k"]) for r in pond.read("v").to_pylist())
        assert rows == [(1, "good"), (4, None)]
        reasons = sorted(pond.errors()["reason"].to_pylist())
        assert f"{topic.name}, partition 0, offset 1: column 'k': key is not text" in reasons[0]
        assert "offset 2" in reasons[1]


def test_what_no_message_has_is_refused_by_name(make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    ours = f"WITH ({options(topic)}) FORMAT PLAIN ENCODE JSON"
    with opened(tmp_path / "p") as pond:
        for sql, match in (
            (f"CREATE SOURCE s (a INT) INCLUDE payload AS x {ours}", "INCLUDE PAYLOAD is not supported"),
            (f"CREATE SOURCE s (a INT) INCLUDE OFFSET {ours}", "the column of INCLUDE OFFSET needs a name"),
            (f"CREATE SOURCE s (a INT) INCLUDE OFFSET AS a {ours}", "column 'a' of the table is there twice"),
            (
                f"CREATE SOURCE s (a INT, o DATE METADATA FROM 'offset') {ours}",
                "column 'o' is int64 or string",
            ),
            (f"CREATE SOURCE s (a INT, o INT METADATA FROM 'x') {ours}", "no metadata 'x'"),
            ("CREATE TABLE s (a INT, o BIGINT METADATA FROM 'offset')", "not supported for a table"),
            (
                "CREATE SOURCE s (a INT) INCLUDE OFFSET AS o WITH (connector = 'files', path = 'p')",
                "not supported for connector 'files'",
            ),
        ):
            with pytest.raises(InvalidError, match=match) as found:
                pond.sql(sql)
            assert found.value.hint or found.value.detail
