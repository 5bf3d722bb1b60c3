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
    ("sql", "message", "mark"),
    [
        ("SELECT * FROM nope", 'relation "nope" does not exist', "nope"),
        ("SELECT (SELECT 1 FROM nope)", 'relation "nope" does not exist', "nope"),
        ('SELECT * FROM t JOIN "No Pe" ON true', 'relation "No Pe" does not exist', '"No Pe"'),
        ("SELECT * FROM s.nope", 'relation "s.nope" does not exist', None),
        ("CREATE VIEW x AS SELECT * FROM nope", 'relation "nope" does not exist', "nope"),
        ("INSERT INTO nope VALUES (1)", 'relation "nope" does not exist', "nope"),
        ("INSERT INTO t SELECT * FROM nope", 'relation "nope" does not exist', "nope"),
        ("UPDATE nope SET a = 1", 'relation "nope" does not exist', "nope"),
        ("DELETE FROM nope", 'relation "nope" does not exist', "nope"),
        ("TRUNCATE nope", 'relation "nope" does not exist', "nope"),
        ("CREATE INDEX ON nope (a)", 'relation "nope" does not exist', "nope"),
        ("ALTER TABLE nope DROP COLUMN a", 'relation "nope" does not exist', "nope"),
        ("DROP TABLE nope", 'table "nope" does not exist', "nope"),
        ("DROP VIEW nope", 'view "nope" does not exist', "nope"),
        ("DROP MATERIALIZED VIEW nope", 'materialized view "nope" does not exist', "nope"),
        ("DROP INDEX nope", 'index "nope" does not exist', "nope"),
        ("DROP SINK nope", "no sink named 'nope'", "nope"),
    ],
)
def test_what_is_missing_is_told_as_postgresql_says_it(
    pond: Pond, sql: str, message: str, mark: str | None
) -> None:
    error = told(pond, sql)
    assert error.message == message, error
    assert error.detail is not None
    shown, carets = error.detail.splitlines()[-2:]
    if mark is not None:
        assert shown[carets.index("^") : len(carets)] == mark, error


def test_other_dialects_have_words_of_their_own(pond: Pond) -> None:
    with pytest.raises(InvalidError, match="table with name nope does not exist"):
        pond.sql("SELECT * FROM nope", dialect="duckdb")


@pytest.mark.parametrize("text", ["(" * 5000 + "1" + ")" * 5000, "+".join(["a"] * 5000)])
def test_an_expression_that_is_too_deep_names_what_the_user_can_do(pond: Pond, text: str) -> None:
    error = told(pond, f"SELECT {text} AS x FROM t")
    assert error.message == "the expression has more than 1000 levels", error.message
    assert error.hint == "compute a part of it in a subquery: SELECT … FROM (SELECT … AS part FROM …)"
    error = told(pond, "SELECT " + "(SELECT " * 600 + "1" + ")" * 600)
    assert error.message == "the statement is nested too deeply" and error.hint, error


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT id + ts FROM t", "operator does not exist: integer + timestamp without time zone"),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT sum(ts) FROM t",
            "function sum(timestamp without time zone) does not exist",
        ),
        ("CREATE MATERIALIZED VIEW v AS SELECT id FROM t WHERE ts > 5", "operator does not exist"),
        ("INSERT INTO t VALUES (1, DATE '2024-01-01', NULL)", "date"),
        ("CREATE TABLE x (a int DEFAULT 'q')", 'invalid input syntax for type integer: "q"'),
        ("ALTER TABLE t ADD COLUMN x int DEFAULT 'q'", 'invalid input syntax for type integer: "q"'),
    ],
)
def test_types_that_do_not_fit_are_told(pond: Pond, sql: str, reason: str) -> None:
    error = told(pond, sql)
    assert reason.lower() in error.message.lower(), error
    assert [r[0] for r in pond.sql("SHOW OBJECTS")] == ["t", "totals"]
