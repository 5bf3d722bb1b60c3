"""Times in the zone of a session are those of a real PostgreSQL, as reads, as views and as changes of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millpond
from tests.sql.fuzz.postgres import Server
from tests.sql.time_zones import EXPRESSIONS, READ_ONLY, ROWS, TABLE, ZONES, query

UPDATES = (
    "UPDATE t SET tz = tz + interval '1 day', l = tz, d = tz, s = tz::text WHERE tz > '2024-03-31 03:00'",
    "INSERT INTO t SELECT id + 10, l, tz, tz, (tz - interval '1 mon')::text, tz - l FROM t WHERE id < 9",
    "DELETE FROM t WHERE tz::date = '2024-10-28' OR l < '1900-01-01'::timestamptz",
)


def answers(ask: Any, sql: str) -> dict[tuple[int, str], Any]:
    """The values by row and expression."""
    names = [*EXPRESSIONS, *READ_ONLY]
    return {(row[0], names[n]): value for row in ask(sql).fetchall() for n, value in enumerate(row[1:])}


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_reads_views_and_changes(server: Server, tmp_path: Path, zone: str) -> None:
    theirs = server.con.execute
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        for ask in (theirs, pond.sql):
            ask(f"SET TimeZone = '{zone}'")
            ask("DROP TABLE IF EXISTS t")
            ask(TABLE)
            for row in ROWS:
                ask(f"INSERT INTO t VALUES {row}")
        pond.sql("FLUSH")
        sql = query([*EXPRESSIONS, *READ_ONLY])
        assert answers(pond.sql, sql) == answers(theirs, sql)
        pond.sql(f"CREATE MATERIALIZED VIEW v AS {query(EXPRESSIONS)}; FLUSH; SET TimeZone = 'Asia/Tokyo'")
        assert answers(pond.sql, "SELECT * FROM v") == answers(theirs, query(EXPRESSIONS))
        pond.sql(f"SET TimeZone = '{zone}'")
        for update in UPDATES:
            theirs(update)
            pond.sql(f"{update}; FLUSH")
        assert answers(pond.sql, "SELECT * FROM v") == answers(theirs, query(EXPRESSIONS))
        texts = "SELECT id, tz::text, l::text, d::text, s, i::text FROM t ORDER BY id"
        assert pond.sql(texts).fetchall() == theirs(texts).fetchall()
