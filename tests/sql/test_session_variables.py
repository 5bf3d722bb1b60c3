"""SET, SHOW and RESET of the time zone: what times without a zone mean, and how those with one are shown."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.errors import InvalidError
from millpond.pond import Pond
from tests.sql.asked import opened, rows

BERLIN = "SET TimeZone = 'Europe/Berlin'"


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with opened(tmp_path) as made:
        yield made


def zone_of(pond: Pond) -> str:
    ((found,),) = rows(pond, "SHOW TimeZone")
    return str(found)


def test_the_zone_of_a_session(pond: Pond) -> None:
    assert zone_of(pond) == "UTC"
    for text, zone in (
        ("SET TimeZone = 'europe/berlin'", "Europe/Berlin"),
        ("SET TIME ZONE 'GMT-03:00'", "Etc/GMT-3"),
        ("SET SESSION timezone TO 'Asia/Kathmandu'", "Asia/Kathmandu"),
        ("SET LOCAL timezone TO GMT", "Asia/Kathmandu"),
        ("SET TIME ZONE DEFAULT", "UTC"),
        (BERLIN, "Europe/Berlin"),
        ("RESET TIME ZONE", "UTC"),
        ("SET timezone = 'Etc/UTC'", "UTC"),
    ):
        pond.sql(text)
        assert zone_of(pond) == zone
    assert ("TimeZone", "UTC") in [row[:2] for row in rows(pond, "SHOW ALL")]
    with pytest.raises(InvalidError, match='invalid value for parameter "TimeZone": "Mars/Base"'):
        pond.sql("SET TimeZone TO 'Mars/Base'")


def test_a_transaction_ends_the_zone_that_it_has_set(pond: Pond) -> None:
    pond.sql(f"BEGIN; {BERLIN}; ROLLBACK")
    assert zone_of(pond) == "UTC"
    pond.sql("BEGIN; SET LOCAL TimeZone = 'Asia/Tokyo'")
    assert zone_of(pond) == "Asia/Tokyo"
    pond.sql(f"{BERLIN}; COMMIT")
    assert zone_of(pond) == "Europe/Berlin"


def test_reads(pond: Pond) -> None:
    """Around changes of clocks, with the answers of PostgreSQL 15."""
    pond.sql(BERLIN)
    for expression, answer in {
        "timestamptz '2024-03-31 02:30'": "2024-03-31 03:30:00+02",
        "timestamptz '2024-10-27 02:30'": "2024-10-27 02:30:00+01",
        "timestamptz '2024-10-26 02:30' + interval '1 day'": "2024-10-27 02:30:00+01",
        "timestamptz '2024-10-26 02:30' + interval '24 hours'": "2024-10-27 02:30:00+02",
        "timestamptz '2024-04-01' - timestamptz '2024-03-31'": "23:00:00",
        "date_trunc('hour', timestamptz '2024-10-27 02:30+02')": "2024-10-27 02:00:00+02",
        "(timestamptz '2024-06-30 22:30+00')::date": "2024-07-01",
        "to_char(timestamptz '2024-06-30 22:30+00', 'HH24:MI TZ')": "00:30 CEST",
        "timestamptz '1850-01-01'": "1850-01-01 00:00:00+00:53:28",
        "row_to_json(row(timestamptz '2024-01-30 22:30'))": '{"f1":"2024-01-30T22:30:00+01:00"}',
    }.items():
        assert rows(pond, f"SELECT ({expression})::text") == [(answer,)], expression
    ((at,),) = rows(pond, "SELECT timestamptz '2024-07-01 12:00'")
    assert at.isoformat() == "2024-07-01T12:00:00+02:00"


def test_a_view_and_a_change_keep_the_zone_of_their_session(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, tz timestamptz, d date)")
    pond.sql(f"{BERLIN}; CREATE MATERIALIZED VIEW berlin AS SELECT id, tz::date AS d, tz::text AS s FROM t")
    pond.sql("INSERT INTO t VALUES (1, '2024-07-01 00:30', NULL); UPDATE t SET d = tz")
    pond.sql("SET TimeZone = 'UTC'; CREATE MATERIALIZED VIEW utc AS SELECT id, tz::date AS d FROM t; FLUSH")
    first = datetime.date(2024, 7, 1)
    assert rows(pond, "SELECT id, d FROM t") == [(1, first)]
    assert rows(pond, "SELECT * FROM berlin") == [(1, first, "2024-07-01 00:30:00+02")]
    assert rows(pond, "SELECT id, d FROM utc") == [(1, datetime.date(2024, 6, 30))]


def test_a_rebuilt_view_keeps_its_zone(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, tz timestamptz)")
    pond.sql("INSERT INTO t VALUES (1, '2024-06-30 22:30+00')")
    pond.sql("CREATE VIEW below AS SELECT id, tz FROM t")
    pond.sql(
        f"{BERLIN}; CREATE MATERIALIZED VIEW above AS SELECT tz::date::text AS d FROM below; RESET TimeZone"
    )
    pond.sql("CREATE OR REPLACE VIEW below AS SELECT id + 1 AS id, tz FROM t; FLUSH")
    assert rows(pond, "SELECT d FROM above") == [("2024-07-01",)]


def test_a_transaction_is_executed_in_the_zones_of_its_statements(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, s text, tz timestamptz)")
    pond.sql("INSERT INTO t VALUES (1, NULL, '2024-10-26 00:30+00'); FLUSH")
    pond.sql(
        f"BEGIN; {BERLIN}; UPDATE t SET tz = tz + interval '1 day', s = tz::text;"
        " SET TimeZone = 'UTC'; UPDATE t SET s = s || ', ' || tz::text; COMMIT; FLUSH"
    )
    assert rows(pond, "SELECT s FROM t") == [("2024-10-26 02:30:00+02, 2024-10-27 01:30:00+00",)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT '10:00'::timetz", "timetz is not supported in the time zone"),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT strftime(tz, '%Y') AS y FROM t",
            r"strftime\(\) is not supported",
        ),
        ("CREATE MATERIALIZED VIEW v AS SELECT id FROM t WHERE tz > now() - id * interval '1 day'", "now()"),
        (
            "SELECT * FROM generate_series(timestamptz '2024-01-01', '2024-02-01', interval '1 day')",
            "a series of",
        ),
    ],
)
def test_what_is_not_known_in_another_zone_is_refused(pond: Pond, text: str, said: str) -> None:
    pond.sql(f"CREATE TABLE t (id int PRIMARY KEY, tz timestamptz); {BERLIN}")
    with pytest.raises(InvalidError, match=said):
        pond.sql(text)


def test_other_dialects_are_in_utc(pond: Pond) -> None:
    pond.sql(BERLIN)
    with pytest.raises(InvalidError, match="runs statements of the dialect postgres only"):
        pond.sql("SELECT 1", dialect="spark")


def test_names_that_duckdb_reserves_keep_the_meaning_of_functions(pond: Pond) -> None:
    pond.sql(
        "CREATE TABLE t (id int PRIMARY KEY, at timestamp); INSERT INTO t VALUES (1, '2024-07-01 10:00')"
    )
    text = "SELECT to_char(at, 'FMDay'), extract(dow from at)::int, (7 / 2) || 'x' FROM t"
    assert rows(pond, f"FLUSH; {text}") == [("Monday", 1, "3x")]
