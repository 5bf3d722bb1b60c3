"""Transactions: all changes of a block in one epoch or none, over the state that everything before left."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import ConflictError, InvalidError
from millpond.pond import Pond
from millpond.sql.dml import transaction_entry
from tests.sampling import seeds


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=2, checks=True) as made:
        made.sql("CREATE TABLE a (id int PRIMARY KEY, n int); CREATE TABLE b (x text, y int)")
        made.sql("CREATE TABLE seen (k int, v text) APPEND ONLY")
        made.sql("CREATE MATERIALIZED VIEW total AS SELECT sum(n) AS n FROM a")
        made.sql("INSERT INTO a VALUES (1, 10), (2, 20); INSERT INTO b VALUES ('p', 1), ('q', 2); FLUSH")
        yield made


def rows(pond: Pond, sql: str, **more: Any) -> list[tuple[Any, ...]]:
    return sorted(pond.sql(sql, **more).fetchall())


def test_a_block_is_one_epoch_and_sees_its_own_changes(pond: Pond) -> None:
    before = pond.epoch
    with pond.transaction() as tx:
        assert tx.sql("UPDATE a SET n = n - 5 WHERE id = 1").rowcount == 1
        assert tx.sql("UPDATE a AS q SET n = q.n + 5 WHERE id = 2 RETURNING q.id, n").fetchall() == [(2, 25)]
        assert tx.insert("a", [{"id": 3, "n": 0}]) == 1
        assert sorted(tx.sql("SELECT * FROM a").fetchall()) == [(1, 5), (2, 25), (3, 0)]
        tx.sql("INSERT INTO b VALUES ('r', 3); DELETE FROM b WHERE y = 1; INSERT INTO seen VALUES (1, 'm')")
        assert sorted(tx.sql("SELECT * FROM b").fetchall()) == [("q", 2), ("r", 3)]
        assert tx.sql("SELECT * FROM seen").fetchall() == [(1, "m")]
        assert tx.sql("SELECT n FROM total").fetchall() == [(30,)], "views are those of the epoch"
        up = "INSERT INTO a VALUES (3, 1), (4, 7) ON CONFLICT (id) DO UPDATE SET n = a.n + excluded.n + 100"
        assert tx.sql(up).rowcount == 2
        tx.require("SELECT count(*) = 4 FROM a")
        assert tx.sql("INSERT INTO b SELECT 'of a', n FROM a WHERE id = 4").rowcount == 1
        assert tx.sql("UPDATE a SET id = id + 10 WHERE id > 2").rowcount == 2
        assert pond.epoch == before and rows(pond, "SELECT * FROM a") == [(1, 10), (2, 20)]
    assert tx.epoch == pond.epoch == before + 1
    assert rows(pond, "SELECT * FROM a") == [(1, 5), (2, 25), (13, 101), (14, 7)]
    assert rows(pond, "SELECT * FROM b") == [("of a", 7), ("q", 2), ("r", 3)]
    assert rows(pond, "SELECT * FROM seen") == [(1, "m")]
    assert rows(pond, "SELECT * FROM total") == [(138,)]
    assert pond.replay(pond.epoch).same


def test_begin_commit_and_rollback_in_sql(pond: Pond) -> None:
    assert pond.sql("BEGIN").status == "BEGIN" and pond.session.in_transaction
    pond.sql("UPDATE a SET n = 0")
    assert rows(pond, "SELECT n FROM a") == [(0,), (0,)]
    assert pond.sql("ROLLBACK").status == "ROLLBACK" and not pond.session.in_transaction
    assert rows(pond, "SELECT n FROM a") == [(10,), (20,)]
    done = pond.sql(
        "START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE; DELETE FROM a WHERE id = 1; END"
    )
    assert (done.status, done.epoch) == ("COMMIT", pond.epoch)
    assert rows(pond, "SELECT n FROM a") == [(20,)]
    assert pond.sql("COMMIT").warnings == ["there is no transaction in progress"]
    pond.sql("BEGIN READ ONLY")
    with pytest.raises(InvalidError, match="read-only"):
        pond.sql("DELETE FROM a")
    with pytest.raises(InvalidError, match="has failed"):
        pond.sql("SELECT 1")
    assert pond.sql("COMMIT").status == "ROLLBACK"
    assert rows(pond, "SELECT n FROM a") == [(20,)]


def test_savepoints_inside_a_transaction(pond: Pond) -> None:
    pond.sql("BEGIN; UPDATE a SET n = 1 WHERE id = 1; SAVEPOINT s; UPDATE a SET n = 2; SAVEPOINT t")
    pond.sql("ROLLBACK TO s")
    assert rows(pond, "SELECT n FROM a") == [(1,), (20,)]
    with pytest.raises(InvalidError, match="savepoint 't'"):
        pond.sql("RELEASE SAVEPOINT t")
    pond.sql("ROLLBACK TO SAVEPOINT s; DELETE FROM b; RELEASE s; COMMIT")
    assert rows(pond, "SELECT n FROM a") == [(1,), (20,)] and rows(pond, "SELECT * FROM b") == []


def test_what_was_read_and_changed_meanwhile_aborts(pond: Pond) -> None:
    with pytest.raises(ConflictError, match="aborted") as refused, pond.transaction() as tx:
        assert tx.sql("SELECT n FROM a WHERE id = 1").fetchall() == [(10,)]
        pond.sql("UPDATE a SET n = 11 WHERE id = 1; FLUSH")
        assert tx.sql("SELECT n FROM a WHERE id = 1").fetchall() == [(10,)], "one epoch"
        tx.sql("UPDATE a SET n = 0 WHERE id = 2; INSERT INTO b VALUES ('r', 3)")
    assert "SELECT n FROM a WHERE id = 1" in str(refused.value.detail)
    assert rows(pond, "SELECT * FROM a") == [(1, 11), (2, 20)] and len(rows(pond, "SELECT * FROM b")) == 2
    assert pond.errors().num_rows == 0, "the client was told"
    with pond.transaction() as tx:  # other rows of the same table
        tx.sql("SELECT n FROM a WHERE id = 1")
        pond.sql("UPDATE a SET n = 21 WHERE id = 2; FLUSH")
        tx.sql("UPDATE a SET n = n + 1 WHERE id = 2")
    assert rows(pond, "SELECT * FROM a") == [(1, 11), (2, 22)]
    with pond.transaction() as tx:  # only reads
        tx.sql("SELECT * FROM a")
        pond.sql("UPDATE a SET n = 0; FLUSH")
    assert tx.epoch is None


@pytest.mark.parametrize(
    ("read", "change"),
    [
        ("SELECT count(*) FROM b WHERE y > 5", "INSERT INTO b VALUES ('new', 9)"),
        ("SELECT n FROM total", "UPDATE a SET n = n + 1"),
        ("UPDATE b SET y = 0 WHERE y = 1", "DELETE FROM b WHERE y = 1"),
        ("DELETE FROM b WHERE y < 5 RETURNING x", "UPDATE b SET x = 'z' WHERE y = 1"),
        ("SELECT x FROM b ORDER BY random() LIMIT 1", "INSERT INTO b VALUES ('new', 9)"),
    ],
)
def test_whatever_the_client_was_told_must_still_hold(pond: Pond, read: str, change: str) -> None:
    with pytest.raises(ConflictError, match="aborted"), pond.transaction() as tx:
        _ = tx.sql(read).rowcount
        pond.sql(f"{change}; FLUSH")
        tx.sql("INSERT INTO seen VALUES (1, 'lost')")
    assert rows(pond, "SELECT * FROM seen") == []


def test_conditions(pond: Pond) -> None:
    with pytest.raises(ConflictError, match="too poor"), pond.transaction() as tx:
        tx.require("SELECT n >= ? FROM a WHERE id = 1", "too poor", params=[11])
    with pytest.raises(ConflictError) as refused, pond.transaction() as tx:
        tx.require("SELECT n >= 10 FROM a WHERE id = 1", "too poor")
        tx.sql("UPDATE a SET n = n - 10 WHERE id = 1")
        pond.sql("UPDATE a SET n = n - 1 WHERE id = 1; FLUSH")
    assert refused.value.detail == "too poor"
    with pond.transaction() as tx:  # it still holds, although the row has changed
        tx.require("SELECT n >= 5 FROM a WHERE id = 1")
        tx.sql("UPDATE a SET n = n - 5 WHERE id = 1")
        pond.sql("UPDATE a SET n = n - 1 WHERE id = 1; FLUSH")
    assert rows(pond, "SELECT n FROM a WHERE id = 1") == [(3,)]
    with pytest.raises(InvalidError, match="has failed"), pond.transaction() as tx:
        with pytest.raises(ConflictError):
            tx.require("SELECT false")
        tx.sql("DELETE FROM a")
    with pytest.raises(InvalidError, match="one column"), pond.transaction() as tx:
        tx.require("SELECT n, id FROM a WHERE id = 1")


def test_an_exception_undoes_the_block(pond: Pond) -> None:
    head = pond.epoch
    with pytest.raises(ZeroDivisionError), pond.transaction() as tx:
        tx.sql("DELETE FROM a; DELETE FROM b")
        raise ZeroDivisionError
    with pond.transaction() as tx:  # the session that it used
        assert len(tx.sql("SELECT * FROM a").fetchall()) == 2
    assert pond.epoch == head


def test_the_changes_of_one_text_are_one_transaction(pond: Pond) -> None:
    results = list(
        pond.session.run_each(
            "UPDATE a SET n = 0 WHERE id = 1; SELECT 1; UPDATE b SET y = 9 RETURNING x; DELETE FROM a WHERE id = 2"
        )
    )
    assert [r.rowcount for r in results] == [1, 1, 2, 1]
    assert sorted(results[2].fetchall()) == [("p",), ("q",)]
    assert len({results[n].epoch for n in (0, 2, 3)}) == 1
    with pytest.raises(InvalidError, match="nope"):
        pond.sql("UPDATE a SET n = 3; INSERT INTO nope VALUES (1)")
    failing = pond.sql("DELETE FROM b; UPDATE a SET n = CAST(n + 2147483647 AS bigint) + 1")
    with pytest.raises(InvalidError, match="refused"):
        _ = failing.rowcount
    pond.sql("FLUSH")
    assert rows(pond, "SELECT * FROM a") == [(1, 0)] and len(rows(pond, "SELECT * FROM b")) == 2
    number = pond._inbox.sender.last
    pond.sql("INSERT INTO b VALUES ('r', 3); INSERT INTO b VALUES ('s', 4); FLUSH")
    assert pond._inbox.sender.last == number + 1 and len(rows(pond, "SELECT * FROM b")) == 4


def test_no_epoch_shows_half_of_a_text(pond: Pond) -> None:
    pond.start()
    for n in range(10):
        pond.sql(f"INSERT INTO a VALUES ({n + 10}, 1); INSERT INTO b VALUES ('x', {n})")
    pond.sql("FLUSH")
    pond.stop()
    for epoch in range(2, pond.epoch + 1):
        counts = [pond.sql(f"SELECT count(*) FROM {t} AS OF EPOCH {epoch}").fetchall() for t in "ab"]
        assert counts[0] == counts[1], epoch


def test_definitions_in_a_transaction(pond: Pond) -> None:
    pond.sql("BEGIN; CREATE TABLE c (id int PRIMARY KEY); CREATE VIEW w AS SELECT * FROM c")
    pond.sql("ROLLBACK")
    assert "c" not in [r[0] for r in rows(pond, "SHOW TABLES")]
    pond.sql("BEGIN; CREATE TABLE c (id int PRIMARY KEY)")
    done = pond.sql("INSERT INTO c VALUES (1)")
    assert done.warnings == ["the definitions of this transaction are committed already"]
    with pytest.raises(InvalidError, match="cannot follow"):
        pond.sql("CREATE TABLE d (id int)")
    pond.sql("ROLLBACK; BEGIN; INSERT INTO c VALUES (2); COMMIT")
    assert rows(pond, "SELECT * FROM c") == [(2,)]
    with pytest.raises(InvalidError, match="cannot be part"):
        pond.sql("BEGIN; CREATE SAVEPOINT s")
    pond.sql("ROLLBACK")


def test_a_transaction_is_bounded(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_entry, "ITEMS_MAX", 3)
    with pytest.raises(InvalidError, match="too large"):
        pond.sql("BEGIN; DELETE FROM a; DELETE FROM b; DELETE FROM a; DELETE FROM b; COMMIT")
    assert not pond.session.in_transaction
    assert len(rows(pond, "SELECT * FROM a")) == 2


def test_no_transaction_stops_the_inbox(pond: Pond) -> None:
    good = {"table": "a", "name": "a", "verb": "update", "reads": [], "sql": "UPDATE a SET n = n + 1"}
    bad: list[Any] = [
        {},
        {"items": []},
        {"items": [5]},
        {"items": [{**good, "verb": "drop"}]},
        {"items": [{**good, "sql": "UPDATE a SET n = 1; DROP TABLE a"}]},
        {"items": [{**good, "sql": "SELECT 1"}]},
        {"items": [{**good, "reads": ["nope"]}]},
        {"items": [{**good, "keys": [["x"]]}]},
        {"items": [{**good, "keys": 5}]},
        {"items": [good, {"verb": "rows", "table": "a", "name": "a", "at": [0, 9]}]},
        {"items": [good, {"verb": "require", "sql": "not sql"}]},
    ]
    aborted = [
        {"items": [{**good, "table": "nope"}]},
        {"items": [{**good, "columns": [["id", "id"]]}]},
        {"items": [good, {"verb": "read", "sql": "select n from a", "digest": "?"}]},
    ]
    numbers = [pond._inbox.append("transaction", args, b"") for args in [*bad, *aborted, {"items": [good]}]]
    pond.sql("FLUSH")
    assert rows(pond, "SELECT n FROM a") == [(11,), (21,)]
    assert {r["row"] for r in pond.errors().to_pylist()} == {str(n) for n in numbers[: len(bad)]}
    assert pond.replay(pond.epoch).same


@pytest.mark.parametrize("seed", seeds(1, 0, 30, "TRANSACTION_SEEDS"))
def test_random_transactions_are_serial(tmp_path: Path, seed: int) -> None:
    """Threads run random blocks; the tables equal those of the committed blocks in the order of the inbox."""
    done: list[tuple[int, int, list[tuple[str, int, int]]]] = []
    lock = threading.Lock()
    with millpond.open(tmp_path / "pond", engine="inline", retain_epochs=1000) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE log (id int, n int)")
        pond.sql("INSERT INTO t SELECT i, 100 FROM range(5) r(i); FLUSH")
        pond.start()

        def work(worker: int) -> None:
            chance = random.Random(seed * 10 + worker)
            for number in range(4):
                steps: list[tuple[str, int, int]] = []
                try:
                    with pond.transaction() as tx:
                        for _ in range(chance.randint(1, 4)):
                            which, by = chance.randrange(5), chance.randrange(1, 9)
                            kind = chance.choice(["add", "copy", "note", "delete"])
                            if kind == "add":
                                tx.sql(f"UPDATE t SET n = n + {by} WHERE id = {which}")
                            elif kind == "copy":  # decided by the client
                                read = tx.sql(f"SELECT n FROM t WHERE id = {which}").fetchall()
                                by = read[0][0] if read else -1
                                tx.insert("t", [{"id": (which + 1) % 5, "n": by}])
                            elif kind == "note":
                                tx.sql(f"INSERT INTO log SELECT id, n FROM t WHERE id <= {which}")
                            else:
                                tx.sql(f"DELETE FROM t WHERE id = {which} AND abs(n) % 2 = {by % 2}")
                            steps.append((kind, which, by))
                except ConflictError:
                    continue
                assert tx.epoch is not None
                with lock:
                    done.append((tx.epoch, number, steps))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pond.stop()
        found = rows(pond, "SELECT * FROM t"), rows(pond, "SELECT * FROM log")
        assert done and _serial(done, found), (seed, done, found)
        for epoch in {e for e, _, _ in done}:
            assert pond.replay(epoch).same


def _serial(done: list[tuple[int, int, list[tuple[str, int, int]]]], found: Any) -> bool:
    """Is there an order, epoch by epoch, in which the blocks give these tables?"""
    states: list[tuple[dict[int, int], list[tuple[int, int]]]] = [(dict.fromkeys(range(5), 100), [])]
    for epoch in sorted({e for e, _, _ in done}):
        blocks = [steps for e, _, steps in done if e == epoch]
        states = [after for state in states for after in _orders(state, blocks)]
    return any((sorted(t.items()), sorted(log)) == (found[0], found[1]) for t, log in states)


def _orders(state: Any, blocks: list[Any]) -> Iterator[Any]:
    if not blocks:
        yield state
    for at, block in enumerate(blocks):
        after = _played(state, block)
        if after is not None:
            yield from _orders(after, blocks[:at] + blocks[at + 1 :])


def _played(state: Any, steps: list[tuple[str, int, int]]) -> Any:
    table, log = dict(state[0]), list(state[1])
    for kind, which, by in steps:
        if kind == "add" and which in table:
            table[which] += by
        elif kind == "copy":
            if table.get(which, -1) != by:
                return None
            table[(which + 1) % 5] = by
        elif kind == "note":
            log += [(i, n) for i, n in table.items() if i <= which]
        elif kind == "delete" and which in table and abs(table[which]) % 2 == by % 2:
            del table[which]
    return table, log
