"""WITH before INSERT, UPDATE, DELETE and MERGE."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond import Pond
from millpond.errors import InvalidError
from millpond.sql.text.parse import statements


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline") as made:
        made.sql("CREATE TABLE y (a int PRIMARY KEY); INSERT INTO y VALUES (1), (2), (3); FLUSH")
        yield made


def rows(pond: Pond) -> list[int]:
    pond.sql("FLUSH")
    return sorted(a for (a,) in pond.sql("SELECT a FROM y"))


def test_insert(pond: Pond) -> None:
    pond.sql(
        "WITH t AS (SELECT a + 10 AS b FROM y), u(c) AS MATERIALIZED (SELECT b FROM t) INSERT INTO y SELECT c FROM u"
    )
    assert rows(pond) == [1, 2, 3, 11, 12, 13]
    pond.sql("WITH t(b) AS (VALUES (21)) INSERT INTO y (a) VALUES ((SELECT b FROM t)), (22)")
    assert rows(pond)[-2:] == [21, 22]


def test_update_and_delete(pond: Pond) -> None:
    pond.sql("WITH t(b) AS (VALUES (3)) UPDATE y SET a = (SELECT b * 2 FROM t) FROM t AS k WHERE a = k.b")
    assert rows(pond) == [1, 2, 6]
    gone = pond.sql(
        "WITH t(b) AS (SELECT 6), u AS (SELECT b FROM t) DELETE FROM y USING t, u WHERE a = t.b AND a = u.b RETURNING a"
    )
    assert gone.fetchall() == [(6,)]
    pond.sql(
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 2) DELETE FROM y WHERE a IN (SELECT n FROM t)"
    )
    assert rows(pond) == []


def test_merge(pond: Pond) -> None:
    pond.sql("""WITH t(b) AS (VALUES (3), (4)) MERGE INTO y USING t ON y.a = t.b
        WHEN MATCHED THEN UPDATE SET a = 30 WHEN NOT MATCHED THEN INSERT VALUES (t.b)""")
    assert rows(pond) == [1, 2, 4, 30]


def test_names_that_are_no_relations_stay(pond: Pond) -> None:
    text = "WITH t AS (SELECT 1 AS t) DELETE FROM y WHERE a = (SELECT t.t FROM t) AND 't' <> 'u'"
    (found,) = statements(text, "postgres")
    assert found.sql == (
        "DELETE FROM y WHERE a = (SELECT t.t FROM (WITH t AS (SELECT 1 AS t) SELECT * FROM t) AS t) AND 't' <> 'u'"
    )
    assert found.said == text


@pytest.mark.parametrize(
    "behind", ["SELECT * FROM t", "INSERT INTO y SELECT a FROM t", "DELETE FROM y USING t"]
)
def test_changes_inside_are_refused(pond: Pond, behind: str) -> None:
    with pytest.raises(InvalidError, match="a change cannot be part of WITH"):
        pond.sql(f"WITH t AS (INSERT INTO y VALUES (7) RETURNING a) {behind}")
    assert rows(pond) == [1, 2, 3]
