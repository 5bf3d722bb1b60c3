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


def test_name_is_a_text_of_63_bytes(pond: Pond) -> None:
    pond.sql("CREATE TABLE names (n name, m name[]); INSERT INTO names VALUES ('a', ARRAY['b']); FLUSH")
    assert pond.sql("SELECT n, m, length(repeat('x', 70)::name) FROM names").fetchone() == ("a", ["b"], 63)


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
