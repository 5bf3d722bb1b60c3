"""Changes that follow each other, in a pipeline or in one text, are executed in one epoch or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import millpond
from millpond.pond import Pond
from millpond.server.server import Server

asyncpg = pytest.importorskip("asyncpg")
psycopg = pytest.importorskip("psycopg")


@pytest.fixture(scope="module")
def pond() -> Iterator[Pond]:
    with millpond.open("memory://", engine="inline") as found:
        found.sql("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL CHECK (n < 100))")
        yield found


@pytest.fixture(scope="module")
def server(pond: Pond) -> Iterator[Server]:
    with pond.serve(pg_port=0) as found:
        yield found


@pytest.fixture
def con(server: Server) -> Iterator[Any]:
    with psycopg.connect(server.urls["pg"].replace("//", "//ann@"), autocommit=True) as found:
        found.execute("DELETE FROM t")
        yield found


def epochs(pond: Pond) -> int:
    assert pond.epoch is not None
    return pond.epoch


def ids(con: Any) -> list[int]:
    return [row[0] for row in con.execute("SELECT id FROM t ORDER BY id")]


def test_executemany_of_asyncpg(server: Server, con: Any, pond: Pond) -> None:
    async def insert(rows: Iterable[tuple[int, Any]]) -> None:
        client = await asyncpg.connect(server.urls["pg"].replace("//", "//ann@"))
        try:
            await client.executemany("INSERT INTO t VALUES ($1, $2)", rows)
        finally:
            await client.close()

    before = epochs(pond)
    asyncio.run(insert([(n, n) for n in range(50)]))
    assert ids(con) == [*range(50)] and 1 <= epochs(pond) - before <= 2
    with pytest.raises(asyncpg.NotNullViolationError):
        asyncio.run(insert([(60, 1), (61, 1), (62, None), (63, 1)]))
    with pytest.raises(asyncpg.CheckViolationError):
        asyncio.run(insert([(70, 1), (71, 1000), (72, 1)]))
    with pytest.raises(ZeroDivisionError):  # the client gives up when it has sent a part
        asyncio.run(insert((100 + n, n // (5000 - n)) for n in range(6000)))
    assert ids(con) == [*range(50)]


def test_pipelines_of_psycopg(con: Any, pond: Pond) -> None:
    before = epochs(pond)
    with con.pipeline():
        first = con.execute("INSERT INTO t VALUES (%s, %s)", (1, 1))
        second = con.execute("UPDATE t SET n = n + 1 WHERE id < %s", (5,))
        third = con.execute("SELECT n FROM t")
        fourth = con.execute("DELETE FROM t WHERE id = 9")
    assert [one.statusmessage for one in (first, second, fourth)] == ["INSERT 0 1", "UPDATE 1", "DELETE 0"]
    assert third.fetchall() == [(2,)]
    assert epochs(pond) - before <= 3
    with pytest.raises(psycopg.errors.UndefinedTable), con.pipeline():
        con.execute("INSERT INTO t VALUES (2, 2)")
        con.execute("INSERT INTO nothing VALUES (3, 3)")
    assert ids(con) == [1]
    with pytest.raises(psycopg.errors.UndefinedColumn), con.pipeline():
        con.execute("INSERT INTO t VALUES (3, 3)")
        con.execute("SELECT missing FROM t")
    assert ids(con) == [1, 3]  # a query divides them
    with con.pipeline(), con.transaction():
        con.execute("INSERT INTO t VALUES (4, 4)")
        con.execute("DELETE FROM t WHERE id = 1")
    assert ids(con) == [3, 4]


def test_changes_of_one_text(con: Any, pond: Pond) -> None:
    before = epochs(pond)
    changes = ["INSERT INTO t VALUES (1, 1)", *["UPDATE t SET n = n + 1"] * 9, "DELETE FROM t WHERE n > 50"]
    con.execute("; ".join(changes))
    assert 1 <= epochs(pond) - before <= 2
    assert con.execute("SELECT * FROM t").fetchall() == [(1, 10)]
    with pytest.raises(psycopg.errors.CheckViolation):
        con.execute("INSERT INTO t VALUES (2, 2); INSERT INTO t VALUES (3, 1000)")
    with pytest.raises(psycopg.errors.UndefinedTable):
        con.execute("INSERT INTO t VALUES (2, 2); INSERT INTO nothing VALUES (3, 3)")
    assert ids(con) == [1]


def test_a_client_that_leaves_before_sync_has_changed_nothing(server: Server, con: Any) -> None:
    with psycopg.connect(server.urls["pg"].replace("//", "//ann@"), autocommit=True) as other:
        other.pgconn.enter_pipeline_mode()
        other.pgconn.send_query_params(b"INSERT INTO t VALUES (5, 5)", [])
        other.pgconn.flush()
        other.pgconn.finish()
    assert ids(con) == []


def test_each_change_needs_its_right() -> None:
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
        pond.sql("CREATE USER root PASSWORD 'r' ADMIN; CREATE USER ann PASSWORD 'a'")
        pond.sql("GRANT SELECT, INSERT ON a TO ann")
        with pond.serve(pg_port=0) as server:
            address = server.urls["pg"].replace("//", "//ann:a@")
            with psycopg.connect(address, autocommit=True) as con:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    con.execute("INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)")
                with pytest.raises(psycopg.errors.InsufficientPrivilege), con.pipeline():
                    con.execute("INSERT INTO a VALUES (2)")
                    con.execute("INSERT INTO b VALUES (2)")
                assert con.execute("SELECT id FROM a").fetchall() == []
        refused = "SELECT sum(count) FROM millpond.audit WHERE outcome <> 'ok' AND statement LIKE '%INTO a%'"
        assert pond.sql(refused).fetchall() == [(2,)]
