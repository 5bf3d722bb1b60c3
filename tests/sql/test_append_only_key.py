"""APPEND ONLY tables with a primary key: the first row of a key stays, another one is an error row (law 9)."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.operators.upsert import REPEATED

START = datetime.datetime(2024, 1, 1)
TABLE = "CREATE TABLE t (id int PRIMARY KEY, v int, ts timestamp, WATERMARK FOR ts AS {}) APPEND ONLY"
DELAY = "ts - INTERVAL '4 seconds'"
VIEWS = """
    CREATE MATERIALIZED VIEW closed AS SELECT window_start, count(*) AS n, sum(v)::bigint AS s
        FROM TUMBLE(t, ts, INTERVAL '10 seconds') GROUP BY window_start, window_end EMIT ON WINDOW CLOSE;
    CREATE MATERIALIZED VIEW final AS SELECT id, v, ts FROM t EMIT ON WINDOW CLOSE;
    CREATE MATERIALIZED VIEW numbered AS
        SELECT id, row_number() OVER (ORDER BY ts, id) AS n FROM t EMIT ON WINDOW CLOSE;
"""


def at(second: float) -> datetime.datetime:
    return START + datetime.timedelta(seconds=second)


def values(rows: list[tuple[int, int, int]]) -> str:
    return ", ".join(f"({id}, {v}, '{at(second)}')" for id, v, second in rows)


@pytest.mark.parametrize("seed", range(2))
def test_windows_close_over_the_first_row_of_each_key(seed: int, tmp_path: Path) -> None:
    """Against a model, however the rows are split into epochs, with restarts and other parallelism."""
    rng, now = random.Random(seed), 0
    pond = millpond.open(tmp_path / "pond", engine="inline", checks=True, parallelism=2)
    pond.sql(TABLE.format(DELAY))
    pond.sql(VIEWS)
    kept: dict[int, tuple[int, datetime.datetime]] = {}
    on_time, late, refused, bound = [], [], 0, START - datetime.timedelta(days=1)
    for number in range(8):
        now += rng.choice([0, 5, 12])
        rows = [
            (rng.randrange(50), rng.randrange(9), max(0, now + rng.choice([0, 1, 3, -2, -15])))
            for _ in range(5)
        ]
        for id, v, second in rows:
            if id in kept:
                refused += 1
                continue
            kept[id] = (v, at(second))
            (late if at(second) < bound else on_time).append((id, v, at(second)))
        for some in (rows[:2], rows[2:]) if rng.random() < 0.5 else (rows,):
            pond.sql(f"INSERT INTO t VALUES {values(some)}")
        pond.drain()
        bound = max([bound, *(ts - datetime.timedelta(seconds=4) for _, ts in kept.values())])
        assert Counter(pond.sql("SELECT id, v, ts FROM t").fetchall()) == Counter(
            (id, *row) for id, row in kept.items()
        )
        over = sorted((r for r in on_time if r[2] < bound), key=lambda r: (r[2], r[0]))
        assert Counter(pond.sql("FROM final").fetchall()) == Counter(over)
        numbers = {id: n for n, (id, _, _) in enumerate(over, 1)}
        assert dict(pond.sql("FROM numbered").fetchall()) == numbers
        closed: dict[datetime.datetime, list[int]] = {}
        for _, v, ts in on_time:
            start = START + (ts - START) // datetime.timedelta(seconds=10) * datetime.timedelta(seconds=10)
            if start + datetime.timedelta(seconds=10) <= bound:
                closed.setdefault(start, []).append(v)
        given = {start: (n, s) for start, n, s in pond.sql("FROM closed").fetchall()}
        assert given == {start: (len(some), sum(some)) for start, some in closed.items()}
        errors = pond.errors().to_pylist()
        assert sum(e["weight"] for e in errors) == refused and {e["reason"] for e in errors} <= {REPEATED}
        assert Counter(pond.sql("SELECT id, v, ts FROM t_late").fetchall()) == Counter(late)
        if number % 3 == 1:
            pond.close()
            pond = millpond.open(
                tmp_path / "pond", engine="inline", checks=True, parallelism=rng.randint(1, 5)
            )
    assert refused and late and closed
    pond.close()


def test_conflicts_and_changes(tmp_path: Path) -> None:
    pond = millpond.open(tmp_path / "pond", engine="inline", checks=True)
    pond.sql("CREATE TABLE t (id int PRIMARY KEY, v int, seen AS PROCTIME()) APPEND ONLY")
    pond.sql("INSERT INTO t VALUES (1, 10); FLUSH")
    assert pond.sql("INSERT INTO t VALUES (1, 11), (2, 20) ON CONFLICT DO NOTHING").rowcount == 1
    pond.sql("ALTER TABLE t ADD COLUMN w int DEFAULT 5")
    pond.sql("INSERT INTO t (id, v, w) VALUES (2, 21, 6), (3, 30, 7); FLUSH")
    pond.close()
    pond = millpond.open(tmp_path / "pond", engine="inline", checks=True)
    assert sorted(pond.sql("SELECT id, v, w FROM t").fetchall()) == [(1, 10, 5), (2, 20, 5), (3, 30, 7)]
    assert pond.sql("SELECT count(*) FROM t WHERE seen IS NULL").fetchone() == (0,)
    assert [e["reason"] for e in pond.errors().to_pylist()] == [REPEATED]
    refused: dict[str, Any] = {
        "INSERT INTO t (id, v) VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET v = 3": "can be changed",
        "UPDATE t SET v = 1": "is APPEND ONLY",
        "DELETE FROM t": "is APPEND ONLY",
    }
    for statement, why in refused.items():
        with pytest.raises(InvalidError, match=why):
            pond.sql(statement)
    pond.close()


@pytest.mark.parametrize("rule", ["slack(1)", "monotonous()", "percentile(1.0)"])
def test_strategies_that_depend_on_the_order_of_rows(rule: str, tmp_path: Path) -> None:
    """The watermark follows the rows as they came, although they are placed by their key."""
    told = []
    for tasks in (1, 4):
        pond = millpond.open(tmp_path / f"pond{tasks}", engine="inline", checks=True, parallelism=tasks)
        pond.sql(TABLE.format(rule))
        pond.sql("CREATE MATERIALIZED VIEW final AS SELECT id FROM t EMIT ON WINDOW CLOSE")
        for rows in ([(1, 0, 1), (2, 0, 9), (3, 0, 5), (4, 0, 7)], [(5, 0, 8), (6, 0, 12), (7, 0, 11)]):
            pond.sql(f"INSERT INTO t VALUES {values(rows)}; FLUSH")
        shown = {row[0]: row[3] for row in pond.sql("SHOW WATERMARKS").fetchall() if row[1] is None}
        told.append((shown["t.watermark"], sorted(pond.sql("FROM final").fetchall())))
        pond.close()
    assert told[0] == told[1]
    if rule == "slack(1)":
        assert str(told[0][0]) == "2024-01-01 00:00:11"
