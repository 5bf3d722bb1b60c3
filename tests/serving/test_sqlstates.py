"""Common mistakes have the SQLSTATE that PostgreSQL 15 gives them, and leave the connection usable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import millpond

MISTAKES = [
    ("SELEC 1", "42601"),
    ("SELECT id FROM t WHERE", "42601"),
    ("SELECT 'abc", "42601"),
    ("SELECT * FROM nope", "42P01"),
    ("SELECT nope FROM t", "42703"),
    ("SELECT nope.id FROM t", "42P01"),
    ("SELECT * FROM t AS x WHERE t.id = 1", "42P01"),
    ("SELECT * FROM t, t", "42712"),
    ("SELECT a.id FROM t a, t b WHERE id = 1", "42702"),
    ("SELECT nope(1)", "42883"),
    ("SELECT 1::nope", "42704"),
    ("CREATE TABLE x (a nope)", "42704"),
    ("SELECT * FROM t GROUP BY name", "42803"),
    ("SELECT count(*) FROM t WHERE count(*) > 1", "42803"),
    ("SELECT max(sum(n)) FROM t", "42803"),
    ("SELECT id FROM t ORDER BY 5", "42P10"),
    ("SELECT 1 UNION SELECT 1, 2", "42601"),
    ("SELECT (SELECT id FROM t)", "21000"),
    ("SELECT * FROM t LIMIT -1", "2201W"),
    ("SELECT 1/0", "22012"),
    ("SELECT 2147483647::int + 1", "22003"),
    ("SELECT 'a'::int", "22P02"),
    ("SELECT '{1,2'::int[]", "22P02"),
    ("SELECT date '2024-13-01'", "22008"),
    ("SELECT 'infinit'::timestamp", "22007"),
    ("INSERT INTO t VALUES (1, 'x', 2, 3)", "42601"),
    ("INSERT INTO t (id, nope) VALUES (1, 2)", "42703"),
    ("INSERT INTO t VALUES (NULL, 'x', 1)", "23502"),
    ("INSERT INTO t VALUES (9, 'x', 'abc')", "22P02"),
    ("INSERT INTO m VALUES (1)", "42809"),
    ("UPDATE t SET nope = 1", "42703"),
    ("DELETE FROM nope", "42P01"),
    ("CREATE TABLE t (a int)", "42P07"),
    ("DROP TABLE nope", "42P01"),
    ("DROP VIEW nope", "42P01"),
    ("DROP INDEX nope", "42704"),
    ("ALTER TABLE nope DROP COLUMN x", "42P01"),
    ("INSERT INTO nope VALUES (1)", "42P01"),
    ("DROP TABLE t", "2BP01"),
    ("ALTER TABLE t DROP COLUMN name", "2BP01"),
    ("SELECT * FROM t, t", "42712"),
    ("SELECT 99999999999::numeric(4,2)", "22003"),
    ("ALTER TABLE t DROP COLUMN nope", "42703"),
    ("SHOW nope", "42704"),
    ("SAVEPOINT a", "25P01"),
    ("ROLLBACK TO a", "25P01"),
    ("RELEASE a", "25P01"),
    ("EXECUTE nope", "26000"),
    ("FETCH c", "34000"),
    ("CLOSE c", "34000"),
    ("DECLARE c CURSOR FOR SELECT 1", "25P01"),
    ("COPY nope FROM STDIN", "42P01"),
    ("SET statement_timeout = 'abc'", "22023"),
]


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql(
            "CREATE TABLE t (id int PRIMARY KEY, name text, n int); INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)"
        )
        pond.sql("CREATE MATERIALIZED VIEW m AS SELECT name, count(*) c FROM t GROUP BY name; FLUSH")
        with (
            pond.serve(pg_port=0) as server,
            psycopg.connect(server.urls["pg"].replace("//", "//ann@"), autocommit=True) as found,
        ):
            yield found


@pytest.mark.parametrize(("sql", "state"), MISTAKES, ids=[sql for sql, _ in MISTAKES])
def test_mistakes(con: Any, sql: str, state: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        con.execute(sql)
    assert caught.value.diag.sqlstate == state, caught.value.diag.message_primary
    assert con.execute("SELECT 1").fetchone() == (1,)
