"""What a definition says is what is made: types, columns and options are read or refused, never guessed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond.pond import Pond
from tests.sql.asked import opened, refused


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    with millpond.open(tmp_path_factory.mktemp("defined") / "pond", engine="inline") as made:
        made.sql(
            "CREATE TABLE t (id int PRIMARY KEY, a int, a_1 int); CREATE TABLE u (id int PRIMARY KEY, b int)"
        )
        yield made


def types(pond: Pond, name: str) -> dict[str, str]:
    return {row[0]: row[1] for row in pond.sql(f"DESCRIBE {name}")}


NESTED = {
    "struct<x int, y text>": "STRUCT(x INTEGER, y VARCHAR)",
    "STRUCT < x: int , y : text >": "STRUCT(x INTEGER, y VARCHAR)",
    "array<int>": "INTEGER[]",
    "array<int>[3]": "INTEGER[][3]",
    "map<text, array<int>>": "MAP(VARCHAR, INTEGER[])",
    "map<text,array<map<int,decimal(10,2)>>>": "MAP(VARCHAR, MAP(INTEGER, DECIMAL(10,2))[])",
    "array<struct<a int, b array<struct<c text, d timestamp with time zone>>>>": "STRUCT(a INTEGER, b STRUCT(c "
    "VARCHAR, d TIMESTAMP WITH TIME ZONE)[])[]",
    "struct<x array<int>>[]": "STRUCT(x INTEGER[])[]",
    "struct(x array<int>, y int)": "STRUCT(x INTEGER[], y INTEGER)",
    "map(text, array<int>)": "MAP(VARCHAR, INTEGER[])",
    'struct<"two words" int>': 'STRUCT("two words" INTEGER)',
}


@pytest.mark.parametrize(("said", "meant"), NESTED.items())
def test_nested_types_in_angle_brackets(pond: Pond, said: str, meant: str) -> None:
    try:
        pond.sql(f"CREATE TABLE n (a {said}, c int)")
        assert types(pond, "n") == {"a": meant, "c": "INTEGER"}
        pond.sql(f"ALTER TABLE n ADD COLUMN d {said}, ADD COLUMN e int")
        assert types(pond, "n") == {"a": meant, "c": "INTEGER", "d": meant, "e": "INTEGER"}
        pond.sql(f"CREATE FUNCTION f(p {said}, q int) RETURNS {said} AS 'SELECT p'")
        (found,) = pond.sql("DESCRIBE FUNCTION f").fetchall()
        assert found[3].startswith(f"f(p {meant}, q INTEGER") and found[4] == meant
        assert types(pond, f"SELECT CAST(NULL AS {said}) AS x, NULL::{said} AS y") == {"x": meant, "y": meant}
    finally:
        pond.sql("DROP FUNCTION IF EXISTS f; DROP TABLE IF EXISTS n")


def test_nested_types_of_a_source_and_of_another_dialect(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with opened(tmp_path) as pond:
        pond.sql(
            f"CREATE SOURCE s (a struct<x int, y array<text>>, c int) "
            f"WITH (connector = 'files', path = '{tmp_path / 'in'}', format = 'json')"
        )
        assert types(pond, "s") == {"a": "STRUCT(x INTEGER, y VARCHAR[])", "c": "INTEGER"}
        pond.sql("CREATE TABLE k (a struct<x: int, y: string>, b map<string, bigint>)", dialect="spark")
        assert types(pond, "k") == {"a": "STRUCT(x INTEGER, y VARCHAR)", "b": "MAP(VARCHAR, BIGINT)"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("struct<x int", "the bracket that opens here is never closed"),
        ("struct<x foo>", 'type "foo" does not exist'),
        ("struct<>", "this type cannot be read"),
        ("struct<x>", "a field of a struct needs a name and a type"),
        ("struct<x int,>", "a field of the struct is missing"),
        ("struct<x int, X text>", "field 'X' is there twice"),
        ("struct<x int NOT NULL>", "NOT is not supported inside a type"),
        ("array<int, text>", "array takes one type"),
        ("map<int>", "map takes two types"),
        ("array<int> foo", "nothing more should stand behind the type"),
        ("foo<int>", 'type "foo<int>" does not exist'),
    ],
)
def test_nested_types_that_cannot_be_read_are_refused(pond: Pond, said: str, why: str) -> None:
    for sql in (f"CREATE TABLE n (a {said}, c int)", f"ALTER TABLE t ADD COLUMN x {said}"):
        found = refused(pond, sql)
        assert found.startswith(why) and "^" in found, found
    if "foo" not in (said[:3], said[-3:]):
        assert why in refused(pond, f"SELECT CAST(NULL AS {said})")
    assert set(types(pond, "t")) == {"id", "a", "a_1"}


@pytest.mark.parametrize(
    ("query", "name", "mark"),
    [
        ("SELECT id, id FROM t", "id", "id"),
        ("SELECT id, ID FROM t", "id", "ID"),
        ("SELECT *, a FROM t", "a", "*"),
        ("SELECT a AS x, id AS x FROM t", "x", "id"),
        ("SELECT * FROM t JOIN u ON t.id = u.id", "id", "*"),
        ("SELECT t.*, u.* FROM t, u", "id", "u"),
        ("SELECT t.id, u.id FROM t LEFT JOIN u ON t.a = u.b", "id", "u.id"),
        ("SELECT * FROM (SELECT id, id FROM u)", "id", "*"),
        ("WITH c AS (SELECT t.id, u.id FROM t, u) SELECT * FROM c", "id", "*"),
        ("SELECT id AS k, a AS k FROM t UNION ALL SELECT 1, 2", "k", "a"),
        ("SELECT a, count(*), count(*) FROM t GROUP BY a", "count", "count(*)"),
    ],
)
def test_a_column_twice_is_refused(pond: Pond, query: str, name: str, mark: str) -> None:
    for start, end in (
        ("CREATE MATERIALIZED VIEW v AS ", ""),
        ("CREATE VIEW v AS ", ""),
        ("CREATE SINK v AS ", " WITH (connector = 'files', path = '/nowhere')"),
    ):
        found = refused(pond, f"{start}{query}{end}").splitlines()
        assert found[0] == f"column '{name}' is there twice", found
        place = next(line for line in found if line.strip() and not line.strip().strip("^"))
        assert found[found.index(place) - 1][place.index("^") :][: place.count("^")] == mark, found
    assert [r[0] for r in pond.sql("SHOW OBJECTS")] == ["t", "u"]


def test_columns_that_only_look_alike_are_taken(pond: Pond) -> None:
    pond.sql("CREATE VIEW v1 AS SELECT * FROM t")  # a and a_1
    pond.sql("CREATE VIEW v2 AS SELECT * FROM t JOIN u USING (id)")
    pond.sql("CREATE VIEW v3 (x, y) AS SELECT id, id FROM t")
    pond.sql("CREATE VIEW v4 AS SELECT count(*) AS n FROM (SELECT * FROM t, u)")
    pond.sql("CREATE VIEW v5 AS SELECT id, id AS id_1 FROM u")
    assert [list(types(pond, f"v{n}")) for n in range(1, 6)] == [
        ["id", "a", "a_1"], ["id", "a", "a_1", "b"], ["x", "y"], ["n"], ["id", "id_1"],
    ]  # fmt: skip
    pond.sql("DROP VIEW v1, v2, v3, v4, v5")
    assert pond.sql("SELECT id, id FROM t").fetchall() == []


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("CREATE TABLE x (a int, b text, A int)", 'column "A" specified more than once'),
        ("CREATE TABLE x (a int, PRIMARY KEY (a, a))", "column 'a' is there twice"),
        ("CREATE VIEW x (a, A) AS SELECT 1, 2", "column 'A' is there twice"),
        ("CREATE INDEX x ON t (a, a)", "column 'a' is there twice"),
        ("CREATE FUNCTION x(a int, a int) RETURNS int AS 'SELECT 1'", "parameter 'a' is there twice"),
        ("CREATE FUNCTION x() RETURNS TABLE (a int, a int) AS 'SELECT 1, 2'", "column 'a' is there twice"),
        ("CREATE TABLE x (a int, b int,)", "no column follows this comma"),
        ("CREATE TABLE x (a int,, b int)", "a column is missing before this comma"),
        ("CREATE VIEW x (a, b,) AS SELECT 1, 2", "no name follows this comma"),
        ("CREATE INDEX x ON t (a,)", "no name follows this comma"),
    ],
)
def test_lists_of_columns_that_are_wrong_are_refused(pond: Pond, sql: str, why: str) -> None:
    found = refused(pond, sql)
    assert found.startswith(why) and "^" in found, found


@pytest.mark.parametrize(
    ("sql", "why", "hint"),
    [
        ("CREATE TABLE x (a int) WITH (retnetion = '1h')", "a table has no option 'retnetion'", "takes none"),
        ("CREATE TABLE x (a int) APPEND ONLY WITH (a.b = 1)", "a table has no option 'a.b'", "takes none"),
        ("CREATE VIEW x WITH (a = 1) AS SELECT 1 AS b", "a view has no option 'a'", "takes none"),
        ("CREATE MATERIALIZED VIEW x WITH (a = 1) AS SELECT 1 AS b", "a materialized view has no option 'a'", ""),
        ("CREATE SOURCE x (a int) WITH (connector = 'files', path = '/x', fromat = 'json')",
         "connector 'files' has no option 'fromat'",
         "did you mean 'format'? options of connector 'files' are connector, path, format, pattern"),
        ("CREATE SOURCE x (a int) WITH (connector = 'kafka', brokers = 'b', topics = 't')",
         "connector 'kafka' has no option 'topics'", "did you mean 'topic'?"),
        ("CREATE SOURCE x WITH (connector = 'nexmark', evnets = 5)",
         "connector 'nexmark' has no option 'evnets'", "did you mean 'events'?"),
        ("CREATE SINK x FROM t WITH (connector = 'files', path = '/x', moed = 'append')",
         "connector 'files' has no option 'moed'", "did you mean 'mode'?"),
        ("CREATE SINK x FROM t WITH (connector = 'files', path = '/x', path = '/y')",
         "option 'path' is given twice", ""),
        ("CREATE SINK x FROM t WITH (conector = 'files')", "option 'connector' is missing", "'conector'"),
    ],
)  # fmt: skip
def test_options_that_nobody_knows_are_refused(pond: Pond, sql: str, why: str, hint: str) -> None:
    found = refused(pond, sql)
    assert found.startswith(why) and hint in found, found
    assert [r[0] for r in pond.sql("SHOW OBJECTS")] == ["t", "u"]
