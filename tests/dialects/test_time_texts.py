"""Texts are dates and times as PostgreSQL reads them: as literals and in columns, in reads and in views."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.kernels.postgres.time_casts import plain_text
from millpond.kernels.postgres.time_input import CLOCK_WORDS, read_time
from millpond.pond import Pond
from tests.dialects.time_texts import TEXTS
from tests.sql.fuzz.postgres import Server

KINDS = ("date", "timestamp", "timestamp with time zone", "time", "time with time zone")
# What PostgreSQL 15 gives, in UTC.
RECORDED = {
    "date": {
        "January 8, 1999": "1999-01-08",
        "1/8/1999": "1999-01-08",
        "1/18/69": "2069-01-18",
        "1999-Jan-08": "1999-01-08",
        "08-Jan-1999": "1999-01-08",
        "19990108": "1999-01-08",
        "990108": "1999-01-08",
        "J2451187": "1999-01-08",
        "1999.008": "1999-01-08",
        "y1999m01d08": "1999-01-08",
        "1999-01-08 24:00:00": "1999-01-08",
        "epoch": "1970-01-01",
        "infinity": "infinity",
        "-infinity": "-infinity",
    },
    "timestamp": {
        "Feb 10 17:32:01 1997 PST": "1997-02-10 17:32:01",
        "Mon Feb 10 17:32:01.5 1997": "1997-02-10 17:32:01.5",
        "19970210T173201": "1997-02-10 17:32:01",
        "2/10/97 5:32 pm": "1997-02-10 17:32:00",
        "1997-02-10 24:00:00": "1997-02-11 00:00:00",
        "1997-02-10 17:32:01.1234567": "1997-02-10 17:32:01.123457",
        "1997-02-10 05:32:01 PM": "1997-02-10 17:32:01",
    },
    "timestamp with time zone": {
        "Feb 10 17:32:01 1997 PST": "1997-02-11 01:32:01+00",
        "1997-02-10T17:32:01-08": "1997-02-11 01:32:01+00",
        "1997-02-10 17:32:01 America/New_York": "1997-02-10 22:32:01+00",
        "1997-07-10 17:32:01 america/new_york": "1997-07-10 21:32:01+00",
        "1997-07-10 17:32:01 BST": "1997-07-10 16:32:01+00",
        "1997-02-10 17:32:01 CET": "1997-02-10 16:32:01+00",
        "2024-03-10 02:30 America/New_York": "2024-03-10 07:30:00+00",
        "2024-11-03 01:30 America/New_York": "2024-11-03 06:30:00+00",
        "20011227T040506.789-08": "2001-12-27 12:05:06.789+00",
    },
    "time": {"04:05:06 PM": "16:05:06", "040506": "04:05:06", "12:30am": "00:30:00", "04:05:06.789-8": "04:05:06.789"},
    "time with time zone": {"04:05:06.789-8": "04:05:06.789-08", "040506+0730": "04:05:06+07:30", "04:05 PST": "04:05:00-08"},
}  # fmt: skip
REFUSED = {
    "date": {
        "18/1/1999": "date/time field value out of range",
        "Feb 30 1999": "date/time field value out of range",
        "99-01-08": "date/time field value out of range",
        "1999-01-08 garbage": "invalid input syntax for type date",
        "Jan 1999": "invalid input syntax for type date",
        "5874898-01-01": "date out of range",
    },
    "timestamp": {
        "1997-02-10 17:32:01 4": "invalid input syntax for type timestamp",
        "1997-02-10 17:32:01+16": "time zone displacement out of range",
        "294277-01-01": "timestamp out of range",
    },
    "timestamp with time zone": {
        "1997-02-10 nonsense": "invalid input syntax for type timestamp with time zone",
        "1997-02-10 17:32:61": "date/time field value out of range",
    },
    "time": {"25:00": "date/time field value out of range", "13:05 AM": "date/time field value out of range"},
    "time with time zone": {"04:05 xyz": "invalid input syntax for type time with time zone"},
}
# Texts that are no dates or times, with another reason or none; and the last 29 years of PostgreSQL's timestamps.
DIFFERENT = {
    ("1999--01-08", "time"), ("1999--01-08", "time with time zone"),
    ("J2452271-08", "time"), ("J2452271-08", "time with time zone"),
} | {
    (text, kind) for kind in ("timestamp", "timestamp with time zone")
    for text in ("294276-12-31", "294276-12-31 23:59:59")
}  # fmt: skip


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def shown(pond: Pond, sql: str) -> list[Any]:
    return [tuple(row) for row in pond.sql(sql).fetchall()]


def asked(server: Server, text: str, kind: str) -> str | None:
    """What PostgreSQL gives; None and the reason if it refuses."""
    import psycopg

    try:
        return str(server.con.execute(f"SELECT (%s::text)::{kind}::text", [text]).fetchone()[0])
    except psycopg.Error as error:
        return "error: " + str(error).splitlines()[0]


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    with millpond.open(tmp_path_factory.mktemp("times") / "pond", engine="inline") as made:
        yield made


@pytest.mark.parametrize("kind", KINDS)
def test_literals_and_columns(pond: Pond, kind: str) -> None:
    texts = RECORDED[kind]
    name = kind.replace(" ", "_")
    pond.sql(f"CREATE TABLE t_{name} (id int PRIMARY KEY, s text)")
    rows = ", ".join(f"({n}, {quoted(text)})" for n, text in enumerate(texts))
    pond.sql(f"INSERT INTO t_{name} VALUES {rows}; FLUSH")
    literals = ", ".join(f"CAST({kind} {quoted(text)} AS text) AS c{n}" for n, text in enumerate(texts))
    assert list(shown(pond, f"SELECT {literals}")[0]) == list(texts.values())
    query = f"SELECT id, CAST(CAST(s AS {kind}) AS text) AS given FROM t_{name}"
    assert [row[1] for row in sorted(shown(pond, query))] == list(texts.values())
    pond.sql(f"CREATE MATERIALIZED VIEW v_{name} AS {query}")
    pond.sql(f"INSERT INTO t_{name} SELECT id + 100, s FROM t_{name}; FLUSH")
    assert [row[1] for row in sorted(shown(pond, f"SELECT * FROM v_{name}"))] == [*texts.values()] * 2
    pond.sql(f"DELETE FROM t_{name} WHERE id < 100; FLUSH")
    assert [row[1] for row in sorted(shown(pond, f"SELECT * FROM v_{name}"))] == list(texts.values())


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_texts_are_refused_in_postgres_words(pond: Pond, kind: str) -> None:
    for text, reason in REFUSED[kind].items():
        for given in (f"{kind} {quoted(text)}", f"CAST(s AS {kind})"):
            with pytest.raises(InvalidError) as caught:
                pond.sql(f"SELECT {given} FROM (VALUES ({quoted(text)})) AS t(s)").fetchall()
            assert caught.value.message == f'{reason}: "{text}"', given


def test_rows_of_literals(pond: Pond) -> None:
    pond.sql("CREATE TABLE given (id int PRIMARY KEY, d date, ts timestamp, tz timestamptz, t time, s text)")
    pond.sql(
        "INSERT INTO given VALUES (1, 'Jan 8 1999', 'Feb 10 17:32:01 1997 PST', 'Feb 10 17:32:01 1997 PST',"
        " '4:05 PM', 'Jan 8 1999'), (2, '1999-01-08', '1/8/99', '1/8/99 CET', '0405', '1/8/99')"
    )
    pond.sql("INSERT INTO given (s, d, id) VALUES ('today', 'today', 3), ('infinity', 'infinity', 4); FLUSH")
    found = shown(pond, "SELECT d::text, ts::text, tz::text, t::text, s FROM given WHERE id < 3 ORDER BY id")
    assert found == [
        ("1999-01-08", "1997-02-10 17:32:01", "1997-02-11 01:32:01+00", "16:05:00", "Jan 8 1999"),
        ("1999-01-08", "1999-01-08 00:00:00", "1999-01-07 23:00:00+00", "04:05:00", "1/8/99"),
    ]
    query = "SELECT s, d = CAST(now() AS date), isfinite(d) FROM given WHERE id > 2 ORDER BY id"
    assert shown(pond, query) == [("today", True, True), ("infinity", False, False)]
    with pytest.raises(InvalidError, match='date/time field value out of range: "13/13/1999"'):
        pond.sql("INSERT INTO given (id, d) VALUES (5, '13/13/1999')")


def test_words_that_need_the_clock(pond: Pond) -> None:
    same = (
        "date 'today' = CAST(now() AS date)",
        "date 'tomorrow' - date 'yesterday' = 2",
        "timestamptz 'now' = now()",
        "timestamp 'today 10:30' = CAST(CAST(now() AS date) AS timestamp) + interval '10:30'",
    )
    assert shown(pond, f"SELECT {', '.join(same)}") == [(True,) * len(same)]
    with pytest.raises(InvalidError, match="only a literal in the query may say so"):
        pond.sql("SELECT CAST(s AS date) FROM (VALUES ('today')) AS t(s)").fetchall()
    pond.sql("CREATE TABLE clock (id int PRIMARY KEY)")
    with pytest.raises(InvalidError, match=r"now\(\) can only be compared with columns"):
        pond.sql("CREATE MATERIALIZED VIEW frozen AS SELECT id, date 'today' AS d FROM clock")


@pytest.mark.parametrize("kind", KINDS)
def test_the_parser_beside_postgres(server: Server, kind: str) -> None:
    wrong = {}
    for text in TEXTS:
        theirs = asked(server, text, kind)
        try:
            found = read_time(text, kind)
        except ValueError as error:
            ours = f"error: {error}"
        else:
            if found.word in CLOCK_WORDS:
                assert not str(theirs).startswith("error"), text
                continue
            plain = plain_text(found, kind)
            ours = asked(server, f"{plain.replace(' (BC)', '')} BC" if "(BC)" in plain else plain, kind) or ""
        if ours != theirs and (text, kind) not in DIFFERENT:
            wrong[text] = (ours, theirs)
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("kind", KINDS)
def test_casts_beside_postgres(server: Server, tmp_path: Path, kind: str, zone: str) -> None:
    """Every text that PostgreSQL takes, as a literal, in a column and in a view of it."""
    if kind == "time with time zone" and zone != "UTC":
        pytest.skip("a time without its zone depends on the day")
    server.con.execute(f"SET timezone = '{zone}'")
    try:
        given = [t for t in TEXTS if not any(word in t.lower() for word in CLOCK_WORDS)]
        wanted = {t: found for t in given if not str(found := asked(server, t, kind)).startswith("error")}
        wanted = {t: found for t, found in wanted.items() if (t, kind) not in DIFFERENT}
    finally:
        server.con.execute("SET timezone = 'UTC'")
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(f"SET TimeZone = '{zone}'")
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, s text)")
        pond.sql("INSERT INTO t VALUES " + ", ".join(f"({n}, {quoted(t)})" for n, t in enumerate(wanted)))
        pond.sql(f"FLUSH; CREATE MATERIALIZED VIEW v AS SELECT id, CAST(s AS {kind}) AS at FROM t; FLUSH")
        assert not pond.errors().num_rows
        for query in (
            "SELECT id, CAST(at AS text) FROM v",
            f"SELECT id, CAST(CAST(s AS {kind}) AS text) FROM t",
        ):
            ours = [row[1] for row in sorted(shown(pond, query))]
            assert same_era(ours, wanted) == wanted
        literals = ", ".join(f"CAST({kind} {quoted(t)} AS text) AS c{n}" for n, t in enumerate(wanted))
        assert same_era(list(shown(pond, f"SELECT {literals}")[0]), wanted) == wanted


def same_era(ours: list[str], wanted: dict[str, str]) -> dict[str, str]:
    """The texts of ours with BC where PostgreSQL writes it."""
    found = {}
    for text, one in zip(wanted, ours, strict=True):
        found[text] = f"{one.replace(' (BC)', '')} BC" if " (BC)" in one else one
    return found
