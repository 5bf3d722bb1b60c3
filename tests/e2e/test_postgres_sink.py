"""The sink for PostgreSQL, with a real server (law 7)."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError, UnavailableError
from millpond.pond import Pond
from millpond.sinks.postgres import PostgresSink
from millpond.testing.sinks import CHECKS, run_check
from tests.e2e.postgres_target import PostgresTarget
from tests.killed_workers import kill_workers
from tests.sql.fuzz.postgres import Missing, Server

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        made = Server()
    except Missing as why:
        pytest.skip(str(why))
    made.con.execute("SET statement_timeout = 0")
    yield made
    made.close()


@pytest.fixture
def target(server: Server) -> PostgresTarget:
    return PostgresTarget(server)


def opened(folder: Path, **options: Any) -> Pond:
    return millpond.open(folder, engine="inline", durable=False, **options)


@pytest.mark.parametrize("check", CHECKS)
def test_conforms(check: str, target: PostgresTarget) -> None:
    run_check(check, target)


def rows(target: PostgresTarget, query: str) -> list[tuple[Any, ...]]:
    return list(target.server.con.execute(query).fetchall())


def test_a_view_is_a_table(tmp_path: Path, target: PostgresTarget) -> None:
    with opened(tmp_path) as pond:
        table = pond.table("orders", {"who": str, "n": int})
        table.key_by("who").aggregate(n="sum(n)").view("totals").sink("pg", target.sink())
        pond.insert("orders", [{"who": "ann", "n": 1}, {"who": None, "n": 2}])
        pond.drain()
        before = pond.head().epoch
        pond.insert("orders", [{"who": "ann", "n": 5}, {"who": None, "n": 1}])
        pond.drain()
        assert sorted(rows(target, "SELECT who, n FROM target"), key=str) == [("ann", 6), (None, 3)]
        pond.rollback(before)
        pond.drain()
        assert sorted(rows(target, "SELECT who, n FROM target"), key=str) == [("ann", 1), (None, 2)]


def test_rows_that_the_table_refuses_are_error_rows(tmp_path: Path, target: PostgresTarget) -> None:
    con = target.server.con
    con.execute("CREATE TABLE target (who text PRIMARY KEY, n smallint CHECK (n < 100))")
    with opened(tmp_path) as pond:
        table = pond.table("orders", {"who": str, "n": int})
        table.key_by("who").aggregate(n="sum(n)").view("totals").sink("pg", target.sink())
        pond.insert("orders", [{"who": f"w{n}", "n": n} for n in range(50)] + [{"who": "big", "n": 2**40}])
        pond.drain()
        assert rows(target, "SELECT count(*) FROM target") == [(50,)]
        pond.insert("orders", [{"who": "w1", "n": 99}])  # now 100: the old row is no longer true
        pond.drain()
        assert rows(target, "SELECT * FROM target WHERE who = 'w1'") == []
        errors = {row["row"]: row["reason"] for row in pond.errors().to_pylist()}
        assert len(errors) == 2
        assert {reason.split()[0] for reason in errors.values()} == {"value", "new"}
        assert all(row["step"] == "pg" for row in pond.errors().to_pylist())


def test_a_key_that_the_table_cannot_hold_is_an_error_row(tmp_path: Path, target: PostgresTarget) -> None:
    """Nor does its deletion hold the sink back, or that of other keys."""
    target.server.con.execute("CREATE TABLE target (who varchar(3) PRIMARY KEY, n int8)")
    with opened(tmp_path) as pond:
        orders = pond.table("orders", {"who": str, "n": int}, key="who")
        orders.view("rows").sink("pg", target.sink(), mode="upsert")
        pond.insert("orders", [{"who": who, "n": 1} for who in ("ann", "long name", "bob")])
        pond.drain()
        assert sorted(rows(target, "SELECT who FROM target")) == [("ann",), ("bob",)]
        pond.sql("DELETE FROM orders WHERE who <> 'bob'")
        pond.drain()
        assert rows(target, "SELECT who FROM target") == [("bob",)]
        (error,) = pond.errors().to_pylist()
        assert "too long" in error["reason"]


def test_keys_without_an_order(tmp_path: Path, target: PostgresTarget) -> None:
    """Rows are inserted in the order of their key, if its type has one."""
    with opened(tmp_path) as pond:
        orders = pond.table("orders", {"tags": list[str], "n": int}, key="tags")
        orders.view("rows").sink("pg", target.sink(), mode="upsert")
        pond.insert("orders", [{"tags": ["b", "a"], "n": 1}, {"tags": ["a"], "n": 2}])
        pond.drain()
        pond.insert("orders", [{"tags": ["a"], "n": 3}])
        pond.drain()
        assert sorted(rows(target, "SELECT n, tags FROM target")) == [(1, ["b", "a"]), (3, ["a"])]


def test_the_error_of_a_sink_is_shown_until_a_delivery_succeeds(
    tmp_path: Path, target: PostgresTarget, caplog: pytest.LogCaptureFixture
) -> None:
    target.server.con.execute("CREATE TABLE target (who int PRIMARY KEY, n int8)")
    with opened(tmp_path) as pond:
        table = pond.table("orders", {"who": str, "n": int})
        table.key_by("who").aggregate(n="sum(n)").view("totals").sink("pg", target.sink())
        pond.insert("orders", {"who": "ann", "n": 1})
        with pytest.raises(InvalidError, match="has another type"):
            pond.drain()
        ((state, error),) = pond.sql("SELECT state, error FROM millpond.sinks").fetchall()
        assert state == "failed" and "has another type" in error
        assert "has another type" in str(pond.sinks()[0].error)
        assert "has another type" in str(pond.sql("SHOW SINKS").fetchall())
        target.server.con.execute("DROP TABLE target")
        pond.drain()
        assert pond.sql("SELECT state, error FROM millpond.sinks").fetchall() == [("current", None)]


def test_added_columns_are_added_to_the_table(tmp_path: Path, target: PostgresTarget) -> None:
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (k int PRIMARY KEY, v text)")
        pond.sql(
            "CREATE SINK pg FROM t WITH (connector = 'postgres', connection = ?, table = 'target', mode = 'upsert')",
            params=[target.address],
        )
        pond.sql("INSERT INTO t VALUES (1, 'a')")
        pond.drain()
        pond.sql("ALTER TABLE t ADD COLUMN more int")
        pond.sql("INSERT INTO t VALUES (2, 'b', 7)")
        pond.sql("UPDATE t SET more = 5 WHERE k = 1")
        pond.drain()
        assert sorted(rows(target, "SELECT k, v, more FROM target")) == [(1, "a", 5), (2, "b", 7)]


def test_a_table_of_other_columns_is_refused(tmp_path: Path, target: PostgresTarget) -> None:
    target.server.con.execute("CREATE TABLE target (who int PRIMARY KEY, n int8)")
    with opened(tmp_path) as pond:
        table = pond.table("orders", {"who": str, "n": int})
        table.key_by("who").aggregate(n="sum(n)").view("totals").sink("pg", target.sink())
        pond.insert("orders", {"who": "ann", "n": 1})
        with pytest.raises(InvalidError, match="has another type") as caught:
            pond.drain()
        assert "it is int4, and the view has string" in str(caught.value)


def test_passwords_are_references_and_are_never_shown(
    tmp_path: Path, target: PostgresTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PG_PASSWORD", "hunter2")
    sink = PostgresSink(target.address + " password=${env:PG_PASSWORD}", "target")
    with opened(tmp_path) as pond:
        table = pond.table("orders", {"who": str, "n": int})
        table.key_by("who").aggregate(n="sum(n)").view("totals").sink("pg", sink)
        pond.insert("orders", {"who": "ann", "n": 1})
        pond.drain()
        assert "hunter2" not in pond.explain() and "hunter2" not in repr(sink)
    stored = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"hunter2" not in stored and b"${env:PG_PASSWORD}" in stored
    monkeypatch.delenv("PG_PASSWORD")
    with opened(tmp_path) as pond:
        pond.insert("orders", {"who": "ann", "n": 1})
        with pytest.raises(InvalidError, match="PG_PASSWORD is not set"):
            pond.drain()


def test_a_server_that_is_away_is_tried_again(tmp_path: Path, target: PostgresTarget) -> None:
    with opened(tmp_path) as pond:
        table = pond.table("orders", {"who": str, "n": int})
        table.key_by("who").aggregate(n="sum(n)").view("totals").sink("pg", target.sink())
        pond.insert("orders", {"who": "ann", "n": 1})
        pond.drain()
        for (process,) in rows(target, "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()"):
            rows(target, f"SELECT pg_terminate_backend({process})")
        pond.insert("orders", {"who": "ann", "n": 1})
        with pytest.raises(UnavailableError):
            pond.drain()
        pond.drain()
        assert rows(target, "SELECT n FROM target") == [(2,)]


WORKER = """
import random, sys, time
import millpond
from millpond.errors import MillpondError
from millpond.sinks.postgres import PostgresSink

folder, address, seed = sys.argv[1:]
rng = random.Random(int(seed))
while True:
    try:
        with millpond.open(folder, engine="inline", durable=False, take_over=True) as pond:
            table = pond.table("orders", {"who": int, "n": int})
            totals = table.key_by("who").aggregate(n="sum(n)", c="count(*)").view("totals")
            totals.sink("pg", PostgresSink(address, "target"))
            totals.sink("log", PostgresSink(address, "by_hand"), mode="changelog")
            for _ in range(rng.randint(1, 20)):
                rows = [{"who": rng.randint(0, 9), "n": rng.randint(0, 99)} for _ in range(20)]
                pond.insert("orders", rows)
                pond.drain()
                print("fed", flush=True)
    except MillpondError as error:
        print("lost", type(error).__name__, flush=True)
        time.sleep(0.01)
"""


def _kills(tmp_path: Path, target: PostgresTarget, kills: int, workers: int, seed: int) -> None:
    """Kill workers between random steps; several of them take the pond over from each other all the time."""
    rng = random.Random(seed)

    places = [str(tmp_path / "pond"), target.address]
    kill_workers(WORKER, lambda: [*places, str(rng.randint(0, 999))], kills, workers, rng)
    with opened(tmp_path / "pond") as pond:
        pond.drain()
        held = sorted((r["who"], r["n"], r["c"]) for r in pond.read("totals").to_pylist())
    assert sorted(rows(target, "SELECT who, n, c FROM target")) == held
    log = rows(target, "SELECT who, n, c, _op FROM by_hand")
    signs = {"insert": 1, "update_after": 1, "delete": -1, "update_before": -1}
    total: dict[tuple[Any, ...], int] = {}
    for *row, op in log:
        total[tuple(row)] = total.get(tuple(row), 0) + signs[op]
    assert sorted(row for row, n in total.items() if n) == held
    assert set(total.values()) <= {0, 1}


def test_a_kill_between_steps(tmp_path: Path, target: PostgresTarget) -> None:
    _kills(tmp_path, target, kills=2, workers=1, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_fifty_kills_with_two_coordinators(seed: int, tmp_path: Path, target: PostgresTarget) -> None:
    _kills(tmp_path, target, kills=50, workers=2, seed=seed)


def test_the_example_of_the_page(
    tmp_path: Path, target: PostgresTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs/connectors/postgres.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    address = "host=db dbname=shop user=mill password=${env:DB_PASSWORD}"
    assert address in code
    names: dict[str, Any] = {}
    code = code.replace(address, target.address).replace(
        '("orders-pond")', '("orders-pond", engine="inline")'
    )
    exec(compile(code, "postgres.md", "exec"), names)
    with names["pond"] as pond:
        pond.insert("orders", [{"who": "ann", "n": 2}, {"who": "ann", "n": 3}])
        pond.drain()
    assert rows(target, "SELECT who, n FROM totals") == [("ann", 5)]


def test_without_psycopg_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    from millpond.sinks import postgres

    with pytest.raises(InvalidError, match="needs psycopg"):
        postgres._psycopg()
