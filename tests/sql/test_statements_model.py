"""Random changes, cut into epochs anyhow: a table is what DuckDB's own table is after the same statements."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pytest

import millpond
from tests.sampling import first


def change(rng: random.Random, fresh: list[int]) -> str:
    n, m = rng.randrange(12), rng.randrange(5)
    if rng.random() < 0.35:
        fresh[0] += 1
        return f"INSERT INTO t VALUES ({fresh[0]}, {m}, 's{n}')"
    return rng.choice(
        [
            f"INSERT INTO t SELECT id + {fresh[0] + 100}, x, s FROM t WHERE x = {m} AND id < 3",
            f"UPDATE t SET x = x + 1 WHERE id = {n}",
            f"UPDATE t SET x = x * 2, s = s || 'y' WHERE id IN ({n}, {m})",
            "UPDATE t SET x = x + 1",
            f"UPDATE t SET x = (SELECT count(*) FROM t AS u WHERE u.x > {m}) WHERE id > {n}",
            f"UPDATE t AS a SET s = (SELECT min(s) FROM t) WHERE a.id = {n}",
            f"UPDATE t SET id = id + 100000 WHERE x = {m} AND id < 20",
            f"DELETE FROM t WHERE id = {n}",
            f"DELETE FROM t WHERE x = {m} AND s LIKE '%y'",
            f"UPDATE t SET x = 1000 // (x - {m})::int::tinyint WHERE id <> {n}",
        ]
    )


@pytest.mark.parametrize("seed", first(2, range(6)))
def test_a_table_is_what_duckdb_makes_of_the_same_changes(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    key = "PRIMARY KEY" if seed % 2 else ""
    con = duckdb.connect()
    con.execute("CREATE TABLE t (id int, x int, s text)")
    fresh = [0]
    with millpond.open(tmp_path / "p", engine="inline", parallelism=rng.choice([1, 3]), checks=True) as pond:
        pond.sql(f"CREATE TABLE t (id int {key}, x int, s text)")
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT x, count(*) AS n, max(s) AS s FROM t GROUP BY x")
        for _ in range(60):
            sql = change(rng, fresh)
            if "100000" in sql and key:  # keys that stay apart in both
                sql = sql.replace("id + 100000", f"id + {100_000 * (fresh[0] + 1)}")
                fresh[0] += 1
            if "INSERT INTO t SELECT" in sql:
                fresh[0] += 200
            pond.sql(sql)
            try:
                con.execute(sql)
            except duckdb.Error:
                con.execute("select 1").fetchall()  # refused there as here, whole
            if rng.random() < 0.15:
                pond.sql("FLUSH")
                same(pond, con)
        pond.sql("FLUSH")
        same(pond, con)


def same(pond: millpond.Pond, con: duckdb.DuckDBPyConnection) -> None:
    for query in (
        "SELECT * FROM t ORDER BY ALL",
        "SELECT x, count(*) AS n, max(s) AS s FROM t GROUP BY x ORDER BY ALL",
    ):
        wanted = con.execute(query).fetchall()
        assert pond.sql(query).fetchall() == wanted
    assert pond.sql("SELECT * FROM v ORDER BY ALL").fetchall() == wanted
