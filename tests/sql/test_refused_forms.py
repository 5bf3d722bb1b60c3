"""Forms of other databases, and of our own in the wrong place, are refused by name with a hint."""

from __future__ import annotations

import pytest

import millpond
from millpond.errors import InvalidError, UnavailableError
from millpond.plan.nodes import Plan


@pytest.fixture
def pond() -> millpond.Pond:
    made = millpond.open("memory://", engine="inline")
    made.sql("CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE u (n int); CREATE SAVEPOINT s")
    return made


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW v AS SELECT * FROM t {}",
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM t {}",
        "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT t.n FROM t {} JOIN u ON u.n = t.n",
        "INSERT INTO u SELECT n FROM t {}",
        "UPDATE u SET n = (SELECT max(n) FROM t {})",
        "DELETE FROM u WHERE n IN (SELECT n FROM t {})",
        "EXPLAIN SELECT n FROM t {}",
    ],
)
@pytest.mark.parametrize(("clause", "word"), [("AS OF EPOCH 1", "EPOCH"), ("as of savepoint s", "SAVEPOINT")])
def test_as_of_is_only_for_select(pond: millpond.Pond, statement: str, clause: str, word: str) -> None:
    with pytest.raises(InvalidError, match=f"AS OF {word} is only for SELECT") as refused:
        pond.sql(statement.format(clause))
    assert f"SELECT … AS OF {word} reads an older epoch" in str(refused.value)
    assert "^" * len("as of epoch") in str(refused.value)
    assert pond.sql(f"SELECT n FROM t {clause}").fetchall() == []


@pytest.mark.parametrize(
    ("form", "hint"),
    [
        ("INSERT OR REPLACE", "ON CONFLICT DO UPDATE"),
        ("insert or ignore", "ON CONFLICT DO NOTHING"),
        ("INSERT OR ABORT", "ON CONFLICT"),
    ],
)
def test_insert_or(pond: millpond.Pond, form: str, hint: str) -> None:
    with pytest.raises(InvalidError, match=f"{form.upper()} is not supported") as refused:
        pond.sql(f"{form} INTO t VALUES (1, 2)")
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize("name", ["_id", '"_Id"'])
def test_columns_with_an_underscore(pond: millpond.Pond, name: str) -> None:
    """Tables may have them, APPEND ONLY tables not: the refusal says why and what else to do."""
    pond.sql(f"CREATE TABLE a ({name} int); INSERT INTO a VALUES (7); FLUSH")
    assert pond.sql("SELECT * FROM a").fetchall() == [(7,)]
    with pytest.raises(InvalidError, match="a column of an APPEND ONLY table cannot begin") as refused:
        pond.sql(f"CREATE TABLE b (n int, {name} int) APPEND ONLY")
    assert "hidden columns" in (refused.value.hint or "") and "APPEND ONLY" in (refused.value.hint or "")


def test_a_definition_is_reported_after_it_is_committed(
    pond: millpond.Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On storage that cannot be written, no statement of a text reports success."""

    def fail(plan: Plan, **_: object) -> int:
        raise UnavailableError("the storage is read-only")

    monkeypatch.setattr(pond.session.host, "change", fail)
    results = pond.session.run_each("CREATE TABLE a (n int); CREATE TABLE b (n int)")
    with pytest.raises(UnavailableError, match="read-only"):
        next(results)


def test_definitions_before_a_refused_statement_are_reported(pond: millpond.Pond) -> None:
    seen = []
    with pytest.raises(InvalidError, match="nope"):
        for result in pond.session.run_each(
            "CREATE TABLE a (n int); SHOW JOBS; CREATE VIEW v AS SELECT nope FROM a; CREATE TABLE b (n int)"
        ):
            seen.append(result.status)
    assert seen == ["CREATE_TABLE", "SELECT 0"]
    assert pond.sql("SELECT * FROM a").fetchall() == []


def test_results_come_in_the_order_of_the_statements(pond: millpond.Pond) -> None:
    text = "CREATE TABLE a (n int); SHOW JOBS; CREATE TABLE b (n int); INSERT INTO b VALUES (1); CREATE TABLE c (n int)"
    seen = [result.status for result in pond.session.run_each(text)]
    assert seen == ["CREATE_TABLE", "SELECT 0", "CREATE_TABLE", "INSERT 0 1", "CREATE_TABLE"]
