"""CREATE FUNCTION: what people define in SQL, and what views that call it keep (laws 1 and 9)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.pond import Pond
from tests.sampling import first
from tests.sql.function_world import FunctionWorld


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline", checks=True) as made:
        made.sql("CREATE TABLE t (id int PRIMARY KEY, x int, s text)")
        made.sql("INSERT INTO t VALUES (1, 10, 'abc'), (2, 20, 'q'), (3, NULL, 'zz'); FLUSH")
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    """For tests that leave it as it was."""
    path = tmp_path_factory.mktemp("shared")
    with millpond.open(path / "pond", engine="inline", durable=False) as made:
        made.sql("CREATE TABLE t (id int PRIMARY KEY, x int, s text)")
        made.sql("INSERT INTO t VALUES (1, 10, 'abc'), (2, 20, 'q'), (3, NULL, 'zz'); FLUSH")
        yield made


def rows(pond: Pond, sql: str) -> list[tuple[Any, ...]]:
    return pond.sql(sql).fetchall()


def refused(pond: Pond, sql: str) -> str:
    with pytest.raises(InvalidError) as caught:
        pond.sql(sql)
    return str(caught.value)


# -- what they give ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("definition", "query", "wanted"),
    [
        ("f(a bigint) RETURNS bigint LANGUAGE sql AS 'SELECT a + 1'", "SELECT f(x) FROM t", [11, 21, None]),
        ("f(a bigint) RETURNS bigint LANGUAGE SQL AS $$ SELECT a + 1; $$", "SELECT f(x) FROM t", [11, 21, None]),
        ("f(a bigint) RETURNS text AS $body$ a || 'c' $body$ LANGUAGE sql", "SELECT f(2)", ["2c"]),
        ("f(a int, b int DEFAULT 3) RETURNS int RETURN a * b", "SELECT f(2) + f(2, 5)", [16]),
        ("f(a int, b int = 3) RETURNS int RETURN a * b", "SELECT f(b => 1, a := 7)", [7]),
        ("f() RETURNS int RETURN 7", "SELECT f() FROM t", [7, 7, 7]),
        ("f(a int) RETURNS int STRICT IMMUTABLE PARALLEL SAFE RETURN coalesce(a, 0)", "SELECT f(x) FROM t", [10, 20, None]),
        ("f(a int) RETURNS int CALLED ON NULL INPUT RETURN coalesce(a, 0)", "SELECT f(x) FROM t", [10, 20, 0]),
        ("f(a int) RETURNS int RETURN f.a + 1", "SELECT f(f(f(1)))", [4]),
        ("f(a numeric(10,2)) RETURNS int RETURN a", "SELECT f(2.51)", [3]),
        ("f(a struct(k int)) RETURNS int RETURN a.k", "SELECT f({'k': 5})", [5]),
        ("f(k int) RETURNS struct(k int) RETURN {'k': k}", "SELECT f(x).k FROM t", [10, 20, None]),
        # Names of the body do not catch those of the arguments, nor the other way round.
        ("f(x int) RETURNS bigint AS 'SELECT count(*) FROM t WHERE t.x <= f.x'", "SELECT f(x) FROM t", [1, 2, 0]),
        ("f(a int) RETURNS bigint AS 'SELECT count(*) FROM t WHERE x <= a'", "SELECT f(x) FROM t", [1, 2, 0]),
        ("f(a int) RETURNS int[] RETURN list_transform([1], lambda x: x + a)", "SELECT f(x)[1] FROM t", [11, 21, None]),
        ("f(a int, b int) RETURNS bigint AS 'SELECT sum(x) + a - b FROM t'", "SELECT f(b, a) FROM (VALUES (1, 2)) v(a, b)", [31]),
        ("f(a int) RETURNS TABLE (x int, y text) AS 'SELECT id, s FROM t WHERE id > a'", "SELECT y FROM f(1)", ["q", "zz"]),
        ("f(a int) RETURNS TABLE (i int) AS 'SELECT id FROM t WHERE x < a'", "SELECT g.i FROM t, f(t.x) AS g", [1]),
        ("f(a int) RETURNS TABLE (i int) AS 'SELECT id FROM t WHERE x < a'", "SELECT j FROM t CROSS JOIN LATERAL f(x) g(j)", [1]),
        ("f() RETURNS SETOF text AS 'SELECT s FROM t'", "SELECT f FROM f() WHERE f <> 'q'", ["abc", "zz"]),
        ("f(a int) RETURNS int RETURN a", "WITH f(a) AS (VALUES (8)) SELECT a FROM f", [8]),
        ("f(a int) RETURNS int RETURN a", "SELECT f.a FROM (VALUES (8)) AS f(a)", [8]),
        ("f(a int) RETURNS int RETURN a", "SELECT 'f(1)' AS \"f\"", ["f(1)"]),
        ('"F 1"(a int) RETURNS int RETURN a', 'SELECT "F 1"(2)', [2]),
    ],
)  # fmt: skip
def test_functions_in_sql(definition: str, query: str, wanted: list[Any], shared: Pond) -> None:
    """In a query, and in a view that says the same."""
    shared.sql(f"CREATE FUNCTION {definition}")
    try:
        given = [value for (value,) in rows(shared, query)]
        assert sorted(map(str, given)) == sorted(map(str, wanted))
        shared.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
        assert sorted(str(v) for (v,) in rows(shared, "SELECT * FROM v")) == sorted(map(str, wanted))
    finally:
        shared.sql("DROP MATERIALIZED VIEW IF EXISTS v; DROP FUNCTION " + definition.partition("(")[0])


def test_macros_as_in_duckdb(pond: Pond) -> None:
    pond.sql(
        "CREATE MACRO f(a, b := 3) AS a * b; CREATE OR REPLACE MACRO g(n) AS TABLE SELECT s FROM t WHERE id = n"
    )
    assert rows(pond, "SELECT f(2), f(2, 5), f(2.5), (SELECT s FROM g(2))") == [(6, 10, 7.5, "q")]


def test_functions_in_changes(pond: Pond) -> None:
    """A change means what the function meant when it was said."""
    pond.sql("CREATE FUNCTION f(a int) RETURNS int RETURN a * 2")
    pond.sql("INSERT INTO t VALUES (f(2), f(3), 'n'); UPDATE t SET x = f(x) WHERE id = f(1) - 1")
    pond.sql(
        "CREATE OR REPLACE FUNCTION f(a int) RETURNS int RETURN 0; DELETE FROM t WHERE x = f(7) + 20; FLUSH"
    )
    assert sorted(rows(pond, "SELECT id, x FROM t")) == [(3, None), (4, 6)]


def test_replacing_a_function_leaves_what_was_made_with_it(pond: Pond) -> None:
    pond.sql("""
        CREATE FUNCTION f(a int) RETURNS int RETURN a + 1;
        CREATE FUNCTION g(a int) RETURNS int RETURN f(a) * 10;
        CREATE VIEW p AS SELECT f(x) AS y FROM t;
        CREATE MATERIALIZED VIEW m AS SELECT f(x) AS y FROM t;
        CREATE OR REPLACE FUNCTION f(a int, b int) RETURNS int RETURN a - b;
        UPDATE t SET x = 1; FLUSH
    """)
    assert rows(pond, "SELECT DISTINCT y FROM m") == rows(pond, "SELECT DISTINCT y FROM p") == [(2,)]
    assert rows(pond, "SELECT f(5, 1), g(1)") == [(4, 20)]
    pond.sql("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT f(x, 1) AS y FROM t")
    assert rows(pond, "SELECT DISTINCT y FROM m") == [(0,)]


def test_functions_survive_and_are_told(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "p", engine="inline") as pond:
        pond.sql("CREATE FUNCTION f(a int, b text DEFAULT 'x') RETURNS text RETURN a || b")
        pond.sql("CREATE TABLE t (x int)")  # the first of the pond's program
    with millpond.open(tmp_path / "p", engine="inline") as pond:
        assert rows(pond, "SELECT f(1)") == [("1x",)]
        wanted = ("f", "scalar", "sql", "f(a INTEGER, b VARCHAR DEFAULT 'x')", "VARCHAR")
        assert rows(pond, "SHOW FUNCTIONS") == rows(pond, "DESCRIBE FUNCTION f") == [wanted]
        assert rows(pond, "DESCRIBE f")[0][:2] == ("a", "INTEGER")
        assert "RETURN a || b" in rows(pond, "SHOW CREATE FUNCTION f")[0][0]
        assert pond.sql("CREATE FUNCTION IF NOT EXISTS f(a int) RETURNS int RETURN a").status.endswith(
            "already"
        )
        assert "nothing is defined" not in rows(pond, "EXPLAIN SELECT f(x) FROM t")[0][0]
        pond.sql("DROP FUNCTION f(int, text); DROP FUNCTION IF EXISTS f")
        assert rows(pond, "SHOW FUNCTIONS") == []


def test_functions_may_be_called_like_internal_macros(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        for name in ("summed", "beside", "output", "joined"):
            pond.sql(f"CREATE FUNCTION {name}(a int) RETURNS int RETURN a + 1")
        pond.sql("CREATE TABLE n (x int); INSERT INTO n VALUES (1), (2)")
        pond.sql(
            "CREATE MATERIALIZED VIEW v AS SELECT sum(summed(x)) AS a, sum(beside(x)) AS b FROM n; FLUSH"
        )
        assert pond.sql("SELECT * FROM v").fetchall() == [(5, 5)]
        assert pond.sql("SELECT output(1), joined(2), 'a' || 1, [1] || 2").fetchall() == [
            (2, 3, "a1", [1, 2])
        ]
        with pytest.raises(InvalidError, match=r"like_any\(integer\) does not exist"):
            pond.sql("SELECT like_any(1)")


# -- what is refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SELECT f()", ["f() takes 1 to 2 arguments, there is none for 'a'", "^", "write f(a INTEGER, b INTEGER DEFAULT 1)"]),
        ("SELECT f(1, 2, 3)", ["takes 1 to 2 arguments, there are 3", "write f(a INTEGER"]),
        ("CREATE MATERIALIZED VIEW v AS SELECT f(1, 2, 3) FROM t", ["takes 1 to 2 arguments, there are 3"]),
        ("SELECT f(1, c := 2)", ["has no parameter 'c'"]),
        ("SELECT f(1, a := 2)", ["got 'a' twice"]),
        ("SELECT ff(1)", ["function ff(integer) does not exist", "did you mean 'f'?"]),
        ("CREATE MATERIALIZED VIEW v AS SELECT fa(x) FROM t", ["function fa(integer) does not exist", "did you mean 'f'?"]),
        ("SELECT f('abc')", ['invalid input syntax for type integer: "abc"']),
        ("CREATE FUNCTION f(a int) RETURNS int RETURN a", ["there is a function named 'f' already", "OR REPLACE"]),
        ("CREATE FUNCTION t(a int) RETURNS int RETURN a", ["there is a table named 't' already"]),
        ("CREATE TABLE f (a int)", ["there is a function named 'f' already"]),
        ("CREATE FUNCTION lower(a text) RETURNS text RETURN a", ["lower() is built in"]),
        ("CREATE FUNCTION to_char(a int) RETURNS int RETURN a", ["to_char() is built in"]),
        ("CREATE FUNCTION g(a foo) RETURNS int RETURN a", ['type "foo" does not exist', "^^^"]),
        ("CREATE FUNCTION g(a int) RETURNS nope RETURN a", ['type "nope" does not exist', "^^^^"]),
        ("CREATE FUNCTION g(a int, a text) RETURNS int RETURN a", ["'a' is there twice"]),
        ("CREATE FUNCTION g(a int = 1, b int) RETURNS int RETURN a", ["'b' needs a default"]),
        ("CREATE FUNCTION g(OUT a int) RETURN 1", ["OUT is not supported"]),
        ("CREATE FUNCTION g(a int) RETURNS int RETURN g(a - 1)", ["g() calls itself"]),
        ("CREATE OR REPLACE FUNCTION f(a int) RETURNS int AS 'SELECT f(a, 1)'", ["f() calls itself"]),
        ("CREATE FUNCTION g(abc int) RETURNS int RETURN abd + 1", ["g() has no parameter 'abd'", "did you mean 'abc'?"]),
        ("CREATE FUNCTION g(a int) RETURNS int AS 'SELECT a +'", ["syntax error"]),
        ("CREATE FUNCTION g(a int) RETURNS int AS 'SELECT y FROM t'", ['column "y" does not exist']),
        ("CREATE FUNCTION g(a int) RETURNS int", ["the body of the function is missing"]),
        ("CREATE FUNCTION g(a int) RETURNS int RETURN upper(a, 1)", ["upper() does not support"]),
        ("CREATE FUNCTION g(a int) RETURNS int LANGUAGE plpgsql AS 'x'", ["functions in plpgsql", "pond.function"]),
        ("CREATE FUNCTION g() RETURNS TABLE (a int) AS 'SELECT 1, 2'", ["gives 2 columns, RETURNS TABLE lists 1"]),
        ("CREATE FUNCTION g() RETURNS int SECURITY DEFINER RETURN 1", ["not supported in a function"]),
        ("DROP FUNCTION ff", ["no function named 'ff'", "did you mean 'f'?"]),
        ("DROP TABLE f", ["'f' is a function, not a table"]),
        ("UPDATE t SET x = f(1, 2, 3)", ["takes 1 to 2 arguments"]),
    ],
)  # fmt: skip
def test_mistakes_are_told(statement: str, told: list[str], shared: Pond) -> None:
    shared.sql("CREATE FUNCTION IF NOT EXISTS f(a int, b int DEFAULT 1) RETURNS int RETURN a + b")
    text = refused(shared, statement)
    assert all(part in text for part in told), text


def test_dropping_what_others_use(pond: Pond) -> None:
    pond.sql("""
        CREATE FUNCTION f(a int) RETURNS int RETURN a + 1;
        CREATE FUNCTION big() RETURNS TABLE (i int) AS 'SELECT id FROM t WHERE x > f(9)';
        CREATE MATERIALIZED VIEW v AS SELECT i FROM big();
        CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM v
    """)
    assert "cannot be dropped, others use it" in (text := refused(pond, "DROP FUNCTION f"))
    assert all(name in text for name in ("big", "v", "w"))
    assert "big, v, w" in refused(pond, "DROP TABLE t")
    assert "name it in their text" in refused(pond, "ALTER TABLE t RENAME TO u")
    pond.sql("DROP FUNCTION f CASCADE")
    assert rows(pond, "SHOW FUNCTIONS") == rows(pond, "SHOW VIEWS") == []


# -- under change --------------------------------------------------------------------------


def define(pond: Pond) -> None:
    pond.sql("""
        CREATE FUNCTION twice(a bigint) RETURNS bigint RETURN a * 2;
        CREATE FUNCTION label(a bigint, s text DEFAULT '?') RETURNS text LANGUAGE SQL AS $$
            SELECT CASE WHEN a > 0 THEN s || twice(a) ELSE coalesce(s, 'none') END
        $$;
        CREATE FUNCTION below(x int) RETURNS bigint AS 'SELECT count(*) FROM t WHERE t.x < below.x';
        CREATE FUNCTION above(low int) RETURNS TABLE (i int, y bigint) AS 'SELECT id, twice(x) FROM t WHERE x > low';
    """)


VIEWS = {
    "a": ("SELECT id, label(x, s) AS l, label(x) AS k FROM t",
          "SELECT id, CASE WHEN x > 0 THEN s || (x * 2) ELSE coalesce(s, 'none') END, CASE WHEN x > 0 THEN '?' || (x * 2) ELSE '?' END FROM t"),
    "b": ("SELECT label(twice(x)) AS l, sum(twice(x)) AS n FROM t WHERE twice(x) <> 4 GROUP BY label(twice(x))",
          "SELECT CASE WHEN x * 2 > 0 THEN '?' || (x * 4) ELSE '?' END AS l, sum(x * 2) FROM t WHERE x * 2 <> 4 GROUP BY l"),
    "c": ("SELECT id, below(x) AS n FROM t WHERE below(x) > 0",
          "SELECT id, n FROM (SELECT id, (SELECT count(*) FROM t AS u WHERE u.x < t.x) AS n FROM t) WHERE n > 0"),
    "d": ("SELECT t.id, f.* FROM t, above(t.x) AS f", "SELECT t.id, u.id, u.x * 2 FROM t, t AS u WHERE u.x > t.x"),
    "e": ("SELECT t.id, f.y FROM t LEFT JOIN above(0) f ON f.i = t.id", "SELECT t.id, u.x * 2 FROM t LEFT JOIN t AS u ON u.id = t.id AND u.x > 0"),
}  # fmt: skip


@pytest.mark.parametrize("seed", first(1, range(2)))
def test_views_with_functions_are_the_batch_queries(seed: int, tmp_path: Path) -> None:
    FunctionWorld(tmp_path / "pond", define, VIEWS, seed).run(5)
