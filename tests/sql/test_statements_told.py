"""What is wrong is told with its place, what was meant, and in plain words, whatever the statement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.pond import Pond


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    path: Path = tmp_path_factory.mktemp("told")
    with millpond.open(path / "pond", engine="inline") as made:
        made.sql("""
            CREATE TABLE t (id int PRIMARY KEY, amount int, ts timestamp);
            CREATE MATERIALIZED VIEW totals AS SELECT amount, count(*) AS n FROM t GROUP BY amount
        """)
        yield made


def told(pond: Pond, sql: str) -> InvalidError:
    with pytest.raises(InvalidError) as caught:
        pond.sql(sql)
    return caught.value


@pytest.mark.parametrize(
    ("sql", "mark"),
    [
        ("SELECT id FORM t x", "t"),
        ("UPDATE t amount = 1", "="),
        ("UPDATE t SET amount = = 1", "="),
        ("DELETE t WHERE id = 1", "t"),
        ("INSERT INTO t VALUES (1,, 2)", ","),
        ("INSERT INTO t VALUES (1 2, 3)", "2"),
        ("INSERT INTO t VALUES (, 2)", ","),
        ("CREATE MATERIALIZED VIEW v AS SELECT id FROM t WERE id = 1", "id"),
        ("CREATE VIEW v SELECT 1", "SELECT"),
        ("CREATE TABLE x (a int,, b int)", ","),
        ("CREATE TABLE x (a int DEFAULT, b int)", None),
        ("CREATE TABLE x (a int DEFAULT DEFAULT)", "DEFAULT"),
        ("ALTER TABLE t ADD COLUMN", None),
        ("DROP t", "t"),
        ("SHOW TABELS", "TABELS"),
        ("SELECT amout FROM t", "amout"),
        ("DELETE FROM t WHERE amout = 1", "amout"),
        ("SELECT id FROM t WHERE 'é' = 'é' AND nope", "nope"),
        ("CREATE MATERIALIZED VIEW v AS\nSELECT id,\n  amout FROM t", "amout"),
        ("INSERT INTO t VALUES ('x', 1, NULL)", "'x'"),
    ],
)
def test_the_place_is_shown(pond: Pond, sql: str, mark: str | None) -> None:
    """A caret under the very words, in the line in which they stand."""
    error = told(pond, sql)
    assert error.detail is not None
    lines = error.detail.splitlines()
    carets = next(n for n, line in enumerate(lines) if line.strip() and not line.strip().strip("^"))
    start, end = lines[carets].index("^"), len(lines[carets].rstrip())
    if mark is not None:
        assert lines[carets - 1][start:end] == mark, error


@pytest.mark.parametrize(
    ("sql", "meant"),
    [
        ("SELECT amout FROM t", "amount"),
        ("SELECT t.amout FROM t", "amount"),
        ("UPDATE t SET amout = 1", "amount"),
        ("UPDATE t SET amount = idd", "id"),
        ("UPDATE t SET amount = 1 RETURNING amout", "amount"),
        ("DELETE FROM t WHERE amout = 1", "amount"),
        ("INSERT INTO t (id, amout) VALUES (1, 2)", "amount"),
        ("CREATE MATERIALIZED VIEW v AS SELECT amout FROM t", "amount"),
        ("CREATE VIEW v AS SELECT amout FROM t", "amount"),
        ("CREATE INDEX i ON t (amout)", "amount"),
        ("CREATE TABLE x (a int, PRIMARY KEY (aa))", "a"),
        ("ALTER TABLE t DROP COLUMN amout", "amount"),
        ("SELECT * FROM totls", "totals"),
        ("SUBSCRIBE totls", "totals"),
        ("DROP MATERIALIZED VIEW totls", "totals"),
        ("INSERT INTO tt VALUES (1)", "t"),
        ("SELECT cuont(*) FROM t", "count"),
        ("CREATE MATERIALIZED VIEW v AS SELECT uper('a') FROM t", "upper"),
        ("SELEC 1", "SELECT"),
    ],
)
def test_what_was_meant_is_suggested(pond: Pond, sql: str, meant: str) -> None:
    error = told(pond, sql)
    assert error.hint is not None and f"{meant}" in error.hint.replace('"', "").replace("'", ""), error


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT id + ts FROM t", "argument types '+(INTEGER, TIMESTAMP)'"),
        ("CREATE MATERIALIZED VIEW v AS SELECT sum(ts) FROM t", "argument types 'sum(TIMESTAMP)'"),
        ("CREATE MATERIALIZED VIEW v AS SELECT id FROM t WHERE ts > 5", "ompare"),
        ("INSERT INTO t VALUES (1, DATE '2024-01-01', NULL)", "date"),
        ("CREATE TABLE x (a int DEFAULT 'q')", 'invalid input syntax for type integer: "q"'),
        ("ALTER TABLE t ADD COLUMN x int DEFAULT 'q'", 'invalid input syntax for type integer: "q"'),
    ],
)
def test_types_that_do_not_fit_are_told(pond: Pond, sql: str, reason: str) -> None:
    error = told(pond, sql)
    assert reason.lower() in error.message.lower(), error
    assert [r[0] for r in pond.sql("SHOW OBJECTS")] == ["t", "totals"]
