"""CHECK, UNIQUE and identity columns: pushed rows, transactions, replays, restarts, and several processes."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import ConflictError, InvalidError
from millpond.pond import Pond
from tests.sampling import seeds


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=2, checks=True) as made:
        yield made


def rows(pond: Pond, sql: str) -> list[tuple[Any, ...]]:
    pond.sql("FLUSH")
    return sorted(pond.sql(sql).fetchall(), key=repr)


def reasons(pond: Pond) -> list[str]:
    return sorted(pond.errors()["reason"].to_pylist())


def test_a_pushed_row_that_violates_a_rule_is_an_error_row(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, n int CHECK (n > 0), code text UNIQUE)")
    pond.sql("INSERT INTO t VALUES (1, 1, 'a')")
    pond.insert("t", [{"id": 2, "n": 5, "code": "b"}, {"id": 3, "n": 0, "code": "c"}])
    pond.insert(
        "t", [{"id": 4, "n": 1, "code": "a"}, {"id": 1, "n": 2, "code": "z"}, {"id": 5, "n": 1, "code": "a"}]
    )
    pond.insert(
        "t",
        [{"id": 6, "n": 1, "code": "q"}, {"id": 7, "n": 1, "code": "q"}, {"id": 8, "n": None, "code": None}],
    )
    assert rows(pond, "SELECT * FROM t") == [
        (1, 2, "z"),
        (2, 5, "b"),
        (5, 1, "a"),
        (6, 1, "q"),
        (8, None, None),
    ]
    assert reasons(pond) == [
        'duplicate key value violates unique constraint "t_code_key": (4, 1, a)',
        'duplicate key value violates unique constraint "t_code_key": (7, 1, q)',
        'new row for relation "t" violates check constraint "t_n_check": (3, 0, c)',
    ]
    assert all(pond.replay(epoch).same for epoch in range(2, pond.epoch + 1))
    pond.delete("t", [{"id": 5, "n": 1, "code": "a"}, {"id": 99, "n": 1, "code": "a"}])
    assert (5, 1, "a") not in rows(pond, "SELECT * FROM t")
    assert any("not there: (99, 1, a)" in reason for reason in reasons(pond))


def test_a_request_that_is_repeated_counts_once(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id serial PRIMARY KEY, n int CHECK (n > 0))")
    for _ in range(2):
        pond.insert("t", [{"n": 5}, {"n": 0}], request=("client", 1))
        pond.insert("t", [{"n": 6}], request="text")
    pond.insert("t", [{"n": 7}], request=("client", 2))
    assert rows(pond, "SELECT n FROM t") == [(5,), (6,), (7,)]


def test_pushed_rows_of_a_bag_and_of_an_append_only_table(pond: Pond) -> None:
    pond.sql("CREATE TABLE bag (a int UNIQUE, b int CHECK (b < 9))")
    pond.sql("CREATE TABLE log (n bigserial, a int NOT NULL CHECK (a > 0)) APPEND ONLY")
    pond.insert("bag", [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": None, "b": 1}, {"a": None, "b": 1}])
    pond.insert("bag", [{"a": 1, "b": 3}, {"a": 2, "b": 9}])
    pond.delete("bag", [{"a": None, "b": 1}])
    pond.insert("log", [{"a": 5}, {"a": -5}, {"a": 6}])
    assert rows(pond, "SELECT * FROM bag") == [(1, 1), (None, 1)]
    assert rows(pond, "SELECT a, count(DISTINCT n) FROM log GROUP BY a") == [(5, 1), (6, 1)]
    assert len(reasons(pond)) == 4
    with pytest.raises(InvalidError, match="APPEND ONLY"):
        pond.sql("CREATE TABLE x (a int UNIQUE) APPEND ONLY")


def test_numbers_in_transactions(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id serial PRIMARY KEY, x text); CREATE TABLE u (t int, y int)")
    with pond.transaction() as tx:
        (number,) = tx.sql("INSERT INTO t (x) VALUES ('a') RETURNING id").fetchone() or (None,)
        tx.sql("INSERT INTO u VALUES (?, 1)", params=[number])
        tx.insert("t", [{"x": "b"}])
    assert rows(pond, "SELECT * FROM t") == [(1, "a"), (2, "b")] and rows(pond, "SELECT * FROM u") == [(1, 1)]
    with pytest.raises(ConflictError), pond.transaction() as tx:  # the client was told a number
        tx.sql("INSERT INTO t (x) VALUES ('c') RETURNING id")
        pond.sql("INSERT INTO t (x) VALUES ('other'); FLUSH")
    with pond.transaction() as tx:  # it was not
        tx.sql("INSERT INTO t (x) VALUES ('d')")
        pond.sql("INSERT INTO t (x) VALUES ('other'); FLUSH")
    assert rows(pond, "SELECT * FROM t")[2:] == [(3, "other"), (4, "other"), (5, "d")]
    assert pond.replay(pond.epoch).same


def test_the_rules_follow_the_columns(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, a int CONSTRAINT small CHECK (a < 9), b int UNIQUE, c int)")
    pond.sql("INSERT INTO t VALUES (1, 1, 1, 1)")
    pond.sql("ALTER TABLE t RENAME COLUMN a TO size; ALTER TABLE t RENAME COLUMN b TO code")
    with pytest.raises(InvalidError, match='check constraint "small"'):
        pond.sql("INSERT INTO t (id, size) VALUES (2, 9)")
    with pytest.raises(InvalidError, match="duplicate key"):
        _ = pond.sql("INSERT INTO t (id, code) VALUES (2, 1)").rowcount
    with pytest.raises(InvalidError, match="constraint 'small' reads it"):
        pond.sql("ALTER TABLE t DROP COLUMN size")
    with pytest.raises(InvalidError, match="requires it"):
        pond.sql("DROP INDEX t_b_key")
    pond.sql("ALTER TABLE t DROP CONSTRAINT small; ALTER TABLE t DROP CONSTRAINT IF EXISTS nope")
    pond.sql(
        "ALTER TABLE t DROP CONSTRAINT t_b_key, DROP COLUMN code; ALTER TABLE t ADD COLUMN d int DEFAULT 4"
    )
    pond.sql("INSERT INTO t (id, size) VALUES (2, 9)")
    assert rows(pond, "SELECT * FROM t") == [(1, 1, 1, 4), (2, 9, None, 4)]
    pond.sql("ALTER TABLE t RENAME TO u; INSERT INTO u VALUES (3, 3, 3, 3)")
    assert len(rows(pond, "SELECT * FROM u")) == 3
    with pytest.raises(InvalidError, match='check constraint "x" of relation "u" is violated by some row'):
        pond.sql("ALTER TABLE u ADD CONSTRAINT x CHECK (size < 9)")
    pond.sql("INSERT INTO u VALUES (4, 99, 4, 4); ALTER TABLE u ADD CONSTRAINT x CHECK (size > 0)")
    with pytest.raises(InvalidError, match='check constraint "x"'):
        pond.sql("INSERT INTO u VALUES (5, 0, 5, 5)")
    assert len(rows(pond, "SELECT * FROM u")) == 4


def test_a_renamed_table_keeps_its_numbers(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id serial, x int CHECK (x > 0)); INSERT INTO t (x) VALUES (1); FLUSH")
    pond.sql("ALTER TABLE t RENAME TO u; INSERT INTO u (x) VALUES (2)")
    assert rows(pond, "SELECT * FROM u") == [(1, 1), (2, 2)]
    with pytest.raises(InvalidError, match='relation "u"'):
        pond.sql("INSERT INTO u (x) VALUES (0)")
    with pytest.raises(InvalidError, match="requires it"):
        pond.sql("DROP TABLE t_id_seq")
    pond.sql("DROP TABLE u; CREATE TABLE t (id serial, x int); INSERT INTO t (x) VALUES (1)")
    assert rows(pond, "SELECT * FROM t") == [(1, 1)]


def test_a_fork_and_a_rollback_take_numbers_back(pond: Pond, tmp_path: Path) -> None:
    pond.sql("CREATE TABLE t (id serial, x int); INSERT INTO t (x) VALUES (1); FLUSH")
    epoch = pond.epoch
    pond.sql("INSERT INTO t (x) VALUES (2); FLUSH")
    pond.rollback(epoch)
    pond.sql("INSERT INTO t (x) VALUES (3); FLUSH")
    assert rows(pond, "SELECT * FROM t") == [(1, 1), (2, 3)]


PROCESS = """
import sys, millpond
with millpond.open(sys.argv[1], engine="inline") as pond:
    for n in range(int(sys.argv[2])):
        if n % 2:
            pond.sql("INSERT INTO t (x) VALUES (?)", params=[sys.argv[3]])
        else:
            pond.insert("t", [{"x": sys.argv[3]}, {"x": sys.argv[3]}])
"""


@pytest.mark.slow
def test_processes_never_get_the_same_number(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id bigserial PRIMARY KEY, x text); FLUSH")
    running = [
        subprocess.Popen([sys.executable, "-c", PROCESS, str(tmp_path / "pond"), "10", name])
        for name in "abc"
    ]
    assert [one.wait(120) for one in running] == [0, 0, 0]
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        found = rows(pond, "SELECT id FROM t")
        assert sorted(found) == [(n,) for n in range(1, 46)]


@pytest.mark.parametrize("seed", seeds(1, 0, 20, "RULE_SEEDS"))
def test_random_changes_keep_the_rules(seed: int, pond: Pond) -> None:
    """After every epoch no rule is violated, and what was refused would have violated one."""
    rng = random.Random(seed)
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, u int UNIQUE, n int CHECK (n >= 0))")
    model: dict[int, tuple[int | None, int]] = {}
    for _ in range(25):
        if rng.random() < 0.5:
            given = [
                (rng.randint(0, 5), rng.choice([None, 0, 1, 2, 3]), rng.randint(-1, 3))
                for _ in range(rng.randint(1, 3))
            ]
            if rng.random() < 0.5:
                pond.insert("t", [dict(zip(("id", "u", "n"), row, strict=True)) for row in given])
                for id, u, n in given:
                    taken = u is not None and any(o != id and v[0] == u for o, v in model.items())
                    if n >= 0 and not taken:
                        model[id] = (u, n)
            else:
                after = model | {id: (u, n) for id, u, n in given}
                used = [v[0] for v in after.values() if v[0] is not None]
                fine = len(used) == len(set(used)) and all(n >= 0 for _, _, n in given)
                text = ", ".join(f"({id}, {'NULL' if u is None else u}, {n})" for id, u, n in given)
                if told(pond, f"INSERT INTO t VALUES {text}", fine):
                    model = after
        else:
            kind, number = rng.choice(["u = u + 1", "n = n - 1", "u = 3"]), rng.randint(0, 3)
            hit = [id for id in model if id >= number]
            after = dict(model)
            for id in hit:
                u, n = model[id]
                after[id] = {
                    "u = u + 1": (None if u is None else u + 1, n),
                    "n = n - 1": (u, n - 1),
                    "u = 3": (3, n),
                }[kind]
            used = [v[0] for v in after.values() if v[0] is not None]
            fine = len(used) == len(set(used)) and all(after[id][1] >= 0 for id in hit)
            if told(pond, f"UPDATE t SET {kind} WHERE id >= {number}", fine):
                model = after
        assert rows(pond, "SELECT * FROM t") == sorted(((k, *v) for k, v in model.items()), key=repr)


def told(pond: Pond, sql: str, fine: bool) -> bool:
    try:
        _ = pond.sql(sql).rowcount
    except InvalidError as error:
        assert not fine, (sql, error)
        return False
    assert fine, sql
    return True
