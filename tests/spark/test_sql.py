"""SQL on Spark gives what it gives inline: definitions, changes in their turn, views filled later (law 3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import millpond

SCRIPT = """
    CREATE TABLE t (id int PRIMARY KEY, x int, s text DEFAULT 'd');
    CREATE TABLE e (k int, at timestamp, WATERMARK FOR at AS at - INTERVAL '1 second') APPEND ONLY;
    CREATE MATERIALIZED VIEW v AS SELECT s, sum(x) AS total, count(*) AS n FROM t GROUP BY s;
    INSERT INTO t (id, x) VALUES (1, 1), (2, 2), (3, 3);
    INSERT INTO e VALUES (1, '2024-01-01'), (1, '2024-01-02'), (2, '2024-01-02 00:00:01');
    UPDATE t SET x = x + 1; UPDATE t SET s = 'odd' WHERE x % 2 = 1; DELETE FROM t WHERE id = 3;
    FLUSH;
    CREATE MATERIALIZED VIEW later AS SELECT k, max(at) AS last FROM e GROUP BY k;
    INSERT INTO t SELECT id + 10, x, s FROM t;
    FLUSH
"""
QUERIES = ("SELECT * FROM t ORDER BY ALL", "SELECT * FROM v ORDER BY ALL", "SELECT * FROM later ORDER BY ALL")


def run(path: Path, **settings: Any) -> list[Any]:
    with millpond.open(path, **settings) as pond:
        pond.sql(SCRIPT)
        assert pond.errors().num_rows == 0
        return [pond.sql(q).fetchall() for q in QUERIES]


def test_sql_on_spark(session: Any, tmp_path: Path) -> None:
    inline = run(tmp_path / "inline", engine="inline")
    assert run(tmp_path / "spark", spark=session, parallelism=2) == inline
    assert inline[1] == [("d", 4, 2), ("odd", 6, 2)]
