"""A mark on the result of a mark: columns that are not read share a name with the first one."""

from __future__ import annotations

from pathlib import Path

from tests.sql.asked import opened, rows

QUERIES = {
    "of_a_list": "SELECT (1 = ANY (array_agg(n))) IN (SELECT false) FROM t",
    "of_a_query": "SELECT (n IN (SELECT m FROM u)) IN (SELECT m > 2 FROM u) FROM t",
    "of_both": "SELECT n, (n IN (SELECT m FROM u)) = ANY (SELECT false), n NOT IN (SELECT m FROM u) AS apart FROM t",
}


def test_a_mark_of_a_mark(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (n int); CREATE TABLE u (m int); SET implicit_flush = on")
        for name, query in QUERIES.items():
            pond.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        for change in (
            "INSERT INTO t VALUES (0), (5)",
            "INSERT INTO u VALUES (5)",
            "INSERT INTO t VALUES (1)",
            "DELETE FROM u WHERE m = 5",
            "INSERT INTO u VALUES (1), (NULL)",
        ):
            pond.sql(change)
            for name, query in QUERIES.items():
                assert rows(pond, f"SELECT * FROM {name}") == rows(pond, query), (name, change)


def test_aggregates_of_subqueries_end(tmp_path: Path) -> None:
    """The argument of `sum` is planned a few times only."""
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (n int); CREATE TABLE u (m bigint)")
        pond.sql("INSERT INTO t VALUES (0), (5); INSERT INTO u VALUES (1), (7); FLUSH")
        below = "(SELECT count(*) FROM t WHERE n < m)"
        query = f"SELECT sum({below}), avg({below})::float8, sum((SELECT max(n) FROM t WHERE n < m)) FROM u"
        assert rows(pond, query) == [(3, 1.5, 5)]
