"""Literals and values are read as PostgreSQL reads them; the answers are those of a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond import Pond
from millpond.errors import InvalidError


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    folder: Path = tmp_path_factory.mktemp("literals")
    with millpond.open(folder / "pond", engine="inline") as made:
        made.sql(
            "CREATE TABLE one (n int, f float8, r real, x text); INSERT INTO one VALUES (1, 0.1, 0.1, '\\xff'); FLUSH"
        )
        yield made


ANSWERS = {
    "date '01/02/03'": "2003-01-02",
    "timestamp '12-31-1969 10:00'": "1969-12-31 10:00:00",
    "'3/4/75'::date": "1975-03-04",
    "'2024-01-01 10:00:00.125'::timestamp(2)": "2024-01-01 10:00:00.13",
    "timestamp(0) '2024-12-31 23:59:59.5'": "2025-01-01 00:00:00",
    "'infinity'::timestamp(2)": "infinity",
    "encode('\\x12ab00', 'hex')": "12ab00",
    "('\\x' || 'abcd')::bytea": "\\xabcd",
    "x::bytea": "\\xff",
    "U&'\\d83d\\de00' || E'\\uD83D\\uDE00'": "😀😀",
    "'[\"a\"]'::jsonb || '[\"c\"]'": '["a", "c"]',
    "'\"c\"' || '[\"a\"]'::jsonb": '["c", "a"]',
    "jsonb_set('{\"b\":2}', '{b}', '[1,2]')": '{"b": [1, 2]}',
    "('{\"a\": [1, {\"b\": [2, 3]}]}'::jsonb)['a'][1]['b']": "[2, 3]",
    "('{\"a\": {\"a\": 1, \"b\": 2}}'::jsonb -> 'a') - 'a'": '{"b": 2}',
    "(SELECT value FROM jsonb_each('{\"b\":[1,2]}'))": "[1, 2]",
    "coalesce((NULL::int[] @> ARRAY[NULL, 7])::text, 'none')": "none",
    "r::numeric": "0.1",
    "to_number('5.01-', 'FM9.999999S')": "-5.01",
    "to_number('.01-', '99.99S')": "-0.01",
    "to_char(interval '12 months', 'rm')": "xii ",
    "timestamp '2024-07-01 10:00' AT TIME ZONE 'PST'": "2024-07-01 18:00:00+00",
    "timestamptz '2024-07-01 10:00+00' AT TIME ZONE 'CET'": "2024-07-01 11:00:00",
    "timestamptz '2024-07-01 10:00+00' AT TIME ZONE 'msk'": "2024-07-01 13:00:00",
    "timestamptz '2024-07-01 10:00+00' AT TIME ZONE 'NPT'": "2024-07-01 15:45:00",
    "0.12 ^ (-20)": "2608405330458882702.5529619561355838",
    "3.789 ^ 21": "1409343026052.8716016316022141",
    "to_char(interval '-12 months', 'RM')": "I   ",
}


@pytest.mark.parametrize("asked", ANSWERS)
def test_answers(pond: Pond, asked: str) -> None:
    (found,) = pond.sql(f"SELECT ({asked})::text FROM one").fetchone()
    assert (
        found.rstrip("0") == ANSWERS[asked].rstrip("0")
        if "numeric" in asked or "to_number" in asked
        else (found == ANSWERS[asked])
    )


def test_answers_in_a_view(pond: Pond) -> None:
    listed = ", ".join(f"({asked})::text AS c{n}" for n, asked in enumerate(ANSWERS) if "SELECT" not in asked)
    pond.sql(f"CREATE MATERIALIZED VIEW answers AS SELECT {listed} FROM one")
    assert pond.sql("SELECT * FROM answers").fetchall() == pond.sql(f"SELECT {listed} FROM one").fetchall()


def test_integers_and_rounded_times_of_changes(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, n smallint, at timestamp(2))")
        for change in (
            "INSERT INTO t (id, n) VALUES (1, '34.5')",
            "INSERT INTO t (n, id) VALUES (1, 'x')",
            "INSERT INTO t (id, n) SELECT 1, '34.5'",
        ):
            with pytest.raises(InvalidError, match="invalid input syntax for type"):
                pond.sql(change)
        with pytest.raises(InvalidError, match=r'invalid input syntax for type smallint: "34\.5"'):
            pond.sql("COPY t (id, n) FROM STDIN", stdin="1\t34.5\n")
        pond.sql("INSERT INTO t VALUES (1, ' 34 ', 'Mon Feb 10 17:32:01 1997')")
        pond.sql("COPY t (id, n) FROM STDIN", stdin="2\t +7\n")
        pond.sql("FLUSH")
        shown = pond.sql("SELECT id, n, at::text FROM t ORDER BY id").fetchall()
        assert shown == [(1, 34, "1997-02-10 17:32:01"), (2, 7, None)]


def test_different_values_of_an_aggregate_are_sorted(tmp_path: Path) -> None:
    asked = "SELECT array_agg(DISTINCT n) AS a, string_agg(DISTINCT x, ',') AS s, json_agg(DISTINCT n)::text AS j FROM t"
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(f"""CREATE TABLE t (id int PRIMARY KEY, n int, x text); CREATE MATERIALIZED VIEW v AS {asked};
            INSERT INTO t VALUES (1, 3, 'c'), (2, NULL, 'a'), (3, 1, 'b'), (4, 3, 'a'), (5, 2, NULL); FLUSH""")
        wanted = [([1, 2, 3, None], "a,b,c", "[1, 2, 3, null]")]
        assert pond.sql(asked).fetchall() == wanted == pond.sql("SELECT * FROM v").fetchall()
        pond.sql("DELETE FROM t WHERE n = 1; FLUSH")
        assert pond.sql("SELECT a, s FROM v").fetchall() == [([2, 3, None], "a,c")]


def test_a_table_of_a_query_in_a_session_with_a_time_zone(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("SET TimeZone = 'America/Los_Angeles'")
        pond.sql("CREATE TABLE q AS SELECT 1 AS a, timestamptz '2024-01-01 10:00' AS at")
        assert pond.sql("SELECT at::text FROM q").fetchall() == [("2024-01-01 10:00:00-08",)]
        assert pond.sql("SHOW TimeZone").fetchall() == [("America/Los_Angeles",)]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("SELECT date '99-01-08'", "date/time field value out of range"),
        ("SELECT U&'\\db99'", "invalid Unicode surrogate pair"),
        ("SELECT E'x\\udb99y'", "invalid Unicode surrogate pair"),
        ("SELECT justify_hours(interval '2147483647 days 24 hrs')", "interval out of range"),
        ("CREATE VIEW into_view AS SELECT 1 INTO other", "views must not contain SELECT INTO"),
    ],
)
def test_refusals(pond: Pond, asked: str, said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        pond.sql(asked)


def test_the_default_of_lag_and_its_value_have_one_type(pond: Pond) -> None:
    asked = "SELECT a, lag(a, 1, 0.7) OVER (ORDER BY a), lead(a, 1, -1.5) OVER (ORDER BY a) FROM (VALUES (1), (2)) v(a)"
    assert [tuple(map(float, row)) for row in pond.sql(f"{asked} ORDER BY 1")] == [(1, 0.7, 2), (2, 1, -1.5)]
