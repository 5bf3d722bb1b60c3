"""What a change did: how many rows, and RETURNING; known after its turn, told to whoever asks (laws 3 and 9)."""

from __future__ import annotations

import collections
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import millpond
from millpond.errors import InvalidError, MillpondError
from millpond.pond import Pond


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=2, checks=True) as made:
        made.sql("CREATE TABLE t (id int PRIMARY KEY, a int, g int GENERATED ALWAYS AS (a * 2))")
        yield made


def test_counts_and_rows_of_each_statement(pond: Pond) -> None:
    given = pond.sql("INSERT INTO t (id, a) VALUES (1, 1), (2, 2), (3, 3) RETURNING *, a + g AS s")
    assert (given.columns, given.types[-1], given.status) == (["id", "a", "g", "s"], "INTEGER", "INSERT 0 3")
    assert given.fetchall() == [(1, 1, 2, 3), (2, 2, 4, 6), (3, 3, 6, 9)]
    raised = pond.sql("UPDATE t SET a = a + 1 WHERE id < 3 RETURNING id, g")
    assert raised.status == "UPDATE", "its turn has not come"
    assert sorted(raised.fetchall()) == [(1, 4), (2, 6)]
    assert (raised.status, raised.rowcount, raised.epoch) == ("UPDATE 2", 2, pond.epoch)
    assert sorted(pond.sql("UPDATE t AS q SET a = 0 WHERE q.id = 3 RETURNING q.*").fetchall()) == [(3, 0, 0)]
    gone = pond.sql("DELETE FROM t WHERE id = 3 RETURNING t.id, a AS was")
    assert (gone.columns, gone.fetchall(), gone.status) == (["id", "was"], [(3, 0)], "DELETE 1")
    more = pond.sql("INSERT INTO t (id, a) SELECT id + 10, a FROM t RETURNING id")
    assert (sorted(more.fetchall()), more.status) == ([(11,), (12,)], "INSERT 0 2")
    again = pond.sql("INSERT INTO t (id, a) VALUES (1, 9), (5, 5) ON CONFLICT (id) DO NOTHING RETURNING id")
    assert (again.fetchall(), again.rowcount) == ([(5,)], 1)
    assert pond.sql("UPDATE t SET id = id + 100 WHERE id > 10 RETURNING id").rowcount == 2
    assert pond.sql("DELETE FROM t WHERE false RETURNING *").fetchall() == []
    assert pond.sql("SELECT * FROM t").rowcount == 5 and pond.sql("FLUSH").rowcount == -1


def test_changes_of_one_epoch_are_told_apart(pond: Pond) -> None:
    pond.sql("INSERT INTO t (id, a) SELECT i, i FROM range(10) r(i); FLUSH")
    said = [
        "UPDATE t SET a = a * 2 RETURNING a",
        "UPDATE t SET a = a / 0 - 2147483647 * a",
        "DELETE FROM t WHERE a > 8",
    ]
    first, second, third = (pond.sql(sql) for sql in said)
    assert (third.rowcount, third.epoch) == (5, first.epoch or third.epoch)
    assert sorted(a for (a,) in first.fetchall()) == list(range(0, 20, 2)), "as it was when it was executed"
    assert first.epoch == third.epoch
    with pytest.raises(InvalidError, match="refused"):
        _ = second.rowcount
    with pytest.raises(InvalidError, match="refused"):
        second.fetchall()


def test_what_fails_in_returning_fails_the_change(pond: Pond) -> None:
    pond.sql("INSERT INTO t (id, a) VALUES (1, 1); FLUSH")
    with pytest.raises(InvalidError, match="invalid input syntax for type integer"):
        pond.sql("UPDATE t SET a = 5 RETURNING CAST('x' || id AS int)").fetchall()
    assert pond.sql("SELECT a FROM t").fetchall() == [(1,)]


def test_while_the_pond_runs_in_the_background(pond: Pond) -> None:
    pond.sql("INSERT INTO t (id, a) VALUES (1, 0)")
    pond.start()
    try:
        found: list[int] = []

        def count() -> None:
            for _ in range(5):
                found.extend(a for (a,) in pond.sql("UPDATE t SET a = a + 1 RETURNING a").fetchall())

        threads = [threading.Thread(target=count) for _ in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert sorted(found) == list(range(1, 11)), "each saw what it made itself"
    finally:
        pond.stop()


def test_nothing_waits_for_what_is_gone(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", retain_epochs=1) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, a int); INSERT INTO t VALUES (1, 1); FLUSH")
        late = pond.sql("UPDATE t SET a = 2")
        for n in range(5):
            pond.sql(f"INSERT INTO t VALUES ({n}, 0); FLUSH")
        with pytest.raises(MillpondError, match="no longer"):
            _ = late.rowcount


def test_the_same_as_duckdb_whatever_is_changed(tmp_path: Path) -> None:
    """Random changes, each with RETURNING, and the rows and counts that DuckDB gives for them."""
    chance = random.Random(7)
    con = duckdb.connect()
    con.execute("create table t (id int primary key, a int, s text)")
    pond = millpond.open(tmp_path / "pond", engine="inline", parallelism=2, checks=True)
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, a int, s text)")
    for turn in range(25):
        free = turn + 1
        n = chance.randint(0, free)
        sql = chance.choice(
            [
                f"INSERT INTO t VALUES ({free}, {n}, 'x{n}')",
                f"INSERT INTO t SELECT max(id) + {free + 1000}, {n}, 'y' FROM t HAVING count(*) > 0",
                f"UPDATE t SET a = a + {n} WHERE id % 3 = {n % 3}",
                f"UPDATE t SET s = s || '!' WHERE id = {n}",
                f"DELETE FROM t WHERE id = {n}",
                f"INSERT INTO t VALUES ({n}, 1, 'z') ON CONFLICT (id) DO UPDATE SET a = t.a + excluded.a",
            ]
        )
        sql += chance.choice([" RETURNING *", " RETURNING a + id AS b, upper(s)"])
        wanted = con.execute(sql).fetchall()
        found = pond.sql(sql)
        rows = found.fetchall()
        assert collections.Counter(rows) == collections.Counter(wanted), sql
        assert found.rowcount == len(wanted), sql
        if turn % 8 == 7:
            pond.close()
            pond = millpond.open(tmp_path / "pond", engine="inline", parallelism=chance.randint(1, 3))
    assert sorted(pond.sql("SELECT * FROM t").fetchall()) == sorted(con.execute("from t").fetchall())
    pond.close()
