"""Flink's SQL: answers that Flink gives, statements as ours, and what is refused by name."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator

import pytest

import millpond
from millpond.errors import InvalidError, MillpondError
from millpond.pond import Pond
from millpond.sql.dialects.own_statements import own_statements

KAFKA = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:9092', 'format' = 'json'"


class Nothing:
    """A pond without objects."""

    def kind(self, name: str) -> str | None:
        return None

    def has_windows(self, name: str) -> bool:
        return False


def own(text: str, dialect: str = "flink") -> str:
    return "; ".join(fragment.sql for fragment in own_statements(text, dialect, Nothing()))


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    with millpond.open(tmp_path_factory.mktemp("flink") / "pond", engine="inline") as made:
        made.sql(
            """
            CREATE TABLE t (k INT NOT NULL, n BIGINT, d DECIMAL(10, 2), f DOUBLE, s STRING, m MAP<STRING, INT>,
                l ARRAY<INT>, r ROW<a INT, b STRING>, twice AS n * 2, PRIMARY KEY (k) NOT ENFORCED);
            INSERT INTO t VALUES
                (1, 7, 2.50, 1.5, 'Flink', MAP['a', 1], ARRAY[4, 5], CAST(NULL AS ROW<a INT, b STRING>)),
                (2, 10, 0.33, 2, NULL, NULL, NULL, NULL);
            CREATE TABLE bid (auction BIGINT, price BIGINT, `date_time` TIMESTAMP(3),
                WATERMARK FOR `date_time` AS `date_time` - INTERVAL '4' SECOND) COMMENT 'bids';
            FLUSH
            """,
            dialect="flink",
        )
        yield made


ANSWERS = {
    "SELECT 7 / 2, -7 / 2, 7 / 2.0, 7 / CAST(2 AS DOUBLE)": [(3, -3, decimal.Decimal("3.500000"), 3.5)],
    "SELECT s FROM t ORDER BY s": [(None,), ("Flink",)],
    "SELECT s FROM t ORDER BY s DESC": [("Flink",), (None,)],
    "SELECT AVG(n), AVG(d), AVG(f), SUM(n), COUNT(s) FROM t": [(8, decimal.Decimal("1.415000"), 1.75, 17, 1)],
    "SELECT k, AVG(n) FILTER (WHERE n > 7) FROM t GROUP BY k ORDER BY k": [(1, None), (2, 10)],
    "SELECT CAST(TRUE AS STRING), CAST(12.7 AS INT), CAST('12' AS BIGINT), TRY_CAST('x' AS INT)": [
        ("TRUE", 12, 12, None)
    ],
    "SELECT 'a' || CAST(NULL AS STRING), CONCAT('a', 'b'), CONCAT_WS('-', 'a', NULL, 'b')": [
        (None, "ab", "a-b")
    ],
    "SELECT SUBSTRING('abc', -2, 2), SUBSTRING('abc' FROM 2), SUBSTR('abc', 0, 1)": [("bc", "bc", "a")],
    "SELECT SPLIT_INDEX('a/b', '/', 1), SPLIT_INDEX('a/b', '/', 2), REGEXP_EXTRACT('k=1', '(k)=(x)?', 2)": [
        ("b", None, None)
    ],
    "SELECT REGEXP_EXTRACT('k=1', 'z', 0), REGEXP('abc', 'b'), MOD(-7, 3), GREATEST(1, NULL), LEAST(2, 1)": [
        (None, True, -1, None, 1)
    ],
    "SELECT FLOOR(1.5e0), CEIL(7), FLOOR(TIMESTAMP '2024-02-03 10:11:12' TO MONTH)": [
        (1.0, 7, datetime.datetime(2024, 2, 1))
    ],
    "SELECT DATE '2024-01-31' + INTERVAL '1' DAY, TIMESTAMP '2024-01-31 00:00:00' - INTERVAL '4' SECOND": [
        (datetime.date(2024, 2, 1), datetime.datetime(2024, 1, 30, 23, 59, 56))
    ],
    "SELECT DATE_FORMAT(TIMESTAMP '2024-01-31 10:20:30', 'yyyy-MM-dd HH:mm'), EXTRACT(DAY FROM DATE '2024-01-31')": [
        ("2024-01-31 10:20", 31)
    ],
    "SELECT m['a'], m['z'], l[1], CARDINALITY(l) FROM t WHERE k = 1": [(1, None, 4, 2)],
    "SELECT x FROM t CROSS JOIN UNNEST(l) AS u (x) ORDER BY x": [(4,), (5,)],
    "SELECT twice, 'it''s', 'a\\b' FROM t WHERE `k` = 1": [(14, "it's", "a\\b")],
    "SELECT JSON_VALUE('{\"a\": {\"b\": 1}}', '$.a.b'), JSON_VALUE('{\"a\": {}}', '$.a')": [("1", None)],
    "SELECT TO_TIMESTAMP_LTZ(1000, 3), TO_TIMESTAMP('x'), TO_DATE('2024-01-31')": [
        (datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC), None, datetime.date(2024, 1, 31))
    ],
    "SELECT MD5('a'), SHA256('a') = SHA256('a'), TO_BASE64('ab')": [
        ("0cc175b9c0f1b6a831c399e269772661", True, "YWI=")
    ],
    "SELECT LISTAGG(CAST(k AS STRING)) FROM t WHERE k = 1": [("1",)],
    "SELECT n FROM (SELECT n, ROW_NUMBER() OVER (ORDER BY n DESC) AS r FROM t) WHERE r <= 1": [(10,)],
}


@pytest.mark.parametrize(("sql", "answer"), ANSWERS.items())
def test_answers(pond: Pond, sql: str, answer: list[object]) -> None:
    assert pond.sql(sql, dialect="flink").fetchall() == answer


def test_names_of_columns(pond: Pond) -> None:
    assert pond.sql("SELECT k, n + 1, COUNT(*) OVER () FROM t", dialect="flink").columns == [
        "k",
        "EXPR$1",
        "EXPR$2",
    ]
    assert pond.sql("SELECT * FROM (VALUES (1, 2))", dialect="flink").columns == ["EXPR$0", "EXPR$1"]


@pytest.mark.parametrize(
    "sql",
    ["SELECT CAST('x' AS INT)", "SELECT 1 / 0", "SELECT CAST(TIMESTAMP '2024-01-01 00:00:00' AS STRING)"],
)
def test_errors_of_values(pond: Pond, sql: str) -> None:
    with pytest.raises(MillpondError):
        pond.sql(sql, dialect="flink").fetchall()


REFUSED = {
    "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k)": "MATCH_RECOGNIZE",
    "SELECT /*+ OPTIONS('scan.startup.mode' = 'latest-offset') */ k FROM t": "OPTIONS",
    "SELECT k FROM t, LATERAL TABLE(f(s)) AS x (w)": "LATERAL TABLE",
    "SELECT a.k FROM t AS a JOIN t FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.k": "SYSTEM_TIME",
    "SELECT RAND()": "rand()",
    "SELECT LPAD('a', 2, 'b')": "lpad()",
    "SELECT STRFTIME(k, 'x') FROM t": "strftime()",
    "SELECT FIRST_VALUE(s) FROM t": "first_value()",
    "SELECT l[k] FROM t": "needs a constant",
    "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1": "EXECUTE STATEMENT SET",
    "BEGIN STATEMENT SET": "BEGIN STATEMENT SET",
    "SET 'table.exec.state.ttl' = '1 h'": "table.exec.state.ttl",
    "SET 'execution.runtime-mode' = 'batch'": "execution.runtime-mode",
    "USE CATALOG c": "USE",
    "CREATE CATALOG c": "CREATE CATALOG",
    "CREATE TABLE x AS SELECT 1": "CREATE TABLE … AS",
    "INSERT INTO t SELECT * FROM t": "INSERT INTO … SELECT",
    "INSERT OVERWRITE t VALUES (1)": "INSERT OVERWRITE",
    "CREATE TABLE x (a INT) WITH ('connector' = 'datagen')": "connector 'datagen'",
    "CREATE TABLE x (a INT) WITH ('format' = 'json')": "option 'connector' is missing",
    f"CREATE TABLE x (a INT) WITH ({KAFKA})": "'scan.startup.mode'",
    f"CREATE TABLE x (a INT) WITH ({KAFKA}, 'scan.startup.mode' = 'group-offsets')": "cannot be 'group-offsets'",
    f"CREATE TABLE x (a INT) WITH ({KAFKA}, 'scan.startup.mode' = 'latest-offset', 'z' = '1')": "option 'z'",
    f"CREATE TABLE x (a INT) WITH ({KAFKA}, 'scan.startup.mode' = 'timestamp')": "needs another option",
    f"CREATE TABLE x (a INT) WITH ({KAFKA}, 'scan.startup.mode' = 'specific-offsets', "
    "'scan.startup.specific-offsets' = '42')": "cannot be '42'",
    "CREATE TABLE x (a INT) WITH ('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:9092', "
    "'scan.startup.mode' = 'latest-offset', 'format' = 'avro')": "cannot be 'avro'",
    f"CREATE TABLE x (a INT, o BIGINT METADATA FROM 'leader-epoch') WITH ({KAFKA})": "METADATA FROM 'leader-epoch'",
    "CREATE TABLE x (a INT, o BIGINT METADATA FROM 'offset')": "METADATA FROM 'offset'",
    "CREATE TABLE x (a INT, o BIGINT METADATA FROM 'offset') WITH ('connector' = 'filesystem', 'path' = 'p', "
    "'format' = 'json', 'source.monitor-interval' = '1 s')": "METADATA FROM 'offset'",
    "CREATE TABLE x (a INT) WITH ('connector' = 'filesystem', 'path' = 'p', 'format' = 'json')": "monitor-interval",
    "CREATE TABLE x (a MULTISET<INT>)": "MULTISET<INT>",
    "CREATE TABLE x (a INT) DISTRIBUTED BY (a) INTO 4 BUCKETS": "DISTRIBUTED",
}


@pytest.mark.parametrize(("sql", "named"), REFUSED.items())
def test_refused_by_name(pond: Pond, sql: str, named: str) -> None:
    with pytest.raises(InvalidError) as found:
        pond.sql(sql, dialect="flink")
    assert named in found.value.message
    assert found.value.hint


_TOPIC = "'connector' = 'kafka', 'properties.bootstrap.servers' = 'b:9092', 'scan.startup.mode' = "
_SOURCE = """CREATE SOURCE "x" ("a" INTEGER) WITH (connector = 'kafka', brokers = 'b:9092', """
STATEMENTS = {
    f"CREATE TABLE x (a INT) WITH ({_TOPIC} 'timestamp', 'scan.startup.timestamp-millis' = '1700000000123', "
    "'topic' = 't', 'value.format' = 'csv', 'value.csv.field-delimiter' = ';')": _SOURCE
    + "start = '2023-11-14 22:13:20.123000', topic = 't', format = 'csv', delimiter = ';')",
    f"CREATE TABLE x (a INT) WITH ({_TOPIC} 'specific-offsets', 'topic' = 't', 'format' = 'avro-confluent', "
    "'scan.startup.specific-offsets' = 'partition:0,offset:42;partition:1,offset:300', 'avro-confluent.url' = 'http://r')": (
        _SOURCE + "topic = 't', format = 'avro', start = 'offset:0=42,1=300', schema.registry = 'http://r')"
    ),
    f"CREATE TABLE x (a INT) WITH ({_TOPIC} 'latest-offset', 'topic' = 'a.b;c', 'format' = 'json')": _SOURCE
    + "start = 'latest', topic.pattern = 'a\\.b|c', format = 'json')",
    f"CREATE TABLE x (a INT PRIMARY KEY NOT ENFORCED) WITH ({_TOPIC} 'earliest-offset', 'topic' = 't', "
    "'value.format' = 'debezium-json', 'value.debezium-json.schema-include' = 'true')": (
        """CREATE TABLE "x" ("a" INTEGER, PRIMARY KEY ("a")) WITH (connector = 'kafka', brokers = 'b:9092', """
        "start = 'earliest', topic = 't') FORMAT DEBEZIUM ENCODE JSON"
    ),
    f"CREATE TABLE x (a INT, kafka_offset BIGINT METADATA FROM 'offset' VIRTUAL) "
    f"WITH ({KAFKA}, 'scan.startup.mode' = 'earliest-offset')": """CREATE SOURCE "x" ("a" INTEGER, "kafka_offset" BIGINT """
    """METADATA FROM 'offset') """
    "WITH (connector = 'kafka', topic = 't', brokers = 'b:9092', format = 'json', start = 'earliest')",
    "CREATE TABLE x (a INT PRIMARY KEY NOT ENFORCED, b TIMESTAMP_LTZ(3)) WITH ('connector' = 'upsert-kafka', "
    "'topic' = 't', 'properties.bootstrap.servers' = 'b:9092', 'key.format' = 'json', 'value.format' = 'json')": (
        'CREATE TABLE "x" ("a" INTEGER, "b" TIMESTAMPTZ, PRIMARY KEY ("a")) '
        "WITH (connector = 'kafka', topic = 't', brokers = 'b:9092') FORMAT UPSERT ENCODE JSON"
    ),
    "CREATE TABLE x (a INT) WITH ('connector' = 'filesystem', 'path' = 'p', 'format' = 'parquet'); "
    "INSERT INTO x SELECT k FROM t": """CREATE SINK "x" AS SELECT * FROM (SELECT "k" FROM t) AS named("a") """
    "WITH (connector = 'files', path = 'p', format = 'parquet', mode = 'append')",
    "SET 'parallelism.default' = '4'; DROP TABLE IF EXISTS x; DROP MATERIALIZED TABLE y": (
        'DROP TABLE IF EXISTS "x"; DROP MATERIALIZED VIEW "y"'
    ),
    "CREATE MATERIALIZED TABLE v FRESHNESS = INTERVAL '1' MINUTE AS SELECT k FROM t": (
        'CREATE MATERIALIZED VIEW "v" AS SELECT "k" FROM t'
    ),
    "EXPLAIN PLAN FOR SELECT k FROM t": 'EXPLAIN SELECT "k" FROM t',
}


@pytest.mark.parametrize(("sql", "ours"), STATEMENTS.items())
def test_statements(sql: str, ours: str) -> None:
    assert own(sql) == ours


def test_windows_are_shown_when_they_close(pond: Pond) -> None:
    """The forms of a window mean the same, also behind a plain view and in a sink."""
    table = "TABLE(TUMBLE(DATA => TABLE bid, TIMECOL => DESCRIPTOR(date_time), SIZE => INTERVAL '10' SECOND))"
    pond.sql(
        f"""
        CREATE MATERIALIZED VIEW by_table AS
            SELECT window_start AS s, window_time AS l, AVG(price) AS a FROM {table}
            GROUP BY window_start, window_end, window_time;
        CREATE MATERIALIZED VIEW by_group AS
            SELECT TUMBLE_START(date_time, INTERVAL '10' SECOND) AS s, TUMBLE_ROWTIME(date_time, INTERVAL '10' SECOND) AS l,
                AVG(price) AS a FROM bid GROUP BY TUMBLE(date_time, INTERVAL '10' SECOND);
        CREATE VIEW placed AS SELECT * FROM {table};
        CREATE MATERIALIZED VIEW by_view AS
            SELECT window_start AS s, window_time AS l, AVG(price) AS a FROM placed
            GROUP BY window_start, window_end, window_time;
        INSERT INTO bid VALUES (1, 10, TIMESTAMP '2024-01-01 10:00:01'), (1, 25, TIMESTAMP '2024-01-01 10:00:09');
        FLUSH;
        INSERT INTO bid VALUES (1, 1, TIMESTAMP '2024-01-01 10:00:20');
        FLUSH
        """,
        dialect="flink",
    )
    closed = [(datetime.datetime(2024, 1, 1, 10), datetime.datetime(2024, 1, 1, 10, 0, 9, 999000), 17)]
    for view in ("by_table", "by_group", "by_view"):
        assert pond.sql(f"SELECT * FROM {view}", dialect="flink").fetchall() == closed
    sink = f"""
        CREATE TABLE out (s TIMESTAMP(3), n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'p', 'format' = 'json');
        INSERT INTO out SELECT window_start, COUNT(*) FROM {table} GROUP BY window_start, window_end"""
    assert "EMIT ON WINDOW CLOSE; CREATE SINK" in own(sink)


def test_errors_show_what_the_user_wrote(pond: Pond) -> None:
    with pytest.raises(InvalidError) as found:
        pond.sql("SELECT `k`, nothing / 2 FROM t", dialect="flink")
    assert "SELECT `k`, nothing / 2 FROM t" in str(found.value)
