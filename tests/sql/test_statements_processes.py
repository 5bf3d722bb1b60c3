"""Statements across restarts and from several processes at once: nothing is lost (laws 2 and 3)."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import ConflictError
from millpond.pond import Pond

WORKER = Path(__file__).parent / "worker.py"


def opened(tmp_path: Path, **settings: Any) -> Pond:
    return millpond.open(tmp_path / "pond", engine="inline", **settings)


def rows(pond: Pond, sql: str) -> list[tuple[Any, ...]]:
    return pond.sql(sql).fetchall()


def another(tmp_path: Path, times: int, *statements: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(WORKER), str(tmp_path / "pond"), str(times), *statements])


def test_tables_views_and_changes_survive_restarts(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, x hugeint DEFAULT 1, at timestamptz)")
        pond.sql("CREATE VIEW w AS SELECT id, x FROM t WHERE x > 0")
        pond.sql(
            "CREATE MATERIALIZED VIEW v AS SELECT sum(x) AS s FROM w; INSERT INTO t (id, x) VALUES (1, 5)"
        )
    with opened(tmp_path) as pond:  # what was not flushed is in the inbox
        pond.sql("INSERT INTO t (id) VALUES (2); UPDATE t SET x = x * 10 WHERE id = 1; FLUSH")
        assert rows(pond, "SELECT * FROM v") == [(51,)]
        assert rows(pond, "SELECT * FROM w ORDER BY id") == [(1, 50), (2, 1)]
        assert rows(pond, "DESCRIBE t")[1][:2] == ("x", "HUGEINT")
        pond.sql("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM w")
    with opened(tmp_path) as pond:
        assert rows(pond, "SELECT n, s FROM n, v") == [(2, 51)]
        assert [r[:2] for r in rows(pond, "SHOW OBJECTS")] == [
            ("n", "materialized view"),
            ("t", "table"),
            ("v", "materialized view"),
            ("w", "view"),
        ]
        pond.sql("DROP TABLE t CASCADE")
    with opened(tmp_path) as pond:
        assert rows(pond, "SHOW OBJECTS") == []


def test_another_process_changes_rows_and_the_program_while_this_one_runs(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, x int); INSERT INTO t VALUES (1, 1)")
        pond.start()
        other = another(
            tmp_path,
            1,
            "INSERT INTO t VALUES (2, 2); UPDATE t SET x = x + 1; DELETE FROM t WHERE id = 1",
            "FLUSH",
            "CREATE TABLE u (a int); CREATE MATERIALIZED VIEW v AS SELECT sum(x) AS s FROM t",
            "INSERT INTO u SELECT x FROM t; FLUSH",
            "EXPECT 1 UPDATE t SET x = x WHERE id = 2 RETURNING x",
        )
        assert other.wait(timeout=180) == 0
        assert rows(pond, "SELECT * FROM t") == [(2, 3)]
        assert rows(pond, "SELECT a, s FROM u, v") == [(3, 3)]
        pond.sql("DROP TABLE u; CREATE VIEW w AS SELECT s FROM v")
        assert rows(pond, "SELECT s FROM w") == [(3,)]
        pond.stop()


def test_four_processes_count_together(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, x int); INSERT INTO t VALUES (1, 0), (2, 0)")
        pond.start()
        count = "UPDATE t SET x = x + 1 WHERE id = 1; UPDATE t SET x = x + 1"
        others = [another(tmp_path, 10, count) for _ in range(4)]
        for _ in range(10):
            pond.sql(count)
        assert [o.wait(timeout=120) for o in others] == [0] * 4
        pond.sql("FLUSH")
        pond.stop()
        assert rows(pond, "SELECT id, x FROM t ORDER BY id") == [(1, 100), (2, 50)]
        assert pond.errors().num_rows == 0


@pytest.mark.slow
def test_two_that_define_at_once_both_do(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (a int)")
        pond.start()
        others = [another(tmp_path, 1, *(f"CREATE TABLE {p}{n} (a int)" for n in range(3))) for p in "xyz"]
        assert [o.wait(timeout=120) for o in others] == [0] * 3
        pond.stop()
        assert len(rows(pond, "SHOW TABLES")) == 10


def test_a_plan_made_of_an_older_program_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (a int)")
        old, base = pond.plan, pond.head().catalog
        pond.sql("CREATE TABLE u (a int)")
        with pytest.raises(ConflictError, match="not changed"):
            pond.change(old, base=base)
        assert [r[0] for r in rows(pond, "SHOW TABLES")] == ["t", "u"]


def test_no_change_stops_the_inbox(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, x int); INSERT INTO t VALUES (1, 1); FLUSH")
        good: dict[str, Any] = {
            "table": "t",
            "name": "t",
            "verb": "update",
            "reads": [],
            "sql": "UPDATE t SET x = 7",
        }
        bad: list[dict[str, Any]] = [
            {},
            {"table": "t"},
            {**good, "table": "nope"},
            {**good, "name": "old"},
            {**good, "sql": "SELECT 1"},
            {**good, "sql": "UPDATE nope SET x = 1"},
            {**good, "sql": "UPDATE t SET x = 1; DROP TABLE t"},
            {**good, "reads": ["nope"]},
            {**good, "reads": 5},
            {**good, "keys": [["x"]]},
            {**good, "keys": 5},
        ]
        for args in [*bad, {**good, "sql": "UPDATE t SET x = x + 1"}]:
            pond._inbox.append("sql", args, b"")
        pond.sql("FLUSH")
        assert rows(pond, "SELECT * FROM t") == [(1, 2)]
        assert pond.errors().num_rows == len(bad), pond.errors().to_pylist()


def test_threads_of_one_process(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, x int); INSERT INTO t VALUES (1, 0)")
        pond.start()
        failed: list[BaseException] = []

        def work() -> None:
            try:
                for _ in range(10):
                    pond.sql("UPDATE t SET x = x + 1 WHERE id = 1")
                    pond.sql("SELECT x FROM t WHERE id = 1").fetchall()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pond.sql("FLUSH")
        pond.stop()
        assert not failed
        assert rows(pond, "SELECT x FROM t") == [(30,)]
