"""Runs of several blocks: what holds for a few rows holds for many thousand (law 1)."""

from __future__ import annotations

from pathlib import Path

import millpond


def test_rows_are_found_behind_many_tombstones(tmp_path: Path) -> None:
    rows = 40_000
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=2) as pond:
        pond.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
        pond.sql("CREATE MATERIALIZED VIEW s AS SELECT count(*) AS n, sum(v) AS total FROM t")
        pond.sql(f"INSERT INTO t SELECT range, range FROM range({rows}); FLUSH")
        pond.sql("DELETE FROM t WHERE k % 2 = 0; UPDATE t SET v = 1 WHERE k % 2 = 1; FLUSH")
        pond.sql("INSERT INTO t VALUES (4, 7), (5, 8); FLUSH")
        kept = rows // 2
        assert pond.sql("SELECT n, total FROM s").fetchall() == [(kept + 1, kept - 1 + 7 + 8)]
        assert pond.lookup("t", 4).to_pylist()[0]["v"] == 7
        assert pond.lookup("t", 6).num_rows == 0
