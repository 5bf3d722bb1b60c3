"""Intervals are added to times in PostgreSQL's order: months, then days, then hours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond import Pond
from millpond.sql.reads.scratch import may_mix_units

# as PostgreSQL 15 answers
WANTED = {
    "tz + interval '1 month -36 hours'": "2024-04-29 00:00:00+00",
    "tz - interval '-1 month 36 hours'": "2024-04-29 00:00:00+00",
    "interval '1 month -36 hours' + tz": "2024-04-29 00:00:00+00",
    "tz + '1 month -36 hours'": "2024-04-29 00:00:00+00",
    "tz + make_interval(months => 1, hours => -36)": "2024-04-29 00:00:00+00",
    "tz + (interval '1 month' - interval '36 hours')": "2024-04-29 00:00:00+00",
    "tz::timestamp + interval '1 month -36 hours'": "2024-04-29 00:00:00",
    "tz + i": "2024-04-29 00:00:00+00",
    "i + tz": "2024-04-29 00:00:00+00",
    "tz - i": "2024-03-02 00:00:00+00",
    "tz + interval '1 day'": "2024-04-01 12:00:00+00",
}
CHANGED = {"tz + i": "2022-10-31 15:00:00+00", "tz - i": "2025-04-30 07:00:00+00"}


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline") as made:
        made.sql("""CREATE TABLE t (id int PRIMARY KEY, tz timestamptz, i interval);
            INSERT INTO t VALUES (1, '2024-03-31 12:00+00', '1 month -36 hours'), (2, 'infinity', '1 month -1 day'); FLUSH""")
        yield made


def texts(*expressions: str) -> str:
    return ", ".join(f"({one})::text AS c{n}" for n, one in enumerate(expressions))


def test_reads(pond: Pond) -> None:
    assert pond.sql(f"SELECT {texts(*WANTED)} FROM t WHERE id = 1").fetchall() == [tuple(WANTED.values())]
    assert pond.sql("SELECT (tz + i)::text FROM t WHERE id = 2").fetchall() == [("infinity",)]
    read = "SELECT (timestamptz '2024-03-31 12:00+00' + interval '1 month -36 hours')::text"
    assert pond.sql(read).fetchall() == [("2024-04-29 00:00:00+00",)]
    pond.sql("CREATE VIEW later AS SELECT id, tz + interval '1 month -36 hours' AS x FROM t")
    assert pond.sql("SELECT x::text FROM later WHERE id = 1").fetchall() == [("2024-04-29 00:00:00+00",)]


def test_views_and_changes(pond: Pond) -> None:
    pond.sql(f"CREATE MATERIALIZED VIEW v AS SELECT {texts(*WANTED)} FROM t WHERE id = 1")
    pond.sql(f"CREATE MATERIALIZED VIEW w AS SELECT {texts(*CHANGED)} FROM t WHERE id = 1; FLUSH")
    assert pond.sql("SELECT * FROM v").fetchall() == [tuple(WANTED.values())]
    pond.sql("UPDATE t SET tz = '2024-01-30 23:00+00', i = '-14 mons -31 days 16 hours' WHERE id = 1; FLUSH")
    wanted = [tuple(CHANGED.values())]
    assert pond.sql(f"SELECT {texts(*CHANGED)} FROM t WHERE id = 1").fetchall() == wanted
    assert pond.sql("SELECT * FROM w").fetchall() == wanted
    pond.sql("UPDATE t SET tz = timestamptz '2024-03-31 12:00+00' + interval '1 month -36 hours'; FLUSH")
    assert pond.sql("SELECT tz::text FROM t WHERE id = 1").fetchall() == [("2024-04-29 00:00:00+00",)]


def test_in_another_time_zone(pond: Pond) -> None:
    pond.sql("SET TimeZone = 'Europe/Berlin'")
    pond.sql("CREATE MATERIALIZED VIEW b AS SELECT (tz + i)::text AS x FROM t WHERE id = 1; FLUSH")
    wanted = [("2024-04-29 02:00:00+02",)]
    assert pond.sql("SELECT (tz + i)::text FROM t WHERE id = 1").fetchall() == wanted
    assert pond.sql("SELECT x FROM b").fetchall() == wanted
    pond.sql("RESET TimeZone")
    assert pond.sql("SELECT (tz + i)::text FROM t WHERE id = 1").fetchall() == [("2024-04-29 00:00:00+00",)]


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("at + interval '1 month'", False),
        ("at > now() - interval '1 hour'", False),
        ("at + interval '1 month 1 day'", True),
        ("at + '1 mon 2:00'", True),
        ("at + interval 'P1M2D'", True),
        ("at - age(a, b)", True),
        ("a - 1", False),
    ],
)
def test_which_texts_may_mix_months_and_days(text: str, may: bool) -> None:
    assert may_mix_units(text) is may
