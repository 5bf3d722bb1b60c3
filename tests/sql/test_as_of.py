"""AS OF: each relation of a query at the epoch that the clause behind it names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import millpond
from millpond import Pond
from millpond.errors import InvalidError


@pytest.fixture(scope="module")
def pond() -> Iterator[Pond]:
    with millpond.open("memory://", engine="inline") as made:
        made.sql("CREATE TABLE t (k int PRIMARY KEY, x int); INSERT INTO t VALUES (1, 1); FLUSH")  # epoch 1
        made.sql("CREATE SAVEPOINT one")  # epoch 2
        made.sql(
            'CREATE TABLE "W d" (k int, e text); CREATE VIEW pv AS SELECT a.k, a.x FROM t AS a;'
            "CREATE VIEW pv2 AS WITH t2 AS (SELECT * FROM pv) SELECT sum(x) AS s FROM t2;"
            "CREATE MATERIALIZED VIEW mv AS SELECT sum(x) AS s FROM t"
        )  # epoch 3
        made.sql("INSERT INTO t VALUES (1, 10), (2, 20); FLUSH")  # epoch 4
        made.sql("INSERT INTO t VALUES (3, 30); INSERT INTO \"W d\" VALUES (1, 'é'); FLUSH")  # epoch 5
        assert made.epoch == 5
        yield made


@pytest.mark.parametrize(
    ("sql", "expected", "epoch"),
    [
        ("SELECT * FROM t AS OF EPOCH 1", [(1, 1)], 1),
        ("FROM t AS OF EPOCH 1", [(1, 1)], 1),
        ("SELECT t.x FROM t AS OF EPOCH 1 WHERE t.k = 1", [(1,)], 1),
        ("SELECT a.x, b.x FROM t a JOIN t AS OF EPOCH 1 b ON a.k = b.k", [(10, 1)], 5),
        ("SELECT t.x, b.x FROM t JOIN t AS OF EPOCH 1 AS b ON t.k = b.k", [(10, 1)], 5),
        ("SELECT a.x, b.x FROM t AS OF EPOCH 1 AS a JOIN t b ON a.k = b.k", [(1, 10)], 5),
        ("SELECT a.x, b.x FROM t a AS OF EPOCH 1 JOIN t AS b AS OF EPOCH 4 ON a.k = b.k", [(1, 10)], 5),
        ("SELECT a.y FROM t AS OF EPOCH 1 a(k, y) WHERE y = 1", [(1,)], 1),
        ("SELECT a.y FROM t AS a(k, y) AS OF EPOCH 1", [(1,)], 1),
        ("SELECT count(*) FROM t AS OF EPOCH 4 NATURAL JOIN t x", [(2,)], 5),
        (
            "SELECT count(*) FROM t AS OF EPOCH 1 CROSS JOIN t AS OF EPOCH 4 u LEFT JOIN t v ON true",
            [(6,)],
            5,
        ),
        ("SELECT * FROM (t AS OF EPOCH 1 a CROSS JOIN t AS OF EPOCH 1 b)", [(1, 1, 1, 1)], 1),
        ("SELECT a.k, b.k FROM t a JOIN t c ON a.k = c.k, t AS OF EPOCH 1 b", [(1, 1), (2, 1), (3, 1)], 5),
        ("SELECT (SELECT count(*) FROM t AS OF EPOCH 1), count(*) FROM t", [(1, 3)], 5),
        ("SELECT x FROM t WHERE k IN (SELECT k FROM t AS OF SAVEPOINT one)", [(10,)], 5),
        ("SELECT x FROM t AS OF SAVEPOINT one WHERE k NOT IN (SELECT k FROM t AS OF EPOCH 0)", [(1,)], 5),
        ("SELECT k FROM t EXCEPT SELECT k FROM t AS OF EPOCH 4", [(3,)], 5),
        ("WITH c AS (SELECT * FROM t AS OF EPOCH 1) SELECT c.x, t.x FROM c JOIN t USING (k)", [(1, 10)], 5),
        ("WITH c AS (SELECT * FROM t) SELECT c.x, t.x FROM c JOIN t AS OF EPOCH 1 USING (k)", [(10, 1)], 5),
        ("SELECT t.k FROM t, LATERAL (SELECT * FROM t AS OF EPOCH 1 u WHERE u.k = t.k) s", [(1,)], 5),
        ("SELECT s FROM mv AS OF EPOCH 4", [(30,)], 4),
        ("SELECT a.s, b.s FROM mv a, mv AS OF EPOCH 3 b", [(60, 1)], 5),
        ("SELECT * FROM pv2 AS OF EPOCH 4", [(30,)], 4),
        ("SELECT a.s, b.s, c.s FROM pv2 a, pv2 AS OF EPOCH 4 b, mv AS OF EPOCH 4 c", [(60, 30, 30)], 5),
        (
            "SELECT p.k, t.x FROM t AS OF EPOCH 1 RIGHT JOIN pv AS OF EPOCH 4 p USING (k)",
            [(1, 1), (2, None)],
            5,
        ),
        ('SELECT "W d".e, é.k FROM main."W d" AS OF EPOCH 5, t é AS OF EPOCH 1', [("é", 1)], 5),
        ("SELECT t.x FROM t FOR SYSTEM_TIME AS OF now() JOIN t AS OF EPOCH 1 b USING (k)", [(10,)], 5),
        ("SELECT a.x, b.x FROM t AS OF EPOCH $1 a JOIN t AS OF EPOCH $2 b USING (k)", [(1, 10)], 5),
        # At the end of the query it is the epoch of all relations without a clause of their own.
        ("SELECT a.k, b.k FROM t a JOIN t b ON a.k = b.k AS OF EPOCH 1", [(1, 1)], 1),
        ("SELECT k FROM t WHERE k > 0 ORDER BY k AS OF EPOCH 4", [(1,), (2,)], 4),
        ("SELECT a.x, b.x FROM t a, t AS OF EPOCH 1 b WHERE a.k = b.k AS OF EPOCH 4", [(10, 1)], 4),
        ("WITH c AS (SELECT * FROM t) SELECT x FROM c GROUP BY x AS OF EPOCH 1", [(1,)], 1),
        ("SELECT 1 AS OF EPOCH 1", [(1,)], 1),
    ],
)
def test_each_relation_has_its_epoch(pond: Pond, sql: str, expected: list[Any], epoch: int) -> None:
    found = pond.sql(sql, params=[1, 4] if "$1" in sql else None)
    assert sorted(found.fetchall(), key=repr) == expected
    assert found.epoch == epoch


def test_names_in_quotes_of_another_dialect(pond: Pond) -> None:
    sql = "SELECT `t`.x, b.x FROM `t` AS OF EPOCH 1 JOIN `t` AS b ON b.k = `t`.k"
    assert pond.sql(sql, dialect="spark").fetchall() == [(1, 10)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM t AS OF EPOCH 99", "there is no epoch 99 yet"),
        ("SELECT * FROM t JOIN t AS OF EPOCH 99 b USING (k)", "there is no epoch 99 yet"),
        ("SELECT * FROM t AS OF EPOCH -1", "a number should stand here"),
        ("SELECT * FROM t AS OF SAVEPOINT two", "no savepoint named 'two'"),
        ('SELECT * FROM "W d" AS OF EPOCH 1', "no table or view named 'W d' at epoch 1"),
        ("SELECT * FROM nope AS OF EPOCH 1", "no table or view named 'nope' at epoch 1"),
        ("SELECT zz FROM t AS OF EPOCH 1", 'column "zz" does not exist'),
        ("WITH c AS (SELECT * FROM t) SELECT * FROM c AS OF EPOCH 1", "which the query defines itself"),
        ("SELECT k FROM t WHERE k > 0 AS OF EPOCH 1 ORDER BY k", "follows no table and no view here"),
        ("SELECT * FROM (SELECT * FROM t) AS OF EPOCH 1", "cannot follow a query in brackets"),
        ("SELECT * FROM range(3) AS OF EPOCH 1", "cannot follow a function"),
        ("SELECT * FROM t AS OF EPOCH 1 AS OF EPOCH 2", "must follow a table or a view directly"),
    ],
)
def test_what_is_refused(pond: Pond, sql: str, message: str) -> None:
    with pytest.raises(InvalidError, match=message) as told:
        pond.sql(sql)
    assert "as_of_" not in str(told.value)


def test_an_epoch_below_the_floor() -> None:
    with millpond.open("memory://", engine="inline", retain_epochs=2) as pond:
        pond.sql("CREATE TABLE t (k int)")
        for k in range(5):
            pond.sql(f"INSERT INTO t VALUES ({k}); FLUSH")
        for sql in ("SELECT * FROM t AS OF EPOCH 1", "SELECT * FROM t, t AS OF EPOCH 1 AS b"):
            with pytest.raises(InvalidError, match="epoch 1 is no longer kept") as told:
                pond.sql(sql)
            assert "the oldest epoch that can be read" in str(told.value)
