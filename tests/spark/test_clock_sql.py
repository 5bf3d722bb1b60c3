"""Processing time in SQL on Spark: the clock passes with and without rows (law 3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import millpond
from millpond.clock import ManualClock

SECOND = 1_000_000


def test_rows_come_and_go_by_the_clock(session: Any, tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000 * SECOND)
    with millpond.open(tmp_path / "pond", spark=session, clock=clock, parallelism=2, checks=True) as pond:
        pond.sql("""
            CREATE TABLE t (id int, at timestamptz DEFAULT now(), seen AS PROCTIME()) APPEND ONLY;
            CREATE TABLE names (id int PRIMARY KEY, name text);
            CREATE MATERIALIZED VIEW recent AS SELECT id % 2 AS odd, count(*) AS n FROM t
              WHERE at + to_seconds(id) > now() GROUP BY 1;
            CREATE MATERIALIZED VIEW soon AS SELECT id FROM t WHERE at + INTERVAL '5 seconds' <= now();
            CREATE MATERIALIZED VIEW windows AS SELECT count(*) AS n, window_start
              FROM TUMBLE(t, seen, INTERVAL '10 seconds') GROUP BY window_start;
            CREATE MATERIALIZED VIEW named AS SELECT t.id, n.name FROM t
              LEFT JOIN names FOR SYSTEM_TIME AS OF PROCTIME() AS n ON t.id = n.id;
            INSERT INTO names VALUES (1, 'one'), (2, 'two');
            INSERT INTO t (id) SELECT unnest(range(12));
            FLUSH;
            UPDATE names SET name = 'other';
            FLUSH
        """)
        assert sorted(pond.sql("FROM recent").fetchall()) == [(0, 5), (1, 6)]
        assert pond.sql("FROM soon").fetchall() == []
        before = pond.epoch
        clock.advance(5 * SECOND)
        assert pond.drain() == before + 1
        assert (pond.head().kind, pond.head().admitted) == ("epoch", {})
        assert sorted(pond.sql("FROM recent").fetchall()) == [(0, 3), (1, 3)]
        assert len(pond.sql("FROM soon").fetchall()) == 12
        pond.sql("INSERT INTO t (id) VALUES (100); FLUSH")
        clock.advance(10 * SECOND)
        pond.drain()
        assert pond.sql("FROM recent").fetchall() == [(0, 1)]
        assert sorted(pond.sql("SELECT n, epoch(window_start)::bigint FROM windows").fetchall()) == [
            (13, 1_700_000_000)
        ]
        found = dict(pond.sql("FROM named").fetchall())
        assert (found[1], found[2], found[3], len(found)) == ("one", "two", None, 13)
