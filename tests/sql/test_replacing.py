"""CREATE OR REPLACE of views that others use: all of them swap in one commit, none is ever empty (laws 1, 2, 7)."""

from __future__ import annotations

import collections
import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from millpond.pond import Pond
from tests.sql.asked import opened, refused, rows


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with opened(tmp_path) as made:
        yield made


def test_what_is_built_on_it_follows_in_the_same_epoch(pond: Pond, tmp_path: Path) -> None:
    pond.sql(
        """
        CREATE TABLE t (id int PRIMARY KEY, a int);
        CREATE MATERIALIZED VIEW m AS SELECT a, count(*) AS n FROM t GROUP BY a;
        CREATE MATERIALIZED VIEW every AS SELECT * FROM m WHERE n > 0;
        CREATE MATERIALIZED VIEW total AS SELECT sum(n) AS s FROM every;
        CREATE VIEW plain AS SELECT * FROM m;
        CREATE INDEX by_n ON m (n);
        CREATE SINK told FROM total WITH (connector = 'files', path = :out);
        INSERT INTO t VALUES (1, 1), (2, 1), (3, 2); FLUSH
        """,
        params={"out": str(tmp_path / "out")},
    )
    before = pond.epoch
    pond.sql(
        "CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT count(*) * 10 AS n, a, max(id) AS more FROM t GROUP BY a"
    )
    assert pond.epoch == before + 1, "one commit"
    assert rows(pond, "SELECT * FROM m") == [(10, 2, 3), (20, 1, 2)]
    assert rows(pond, "SELECT * FROM every") == rows(pond, "SELECT * FROM plain") == [(1, 20), (2, 10)]
    assert rows(pond, "SELECT * FROM total") == [(30,)]
    assert rows(pond, "SELECT a FROM m WHERE n = 20") == [(1,)]
    for epoch in range(before, pond.epoch + 1):
        shown = {v: rows(pond, f"SELECT * FROM {v} AS OF EPOCH {epoch}") for v in ("m", "every", "total")}
        assert all(shown.values()) and shown["total"][0][0] in (3, 30), "no epoch shows an empty one"
    pond.sql("INSERT INTO t VALUES (4, 3); FLUSH")
    assert rows(pond, "SELECT * FROM total") == [(40,)] and len(rows(pond, "SELECT * FROM plain")) == 3
    deltas = pq.read_table(tmp_path / "out").to_pylist()
    assert sum((d["s"] or 0) * d["_w"] for d in deltas) == 40, "the first sum, over no rows, is NULL"
    assert [r[0] for r in rows(pond, "SHOW OBJECTS")] == ["by_n", "every", "m", "plain", "t", "told", "total"]
    pond.sql("DROP MATERIALIZED VIEW m CASCADE; DROP TABLE t")
    assert rows(pond, "SHOW OBJECTS") == [] and not pond.plan.nodes


def test_a_plain_view_is_replaced_under_what_is_built_on_it(pond: Pond) -> None:
    pond.sql("""
        CREATE TABLE t (id int PRIMARY KEY, a int); CREATE VIEW v AS SELECT id, a FROM t;
        CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM v; INSERT INTO t VALUES (1, 1), (2, 2); FLUSH;
        CREATE OR REPLACE VIEW v AS SELECT id, a FROM t WHERE a > 1
    """)
    assert rows(pond, "SELECT n FROM m") == [(1,)]
    pond.sql("INSERT INTO t VALUES (3, 3); FLUSH")
    assert rows(pond, "SELECT n FROM m") == [(2,)]


def test_windows_that_close_stay_so(pond: Pond) -> None:
    pond.sql("""
        CREATE TABLE e (k int, ts timestamp, WATERMARK FOR ts AS ts - INTERVAL '5 seconds') APPEND ONLY;
        CREATE MATERIALIZED VIEW odd AS SELECT k, ts FROM e WHERE k % 2 = 1;
        CREATE MATERIALIZED VIEW closed AS
            SELECT window_start, count(*) AS n FROM TUMBLE(odd, ts, INTERVAL '10 seconds')
            GROUP BY window_start, window_end EMIT ON WINDOW CLOSE;
        INSERT INTO e VALUES (1, '2024-01-01 00:00:01'), (2, '2024-01-01 00:00:02'), (3, '2024-01-01 00:00:31'); FLUSH;
        CREATE OR REPLACE MATERIALIZED VIEW odd AS SELECT k, ts FROM e
    """)
    assert [n for _, n in rows(pond, "SELECT * FROM closed")] == [2]
    pond.sql("INSERT INTO e VALUES (5, '2024-01-01 00:01:00'); FLUSH")
    assert [n for _, n in rows(pond, "SELECT * FROM closed")] == [2, 1]


def test_a_view_over_a_table_that_changed_means_what_it_meant(pond: Pond) -> None:
    pond.sql("""
        CREATE TABLE t (id int PRIMARY KEY, a int); CREATE MATERIALIZED VIEW m AS SELECT id FROM t;
        CREATE MATERIALIZED VIEW j AS SELECT * FROM t NATURAL JOIN m; INSERT INTO t VALUES (1, 2); FLUSH;
        ALTER TABLE t ADD COLUMN b int DEFAULT 3, RENAME COLUMN a TO z;
        CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT id, 5 AS b FROM t
    """)
    assert pond.sql("SELECT * FROM j").columns == ["id", "a"] and rows(pond, "SELECT * FROM j") == [(1, 2)]


def test_what_does_not_fit_is_refused_with_what_to_do(pond: Pond) -> None:
    pond.sql("""
        CREATE TABLE t (id int PRIMARY KEY, a int); CREATE MATERIALIZED VIEW m AS SELECT id, a FROM t;
        CREATE MATERIALIZED VIEW d AS SELECT a FROM m; INSERT INTO t VALUES (1, 2); FLUSH
    """)
    with pond.changing():
        pond.stream_of("d").select(b="a").view("flowed")
    told = refused(pond, "CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT id FROM t")
    assert "the flow API built on it" in told and "flowed" in told
    pond.drop_view("flowed")
    told = refused(pond, "CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT id FROM t")
    assert "column 'a' is missing" in told and "d" in told and "drop these first" in told
    told = refused(pond, "CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT id, a::text AS a FROM t")
    assert "column 'a' is VARCHAR" in told and "give 'a' as INTEGER" in told
    assert "built on itself" in refused(
        pond, "CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT a, a AS id FROM d"
    )
    assert "others use it" in refused(pond, "CREATE OR REPLACE TABLE t (id int, a int)")
    assert rows(pond, "SELECT * FROM d") == [(2,)]


def test_random_replacements_are_the_batch_query(tmp_path: Path) -> None:
    """A chain of views, one of which is replaced, with changes, restarts and other parallelism between."""
    chance = random.Random(3)
    con = duckdb.connect()
    con.execute("create table t (id int primary key, a int, b int)")
    pond = opened(tmp_path)
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, a int, b int)")
    texts = {
        "one": [
            "SELECT a, sum(b) AS n FROM t GROUP BY a",
            "SELECT a, count(*)::hugeint AS n FROM t WHERE b > 1 GROUP BY a",
        ],
        "two": ["SELECT n, count(*) AS c FROM one GROUP BY n", "SELECT n, 1::bigint AS c FROM one"],
        "three": [
            "SELECT two.n, one.a FROM two JOIN one ON one.n = two.n",
            "SELECT DISTINCT n, c::int AS a FROM two",
        ],
    }
    for name, (first, _) in texts.items():
        pond.sql(f"CREATE MATERIALIZED VIEW {name} AS {first}")
        con.execute(f"create view {name} as {first}")
    for turn in range(6):
        for _ in range(3):
            values = (chance.randint(0, 9), chance.randint(0, 2), chance.randint(0, 3))
            pond.sql(f"INSERT INTO t VALUES {values}")
            con.execute(f"insert or replace into t values {values}")
        gone = chance.randint(0, 9)
        pond.sql(f"DELETE FROM t WHERE id = {gone}; FLUSH")
        con.execute(f"delete from t where id = {gone}")
        name = chance.choice(list(texts))
        text = chance.choice(texts[name])
        pond.sql(f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS {text}")
        con.execute(f"create or replace view {name} as {text}")
        if turn % 5 == 4:
            pond.close()
            pond = opened(tmp_path, parallelism=chance.randint(1, 3))
            pond.compact()
        for view in texts:
            wanted = collections.Counter(con.execute(f"from {view}").fetchall())
            assert collections.Counter(pond.sql(f"SELECT * FROM {view}").fetchall()) == wanted, (turn, view)
    pond.close()


@pytest.mark.parametrize("order", ["v0 v1", "v1 v0", "v0 v0", "v1 v1", "v1 v0 v1 v0"])
def test_one_text_replaces_views_more_than_once(pond: Pond, order: str) -> None:
    """Each of its steps has an id of its own, whatever was made and dropped again in between."""
    pond.sql("""
        CREATE TABLE t (id int PRIMARY KEY, a int);
        CREATE MATERIALIZED VIEW v0 AS SELECT id, a + 1 AS a FROM t;
        CREATE MATERIALIZED VIEW v1 AS SELECT id, a * 2 AS b FROM v0;
        INSERT INTO t VALUES (1, 1), (2, 5); FLUSH
    """)
    more, times, text = 1, 2, []
    for number, name in enumerate(order.split(), 3):
        more, times = (number, times) if name == "v0" else (more, number)
        query = f"id, a + {number} AS a FROM t" if name == "v0" else f"id, a * {number} AS b FROM v0"
        text.append(f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS SELECT {query}")
    before = pond.epoch
    pond.sql("; ".join(text))
    assert pond.epoch == before + 1, "one commit"
    pond.sql("INSERT INTO t VALUES (3, 7); FLUSH")
    assert rows(pond, "SELECT * FROM v1") == [(i, (a + more) * times) for i, a in ((1, 1), (2, 5), (3, 7))]


def test_who_follows_is_told_what_went_when_another_table_holds_the_rows(pond: Pond) -> None:
    """The rows of both are told under the view's names, whatever the tables call them (laws 2 and 7)."""
    pond.sql("""
        CREATE TABLE numbers (id int PRIMARY KEY, a int); INSERT INTO numbers VALUES (1, 5), (2, 7);
        CREATE MATERIALIZED VIEW least AS SELECT min(a) AS m FROM numbers; FLUSH
    """)
    since = pond.epoch
    pond.sql("CREATE OR REPLACE MATERIALIZED VIEW least AS SELECT max(a) - 1 AS m FROM numbers; FLUSH")
    told = pond.sql(f"SUBSCRIBE least SINCE EPOCH {since}").fetchall()
    assert sorted((weight, m) for _, weight, m in told) == [(-1, 5), (1, 6)]
    pond.sql("CREATE OR REPLACE MATERIALIZED VIEW least AS SELECT min(a) AS m FROM numbers; FLUSH")
    assert pond.diff("least", since, pond.epoch).num_rows == 0
