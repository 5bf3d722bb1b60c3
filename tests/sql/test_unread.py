"""What nobody reads is not computed and not kept: it cannot fail, and its column can go (laws 1 and 5)."""

from __future__ import annotations

from pathlib import Path

import pytest

import millpond
from millpond.operators.per_key import PerKey
from millpond.operators.top_n import TopN

BAD = "(SELECT id, k, CAST(s AS integer) AS bad FROM t)"
COUNTED = "count(*) OVER (PARTITION BY k) AS n"
QUERIES = [
    f"SELECT id, n FROM (SELECT *, {COUNTED} FROM {BAD} AS z) AS q",
    f"SELECT id, n FROM (SELECT *, {COUNTED} FROM {BAD} AS z) AS q WHERE n > 1",
    f"SELECT id FROM (SELECT *, {COUNTED}, sum(bad) OVER (PARTITION BY id) AS m FROM {BAD} AS z) AS q WHERE n > 1",
    f"SELECT id FROM (SELECT *, sum(bad) OVER (PARTITION BY id) AS m FROM {BAD} AS z) AS q",
    f"SELECT id, n FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY id) AS n FROM {BAD} AS z) AS q WHERE n <= 2",
    "SELECT id, m FROM (SELECT *, sum(id) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN id % 2 PRECEDING AND CURRENT ROW)"
    f" AS m FROM {BAD} AS z) AS q",
    "SELECT id, m FROM (SELECT *, lag(k, 1, id) OVER (ORDER BY id) AS m FROM (SELECT * FROM t) AS z) AS q",
    "SELECT id, m FROM (SELECT *, count(*) FILTER (WHERE k > 0) OVER (PARTITION BY id % 2) AS m FROM t) AS q",
    f"SELECT q.id, t.k FROM {BAD} AS q LEFT JOIN t ON q.k = t.id",
    f"SELECT t.id, q.k FROM t LEFT JOIN {BAD} AS q ON q.k = t.id AND q.id > t.k",
    f"SELECT t.id, q.k FROM t FULL JOIN {BAD} AS q ON q.k = t.id",
    f"SELECT q.id FROM {BAD} AS q WHERE EXISTS (SELECT 1 FROM t WHERE t.k = q.k AND t.id > q.id)",
    f"SELECT q.id FROM {BAD} AS q WHERE q.k IN (SELECT t.id FROM t) OR q.id = 1",
    f"SELECT q.id FROM {BAD} AS q WHERE q.k NOT IN (SELECT t.id FROM t WHERE t.id > 1)",
    f"SELECT id FROM (SELECT * FROM {BAD} AS q ORDER BY k DESC, id LIMIT 2) AS z",
    f"SELECT k FROM (SELECT DISTINCT ON (k) * FROM {BAD} AS q ORDER BY k, id) AS z",
    f"SELECT t.id, q.k FROM t ASOF JOIN {BAD} AS q ON t.id > q.id",
    f"SELECT k FROM (SELECT k, max(bad) AS m FROM {BAD} AS q GROUP BY k) AS z",
    f"SELECT n FROM (SELECT sum(bad) AS m, count(*) AS n FROM {BAD} AS q) AS z",
    f"SELECT k, n FROM (SELECT k, max(bad) AS m, count(*) AS n FROM {BAD} AS q GROUP BY ROLLUP (k) HAVING count(*) > 1) AS z",
    f"SELECT t.id, z.n FROM (SELECT k, max(bad) AS m, count(*) AS n FROM {BAD} AS q GROUP BY k) AS z JOIN t USING (k)",
    f"SELECT id, n FROM (SELECT *, {COUNTED} FROM {BAD} AS y UNION ALL SELECT *, 1 FROM {BAD} AS z) AS q WHERE n > 0",
    f"SELECT id, u FROM (SELECT *, unnest([k, 7]) AS u FROM {BAD} AS q) AS z",
]  # fmt: skip

Q = f"q AS (SELECT *, {COUNTED} FROM {BAD} AS z)"
COMMON = [
    f"WITH {Q} SELECT id, n FROM q",
    f"WITH {Q} SELECT id FROM q WHERE n > 1",
    f"WITH {Q} SELECT count(*) AS c FROM q",
    f"WITH {Q} SELECT a.id, b.n FROM q AS a JOIN q AS b ON a.id = b.k",
    f"WITH {Q} SELECT a.id, b.n FROM q AS a LEFT JOIN q AS b ON a.id = b.k AND a.n > b.id",
    f"WITH {Q}, p AS (SELECT *, sum(bad) OVER (PARTITION BY id) AS m, n + 1 AS o FROM q) SELECT id, o FROM p",
    f"WITH {Q}, p AS (SELECT * FROM q), o AS (SELECT * FROM p) SELECT o.id, p.n FROM o JOIN p USING (k)",
    f"WITH p AS (WITH {Q} SELECT *, n AS m FROM q) SELECT id, m FROM p WHERE k > 0",
    f"WITH {Q} SELECT t.id FROM t WHERE t.k IN (SELECT n FROM q) OR t.id = 1",
    f"WITH {Q} SELECT t.id FROM t WHERE EXISTS (SELECT * FROM q WHERE q.k = t.id AND q.n > t.k)",
    f"WITH {Q} SELECT t.id, (SELECT max(n) FROM q WHERE q.k = t.k) AS m FROM t",
    f"WITH {Q} SELECT id, n FROM q UNION ALL SELECT k, id FROM q",
    f"WITH {Q} SELECT id FROM q EXCEPT SELECT n FROM q WHERE k > 1",
    f"WITH {Q} SELECT id FROM (SELECT * FROM q UNION ALL SELECT * FROM q WHERE n > 1) AS z",
    f"WITH {Q}, p AS (SELECT * FROM q UNION ALL SELECT * FROM q) SELECT count(*) AS c FROM p",
    f"WITH p AS (SELECT k, max(bad) AS m, count(*) AS n FROM {BAD} AS q GROUP BY k) SELECT k, n FROM p",
    f"WITH {Q} SELECT q.id, u.x FROM q, unnest([q.k, q.n]) AS u(x)",
    f"WITH {Q}, nobody AS (SELECT sum(bad) AS m FROM q) SELECT id, n FROM q",
    f"WITH RECURSIVE {Q}, r(a, b) AS (SELECT id, n FROM q UNION SELECT r.a, q.k FROM r JOIN q ON q.id = r.b)"
    " SELECT a, b FROM r",
]  # fmt: skip


@pytest.mark.parametrize("queries", [QUERIES, COMMON], ids=["plain", "common"])
def test_what_nobody_reads_cannot_fail_and_can_go(queries: list[str], tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", checks=True, durable=False) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, k int, s text)")
        pond.sql("; ".join(f"CREATE MATERIALIZED VIEW v{n} AS {query}" for n, query in enumerate(queries)))
        pond.sql("INSERT INTO t VALUES (1, 1, 'x'), (2, 1, '3'), (3, 2, 'y'); FLUSH")
        pond.sql(
            "UPDATE t SET k = k + 1 WHERE id = 2; INSERT INTO t VALUES (4, NULL, NULL); DELETE FROM t WHERE id = 3"
        )
        pond.sql("FLUSH")
        assert pond.errors().num_rows == 0
        for number, query in enumerate(queries):
            wanted = sorted(pond.sql(query).fetchall(), key=repr)
            assert sorted(pond.sql(f"SELECT * FROM v{number}").fetchall(), key=repr) == wanted, query
        pond.sql("ALTER TABLE t DROP COLUMN s CASCADE; INSERT INTO t VALUES (5, 2); FLUSH")
        assert len(pond.sql("SHOW VIEWS").fetchall()) == len(queries), "none of them reads the column"
        assert (5,) in pond.sql("SELECT id FROM v0").fetchall()


def test_what_one_reference_reads_is_there_for_it(tmp_path: Path) -> None:
    """A column that one of two references reads is computed, and fails, for both: a batch fails as a whole."""
    with millpond.open(tmp_path / "pond", engine="inline", checks=True, durable=False) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, k int, s text)")
        pond.sql(
            f"CREATE MATERIALIZED VIEW v AS WITH {Q} SELECT a.n, b.bad FROM q AS a JOIN q AS b ON a.id = b.k"
        )
        pond.sql("INSERT INTO t VALUES (1, 1, '7'), (2, 1, '8'), (3, 1, 'x'); FLUSH")
        assert sorted(pond.sql("SELECT * FROM v").fetchall()) == [(2, 7), (2, 8)]
        assert pond.errors("v").num_rows == 1
        pond.sql("UPDATE t SET s = '9' WHERE id = 3; FLUSH")
        assert sorted(pond.sql("SELECT * FROM v").fetchall()) == [(3, 7), (3, 8), (3, 9)]
        assert pond.errors("v").num_rows == 0


def test_a_recursion_is_computed_whole(tmp_path: Path) -> None:
    """Rows of a round are told apart by all their columns: each of them is read."""
    recursion = (
        "WITH RECURSIVE r(a, b) AS (SELECT id, CAST(s AS integer) FROM t UNION"
        " SELECT a, b + 1 FROM r WHERE b < 3) SELECT a FROM r"
    )
    with millpond.open(tmp_path / "pond", engine="inline", checks=True, durable=False) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, k int, s text)")
        pond.sql(f"CREATE MATERIALIZED VIEW v AS {recursion}")
        pond.sql("INSERT INTO t VALUES (1, 1, '2'), (2, 1, '3'), (3, 1, 'x'); FLUSH")
        assert sorted(pond.sql("SELECT * FROM v").fetchall()) == [(1,), (1,), (2,)]
        assert pond.errors("v").num_rows == 1


def windows_of(pond: millpond.Pond) -> int:
    """How many steps keep the rows of partitions."""
    return sum(isinstance(node.operator, PerKey) for node in pond.plan.nodes.values())


def test_views_with_the_same_common_table_read_what_they_need(tmp_path: Path) -> None:
    """Views that read the same of it share its state; one that reads more has its own, and its own errors."""
    with millpond.open(tmp_path / "pond", engine="inline", checks=True, durable=False) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, k int, s text)")
        pond.sql(f"CREATE MATERIALIZED VIEW one AS WITH {Q} SELECT id, n FROM q")
        before = windows_of(pond)
        pond.sql(f"CREATE MATERIALIZED VIEW two AS WITH {Q} SELECT n, id FROM q WHERE id > 1")
        assert windows_of(pond) == before == 1
        pond.sql(f"CREATE MATERIALIZED VIEW all_of_it AS WITH {Q} SELECT id, bad, n FROM q")
        assert windows_of(pond) == 2
        pond.sql("INSERT INTO t VALUES (1, 1, 'x'), (2, 1, '3'); FLUSH")
        assert sorted(pond.sql("SELECT * FROM one").fetchall()) == [(1, 2), (2, 2)]
        assert pond.sql("SELECT * FROM two").fetchall() == [(2, 2)]
        assert pond.sql("SELECT * FROM all_of_it").fetchall() == [(2, 3, 1)]
        assert [pond.errors(v).num_rows for v in ("one", "two", "all_of_it")] == [0, 0, 1]


RANKED = "(SELECT *, row_number() OVER (PARTITION BY k ORDER BY id) AS n FROM t) AS q"


@pytest.mark.parametrize(
    ("query", "given"),
    [
        (f"SELECT id, s FROM {RANKED} WHERE n <= 2", False),
        (f"SELECT id, s FROM {RANKED} WHERE n < 3 AND n <= 5", False),
        (f"SELECT id, s FROM {RANKED} WHERE n = 1 AND id > 0", False),
        (f"SELECT id, s FROM {RANKED} WHERE n = 2", True),
        (f"SELECT id, s FROM {RANKED} WHERE n BETWEEN 2 AND 3", True),
        (f"SELECT id, s, n FROM {RANKED} WHERE n <= 2", True),
    ],
)
def test_rows_do_not_come_again_for_a_rank_that_nobody_reads(tmp_path: Path, query: str, given: bool) -> None:
    pond = millpond.open(tmp_path / "pond", engine="inline")
    pond.sql("CREATE TABLE t (id integer PRIMARY KEY, k integer, s text)")
    pond.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
    (ranks,) = [n.operator for n in pond.plan.nodes.values() if isinstance(n.operator, TopN)]
    assert (ranks.rank_column is not None) == given
    pond.sql("INSERT INTO t VALUES (4, 0, 'd'), (5, 0, 'e'), (6, 1, 'f'), (7, 0, 'g')")
    for change in (
        "INSERT INTO t VALUES (1, 0, 'a')",
        "DELETE FROM t WHERE id = 4",
        "DELETE FROM t WHERE k = 1",
    ):
        pond.sql(change)
        pond.sql("FLUSH")
        assert sorted(pond.sql("SELECT * FROM v").fetchall()) == sorted(pond.sql(query).fetchall())
    pond.close()
