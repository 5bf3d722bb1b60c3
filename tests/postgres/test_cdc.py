"""Change data capture from a real PostgreSQL: after every epoch the copy is what the server had at that LSN."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

import millpond
from millpond.errors import DataError, InvalidError, UnavailableError
from millpond.plan.objects import SqlColumn
from millpond.sources import postgres_cdc, postgres_copy
from millpond.sources.postgres_cdc import PostgresSource
from millpond.sources.postgres_copy import lsn_number
from millpond.sources.postgres_schema import PostgresTable, describe
from millpond.sources.source import Source
from millpond.sql.text.column_definitions import stored_schema
from millpond.testing.sources import CHECKS, SourceCase

from .server import Database, Server

pytestmark = pytest.mark.e2e

BANK = (
    "CREATE TABLE accounts (id INT PRIMARY KEY, owner TEXT, balance BIGINT NOT NULL)",
    "CREATE TABLE transfers (id BIGINT PRIMARY KEY, source INT, target INT, amount BIGINT, note TEXT)",
)


def opened(place: Path, **settings: Any) -> millpond.Pond:
    return millpond.open(place, engine="inline", parallelism=2, durable=False, checks=True, **settings)


def define(pond: millpond.Pond, database: Database, tables: str = "accounts, transfers", **more: str) -> None:
    options = "".join(f", {name} = '{value}'" for name, value in more.items())
    pond.sql(
        f"CREATE SOURCE bank WITH (connector = 'postgres-cdc', connection = '{database.address}',"
        f" tables = '{tables}'{options})"
    )


def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "took too long"
        time.sleep(0.02)


class Crash(BaseException):
    """The process ends here."""


class Writer:
    """Random transactions over both tables, one after the other; it knows the tables at every LSN."""

    def __init__(self, database: Database, seed: int) -> None:
        self.database, self.chance, self.number = database, random.Random(seed), 0
        self.known: list[tuple[int, dict[str, list[tuple[Any, ...]]]]] = []
        self.remember()

    def remember(self) -> None:
        (end,) = self.database.rows("SELECT pg_current_wal_insert_lsn()::text")[0]
        self.known.append((lsn_number(end), self.tables()))

    def tables(self) -> dict[str, list[tuple[Any, ...]]]:
        return {
            "accounts": self.database.rows("SELECT * FROM accounts ORDER BY id"),
            "transfers": self.database.rows("SELECT * FROM transfers ORDER BY id"),
            "totals": self.database.rows(
                "SELECT a.owner, count(*), sum(t.amount)::BIGINT FROM transfers t JOIN accounts a"
                " ON a.id = t.source GROUP BY a.owner ORDER BY a.owner NULLS LAST"
            ),
        }

    def at(self, lsn: str) -> dict[str, list[tuple[Any, ...]]]:
        # The first copy is as of an LSN behind the last transaction.
        return next((tables for end, tables in self.known if end >= lsn_number(lsn)), self.known[-1][1])

    def transaction(self) -> None:
        con, chance = self.database.con, self.chance
        with con.transaction():
            for _ in range(chance.randrange(1, 6)):
                self.number += 1
                a, b = chance.randrange(12), chance.randrange(12)
                kind = chance.random()
                if kind < 0.35:
                    con.execute(
                        "INSERT INTO accounts VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE"
                        " SET balance = EXCLUDED.balance, owner = EXCLUDED.owner",
                        [a, chance.choice(["ann", "bob", "cid", None]), chance.randrange(100)],
                    )
                elif kind < 0.7:
                    con.execute("UPDATE accounts SET balance = balance - 1 WHERE id = %s", [a])
                    con.execute(
                        "INSERT INTO transfers VALUES (%s, %s, %s, %s, %s)",
                        [
                            self.number,
                            a,
                            b,
                            chance.randrange(50),
                            chance.choice(["", 'tab\t"q"\n', "ä", None]),
                        ],
                    )
                elif kind < 0.8:
                    con.execute("DELETE FROM transfers WHERE source = %s", [a])
                elif kind < 0.88:
                    con.execute("DELETE FROM accounts WHERE id = %s", [a])
                elif kind < 0.95:
                    con.execute("UPDATE transfers SET id = -id WHERE target = %s AND id > 0", [b])
                elif kind < 0.97:
                    con.execute("TRUNCATE transfers")
                else:
                    con.execute("SAVEPOINT s")
                    con.execute("INSERT INTO accounts VALUES (%s, 'nobody', 0) ON CONFLICT DO NOTHING", [a])
                    con.execute("ROLLBACK TO SAVEPOINT s")
            if chance.random() < 0.1:
                raise psycopg.Rollback
        self.remember()


VIEW = (
    "CREATE MATERIALIZED VIEW totals AS SELECT a.owner, count(*) AS n, sum(t.amount) AS amount"
    " FROM transfers t JOIN accounts a ON a.id = t.source GROUP BY a.owner"
)
ORDERS = {"accounts": "id", "transfers": "id", "totals": "owner NULLS LAST"}


@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_the_copy_is_exact_at_every_epoch_over_crashes(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Laws 1 and 2, with PostgreSQL's own query as the oracle."""
    database.run(*BANK)
    writer = Writer(database, seed)
    for _ in range(10):
        writer.transaction()
    left = [0]
    crashes = checked = 0

    def fragile(real: Any) -> Any:
        def called(*args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Crash
            return real(*args, **more)

        return called

    for owner, name in [
        (PostgresSource, "poll"),
        (PostgresSource, "read"),
        (PostgresSource, "advance"),
        (PostgresSource, "_transactions"),
    ]:
        monkeypatch.setattr(owner, name, fragile(getattr(owner, name)))

    def check(pond: millpond.Pond) -> None:
        nonlocal checked
        position = pond.head().positions.get("bank")
        if position is None or position["lsn"] is None:
            return
        expected = writer.at(position["lsn"])
        for name, rows in expected.items():
            shown = pond.sql(f"SELECT * FROM {name} ORDER BY {ORDERS[name]}").fetchall()
            assert shown == rows, (name, position)
        checked += 1

    for number in range(7):
        last = number == 6
        left[0] = 0 if last else writer.chance.randrange(3, 12)
        with opened(tmp_path / "pond", epoch_rows_max=20) as pond:
            try:
                if number == 0:
                    left[0] = 0
                    define(pond, database)
                    pond.sql(VIEW)
                pond.on_epoch(lambda _, pond=pond: check(pond))
                pond.drain()
                for _ in range(4):
                    writer.transaction()
                pond.drain()
            except Crash:
                crashes += 1
        database.forget()
        for _ in range(4):
            writer.transaction()
    with opened(tmp_path / "pond") as pond:
        pond.on_epoch(lambda _: check(pond))
        pond.drain()
        check(pond)
        assert pond.errors().num_rows == 0
    assert crashes > 2 and checked > 8


def test_no_gap_and_no_double_with_concurrent_writers(database: Database, tmp_path: Path) -> None:
    """Money moves between accounts in every transaction: no epoch shows a part of one."""
    database.run(*BANK, "INSERT INTO accounts SELECT n, 'o' || n, 100 FROM generate_series(1, 3000) n")
    stop = threading.Event()
    done = [0, 0, 0]

    def write(number: int) -> None:
        chance = random.Random(number)
        con = database.connect()
        try:
            while not stop.is_set() and done[number] < 300:
                time.sleep(0.001)
                a, b = sorted(chance.sample(range(1, 3001), 2))
                with con.transaction():
                    con.execute("UPDATE accounts SET balance = balance - 7 WHERE id = %s", [a])
                    con.execute("UPDATE accounts SET balance = balance + 7 WHERE id = %s", [b])
                    done[number] += 1
                    con.execute(
                        "INSERT INTO transfers VALUES (%s, %s, %s, 7, '')", [done[number] * 10 + number, a, b]
                    )
        finally:
            con.close()

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: min(done) > 20)
        seen = []

        def check(pond: millpond.Pond) -> None:
            if (pond.head().positions.get("bank") or {"lsn": None})["lsn"] is None:
                return
            ((money, rows),) = pond.sql("SELECT sum(balance), count(*) FROM accounts").fetchall()
            assert (money, rows) == (300_000, 3000)
            moved = pond.sql(
                "SELECT count(*) FROM (SELECT id, 100 - 7 * coalesce(o.n, 0) + 7 * coalesce(i.n, 0) AS wanted, balance"
                " FROM accounts a LEFT JOIN (SELECT source, count(*) n FROM transfers GROUP BY 1) o ON o.source = a.id"
                " LEFT JOIN (SELECT target, count(*) n FROM transfers GROUP BY 1) i ON i.target = a.id)"
                " WHERE wanted <> balance"
            ).fetchall()
            assert moved == [(0,)]
            seen.append(pond.epoch)

        with opened(tmp_path / "pond", epoch_rows_max=700) as pond:
            define(pond, database)
            pond.on_epoch(lambda _: check(pond))
            pond.drain()
            for thread in threads:
                thread.join()
            pond.drain()
            assert len(seen) >= 2
            shown = pond.sql("SELECT * FROM transfers ORDER BY id").fetchall()
            assert shown == database.rows("SELECT * FROM transfers ORDER BY id")
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_crash_in_the_first_copy_begins_it_anew(
    database: Database, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(postgres_copy, "_PIECE_ROWS", 10)
    database.run(*BANK, "INSERT INTO accounts SELECT n, 'o', n FROM generate_series(1, 100) n")
    epochs = [0]

    def die(_: Any) -> None:
        epochs[0] += 1
        if epochs[0] == 4:
            raise Crash

    with opened(tmp_path / "pond", epoch_rows_max=10) as pond:
        define(pond, database)
        pond.on_epoch(die)
        with pytest.raises(Crash):
            pond.drain()
        before = pond.head().positions["bank"]
        assert before["lsn"] is None and 0 < before["rows"] < 100
    database.forget()
    database.run("DELETE FROM accounts WHERE id <= 50", "UPDATE accounts SET owner = 'p' WHERE id = 60")
    with opened(tmp_path / "pond", epoch_rows_max=1000) as pond:
        pond.drain()
        shown = pond.sql("SELECT * FROM accounts ORDER BY id").fetchall()
        assert shown == database.rows("SELECT * FROM accounts ORDER BY id")
        assert pond.errors().num_rows == 0


def test_types(database: Database, tmp_path: Path) -> None:
    database.run(
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE TABLE t (id BIGINT PRIMARY KEY, a SMALLINT, b REAL, c DOUBLE PRECISION, d NUMERIC(12, 3), e NUMERIC,"
        " f VARCHAR(20), g CHAR(3), h BYTEA, i DATE, j TIME, k TIMESTAMP, l TIMESTAMPTZ, m UUID, n JSONB, o mood,"
        " p INT[], q INTERVAL, r BOOLEAN)",
    )
    rows = (
        "(%s, -3, 1.5, 'Infinity', 12.345, 99999.125, 'tab\t', 'ab', '\\xdeadbeef', '2024-02-29', '23:59:59.25',"
        " '2024-01-01 00:00:00.123456', '2024-01-01 12:00:00+02', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',"
        " '{\"a\": [1, null]}', 'happy', '{1,2,NULL}', '1 day 02:00', true)"
    )
    database.run("INSERT INTO t VALUES " + rows % 1, "INSERT INTO t (id) VALUES (2)")
    with opened(tmp_path / "pond") as pond:
        pond.sql(f"CREATE TABLE t WITH (connector = 'postgres-cdc', connection = '{database.address}')")
        pond.drain()
        database.run("INSERT INTO t VALUES " + rows % 3, "INSERT INTO t (id) VALUES (4)")
        pond.drain()
        names = "id, a, b, c, d, CAST(e AS DOUBLE PRECISION), f, g, h, i, j, k, l, m"
        rest = "n, CAST(o AS VARCHAR), CAST(p AS VARCHAR), CAST(q AS VARCHAR), r"
        found = pond.sql(f"SELECT {names}, {rest} FROM t ORDER BY id").fetchall()
        server = "n::TEXT, o::TEXT, p::TEXT, q::TEXT, r"
        expected = database.rows(f"SELECT {names}, {server} FROM t ORDER BY id")
        assert len(found) == 4
        assert [[str(v) for v in row] for row in found] == [[str(v) for v in row] for row in expected]
        assert pond.errors().num_rows == 0


def test_a_value_that_does_not_fit_is_an_error_row(database: Database, tmp_path: Path) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP, n NUMERIC)",
        "INSERT INTO t VALUES (1, 'infinity', 1)",
    )
    with opened(tmp_path / "pond") as pond:
        pond.sql(f"CREATE TABLE t WITH (connector = 'postgres-cdc', connection = '{database.address}')")
        pond.drain()
        database.run("INSERT INTO t VALUES (2, now(), 'NaN'), (3, NULL, 2)")
        pond.drain()
        assert pond.sql("SELECT id FROM t").fetchall() == [(3,)]
        assert sorted(reason.split(":")[0] for reason in pond.errors()["reason"].to_pylist()) == [
            "column 'at'",
            "column 'n'",
        ]


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_unchanged_toast_values(database: Database, tmp_path: Path, identity: str) -> None:
    """A large value that an update does not touch is not in the log."""
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, large TEXT)",
        "ALTER TABLE t ALTER COLUMN large SET STORAGE EXTERNAL",
        f"ALTER TABLE t REPLICA IDENTITY {identity}",
        "INSERT INTO t VALUES (1, 0, repeat('x', 20000))",
    )
    with opened(tmp_path / "pond") as pond:
        pond.sql(f"CREATE TABLE t WITH (connector = 'postgres-cdc', connection = '{database.address}')")
        pond.drain()

        def check() -> None:
            pond.drain()
            shown = pond.sql("SELECT * FROM t ORDER BY id").fetchall()
            assert shown == database.rows("SELECT * FROM t ORDER BY id")

        database.run("UPDATE t SET n = 1 WHERE id = 1")
        check()
        database.run(  # in one epoch: the value comes from a change of the same epoch
            "UPDATE t SET large = repeat('y', 30000) WHERE id = 1",
            "UPDATE t SET n = 2",
            "INSERT INTO t VALUES (2, 5, repeat('z', 25000))",
            "UPDATE t SET n = 6 WHERE id = 2",
            "DELETE FROM t WHERE id = 1",
            "INSERT INTO t VALUES (1, 9, repeat('w', 25000))",
            "UPDATE t SET n = 10",
        )
        check()
        database.run("UPDATE t SET id = 3 WHERE id = 2")
        if identity == "FULL":
            check()
            assert pond.errors().num_rows == 0
        else:  # the log has the value nowhere
            pond.drain()
            assert "REPLICA IDENTITY FULL" in pond.errors()["reason"].to_pylist()[0]


def test_a_transaction_whose_last_piece_is_full_ends(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces have 50,000 changes: a load of 100,000 rows was offered again and again, and never admitted."""
    monkeypatch.setattr(postgres_cdc, "_PIECE_ROWS", 4)
    polls, real = [0], PostgresSource._poll_changes

    def counted(self: PostgresSource, *args: Any) -> Any:
        polls[0] += 1
        assert polls[0] < 100, "the transaction is never admitted"
        return real(self, *args)

    monkeypatch.setattr(PostgresSource, "_poll_changes", counted)
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    with opened(tmp_path / "pond") as pond:
        pond.sql(f"CREATE TABLE t WITH (connector = 'postgres-cdc', connection = '{database.address}')")
        pond.drain()
        for number, size in enumerate((4, 8, 3, 12, 1)):
            database.run(f"INSERT INTO t SELECT {number * 100} + n FROM generate_series(1, {size}) n")
            pond.drain()
            assert pond.sql("SELECT * FROM t ORDER BY id").fetchall() == database.rows(
                "SELECT * FROM t ORDER BY id"
            )


def test_truncate(database: Database, tmp_path: Path) -> None:
    database.run(*BANK, "INSERT INTO accounts SELECT n, 'o', n FROM generate_series(1, 50) n")
    with opened(tmp_path / "pond") as pond:
        define(pond, database)
        pond.sql(
            "CREATE MATERIALIZED VIEW money AS SELECT owner, sum(balance) AS b FROM accounts GROUP BY owner"
        )
        pond.drain()
        with database.con.transaction():
            database.run(
                "INSERT INTO accounts VALUES (51, 'gone', 1)",
                "TRUNCATE accounts, transfers",
                "INSERT INTO accounts VALUES (7, 'o', 7), (99, 'o', 1)",
                "UPDATE accounts SET balance = 8 WHERE id = 7",
            )
        pond.drain()
        assert pond.sql("SELECT * FROM accounts ORDER BY id").fetchall() == [(7, "o", 8), (99, "o", 1)]
        assert pond.sql("SELECT * FROM money").fetchall() == [("o", 9)]
        database.run("TRUNCATE accounts")
        pond.drain()
        assert (
            pond.sql("SELECT * FROM accounts").fetchall() == pond.sql("SELECT * FROM money").fetchall() == []
        )
        database.run("INSERT INTO accounts VALUES (7, 'q', 1)")
        pond.drain()
        assert pond.sql("SELECT * FROM accounts").fetchall() == [(7, "q", 1)]
        assert pond.errors().num_rows == 0


def test_altered_tables(database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, a TEXT, b INT)", "INSERT INTO t VALUES (1, 'x', 1)")
    with opened(tmp_path / "pond") as pond:
        pond.sql(f"CREATE TABLE t WITH (connector = 'postgres-cdc', connection = '{database.address}')")
        pond.drain()
        database.run(
            "ALTER TABLE t ADD COLUMN c INT DEFAULT 5",  # left out
            "INSERT INTO t VALUES (2, 'y', 2, 3)",
            "ALTER TABLE t ALTER COLUMN a TYPE VARCHAR(50)",  # still a text
            "INSERT INTO t VALUES (3, 'z', 3, 3)",
        )
        pond.drain()
        assert pond.sql("SELECT * FROM t ORDER BY id").fetchall() == [(1, "x", 1), (2, "y", 2), (3, "z", 3)]
        database.run("ALTER TABLE t DROP COLUMN b", "INSERT INTO t VALUES (4, 'w', 3)")
        with pytest.raises(DataError, match=r"table public\.t was altered: column 'b' is gone"):
            pond.drain()
    with opened(tmp_path / "pond") as pond:  # a command is executed although the source cannot be read
        pond.sql("DROP TABLE t")
        pond.sql(f"CREATE TABLE t WITH (connector = 'postgres-cdc', connection = '{database.address}')")
        pond.drain()
        assert pond.sql("SELECT * FROM t ORDER BY id").fetchall() == database.rows(
            "SELECT * FROM t ORDER BY id"
        )


def test_partitioned_tables(database: Database, tmp_path: Path) -> None:
    database.run(
        "CREATE TABLE p (id INT, r INT, PRIMARY KEY (id, r)) PARTITION BY RANGE (r)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)",
        "INSERT INTO p VALUES (1, 1), (2, 11)",
        "CREATE PUBLICATION of_partitions FOR TABLE p",
    )
    with opened(tmp_path) as pond:
        with pytest.raises(InvalidError, match="has the partitions of table"):
            pond.sql(published(database, "p", ", publication.name = 'of_partitions'"))
        pond.sql(published(database, "p"))
        pond.drain()
        # The second update moves a row to another partition.
        database.run(
            "INSERT INTO p VALUES (3, 3), (4, 14)",
            "UPDATE p SET r = 15 WHERE id = 3",
            "DELETE FROM p WHERE id = 1",
        )
        pond.drain()
        assert sorted(pond.sql("SELECT * FROM p").fetchall()) == [(2, 11), (3, 15), (4, 14)]
        database.run("TRUNCATE p")
        pond.drain()
        assert pond.sql("SELECT * FROM p").fetchall() == []
        assert pond.errors().num_rows == 0


def test_columns_that_the_server_computes_are_left_out(database: Database, tmp_path: Path) -> None:
    database.run(
        "CREATE TABLE c (id INT PRIMARY KEY, v INT, w INT GENERATED ALWAYS AS (v * 2) STORED)",
        "INSERT INTO c (id, v) VALUES (1, 2)",
    )
    with opened(tmp_path) as pond:
        declared = f"CREATE TABLE c (id INT PRIMARY KEY, w INT) WITH (connector = 'postgres-cdc', connection = '{database.address}')"
        with pytest.raises(InvalidError, match="is computed by the server"):
            pond.sql(declared)
        pond.sql(published(database, "c"))
        pond.drain()
        database.run("INSERT INTO c (id, v) VALUES (2, 3)")
        pond.drain()
        assert sorted(pond.sql("SELECT * FROM c").fetchall()) == [(1, 2), (2, 3)]


@pytest.mark.parametrize(
    ("of", "message"),
    [
        ("TABLE other", "does not have table public.t"),
        ("TABLE t WITH (publish = 'insert, delete')", "leaves out some kinds of changes"),
        ("TABLE t WHERE (id > 5)", "leaves out some rows of table public.t"),
        ("TABLE t (id)", "leaves out column 'v' of table public.t"),
    ],
)
def test_a_publication_without_all_changes_is_refused(
    of: str, message: str, database: Database, tmp_path: Path
) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        f"CREATE PUBLICATION given FOR {of}",
    )
    with opened(tmp_path) as pond:
        with pytest.raises(InvalidError, match=message) as error:
            pond.sql(published(database, "t", ", publication.name = 'given'"))
        assert "ALTER PUBLICATION" in str(error.value.hint)
        for statement in str(error.value.hint).removesuffix(" on the server").split("; "):
            database.run(statement)
        pond.sql(published(database, "t", ", publication.name = 'given'"))
        database.run("INSERT INTO t VALUES (1, 1), (9, 9)", "UPDATE t SET v = 2 WHERE id = 1")
        pond.drain()
        assert sorted(pond.sql("SELECT * FROM t").fetchall()) == [(1, 2), (9, 9)]


def test_a_table_that_leaves_its_publication_stops_the_pond(database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)")
    with opened(tmp_path) as pond:
        pond.sql(published(database, "a, b", ", publication.name = 'two'"))
        pond.drain()
        database.run(
            "ALTER PUBLICATION two DROP TABLE a", "INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (1)"
        )
        with pytest.raises(DataError, match="changes were lost: publication 'two' does not have table"):
            pond.drain()
        assert pond.sql("SELECT * FROM b").fetchall() == []  # no epoch without the changes of the other table


def published(database: Database, tables: str, more: str = "") -> str:
    given = f"connection = '{database.address}', tables = '{tables}'{more}"
    return f"CREATE SOURCE s WITH (connector = 'postgres-cdc', {given})"


def test_the_slot_advances_only_after_the_commit(database: Database, tmp_path: Path) -> None:
    database.run(*BANK)

    def confirmed() -> int:
        return lsn_number(
            database.rows(
                "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 's_adv'"
            )[0][0]
        )

    with opened(tmp_path / "pond") as pond:
        define(pond, database, **{"slot.name": "s_adv"})
        pond.drain()
        start = confirmed()
        database.run("INSERT INTO accounts VALUES (1, 'a', 1)")
        source = next(n.operator.source for n in pond.plan.nodes.values() if n.step == "bank")
        position = pond.head().positions["bank"]
        assert source.poll(position, None, 100).splits
        assert confirmed() == start  # peeked, not committed
        pond.drain()
        database.run("INSERT INTO accounts VALUES (2, 'a', 1)")
        pond.drain()
        assert confirmed() > start
        assert confirmed() <= lsn_number(pond.head().positions["bank"]["lsn"])


def test_a_log_of_other_tables_does_not_hold_the_slot_back(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_cdc, "IDLE_BYTES", 50_000)
    database.run(*BANK, "CREATE TABLE other (n INT)")
    with opened(tmp_path / "pond") as pond:
        define(pond, database)
        pond.drain()
        before = pond.head().positions["bank"]["lsn"]
        database.run("INSERT INTO other SELECT generate_series(1, 5000)")
        pond.drain()
        assert lsn_number(pond.head().positions["bank"]["lsn"]) > lsn_number(before)
        epoch = pond.epoch
        pond.drain()
        assert pond.epoch == epoch  # and is quiet again


def test_lost_changes_stop_the_pond_or_are_copied_again(database: Database, tmp_path: Path) -> None:
    database.run(*BANK, "INSERT INTO accounts VALUES (1, 'a', 1)")
    lost = "SELECT pg_drop_replication_slot('s_lost')"
    with opened(tmp_path / "pond") as pond:
        define(pond, database, **{"slot.name": "s_lost"})
        pond.drain()
        database.run(lost, "DELETE FROM accounts", "INSERT INTO accounts VALUES (2, 'b', 2)")
        with pytest.raises(DataError, match="are lost: replication slot 's_lost'"):
            pond.drain()
    with opened(tmp_path / "other") as pond:
        define(pond, database, **{"slot.name": "s_lost", "if_lost": "copy"})
        pond.drain()
        database.run(lost, "DELETE FROM accounts", "INSERT INTO accounts VALUES (3, 'b', 2)")
        pond.drain()
        assert pond.sql("SELECT id FROM accounts").fetchall() == [(3,)]
        database.run("INSERT INTO accounts VALUES (4, 'b', 2)")
        pond.drain()
        assert pond.sql("SELECT id FROM accounts ORDER BY id").fetchall() == [(3,), (4,)]


def test_definitions_that_do_not_fit(database: Database, tmp_path: Path) -> None:
    database.run(*BANK, "CREATE TABLE nokey (n INT)")
    secret = f"{database.address} password=hunter2"
    with opened(tmp_path / "pond") as pond:

        def refuse(text: str, match: str, columns: str = "") -> None:
            with pytest.raises(InvalidError, match=match):
                pond.sql(
                    f"CREATE TABLE x {columns} WITH (connector = 'postgres-cdc', connection = '{secret}', {text})"
                )

        refuse("table.name = 'nothing'", "there is no table public.nothing")
        refuse("table.name = 'nokey'", "has no primary key")
        refuse("table.name = 'accounts'", "has no column 'nme'", "(id INT PRIMARY KEY, nme TEXT)")
        refuse("table.name = 'accounts'", "cannot be read as int32", "(id INT PRIMARY KEY, balance INT)")
        refuse(
            "table.name = 'accounts'",
            r"the primary key of public.accounts is \(id\)",
            "(id INT, owner TEXT PRIMARY KEY)",
        )
        refuse("table.name = 'accounts', if_lost = 'x'", "if_lost")
        refuse("table.name = 'accounts', slot = 'x'", "has no option 'slot'")
        pond.sql(
            f"CREATE TABLE x (id BIGINT PRIMARY KEY, owner TEXT) WITH (connector = 'postgres-cdc', connection = '{secret}',"
            " table.name = 'accounts')"
        )
        database.run("INSERT INTO accounts VALUES (1, 'a', 1)")
        pond.drain()
        assert pond.sql("SELECT * FROM x").fetchall() == [(1, "a")]
        for statement in ("INSERT INTO x VALUES (2, 'b')", "DELETE FROM x", "UPDATE x SET owner = 'c'"):
            with pytest.raises(InvalidError, match="is a copy"):
                pond.sql(statement)
        with pytest.raises(InvalidError, match="its columns stay"):
            pond.sql("ALTER TABLE x ADD COLUMN y INT")
        assert "hunter2" not in str(pond.sql("SHOW TABLES").fetchall()) + pond.explain() + repr(pond.plan)
        pond.sql("DROP TABLE x")
        pond.drain()


def test_rights_are_checked_when_a_table_is_defined(database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    database.run("DROP ROLE IF EXISTS weak", "CREATE ROLE weak LOGIN REPLICATION")
    address = database.address.replace("user=fuzz", "user=weak")
    made = f"CREATE TABLE t WITH (connector = 'postgres-cdc', connection = '{address}'{{}})"
    with opened(tmp_path / "pond") as pond:
        with pytest.raises(InvalidError, match=r"user 'weak' may not read table public\.t"):
            pond.sql(made.format(""))
        database.run("GRANT SELECT ON t TO weak")
        with pytest.raises(InvalidError, match=r"'weak' does not own table public\.t") as found:
            pond.sql(made.format(""))
        assert "CREATE PUBLICATION" in str(found.value.hint)
        database.run("ALTER TABLE t OWNER TO weak")
        with pytest.raises(InvalidError, match="may not create a publication in database"):
            pond.sql(made.format(""))
        database.run("CREATE PUBLICATION ours FOR TABLE t")
        pond.sql(made.format(", publication.name = 'ours'"))
        pond.drain()
        assert pond.sql("SELECT * FROM t").fetchall() == [(1,)]
        pond.sql("DROP TABLE t")
        pond.drain()
    database.forget()
    database.run("DROP TABLE t")


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "pond") as pond,
        pytest.raises(UnavailableError, match="source 'x' is unavailable"),
    ):
        pond.sql(
            "CREATE TABLE x WITH (connector = 'postgres-cdc', hostname = '127.0.0.1', port = '1', username = 'u')"
        )


# -- conformance ---------------------------------------------------------------------------------


class CdcCase(SourceCase):
    def __init__(self, database: Database) -> None:
        self.database, self.number = database, 0
        database.run(
            "CREATE TABLE t (id INT PRIMARY KEY, word TEXT)", "CREATE TABLE empty (id INT PRIMARY KEY)"
        )
        self.slot = f"s_{database.name}"
        columns, key = describe(database.con, "public", "t")
        made = tuple(SqlColumn(c.name, c.sql_type) for c in columns)
        tables = (PostgresTable("public", "t", stored_schema(made), key),)
        self.source = PostgresSource(database.address, tables, self.slot, self.slot)
        step = self.source.poll(None, None, 10)  # the copy of an empty table
        self.start = self.source.advance(None, step.splits, ()).position

    def open(self) -> Source:
        self.database.forget()  # as another process
        return _After(self.source, self.start)  # type: ignore[return-value]

    def add(self, rows: int) -> None:
        for number in range(self.number, self.number + rows):
            self.database.run(f"INSERT INTO t VALUES ({number}, 'w{number}')")
        self.number += rows


class _After:
    """The source after its first copy: a copy has rows of another snapshot each time."""

    append_only = True

    def __init__(self, source: PostgresSource, start: Any) -> None:
        self.source, self.start = source, start
        self.schema = source.schema

    def __getattr__(self, name: str) -> Any:
        if name == "again":
            raise AttributeError(name)
        return getattr(self.source, name)

    def poll(self, position: Any, seen: Any, max_rows: int) -> Any:
        return self.source.poll(position or self.start, seen, max_rows)


@pytest.mark.parametrize(
    "check",
    [c for c in CHECKS if c.__name__ != "a_pond_counts_every_row_once"],
    ids=lambda check: check.__name__,
)
def test_conformance(check: Callable[[SourceCase], None], database: Database) -> None:
    check(CdcCase(database))


def test_changes_that_were_offered_and_not_admitted_are_not_fetched_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch may admit less than a poll offers; the next poll gives the rest, as the server would."""
    case = CdcCase(database)
    for first in range(0, 40, 10):
        database.run(f"INSERT INTO t SELECT i, 'w' || i FROM generate_series({first}, {first + 9}) i")
    offered = case.source.poll(case.start, None, 40).splits
    assert len(offered) > 2
    position = case.source.advance(case.start, offered[:2], ()).position
    with monkeypatch.context() as patched:
        patched.setattr(postgres_cdc, "_PEEK", "SELECT 'peeked again' / 0 WHERE %s <> %s AND %s <> ''")
        rest = case.source.poll(position, None, 40).splits
    assert rest == offered[2:]
    database.forget()  # as another process
    anew = case.source.poll(position, None, 40).splits

    def logged(splits: Any) -> list[Any]:
        read = [case.source.read(split, case.source.schema.names) for split in splits]
        return [row for tables in read for table in tables for row in table.to_pylist()]

    assert logged(rest) == logged(anew) and len(logged(rest)) == 40 - sum(s.rows for s in offered[:2])
    last = case.source.advance(position, rest, ()).position
    assert not case.source.poll(last, None, 40).splits
    assert not postgres_cdc._peeked


# -- real kills ----------------------------------------------------------------------------------

CHILD = """
import sys, millpond
pond = millpond.open(sys.argv[1], engine="inline", poll_ms=5, epoch_rows_max=200, lease_ms=200, take_over=True)
pond.run()
"""


@pytest.mark.slow
def test_kill_9_of_the_pond_and_restarts_of_the_server(server: Server, tmp_path: Path) -> None:
    database = Database(server, f"killed{os.getpid()}")
    database.run(*BANK, "INSERT INTO accounts SELECT n, 'o', 100 FROM generate_series(1, 500) n")
    place = tmp_path / "pond"
    with millpond.open(place, engine="inline") as pond:
        define(pond, database)
        pond.sql("CREATE MATERIALIZED VIEW money AS SELECT sum(balance) AS b, count(*) AS n FROM accounts")
    database.forget()
    chance = random.Random(5)
    number = 0

    def write(times: int) -> None:
        nonlocal number
        for _ in range(times):
            number += 1
            with database.con.transaction():
                a, b = chance.sample(range(1, 501), 2)
                database.run(
                    f"UPDATE accounts SET balance = balance - 1 WHERE id = {a}",
                    f"UPDATE accounts SET balance = balance + 1 WHERE id = {b}",
                    f"INSERT INTO transfers VALUES ({number}, {a}, {b}, 1, '')",
                )

    def epochs() -> int:
        return len(list((place / "manifests").iterdir()))

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for turn in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(place)], env=environment, stderr=subprocess.DEVNULL
        )
        try:
            before, give_up = epochs(), time.monotonic() + 60
            while epochs() < before + chance.randrange(2, 6) and time.monotonic() < give_up:
                write(5)
            if turn == 1:
                server.stop()
                time.sleep(0.3)
                server.start()
                database.con = database.connect()
                write(5)
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
    with millpond.open(place, engine="inline", lease_ms=200, take_over=True) as pond:
        until(lambda: (pond.drain(), pond.read("transfers").num_rows == number)[1])
        shown = pond.sql("SELECT * FROM accounts ORDER BY id").fetchall()
        assert shown == database.rows("SELECT * FROM accounts ORDER BY id")
        assert pond.sql("SELECT id FROM transfers ORDER BY id").fetchall() == [
            (n + 1,) for n in range(number)
        ]
        assert pond.sql("SELECT * FROM money").fetchall() == [(50_000, 500)]
        assert pond.errors().num_rows == 0
        assert pond.epoch > 10
    database.close()
