"""WITH RECURSIVE on Spark gives what it gives inline, epoch by epoch (law 3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millpond

SCRIPT = """
    CREATE TABLE roads (a int, b int, PRIMARY KEY (a, b));
    CREATE MATERIALIZED VIEW reach AS
        WITH RECURSIVE r(a, b) AS (SELECT a, b FROM roads UNION SELECT r.a, roads.b FROM r JOIN roads ON r.b = roads.a)
        SELECT * FROM r;
    CREATE MATERIALIZED VIEW hops AS
        WITH RECURSIVE r(n, d) AS (
            SELECT 1, 0 UNION SELECT roads.b, d + 1 FROM r JOIN roads ON roads.a = r.n WHERE d < 10)
        SELECT n, min(d) AS d FROM r GROUP BY n
"""
CHANGES = (
    "INSERT INTO roads VALUES (1, 2), (2, 3), (3, 1), (3, 4), (4, 5), (6, 4)",
    "DELETE FROM roads WHERE a = 3 AND b = 4",  # 4 and 5 are reached from 6 alone
    "INSERT INTO roads VALUES (1, 6)",
    "DELETE FROM roads WHERE a = 1; INSERT INTO roads VALUES (5, 6)",  # a cycle that nothing leads to
)


def run(path: Path, **settings: Any) -> list[Any]:
    with millpond.open(path, **settings) as pond:
        pond.sql(SCRIPT)
        found = []
        for change in CHANGES:
            pond.sql(f"{change}; FLUSH")
            found.append([pond.sql(f"SELECT * FROM {v} ORDER BY ALL").fetchall() for v in ("reach", "hops")])
        assert pond.errors().num_rows == 0
        return found


@pytest.mark.slow
def test_recursion_on_spark(session: Any, tmp_path: Path) -> None:
    inline = run(tmp_path / "inline", engine="inline", parallelism=3)
    assert run(tmp_path / "spark", spark=session, parallelism=2) == inline
    assert [hops for _, hops in inline] == [
        [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)],
        [(1, 0), (2, 1), (3, 2)],
        [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (6, 1)],
        [(1, 0)],
    ]
    assert inline[-1][0][-1] == (6, 6)
