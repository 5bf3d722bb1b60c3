"""Intervals of some fields only, and sums of intervals that are out of range, as PostgreSQL 15 has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond import Pond
from millpond.errors import InvalidError

LITERALS = {
    "'1 2:03:04'::interval day to second": "1 day 02:03:04",
    "'1 2:03:04'::interval day to minute": "1 day 02:03:00",
    "cast('1 2:03:04' as interval day)": "1 day",
    "'1-2'::interval year to month": "1 year 2 mons",
    "'-1-2'::interval year": "-1 years",
    "'1:30'::interval minute to second": "00:01:30",
    "'1:30'::interval hour to minute": "01:30:00",
    "'5'::interval month": "5 mons",
    "'1 day 5'::interval hour": "1 day 05:00:00",
}
VALUES = {
    "i::interval year": ("1 year", "-1 years"),
    "i::interval year to month": ("1 year 2 mons", "-1 years -2 mons"),
    "i::interval day": ("1 year 2 mons 3 days", "-1 years -2 mons +3 days"),
    "i::interval hour": ("1 year 2 mons 3 days 04:00:00", "-1 years -2 mons +3 days -04:00:00"),
    "i::interval day to minute": ("1 year 2 mons 3 days 04:05:00", "-1 years -2 mons +3 days -04:05:00"),
    "i::interval second": ("1 year 2 mons 3 days 04:05:06.789", "-1 years -2 mons +3 days -04:05:06.789"),
}


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline") as made:
        yield made


def texts(expressions: dict[str, object]) -> str:
    return ", ".join(f"({one})::text AS c{n}" for n, one in enumerate(expressions))


def test_literals(pond: Pond) -> None:
    assert pond.sql(f"SELECT {texts(dict(LITERALS))}").fetchall() == [tuple(LITERALS.values())]


def test_values_as_reads_and_in_views_that_change(pond: Pond) -> None:
    pond.sql(f"""CREATE TABLE t (id int PRIMARY KEY, i interval);
        CREATE MATERIALIZED VIEW v AS SELECT {texts(dict(VALUES))} FROM t;
        INSERT INTO t VALUES (1, '14 months 3 days 04:05:06.789'); FLUSH""")
    before, after = zip(*VALUES.values(), strict=True)
    assert pond.sql(f"SELECT {texts(dict(VALUES))} FROM t").fetchall() == [before]
    assert pond.sql("SELECT * FROM v").fetchall() == [before]
    pond.sql("UPDATE t SET i = '-14 months 3 days -04:05:06.789'; FLUSH")
    assert pond.sql(f"SELECT {texts(dict(VALUES))} FROM t").fetchall() == [after]
    assert pond.sql("SELECT * FROM v").fetchall() == [after]


def test_sums_do_not_carry_days_into_months(pond: Pond) -> None:
    asked = "SELECT sum(x)::text, avg(x)::text FROM (VALUES (interval '{}'), (interval '1 day')) v(x)"
    found = pond.sql(asked.format("2147483600 days")).fetchall()
    assert found == [("2147483601 days", "1073741800 days 12:00:00")]
    assert pond.sql(asked.format("-600000000 days")).fetchone() == (
        "-599999999 days",
        "-299999999 days -12:00:00",
    )
    with pytest.raises(InvalidError, match="out of range"):
        pond.sql(asked.format("2147483647 days"))


@pytest.mark.parametrize(
    "kind", ["interval year", "interval YEAR TO MONTH", "interval day", "interval day to minute"]
)
def test_columns_hold_whole_intervals(pond: Pond, kind: str) -> None:
    with pytest.raises(InvalidError, match=f"a column cannot be of type {kind.lower()}"):
        pond.sql(f"CREATE TABLE c (i {kind})")
    pond.sql("CREATE TABLE d (i interval day to second, j interval second, k interval)")


def test_a_correlated_query_in_a_view_adds_the_interval_of_its_row_as_it_is(pond: Pond) -> None:
    pond.sql("""CREATE TABLE u (k int PRIMARY KEY, tz timestamptz, i interval); CREATE TABLE t (k int PRIMARY KEY, i interval);
        CREATE MATERIALIZED VIEW v AS SELECT t.k, (SELECT max(u.tz + t.i) FROM u)::text AS m,
            EXISTS (SELECT 1 FROM u WHERE u.i = t.i) AS e FROM t;
        INSERT INTO u VALUES (1, '2024-01-31 01:30+00', '30 days');
        INSERT INTO t VALUES (1, '-14 mons -31 days'), (2, '1 month'), (3, '30 days'), (4, '1 mon -1 day'); FLUSH""")
    assert sorted(pond.sql("SELECT * FROM v").fetchall()) == [
        (1, "2022-10-30 01:30:00+00", False),
        (2, "2024-02-29 01:30:00+00", True),
        (3, "2024-03-01 01:30:00+00", True),
        (4, "2024-02-28 01:30:00+00", False),
    ]
    pond.sql("UPDATE t SET i = '31 days' WHERE k = 2; FLUSH")
    assert pond.sql("SELECT m, e FROM v WHERE k = 2").fetchall() == [("2024-03-02 01:30:00+00", False)]
