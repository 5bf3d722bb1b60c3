"""TUMBLE and its relatives in queries: the same rows as a view of the same text (law 1)."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.sql.asked import opened, refused, rows

CALLS = [
    "TUMBLE({}, INTERVAL '7 minutes')",
    "TUMBLE({}, INTERVAL '1 hour', INTERVAL '-5 minutes')",
    "HOP({}, INTERVAL '3 minutes', INTERVAL '10 minutes', INTERVAL '1 minute')",
    "HOP({}, INTERVAL '10 minutes', INTERVAL '3 minutes')",  # some rows are in no window
    "CUMULATE({}, INTERVAL '5 minutes', INTERVAL '20 minutes')",
    "CALENDAR({}, 'month', 'Europe/Berlin')",
    "CALENDAR({}, 'week')",
    "SESSION({}, INTERVAL '2 minutes')",
    "SESSION({}, INTERVAL '2 minutes', k, INTERVAL '1 minute')",
]


def test_a_query_gives_the_rows_of_a_view(tmp_path: Path) -> None:
    rng = random.Random(5)
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, k int, at timestamp, z timestamptz)")
        views = []
        for time in ("at", "z"):
            for call in CALLS:
                query = f"SELECT t.id, window_start AS s, window_end AS e FROM {call.format('t, ' + time)}"
                views.append((f"v{len(views)}", query))
        pond.sql("; ".join(f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in views))
        start = datetime(1969, 12, 31, 23)
        for n in range(60):
            at = start + timedelta(seconds=rng.randrange(3600 * 6) + 86400 * 30 * (n % 3))
            pond.insert("t", [{"id": n, "k": n % 3, "at": at, "z": at}])
        pond.sql("INSERT INTO t VALUES (100, 1, '2024-03-31 01:30', '2024-03-31 01:30+00'); FLUSH")
        for name, query in views:
            found = rows(pond, query)
            assert found and found == rows(pond, f"SELECT * FROM {name}"), query


def test_in_subqueries_views_and_transactions(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        pond.sql("""
            CREATE TABLE t (k int, at timestamp);
            CREATE VIEW ten AS SELECT k, window_start, count(*) AS n FROM TUMBLE(t, at, INTERVAL '10 minutes') GROUP BY 1, 2;
            INSERT INTO t VALUES (1, '2024-01-01 10:01'), (1, '2024-01-01 10:09'), (2, '2024-01-01 10:11'), (3, NULL);
            FLUSH
        """)
        assert rows(pond, "SELECT k, n FROM ten") == [(1, 2), (2, 1)]
        nested = "TUMBLE((SELECT window_start AS at, n FROM ten) AS m, at, INTERVAL '1 hour')"
        assert rows(
            pond, f"SELECT extract(hour FROM window_start)::int, max(n) FROM {nested} GROUP BY 1"
        ) == [(10, 2)]
        joined = "SELECT count(*) FROM ten JOIN HOP(t, at, INTERVAL '5 minutes', INTERVAL '10 minutes') USING (window_start)"
        assert rows(pond, joined) == [(3,)]
        with pond.transaction() as block:
            assert block.sql("SELECT count(*) FROM TUMBLE(t, at, INTERVAL '1 hour')").fetchone() == (3,)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("HOP(t, at, INTERVAL '0', INTERVAL '1')", "must be positive"),
        ("TUMBLE(t, at, INTERVAL '-1 hour')", "must be positive"),
        ("SESSION(t, at, INTERVAL '1 month')", "must be of days or less"),
        ("CUMULATE(t, at, INTERVAL '2 hours', INTERVAL '3 hours')", "must be a multiple of its step"),
    ],
)
def test_lengths_that_no_window_has(call: str, why: str, tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        pond.sql("CREATE TABLE t (at timestamp); INSERT INTO t VALUES ('2024-01-01'); FLUSH")
        assert why in refused(pond, f"SELECT * FROM {call}")
