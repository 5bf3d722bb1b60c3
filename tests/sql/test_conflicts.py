"""Two rows of one statement with the same key: refused whole where the second would change the first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import millpond
from millpond import Pond
from millpond.errors import InvalidError

TWICE = "ON CONFLICT DO UPDATE command cannot affect row a second time"


@pytest.fixture
def pond() -> Iterator[Pond]:
    with millpond.open("memory://", engine="inline") as made:
        made.sql(
            "CREATE TABLE t (k int PRIMARY KEY, x int DEFAULT 7);"
            "CREATE TABLE two (a int, b text, x int, PRIMARY KEY (b, a));"
            "CREATE TABLE s (k int, x int);"
            "CREATE MATERIALIZED VIEW total AS SELECT sum(x) AS x FROM t;"
            "INSERT INTO t VALUES (1, 1), (2, 2); INSERT INTO two VALUES (1, 'a', 1);"
            "INSERT INTO s VALUES (5, 1), (5, 2), (1, 3); FLUSH"
        )
        yield made


def rows(pond: Pond, sql: str) -> list[tuple[Any, ...]]:
    return sorted(pond.sql(sql).fetchall(), key=repr)


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("INSERT INTO t VALUES (3, 1), (3, 5) ON CONFLICT (k) DO UPDATE SET x = excluded.x", "(k)=(3)"),
        ("INSERT INTO t VALUES (1, 1), (4, 4), (1, 5) ON CONFLICT (k) DO UPDATE SET x = t.x", "(k)=(1)"),
        ("INSERT INTO t AS u VALUES (1, 1), (1, 5) ON CONFLICT (k) DO UPDATE SET x = u.x + 1", "(k)=(1)"),
        (
            "INSERT INTO t (x, k) VALUES (1, 3), (2, 3) ON CONFLICT (k) DO UPDATE SET x = 0 RETURNING *",
            "(k)=(3)",
        ),
        ("INSERT INTO main.t (k) VALUES (3), (3) ON CONFLICT (k) DO UPDATE SET x = excluded.x", "(k)=(3)"),
        ("INSERT INTO t SELECT i % 2, i FROM range(3) r(i) ON CONFLICT (k) DO UPDATE SET x = 0", "(k)=(0)"),
        (
            "INSERT INTO two VALUES (2, 'b', 1), (1, 'b', 2), (2, 'b', 3) ON CONFLICT (b, a) DO UPDATE SET x = 0",
            "(b, a)=(b, 2)",
        ),
    ],
)
def test_rows_that_stand_in_the_statement_are_refused_at_once(pond: Pond, sql: str, key: str) -> None:
    before = pond.epoch
    with pytest.raises(InvalidError, match=TWICE) as told:
        pond.sql(sql)
    assert key in str(told.value) and "__given" not in str(told.value)
    pond.sql("FLUSH")
    assert pond.epoch == before and pond.errors().num_rows == 0
    assert rows(pond, "SELECT * FROM t") == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("INSERT INTO t SELECT * FROM s ON CONFLICT (k) DO UPDATE SET x = excluded.x", "(k)=(5)"),
        ("INSERT INTO t SELECT 1, x FROM t ON CONFLICT (k) DO UPDATE SET x = t.x + excluded.x", "(k)=(1)"),
        (
            "INSERT INTO t (k) WITH d AS (SELECT k FROM s) SELECT k FROM d ON CONFLICT (k) DO UPDATE SET x = 0 RETURNING k",
            "(k)=(5)",
        ),
    ],
)
def test_rows_of_a_query_are_refused_whole_in_their_turn(pond: Pond, sql: str, key: str) -> None:
    found = pond.sql(sql)
    pond.sql("INSERT INTO t VALUES (9, 9)")  # what comes after it is done
    with pytest.raises(InvalidError) as told:
        _ = found.rowcount
    assert TWICE in str(told.value) and key in str(told.value)
    pond.sql("FLUSH")
    assert rows(pond, "SELECT * FROM t") == [(1, 1), (2, 2), (9, 9)]
    assert rows(pond, "SELECT * FROM total") == [(12,)]
    (error,) = pond.errors().to_pylist()
    assert error["step"] == "inbox" and TWICE in error["reason"] and key in error["reason"]


def test_one_row_for_each_key_is_taken(pond: Pond) -> None:
    pond.sql(
        "INSERT INTO t SELECT k, max(x) FROM s GROUP BY k ON CONFLICT (k) DO UPDATE SET x = t.x + excluded.x"
    )
    pond.sql(
        "INSERT INTO two VALUES (1, 'a', 5), (1, 'b', 6) ON CONFLICT (b, a) DO UPDATE SET x = excluded.x"
    )
    pond.sql("FLUSH")
    assert rows(pond, "SELECT * FROM t") == [(1, 4), (2, 2), (5, 2)]
    assert rows(pond, "SELECT * FROM two") == [(1, "a", 5), (1, "b", 6)]


def test_do_nothing_takes_the_first(pond: Pond) -> None:
    found = pond.sql("INSERT INTO t VALUES (1, 8), (3, 1), (3, 5) ON CONFLICT DO NOTHING RETURNING k, x")
    assert found.fetchall() == [(3, 1)] and found.rowcount == 1
    assert pond.sql("INSERT INTO t SELECT * FROM s ORDER BY x ON CONFLICT (k) DO NOTHING").rowcount == 1
    pond.sql("FLUSH")
    assert rows(pond, "SELECT * FROM t") == [(1, 1), (2, 2), (3, 1), (5, 1)]


def test_a_key_that_is_null(pond: Pond) -> None:
    with pytest.raises(InvalidError, match='null value in column "k" of relation "t"'):
        pond.sql("INSERT INTO t VALUES (NULL, 1), (NULL, 2) ON CONFLICT (k) DO UPDATE SET x = 0")


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("UPDATE t SET k = 2 WHERE k = 1", "(k)=(2)"),
        ("UPDATE t SET k = 3", "(k)=(3)"),
        ("UPDATE t SET k = s.x - 1 FROM s WHERE s.k = t.k", "(k)=(2)"),
    ],
)
def test_an_update_that_gives_two_rows_one_key(pond: Pond, sql: str, key: str) -> None:
    found = pond.sql(sql)
    with pytest.raises(InvalidError) as told:
        _ = found.rowcount
    assert "would get the same key" in str(told.value) and key in str(told.value)
    assert rows(pond, "SELECT * FROM t") == [(1, 1), (2, 2)]


def test_an_update_may_exchange_keys(pond: Pond) -> None:
    assert pond.sql("UPDATE t SET k = 3 - k").rowcount == 2
    assert pond.sql("UPDATE t SET k = k + 1").rowcount == 2
    pond.sql("FLUSH")
    assert rows(pond, "SELECT * FROM t") == [(2, 2), (3, 1)]
