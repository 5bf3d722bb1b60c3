"""Types, casts and clauses that are written as in PostgreSQL mean what they mean there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond import Pond
from millpond.errors import InvalidError


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    folder: Path = tmp_path_factory.mktemp("types")
    with millpond.open(folder / "pond", engine="inline") as made:
        yield made


def test_float_has_53_bits(pond: Pond) -> None:
    pond.sql("CREATE TABLE f (id int PRIMARY KEY, a float, b float(24), c float(25), d real, e float[])")
    types = {row[0]: row[1] for row in pond.sql("DESCRIBE f").fetchall()}
    assert types == {
        "id": "INTEGER",
        "a": "DOUBLE",
        "b": "FLOAT",
        "c": "DOUBLE",
        "d": "FLOAT",
        "e": "DOUBLE[]",
    }
    pond.sql("INSERT INTO f VALUES (1, 0.1, 0.1, 0.1, 0.1, ARRAY[0.1])")
    pond.sql("CREATE MATERIALIZED VIEW g AS SELECT id, 0.1::float + a AS x, a::real AS y FROM f; FLUSH")
    assert pond.sql("SELECT a, c, e FROM f").fetchone() == (0.1, 0.1, [0.1])
    assert pond.sql("SELECT x, y::text FROM g").fetchone() == (0.2, "0.1")


def test_types_are_called(pond: Pond) -> None:
    asked = "SELECT float8(count(*)) / 4, int4('3') + 1, text(5) || 'x', bool('t'), int4(2.5), name('a')"
    assert pond.sql(f"{asked} FROM (VALUES (1), (2)) v(a)").fetchone() == (0.5, 4, "5x", True, 3, "a")


def test_name_has_63_characters(pond: Pond) -> None:
    pond.sql("CREATE TABLE names (n name, m name[]); INSERT INTO names VALUES ('a', ARRAY['b']); FLUSH")
    assert pond.sql("SELECT n, m, length(repeat('x', 70)::name) FROM names").fetchone() == ("a", ["b"], 63)
    pond.sql("INSERT INTO names (n) VALUES (repeat('y', 70)); FLUSH")
    assert pond.sql("SELECT max(length(n)) FROM names").fetchone() == (63,)


def test_errors_name_types_and_functions_as_postgres(pond: Pond) -> None:
    for asked, said in {
        "SELECT no_such(1)": "^function no_such\\(integer\\) does not exist",
        "SELECT 1 WHERE 1::bigint IN (SELECT 'a'::text)": "^operator does not exist: bigint = text",
    }.items():
        with pytest.raises(InvalidError, match=said):
            pond.sql(asked)


def test_between_of_what_is_computed_once(pond: Pond) -> None:
    pond.sql("CREATE TABLE b (x text); INSERT INTO b VALUES ('5'), ('9'); FLUSH")
    pond.sql("CREATE MATERIALIZED VIEW bv AS SELECT x FROM b WHERE x::int BETWEEN 1 AND 7")
    pond.sql("CREATE MATERIALIZED VIEW bw AS SELECT x, x::int NOT BETWEEN 1 AND 7 AS y FROM b")
    assert pond.sql("SELECT * FROM bv").fetchall() == [("5",)]
    assert sorted(pond.sql("SELECT * FROM bw")) == [("5", False), ("9", True)]


def test_order_by_using(pond: Pond) -> None:
    asked = "SELECT a, b FROM (VALUES (1, 1), (1, 2), (2, 0)) v(a, b) ORDER BY a USING >, b USING <"
    assert pond.sql(asked).fetchall() == [(2, 0), (1, 1), (1, 2)]


def test_delete_with_a_join_with_using(pond: Pond) -> None:
    pond.sql("""
        CREATE TABLE d1 (a int, b int); CREATE TABLE d2 (a int, c int); CREATE TABLE d3 (x int PRIMARY KEY);
        INSERT INTO d1 VALUES (5, 1), (9, 1); INSERT INTO d2 VALUES (5, 2); INSERT INTO d3 VALUES (5), (6), (7);
        DELETE FROM d3 USING d1 JOIN d2 USING (a) WHERE d3.x > d1.a; FLUSH
    """)
    assert pond.sql("SELECT x FROM d3").fetchall() == [(5,)]


def test_parameters_of_functions_without_names(pond: Pond) -> None:
    pond.sql("""
        CREATE FUNCTION scaled(bigint, by double precision, text DEFAULT '$1') RETURNS text LANGUAGE sql
            AS $$ SELECT ($1 * by)::text || $3 $$;
        CREATE FUNCTION few(int) RETURNS SETOF int LANGUAGE sql AS 'values (1), ($1)'
    """)
    assert pond.sql("SELECT scaled(2, 1.5), scaled(2, 1, 'x')").fetchone() == ("3$1", "2x")
    assert pond.sql("SELECT * FROM few(7)").fetchall() == [(1,), (7,)]
    with pytest.raises(InvalidError, match=r"there is no parameter \$2"):
        pond.sql("CREATE FUNCTION none(int) RETURNS int LANGUAGE sql AS 'SELECT $2'")
    with pytest.raises(InvalidError, match="functions in plpgsql cannot be created here"):
        pond.sql("CREATE FUNCTION p(i int) RETURNS int AS $$ begin return i; end; $$ LANGUAGE plpgsql")


def test_texts_that_are_too_long_are_refused(pond: Pond) -> None:
    pond.sql(
        "CREATE TABLE c (id int PRIMARY KEY, v varchar(4), f char(4)); INSERT INTO c VALUES (1, 'abcd  ', 'ab  ')"
    )
    pond.sql("FLUSH")
    for changed in (
        "INSERT INTO c VALUES (2, 'abcde', 'x')",
        "INSERT INTO c SELECT id + 1, v || 'x' FROM c",
        "UPDATE c SET v = v || 'x'",
        "INSERT INTO c (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET v = 'abcde'",
        "MERGE INTO c USING (VALUES (1)) s(i) ON c.id = i WHEN MATCHED THEN UPDATE SET v = CASE WHEN true THEN 'abcde' END",
        "MERGE INTO c USING (VALUES (2)) s(i) ON c.id = i WHEN NOT MATCHED THEN INSERT VALUES (i, 'abcde')",
    ):
        with pytest.raises(InvalidError, match=r"value too long for type character varying\(4\)"):
            _ = pond.sql(changed).rowcount
    with pytest.raises(InvalidError, match=r"value too long for type character\(4\)"):
        pond.sql("INSERT INTO c VALUES (2, 'x', 'abcde')")
    pond.sql("UPDATE c SET (v, f) = ('é     ', 'y '); FLUSH")
    assert pond.sql("SELECT v, length(v), f FROM c").fetchall() == [("é   ", 4, "y")]
    pond.sql("ALTER TABLE c ALTER COLUMN v TYPE varchar(6); INSERT INTO c VALUES (3, 'abcdef'); FLUSH")
    with pytest.raises(InvalidError, match=r"cannot be changed to varchar\(5\)"):
        pond.sql("ALTER TABLE c ALTER COLUMN v TYPE varchar(5)")


def test_merge_of_rows_that_match_does_not_check_what_it_would_insert(pond: Pond) -> None:
    pond.sql("CREATE TABLE m (id int PRIMARY KEY, v varchar(2)); INSERT INTO m VALUES (1, 'a'); FLUSH")
    pond.sql("""MERGE INTO m USING (VALUES (1, 'long')) s(i, t) ON id = i
        WHEN MATCHED THEN UPDATE SET v = 'b' WHEN NOT MATCHED THEN INSERT VALUES (i, t); FLUSH""")
    assert pond.sql("SELECT v FROM m").fetchall() == [("b",)]


def test_equal_jsonb_are_equal(pond: Pond) -> None:
    pond.sql("""CREATE TABLE j (id int, doc jsonb);
        INSERT INTO j VALUES (1, '{"b":1, "a":[1,2]}'), (2, '{"a": [1,  2], "b": 1, "a": [1,2]}'), (3, '[1,"x"]');
        CREATE MATERIALIZED VIEW jm AS SELECT doc, count(*) AS n FROM j GROUP BY doc; FLUSH""")
    assert sorted(pond.sql("SELECT * FROM jm")) == [('[1, "x"]', 1), ('{"a": [1, 2], "b": 1}', 2)]
    assert pond.sql("""SELECT id FROM j WHERE doc = '[1,   "x"]' AND doc <> '{"b":1}'""").fetchall() == [(3,)]
    pond.sql("""UPDATE j SET doc = '{"z":1,"y":2}' WHERE id = 3; FLUSH""")
    assert pond.sql("SELECT doc FROM j WHERE id = 3").fetchall() == [('{"y": 2, "z": 1}',)]


@pytest.mark.parametrize("asked", ["sum(sum(b)) OVER (PARTITION BY a)", "avg(sum(b)) OVER (PARTITION BY a)"])
def test_windows_over_sums(pond: Pond, asked: str) -> None:
    query = f"SELECT a, {asked} FROM (VALUES (1, 2), (1, 3), (2, 4)) v(a, b) GROUP BY a"
    assert sorted(pond.sql(query)) == [(1, 5), (2, 4)]


def test_groups_by_a_constant(pond: Pond) -> None:
    query = "SELECT 1 AS x, a, sum(b), avg(b) FROM (VALUES (7, 2), (7, 4)) v(a, b) GROUP BY 1, 2"
    assert pond.sql(query).fetchall() == [(1, 7, 6, 3)]
    assert pond.sql("SELECT 2, sum(b) FROM (VALUES (1)) v(b) WHERE b > 1 GROUP BY 1").fetchall() == []


def test_a_numeric_cast_to_numeric_keeps_its_digits(tmp_path: Path) -> None:
    value = "12345678901234567890.123456789012"
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(f"CREATE TABLE digits (d numeric(38, 12)); INSERT INTO digits VALUES ({value})")
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT d::numeric AS d FROM digits; FLUSH")
        for relation in ("digits", "v"):
            assert pond.sql(f"SELECT d::numeric::text FROM {relation}").fetchall() == [(value,)]
