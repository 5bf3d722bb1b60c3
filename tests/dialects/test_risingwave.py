"""RisingWave's SQL: statements as ours, and what is refused by name; queries are PostgreSQL's."""

from __future__ import annotations

from pathlib import Path

import pytest

import millpond
from millpond.errors import InvalidError
from tests.dialects.test_flink import own
from tests.sql.asked import opened, refused, rows

KAFKA = "connector = 'kafka', topic = 't', properties.bootstrap.server = 'b:9092'"
STATEMENTS = {
    f"CREATE SOURCE s (a INT, r STRUCT<x INT, y VARCHAR>) WITH ({KAFKA}, scan.startup.mode = 'latest') "
    "FORMAT PLAIN ENCODE JSON": "CREATE SOURCE s (a INT, r STRUCT<x INT, y VARCHAR>) WITH (connector = 'kafka', "
    "topic = 't', brokers = 'b:9092', start = 'latest') FORMAT PLAIN ENCODE JSON",
    f"CREATE SOURCE s (a INT) WITH ({KAFKA}, scan.startup.timestamp.millis = '1700000000123') FORMAT PLAIN ENCODE JSON": (
        "CREATE SOURCE s (a INT) WITH (connector = 'kafka', topic = 't', brokers = 'b:9092', "
        "start = '2023-11-14 22:13:20.123000') FORMAT PLAIN ENCODE JSON"
    ),
    f"CREATE TABLE s (a INT, PRIMARY KEY (k)) INCLUDE KEY AS k INCLUDE header 'h' VARCHAR AS h WITH ({KAFKA}) "
    "FORMAT UPSERT ENCODE JSON": "CREATE TABLE s (a INT, PRIMARY KEY (k)) INCLUDE KEY AS k INCLUDE header 'h' VARCHAR "
    "AS h WITH (connector = 'kafka', topic = 't', brokers = 'b:9092') FORMAT UPSERT ENCODE JSON",
    f"CREATE SINK s FROM v WITH ({KAFKA}, type = 'debezium')": (
        "CREATE SINK s FROM v WITH (connector = 'kafka', topic = 't', brokers = 'b:9092', mode = 'changelog', envelope = "
        "'debezium')"
    ),
    "CREATE SINK s FROM v WITH (connector = 'deltalake', location = 's3://b/p', s3.access.key = 'a', s3.region = 'r')": (
        "CREATE SINK s FROM v WITH (connector = 'delta', path = 's3://b/p', store.access_key_id = 'a', store.region = 'r')"
    ),
    f"CREATE TABLE s (a INT PRIMARY KEY) WITH ({KAFKA}) FORMAT UPSERT ENCODE JSON": (
        "CREATE TABLE s (a INT PRIMARY KEY) WITH (connector = 'kafka', topic = 't', brokers = 'b:9092') "
        "FORMAT UPSERT ENCODE JSON"
    ),
    "CREATE SOURCE s (a INT) WITH (connector = 'posix_fs', posix_fs.root = 'd', match_pattern = '*.csv') "
    "FORMAT PLAIN ENCODE CSV (without_header = 'true', delimiter = ';')": "CREATE SOURCE s (a INT) WITH "
    "(connector = 'files', path = 'd', pattern = '*.csv', format = 'csv', header = 'false', delimiter = ';')",
    f"CREATE SINK s FROM v WITH ({KAFKA}, primary_key = 'a', type = 'upsert')": (
        "CREATE SINK s FROM v WITH (connector = 'kafka', topic = 't', brokers = 'b:9092', key = 'a', mode = 'upsert')"
    ),
    f"CREATE SINK s FROM v WITH ({KAFKA}, primary_key = 'a') FORMAT UPSERT ENCODE JSON": (
        "CREATE SINK s FROM v WITH (connector = 'kafka', topic = 't', brokers = 'b:9092', key = 'a') "
        "FORMAT UPSERT ENCODE JSON"
    ),
    "CREATE SINK s AS SELECT 1 AS a WITH (connector = 'jdbc', jdbc.url = 'u', table.name = 't', type = 'append-only')": (
        "CREATE SINK s AS SELECT 1 AS a WITH (connector = 'jdbc', url = 'u', \"table\" = 't', mode = 'append')"
    ),
    "SET streaming_parallelism = 2; SET timezone TO 'UTC'; CREATE INDEX i ON t (a) INCLUDE (b) DISTRIBUTED BY (a)": (
        "CREATE INDEX i ON t (a) INCLUDE (b)"
    ),
    "CREATE SECRET k WITH (backend = 'meta') AS 'v'": "CREATE SECRET k WITH (value = 'v')",
    "CREATE TABLE t (a INT PRIMARY KEY) ON CONFLICT DO UPDATE FULL": "CREATE TABLE t (a INT PRIMARY KEY)",
}


@pytest.mark.parametrize(("sql", "ours"), STATEMENTS.items())
def test_statements(sql: str, ours: str) -> None:
    assert own(sql, "risingwave").rstrip() == ours.replace('"table"', "table")


REFUSED = {
    "CREATE SOURCE s (a INT) WITH (connector = 'datagen') FORMAT PLAIN ENCODE JSON": "connector 'datagen'",
    f"CREATE SOURCE s (a INT) INCLUDE PAYLOAD AS k WITH ({KAFKA}) FORMAT PLAIN ENCODE JSON": "INCLUDE PAYLOAD",
    f"CREATE SOURCE s (a INT) INCLUDE KEY WITH ({KAFKA}) FORMAT PLAIN ENCODE JSON": "INCLUDE KEY needs a name",
    f"CREATE SOURCE s (a INT) WITH ({KAFKA}, x = '1') FORMAT PLAIN ENCODE JSON": "option 'x'",
    "CREATE TABLE t (*) FROM s TABLE 'public.t'": "(*)",
    "CREATE TABLE t (a INT) FROM s TABLE 'public.t'": "CREATE TABLE … FROM source",
    "CREATE TABLE t (a INT PRIMARY KEY) ON CONFLICT DO UPDATE IF NOT NULL": "ON CONFLICT DO",
    f"CREATE SINK s FROM v WITH ({KAFKA}, type = 'other')": "option 'type'",
    "CREATE SINK s INTO t FROM v": "CREATE SINK … INTO",
    f"CREATE SINK s FROM v WITH ({KAFKA}, type = 'append-only', force_append_only = 'true')": "force_append_only",
    f"CREATE SINK s FROM v WITH ({KAFKA}) FORMAT PLAIN ENCODE JSON (force_append_only = 'true')": "force_append_only",
    "CREATE SINK s FROM v WITH (connector = 'blackhole')": "connector 'blackhole'",
    "CREATE CONNECTION c WITH (type = 'kafka')": "CREATE CONNECTION",
    "CREATE SUBSCRIPTION c FROM v": "CREATE SUBSCRIPTION",
    "SELECT sum(a) OVER (ORDER BY b SESSION WITH GAP INTERVAL '1 hour') FROM t": "SESSION WITH GAP",
    "WITH c AS CHANGELOG FROM t SELECT * FROM c": "AS CHANGELOG FROM",
    "SET timezone = 'Asia/Tokyo'": "the time zone is UTC",
}


@pytest.mark.parametrize(("sql", "named"), REFUSED.items())
def test_refused_by_name(sql: str, named: str) -> None:
    with pytest.raises(InvalidError) as found:
        own(sql, "risingwave")
    assert named in found.value.message
    assert found.value.hint


def test_a_pipeline_runs(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(
            """
            SET background_ddl = true;
            CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'Bid', nexmark.event.num = '100');
            CREATE MATERIALIZED VIEW per_auction AS
                SELECT auction, count(*)::int AS n, 7 / 2 AS half FROM bid GROUP BY auction;
            FLUSH
            """,
            dialect="risingwave",
        )
        (n, half) = (
            pond.sql("SELECT sum(n), max(half) FROM per_auction", dialect="risingwave").fetchone() or ()
        )
        assert (n, half) == (92, 3)
        assert "nexmark.table.type" not in str(pond.sql("SHOW CREATE bid").fetchall())


def test_changes_are_flushed_and_clauses_stand_where_risingwave_has_them(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        for sql in (
            "SET RW_IMPLICIT_FLUSH TO true",
            "CREATE TABLE clicks (at timestamp, n int, WATERMARK FOR at AS at - INTERVAL '5 minutes') WITH (appendonly = 'true')",
            "CREATE MATERIALIZED VIEW least EMIT ON WINDOW CLOSE AS SELECT window_start, n FROM (SELECT *, row_number() "
            "OVER (PARTITION BY window_start ORDER BY n) AS place FROM TUMBLE(clicks, at, INTERVAL '1 hour')) WHERE place = 1",
            "INSERT INTO clicks VALUES ('2024-01-01 10:10', 2), ('2024-01-01 10:20', 1), ('2024-01-01 11:04', 3)",
        ):
            pond.sql(sql, dialect="risingwave")
        assert rows(pond, "SELECT n FROM least") == []
        pond.sql("INSERT INTO clicks VALUES ('2024-01-01 11:06', 9)", dialect="risingwave")
        assert rows(pond, "SELECT n FROM least") == [(1,)]
        with pytest.raises(InvalidError, match="one EMIT clause"):
            pond.sql(
                "CREATE MATERIALIZED VIEW x EMIT ON WINDOW CLOSE AS SELECT window_start, count(*) AS n "
                "FROM TUMBLE(clicks, at, INTERVAL '1 hour') GROUP BY 1 EMIT ON WINDOW CLOSE"
            )
        with pytest.raises(InvalidError, match="APPEND ONLY"):
            pond.sql("DELETE FROM clicks")
        pond.sql("SET implicit_flush = off")
        epoch = pond.epoch
        pond.sql("INSERT INTO clicks VALUES ('2024-01-01 11:07', 9)")
        assert pond.epoch == epoch and pond.sql("SHOW implicit_flush").fetchall() == [("off",)]
        assert "true or false" in refused(pond, "SET implicit_flush = maybe")
