"""What nobody reads is not computed and not kept: it cannot fail, and its column can go (laws 1 and 5)."""

from __future__ import annotations

from pathlib import Path

import millpond

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


def test_what_nobody_reads_cannot_fail_and_can_go(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", checks=True, durable=False) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, k int, s text)")
        pond.sql("; ".join(f"CREATE MATERIALIZED VIEW v{n} AS {query}" for n, query in enumerate(QUERIES)))
        pond.sql("INSERT INTO t VALUES (1, 1, 'x'), (2, 1, '3'), (3, 2, 'y'); FLUSH")
        pond.sql(
            "UPDATE t SET k = k + 1 WHERE id = 2; INSERT INTO t VALUES (4, NULL, NULL); DELETE FROM t WHERE id = 3"
        )
        pond.sql("FLUSH")
        assert pond.errors().num_rows == 0
        for number, query in enumerate(QUERIES):
            wanted = sorted(pond.sql(query).fetchall(), key=repr)
            assert sorted(pond.sql(f"SELECT * FROM v{number}").fetchall(), key=repr) == wanted, query
        pond.sql("ALTER TABLE t DROP COLUMN s CASCADE; INSERT INTO t VALUES (5, 2); FLUSH")
        assert len(pond.sql("SHOW VIEWS").fetchall()) == len(QUERIES), "none of them reads the column"
        assert (5,) in pond.sql("SELECT id FROM v0").fetchall()
