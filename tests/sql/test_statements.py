"""Statements: what people type, and what they get (laws 1, 2 and 9)."""

from __future__ import annotations

import datetime
import decimal
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond.errors import InvalidError, MillpondError
from millpond.pond import Pond
from millpond.sql.reads.scratch import thread_scratch


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with opened(tmp_path) as made:
        yield made


def opened(tmp_path: Path, **settings: Any) -> Pond:
    return millpond.open(tmp_path / "pond", engine="inline", parallelism=2, checks=True, **settings)


def rows(pond: Pond, sql: str, **named: Any) -> list[tuple[Any, ...]]:
    return pond.sql(sql, **named).fetchall()


def refused(pond: Pond, sql: str, **named: Any) -> str:
    with pytest.raises(MillpondError) as caught:
        pond.sql(sql, **named)
    return str(caught.value)


# -- tables ------------------------------------------------------------------------------


def test_a_table_of_every_type(pond: Pond) -> None:
    pond.sql("""
        CREATE TABLE every (
            i int PRIMARY KEY, b bigint, h hugeint, d decimal(10, 2), n numeric(20,4), r real, f double precision,
            ts timestamp, tz timestamp with time zone, da date, ti time, iv interval, bo boolean, te text,
            vc varchar(20), by bytea, id uuid, js json, jb jsonb, ar int[], st struct(a int, b text)
        )
    """)
    pond.sql("""
        INSERT INTO every VALUES (
            1, 2, 12345678901234567890123456789012345678, 1.25, 3.5, 0.5, 0.25,
            '2024-01-02 03:04:05', '2024-01-02 03:04:05+02', '2024-01-02', '03:04:05', '1 day 2 hours', true, 'é',
            'v', '\\xAB', 'b2f0a4ca-5f5f-4b0e-8d1c-4f8f8f0b6a11', '{"a": 1}', '[1]', [1, NULL], {'a': 1, 'b': 'x'}
        )
    """)
    pond.sql("INSERT INTO every (i) VALUES (2); FLUSH")
    first, second = rows(pond, "SELECT * FROM every ORDER BY i")
    assert first == (
        1,
        2,
        12345678901234567890123456789012345678,
        decimal.Decimal("1.25"),
        decimal.Decimal("3.5000"),
        0.5,
        0.25,
        datetime.datetime(2024, 1, 2, 3, 4, 5),
        datetime.datetime(2024, 1, 2, 1, 4, 5, tzinfo=datetime.UTC),
        datetime.date(2024, 1, 2),
        datetime.time(3, 4, 5),
        datetime.timedelta(days=1, hours=2),
        True,
        "é",
        "v",
        b"\xab",
        uuid.UUID("b2f0a4ca-5f5f-4b0e-8d1c-4f8f8f0b6a11"),
        '{"a": 1}',
        "[1]",
        [1, None],
        {"a": 1, "b": "x"},
    )
    assert second == (2, *[None] * 20)
    types = [r[1] for r in rows(pond, "DESCRIBE every")]
    assert (
        types[2] == "HUGEINT"
        and types[16] == "UUID"
        and types[17] == "JSON"
        and types[20].startswith("STRUCT")
    )


def test_defaults_generated_columns_and_not_null(pond: Pond) -> None:
    pond.sql("""
        CREATE TABLE t (
            id int PRIMARY KEY, n int NOT NULL DEFAULT 7, at timestamp DEFAULT now(), g int GENERATED ALWAYS AS (n * 2)
        );
        INSERT INTO t (id) VALUES (1);
        INSERT INTO t VALUES (2, DEFAULT, NULL), (3, 5, '2024-01-01');
        FLUSH
    """)
    assert rows(pond, "SELECT id, n, g FROM t ORDER BY id") == [(1, 7, 14), (2, 7, 14), (3, 5, 10)]
    assert rows(pond, "SELECT at IS NULL FROM t ORDER BY id") == [(False,), (True,), (False,)]
    assert "violates not-null constraint" in refused(pond, "INSERT INTO t VALUES (4, NULL, NULL)")
    assert "violates not-null constraint" in refused(pond, "INSERT INTO t (n) VALUES (4)"), (
        "a key is never NULL"
    )
    pond.sql("UPDATE t SET n = n + 1; FLUSH")
    assert rows(pond, "SELECT id, n, g FROM t ORDER BY id") == [(1, 8, 16), (2, 8, 16), (3, 6, 12)]
    assert "g" in refused(pond, "UPDATE t SET g = 1")


def test_a_key_replaces_and_no_key_repeats(pond: Pond) -> None:
    pond.sql("CREATE TABLE k (a int, b text, v int, PRIMARY KEY (a, b)); CREATE TABLE bag (v int)")
    pond.sql(
        "INSERT INTO k VALUES (1, 'x', 1), (1, 'y', 2), (1, 'x', 3); INSERT INTO bag VALUES (1), (1), (2); FLUSH"
    )
    assert rows(pond, "SELECT * FROM k ORDER BY b") == [(1, "x", 3), (1, "y", 2)]
    assert rows(pond, "SELECT v, count(*) FROM bag GROUP BY v ORDER BY v") == [(1, 2), (2, 1)]
    pond.sql("DELETE FROM bag WHERE v = 1; UPDATE bag SET v = v * 10; FLUSH")
    assert rows(pond, "SELECT * FROM bag") == [(20,)]


def test_an_append_only_table_with_a_watermark(pond: Pond) -> None:
    pond.sql("""
        CREATE TABLE e (k int, ts timestamp, WATERMARK FOR ts AS ts - INTERVAL '5 seconds') APPEND ONLY;
        CREATE MATERIALIZED VIEW closed AS
            SELECT window_start, count(*) AS n FROM TUMBLE(e, ts, INTERVAL '10 seconds')
            GROUP BY window_start, window_end EMIT ON WINDOW CLOSE;
        INSERT INTO e VALUES (1, '2024-01-01 00:00:01'), (2, '2024-01-01 00:00:02');
        FLUSH
    """)
    assert rows(pond, "SELECT * FROM closed") == []
    pond.sql("INSERT INTO e VALUES (3, '2024-01-01 00:00:40'); FLUSH")
    pond.sql("INSERT INTO e VALUES (4, '2024-01-01 00:00:03'); FLUSH")
    assert rows(pond, "SELECT * FROM closed") == [(datetime.datetime(2024, 1, 1), 2)]
    assert rows(pond, "SELECT count(*) FROM e") == [(4,)], "the table keeps what is late, too"
    assert rows(pond, "SELECT k FROM e_late") == [(4,)]
    assert [r[0] for r in rows(pond, "SHOW LATE")] == ["e_late"] and [
        r[0] for r in rows(pond, "SHOW TABLES")
    ] == ["e"]
    assert "APPEND ONLY" in refused(pond, "UPDATE e SET k = 1")
    assert "APPEND ONLY" in refused(pond, "DELETE FROM e")
    assert "APPEND ONLY" in refused(pond, "CREATE TABLE f (ts timestamp, WATERMARK FOR ts AS ts)")
    assert "minus an interval" in refused(
        pond, "CREATE TABLE f (ts timestamp, WATERMARK FOR ts AS date_trunc('month', ts)) APPEND ONLY"
    )


def test_changes_are_executed_in_their_turn(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, x int); CREATE TABLE u (id int PRIMARY KEY, x int)")
    pond.sql("""
        INSERT INTO t VALUES (1, 1), (2, 2);
        UPDATE t SET x = x + 10 WHERE id = 1;
        INSERT INTO u SELECT id, x FROM t;
        UPDATE t SET x = u.x * 100 FROM u WHERE u.id = t.id AND u.id = 2;
        DELETE FROM u USING t WHERE t.id = u.id AND t.x = 11;
        INSERT INTO t VALUES (1, 5), (3, 5) ON CONFLICT (id) DO UPDATE SET x = t.x + excluded.x;
        INSERT INTO t VALUES (3, 0), (4, 4) ON CONFLICT DO NOTHING;
        UPDATE t SET id = id + 1 WHERE id >= 3;
        UPDATE t AS a SET x = (SELECT max(x) FROM t) WHERE a.id = 5;
    """)
    pond.sql("FLUSH")
    assert rows(pond, "SELECT * FROM t ORDER BY id") == [(1, 16), (2, 200), (4, 5), (5, 200)]
    assert rows(pond, "SELECT * FROM u ORDER BY id") == [(2, 2)]
    assert pond.errors().num_rows == 0


def test_a_change_that_fails_is_refused_whole_and_told(pond: Pond) -> None:
    pond.sql(
        "CREATE TABLE t (id int PRIMARY KEY, x tinyint NOT NULL); INSERT INTO t VALUES (1, 1), (2, 100); FLUSH"
    )
    for sql in ("SET x = x + 100", "SET x = x + 1", "SET id = 9", "SET x = nullif(x, 2)"):
        pond.sql(f"UPDATE t {sql}")
    pond.sql("FLUSH")
    assert rows(pond, "SELECT * FROM t ORDER BY id") == [(1, 2), (2, 101)]
    reasons = sorted(pond.errors().column("reason").to_pylist())
    assert len(reasons) == 3 and all("UPDATE t SET" in r for r in reasons)


def test_volatile_changes_mean_the_same_when_replayed(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, at timestamptz); INSERT INTO t VALUES (1, NULL); FLUSH")
    pond.sql("UPDATE t SET at = now() WHERE id = 1; FLUSH")
    epoch = pond.epoch
    assert rows(pond, "SELECT at IS NOT NULL FROM t") == [(True,)]
    assert pond.replay(epoch).same
    assert "another value each time" in refused(pond, "UPDATE t SET id = random()::int")


def test_ten_thousand_rows_in_one_statement(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, name text)")
    took = []
    for first, last in ((0, 1_000), (1_000, 10_000)):
        started = time.process_time()
        pond.sql("INSERT INTO t VALUES\n" + ",\n".join(f"({n}, 'name {n}')" for n in range(first, last)))
        took.append(time.process_time() - started)
    assert took[1] < 30 * took[0] + 1, "nine times the rows: no pass over the text is quadratic"
    pond.sql("FLUSH")
    assert rows(pond, "SELECT count(*), max(name) FROM t") == [(10_000, "name 9999")]


# -- views ----------------------------------------------------------------------------------


def test_views_on_views_are_the_batch_query_after_every_change(pond: Pond) -> None:
    pond.sql("""
        CREATE TABLE sales (id int PRIMARY KEY, shop text, amount int);
        CREATE VIEW big AS SELECT * FROM sales WHERE amount > 10;
        CREATE MATERIALIZED VIEW by_shop AS SELECT shop, sum(amount) AS total FROM big GROUP BY shop;
        CREATE MATERIALIZED VIEW best AS SELECT shop FROM by_shop ORDER BY total DESC LIMIT 1;
        INSERT INTO sales VALUES (1, 'a', 20), (2, 'b', 30), (3, 'a', 5);
        FLUSH
    """)
    assert rows(pond, "SELECT * FROM best") == [("b",)]
    pond.sql("UPDATE sales SET amount = 25 WHERE id = 3; FLUSH")
    assert rows(pond, "SELECT * FROM by_shop ORDER BY 1") == [("a", 45), ("b", 30)]
    assert rows(pond, "SELECT * FROM best") == [("a",)]
    total = pond.sql("SELECT total FROM by_shop WHERE shop = 'a'").fetchone()
    assert total == (45,) and isinstance(total[0], int), "a HUGEINT is an int"


def test_views_come_and_go_while_rows_are_there(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, x int); INSERT INTO t VALUES (1, 1), (2, 2); FLUSH")
    pond.sql("CREATE MATERIALIZED VIEW s AS SELECT sum(x) AS s FROM t")
    assert rows(pond, "SELECT * FROM s") == [(3,)]
    pond.sql("CREATE OR REPLACE MATERIALIZED VIEW s AS SELECT sum(x) * 10 AS s, count(*) AS n FROM t")
    assert rows(pond, "SELECT * FROM s") == [(30, 2)]
    pond.sql("INSERT INTO t VALUES (3, 3); FLUSH")
    assert rows(pond, "SELECT * FROM s") == [(60, 3)]
    pond.sql(
        "CREATE MATERIALIZED VIEW other AS SELECT max(x) AS m FROM t; ALTER MATERIALIZED VIEW s SWAP WITH other"
    )
    assert rows(pond, "SELECT * FROM s") == [(3,)] and rows(pond, "SELECT * FROM other") == [(60, 3)]
    pond.sql("ALTER MATERIALIZED VIEW s RENAME TO highest; DROP MATERIALIZED VIEW other")
    assert rows(pond, "SELECT name FROM (SHOW_VIEWS)".replace("(SHOW_VIEWS)", "highest AS h(name)")) == [(3,)]
    pond.sql("DROP TABLE t CASCADE")
    assert rows(pond, "SHOW OBJECTS") == []
    pond.sql("CREATE TABLE t (a text); INSERT INTO t VALUES ('new'); FLUSH")
    assert rows(pond, "SELECT * FROM t") == [("new",)]


def test_what_is_dropped_and_made_again_in_one_text_is_empty(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (a int); INSERT INTO t VALUES (1); FLUSH")
    pond.sql("DROP TABLE t; CREATE TABLE t (a int)")
    assert rows(pond, "SELECT * FROM t") == []
    pond.sql("INSERT INTO t VALUES (2); FLUSH; CREATE OR REPLACE TABLE t (a int)")
    assert rows(pond, "SELECT * FROM t") == []


def test_dropping_what_others_use_is_refused_with_the_list(pond: Pond) -> None:
    pond.sql("""
        CREATE TABLE t (a int); CREATE VIEW v AS SELECT a FROM t; CREATE MATERIALIZED VIEW m AS SELECT a FROM v;
    """)
    assert "v, m" in refused(pond, "DROP TABLE t")
    assert "m" in refused(pond, "DROP VIEW v")
    assert "is a view, not a table" in refused(pond, "DROP TABLE v")
    assert "did you mean 't'" in refused(pond, "DROP TABLE tt")
    pond.sql("DROP TABLE IF EXISTS tt; DROP MATERIALIZED VIEW m; DROP VIEW v; DROP TABLE t")
    assert rows(pond, "SHOW OBJECTS") == []


def test_if_not_exists_and_names_in_use(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (a int); CREATE TABLE IF NOT EXISTS t (b int); CREATE VIEW v AS SELECT 1 AS one")
    pond.sql("CREATE VIEW IF NOT EXISTS v AS SELECT 2 AS two")
    assert rows(pond, "SELECT * FROM v") == [(1,)]
    for again in (
        "CREATE TABLE T (a int)",
        "CREATE VIEW t AS SELECT 1",
        "CREATE MATERIALIZED VIEW v AS SELECT a FROM t",
    ):
        assert "already" in refused(pond, again)
    assert "not replaced" in refused(pond, "CREATE OR REPLACE VIEW t AS SELECT 1")


def test_names_in_quotes_and_in_unicode(pond: Pond) -> None:
    pond.sql("""
        CREATE TABLE "größe; --" ("Wert 1" int PRIMARY KEY, "select" text, "a""b" int);
        INSERT INTO "größe; --" VALUES (1, 'ß', 2); UPDATE "größe; --" SET "a""b" = 3 WHERE "Wert 1" = 1;
        CREATE MATERIALIZED VIEW "Σ" AS SELECT "a""b" + 1 AS "x y" FROM "größe; --"; FLUSH
    """)
    assert rows(pond, 'SELECT "x y", "select" FROM "Σ", "größe; --"') == [(4, "ß")]
    assert rows(pond, 'select "X Y" from "Σ"') == [(4,)]


# -- sources and sinks ------------------------------------------------------------------------


def test_a_source_of_files_through_a_view_into_files(pond: Pond, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"k": [1, 1, 2], "v": [1, 2, 3]}), tmp_path / "in" / "a.parquet")
    pond.sql(
        """
        CREATE SOURCE s (k bigint, v bigint) WITH (connector = 'files', path = :path, format = 'parquet');
        CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS s FROM s GROUP BY k;
        CREATE SINK out FROM sums WITH (connector = 'files', path = :out);
        CREATE SINK doubled AS SELECT k, v * 2 AS d FROM s WITH (connector = 'files', path = :more, mode = 'append');
        FLUSH
        """,
        params={"path": str(tmp_path / "in"), "out": str(tmp_path / "out"), "more": str(tmp_path / "more")},
    )
    assert rows(pond, "SELECT * FROM sums ORDER BY k") == [(1, 3), (2, 3)]
    assert pq.read_table(tmp_path / "out").num_rows == 2
    assert sorted(pq.read_table(tmp_path / "more").column("d").to_pylist()) == [2, 4, 6]
    assert "not kept" in refused(pond, "SELECT * FROM s")
    assert [r[0] for r in rows(pond, "SHOW SOURCES")] == ["s"]
    assert [r[0] for r in rows(pond, "SHOW SINKS")] == ["doubled", "out"]
    assert "out" in refused(pond, "DROP MATERIALIZED VIEW sums")
    pond.sql("DROP SINK out; DROP SINK doubled; DROP MATERIALIZED VIEW sums; DROP SOURCE s")


def test_a_source_of_nexmark(pond: Pond) -> None:
    pond.sql("""
        CREATE SOURCE bid WITH (connector = 'nexmark', type = 'bid', events = 1000);
        CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM bid; FLUSH
    """)
    assert rows(pond, "SELECT * FROM n") == [(920,)]
    assert "did you mean 'nexmark'" in refused(pond, "CREATE SOURCE x WITH (connector = 'nexmrk')")
    assert "no option 'evnts'" in refused(pond, "CREATE SOURCE x WITH (connector = 'nexmark', evnts = 1)")
    assert "'connector' is missing" in refused(pond, "CREATE SOURCE x WITH (path = 'a')")


# -- reading -----------------------------------------------------------------------------------


def test_reads_at_older_epochs(tmp_path: Path) -> None:
    from millpond.clock import ManualClock

    clock = ManualClock(1_700_000_000_000_000)
    with opened(tmp_path, clock=clock) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, x int); INSERT INTO t VALUES (1, 1); FLUSH")
        first = pond.epoch
        pond.sql("CREATE SAVEPOINT before")
        clock.advance(60_000_000)
        pond.sql("UPDATE t SET x = 2; FLUSH")
        assert rows(pond, "SELECT x FROM t") == [(2,)]
        assert rows(pond, f"SELECT x FROM t AS OF EPOCH {first} WHERE id = 1") == [(1,)]
        assert rows(pond, "SELECT x FROM t AS OF EPOCH $1", params=[first]) == [(1,)]
        assert rows(pond, "SELECT x FROM t AS OF SAVEPOINT before") == [(1,)]
        at = "SELECT x FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '2023-11-14 22:13:30+00'"
        assert rows(pond, at) == [(1,)]
        assert rows(pond, "SELECT x FROM t FOR SYSTEM_TIME AS OF '2100-01-01'") == [(2,)]
        assert "as old as that" in refused(pond, "SELECT x FROM t FOR SYSTEM_TIME AS OF '2000-01-01'")
        assert "no epoch 999" in refused(pond, "SELECT x FROM t AS OF EPOCH 999")


def test_a_condition_on_the_key_reads_that_key_alone(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    from millpond.state.manifest.snapshot import Snapshot

    pond.sql("CREATE TABLE t (id int PRIMARY KEY, s text, x int); CREATE TABLE u (id int PRIMARY KEY, y int)")
    pond.sql("INSERT INTO t SELECT i, 's' || i, i FROM range(100) r(i); INSERT INTO u VALUES (7, 70); FLUSH")
    pond.sql("CREATE INDEX by_s ON t (s)")
    scans: list[str] = []
    scan = Snapshot._scan
    monkeypatch.setattr(
        Snapshot, "_scan", lambda self, spec, columns: scans.append(spec.name) or scan(self, spec, columns)
    )
    assert rows(pond, "SELECT x FROM t WHERE id = 7") == [(7,)]
    assert rows(pond, "SELECT x FROM t WHERE id = $1 AND x > 3", params=[7]) == [(7,)]
    assert rows(pond, "SELECT x FROM t WHERE id IN (7, 8, 8) ORDER BY x") == [(7,), (8,)]
    assert rows(pond, "SELECT x, y FROM t a JOIN u ON u.id = a.id WHERE a.id = 7 AND u.id = 7") == [(7, 70)]
    assert rows(pond, "SELECT x FROM t WHERE s = 's9'") == [(9,)], "by the index"
    assert rows(pond, "SELECT x FROM t WHERE id = '7'") == [(7,)]
    pond.sql("UPDATE t SET x = 0 WHERE id = 7; FLUSH")
    assert scans == []
    assert rows(pond, "SELECT x FROM t WHERE id = 7 OR x = 1 ORDER BY x") == [(0,), (1,)]
    assert rows(pond, "SELECT x FROM t WHERE id = 8.0") == [(8,)]
    assert rows(pond, "SELECT x FROM t WHERE id = NULL") == []
    assert len(scans) == 3 and len({*scans}) == 1, "a scan of t each"


def test_a_view_sees_all_rows_beside_a_condition_on_the_key(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, a int); INSERT INTO t VALUES (1, 5), (2, 6); FLUSH")
    pond.sql("CREATE VIEW v AS SELECT count(*) AS n FROM t")
    assert rows(pond, "SELECT id, (SELECT n FROM v) FROM t WHERE id = 1") == [(1, 2)]
    assert rows(pond, "SELECT v.n, t.id FROM v, t WHERE t.id = 2") == [(2, 2)]


def test_anything_that_duckdb_reads(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, x int); INSERT INTO t VALUES (1, 1), (2, 4); FLUSH")
    assert rows(pond, "WITH a AS (SELECT * FROM t) SELECT sum(x) OVER (ORDER BY id) FROM a ORDER BY 1") == [
        (1,),
        (5,),
    ]
    assert rows(pond, "VALUES (1, 'a')") == [(1, "a")]
    assert rows(pond, "SELECT quantile_cont(x, 0.5) FROM t") == [(2.5,)]
    assert rows(pond, "FROM t SELECT x WHERE id = 2") == [(4,)]
    assert pond.sql("SELECT x AS a, x AS a FROM t WHERE id = 1").columns == ["a", "a"]
    found = pond.sql("SELECT id, x FROM t ORDER BY id")
    assert found.fetchone() == (1, 1) and found.fetchall() == [(2, 4)] and found.fetchone() is None
    assert list(pond.sql("SELECT id FROM t ORDER BY id")) == [(1,), (2,)]
    assert pond.sql("SELECT id FROM t ORDER BY id").arrow().to_pydict() == {"id": [1, 2]}
    assert "disabled" in refused(pond, "SELECT * FROM read_csv('/etc/passwd')")


def test_subscriptions(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, x int); INSERT INTO t VALUES (1, 1); FLUSH")
    start = pond.epoch
    whole = pond.sql("SUBSCRIBE t")
    assert whole.columns == ["epoch", "weight", "id", "x"]
    assert next(whole) == (start, 1, 1, 1)
    pond.sql("UPDATE t SET x = 2; FLUSH")
    assert sorted([next(whole), next(whole)]) == [(start + 1, -1, 1, 1), (start + 1, 1, 1, 2)], "it goes on"
    whole.close()
    since = pond.sql(f"SUBSCRIBE t SINCE EPOCH {start}").fetchall()
    assert sorted(since) == [(start + 1, -1, 1, 1), (start + 1, 1, 1, 2)]
    assert list(pond.sql(f"SUBSCRIBE t SINCE EPOCH {start} UNTIL EPOCH {start}")) == []


def test_explain_describe_and_show(pond: Pond) -> None:
    pond.sql(
        "CREATE TABLE t (id int PRIMARY KEY, x int DEFAULT 3); CREATE MATERIALIZED VIEW v AS SELECT x FROM t"
    )
    assert any("v.view: Materialize" in line for (line,) in rows(pond, "EXPLAIN v"))
    assert any("Aggregate" in line for (line,) in rows(pond, "EXPLAIN SELECT x, count(*) FROM t GROUP BY x"))
    assert [r[0] for r in rows(pond, "SHOW VIEWS")] == ["v"], "an EXPLAIN defines nothing"
    pond.sql("INSERT INTO t VALUES (1, 1); FLUSH")
    told = "\n".join(line for (line,) in rows(pond, "EXPLAIN ANALYZE v"))
    assert re.search(r"v.view: \d+\.\d+ ms in 1 epochs, 1 rows and \d+ bytes of state", told), told
    assert rows(pond, "DESCRIBE t") == [
        ("id", "INTEGER", False, True, None),
        ("x", "INTEGER", True, False, "3"),
    ]
    assert rows(pond, "DESCRIBE SELECT x + 1 AS y FROM v")[0][:2] == ("y", "INTEGER")
    assert rows(pond, "SHOW TABLES") == [("t", "table", "id INTEGER, x INTEGER")]
    assert rows(pond, "SHOW EPOCHS")[0][:2] == (0, "create")
    assert rows(pond, "SHOW CREATE TABLE t")[0][0].startswith("CREATE TABLE t (id int PRIMARY KEY")
    pond.sql("CREATE SAVEPOINT s; CREATE SAVEPOINT IF NOT EXISTS s")
    assert [r[0] for r in rows(pond, "SHOW SAVEPOINTS")] == ["s"]
    pond.sql("DROP SAVEPOINT s; DROP SAVEPOINT IF EXISTS s")


# -- parameters ----------------------------------------------------------------------------------


def test_parameters_are_values_and_never_text(pond: Pond) -> None:
    evil = "x'); DROP TABLE t; --"
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, s text, d decimal(10,2), at timestamp, l int[])")
    at = datetime.datetime(2024, 1, 1, 10)
    pond.sql("INSERT INTO t VALUES (?, ?, ?, ?, ?)", params=[1, evil, decimal.Decimal("1.5"), at, [1, 2]])
    pond.sql("INSERT INTO t (id, s) VALUES (:id, :s)", params={"id": 2, "s": "it's"})
    pond.sql("UPDATE t SET s = s || $2 WHERE id = $1", params=[2, "' OR 1=1 --"])
    pond.sql("FLUSH")
    assert rows(pond, "SELECT * FROM t WHERE s = $1", params=[evil]) == [
        (1, evil, decimal.Decimal("1.50"), at, [1, 2])
    ]
    assert rows(pond, "SELECT s FROM t WHERE id = :n", params={"n": 2}) == [("it's' OR 1=1 --",)]
    pond.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t WHERE s = ?", params=[evil])
    assert rows(pond, "SELECT n FROM v") == [(1,)]
    assert rows(pond, "SELECT 1::int, x.a FROM (SELECT {'a':2} AS x)", params={"int": 5}) == [(1, 2)]
    assert "no value for parameter 2" in refused(pond, "SELECT $2", params=[1])
    assert "no value for parameter 'n'" in refused(pond, "SELECT $n", params=[1])
    assert "cannot be a object" in refused(pond, "INSERT INTO t (id) VALUES (?)", params=[object()])


# -- what is wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELEC 1", "did you mean 'SELECT'"),
        ("SELECT 1 FRM t x y", "                 ^"),
        ("CREATE TABEL x (a int)", "CREATE of what?"),
        ("CREATE TABLE x", "columns should stand here"),
        ("CREATE TABLE x (a intt)", 'type "intt" does not exist'),
        ("CREATE TABLE x (a int", "never closed"),
        ("CREATE TABLE x ()", "needs a column"),
        ("CREATE TABLE x (a int, A int)", "specified more than once"),
        ("CREATE TABLE x (a int, PRIMARY KEY (b))", "there is no column 'b'"),
        ("CREATE TABLE x (a int DEFAULT nope())", "nope"),
        ("CREATE TABLE x (a int GENERATED ALWAYS AS (b + 1))", '"b"'),
        ("SELECT * FROM tt", 'did you mean "t"'),
        ("SELECT amout FROM t", "amount"),
        ("SELECT amount + 'a' FROM t WHERE nope = 1", "nope"),
        ("INSERT INTO tt VALUES (1)", "did you mean 't'"),
        ("INSERT INTO t (id, amout) VALUES (1, 2)", "amout"),
        ("INSERT INTO t VALUES (1, 2, 3)", "3 values"),
        ("INSERT INTO t VALUES ('x', 2)", 'invalid input syntax for type integer: "x"'),
        ("INSERT INTO v VALUES (1)", "only the rows of tables"),
        ("UPDATE t SET amout = 1", "amout"),
        ("UPDATE t SET amount = 1 RETURNING idd", "idd"),
        ("DELETE FROM t RETURNING", "what should it give?"),
        ("INSERT INTO t VALUES (1, 2) RETURNING nope + 1", "nope"),
        ("DELETE FROM t WHERE nope = 1", "nope"),
        ("CREATE MATERIALIZED VIEW x AS SELECT nope FROM t", "nope"),
        ("CREATE MATERIALIZED VIEW x AS SELECT random() FROM t", "random"),
        ("CREATE MATERIALIZED VIEW x AS", "a query should stand here"),
        ("CREATE VIEW x AS SELECT nope FROM t", "nope"),
        ("DROP NOTHING x", "DROP of what?"),
        ("ALTER TABLE t ALTER COLUMN amount TYPE text", "cannot be changed"),
        ("SHOW NOTHING", "SHOW what?"),
        ("SUBSCRIBE nope", 'relation "nope" does not exist'),
        ("SELECT 'abc", "never closed"),
        ("SELECT 1 AS OF EPOCH x", "a number should stand here"),
        ("FLUSH NOW", "nothing more should stand here"),
        ("INSERT INTO t VALUES ({: 1})", "syntax error"),
        ("WITH a AS (DELETE FROM t RETURNING id) SELECT * FROM a", "a change cannot be part of WITH"),
        ("SELECT * FROM TUMBLE(t, id, INTERVAL '1 day')", "the time of a window must be a timestamp"),
        ("SELECT " + "(" * 3000 + "1" + ")" * 3000, "more than 1000 levels"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(pond: Pond, sql: str, told: str) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, amount int); CREATE VIEW v AS SELECT id FROM t")
    assert told in refused(pond, sql)
    assert [r[0] for r in rows(pond, "SHOW OBJECTS")] == ["t", "v"], "nothing is left of it"


def test_what_stands_before_a_mistake_is_done(pond: Pond) -> None:
    with pytest.raises(InvalidError):
        pond.sql("CREATE TABLE a (x int); CREATE TABLE b (x nope)")
    assert [r[0] for r in rows(pond, "SHOW TABLES")] == ["a"]


def test_other_dialects(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, `a b` string)", dialect="spark")
    pond.sql("INSERT INTO t VALUES (1, 'x')", dialect="spark")
    pond.sql("FLUSH")
    assert rows(pond, "SELECT `a b`, nvl(NULL, 2) FROM t", dialect="spark") == [("x", 2)]
    assert "no SQL dialect named 'sparkk'" in refused(pond, "SELECT 1", dialect="sparkk")


def test_intervals_are_told_as_they_are_read(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (i interval, l interval[]); FLUSH")
    since = pond.epoch
    listed = ("1 year 2 days 03:04:05.25", "-1 months", "-00:00:01", "0 days", "100 hours")
    values = ", ".join(f"('{i}', ['{i}'::interval])" for i in listed)
    pond.sql(f"INSERT INTO t VALUES {values}, (NULL, NULL); FLUSH")
    told = [tuple(row) for _, _, *row in pond.sql(f"SUBSCRIBE t SINCE EPOCH {since}").fetchall()]
    assert sorted(told, key=repr) == sorted(rows(pond, "SELECT * FROM t"), key=repr)


# -- SQL and the flow API -----------------------------------------------------------------------


def test_sql_and_flow_meet_by_name(pond: Pond) -> None:
    table = pond.table("t", {"k": int, "v": int}, key="k")
    table.key_by("k").aggregate(n="count(*)").view("flowed")
    pond.insert("t", [{"k": 1, "v": 2}])
    pond.sql("CREATE MATERIALIZED VIEW s AS SELECT sum(v) AS s FROM t; INSERT INTO t VALUES (2, 3); FLUSH")
    assert rows(pond, "SELECT * FROM s") == [(5,)]
    assert rows(pond, "SELECT k, n FROM flowed ORDER BY k") == [(1, 1), (2, 1)]
    pond.sql("UPDATE t SET v = v + 1 WHERE k = 1; FLUSH")
    assert pond.read("s").to_pylist() == [{"s": 6}]
    with pond.changing():
        pond.stream_of("s").select(double="s * 2").view("doubled")
        assert "inside `with pond.changing()" in refused(pond, "CREATE TABLE inside (a int)")
    assert rows(pond, "SELECT double FROM doubled") == [(12,)]
    assert "flowed" in refused(pond, "DROP TABLE t")


def test_execute_leaves_the_database_of_its_thread_free() -> None:
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id int); PREPARE give (int) AS SELECT $1")
        pond.sql("SELECT 1; EXECUTE give (1 + 1)")
    con = thread_scratch()._con
    con.create_function("is_free", lambda n: n, ["BIGINT"], "BIGINT")  # refused while a result is not read
    con.remove_function("is_free")
