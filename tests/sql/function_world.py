"""A table that changes by chance, views that call functions, and an independent answer for each view."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb

import millpond
from millpond.pond import Pond
from tests.sql.world import Rows, plain

Row = tuple[int, int | None, str | None]


class FunctionWorld:
    """`views`: (SQL for the pond, what gives the same rows: SQL for DuckDB, or Python over the table)."""

    def __init__(
        self,
        path: Path,
        define: Callable[[Pond], object],
        views: Mapping[str, tuple[str, str | Callable[[list[Row]], Rows]]],
        seed: int,
        **settings: Any,
    ) -> None:
        self.rng = random.Random(seed)
        self.path = path
        self.settings = {"engine": "inline", "checks": True, **settings}
        self.views = views
        self.con = duckdb.connect()
        self.con.execute("create table t (id int primary key, x int, s text)")
        self.pond = self._open()
        self.pond.sql("CREATE TABLE t (id int PRIMARY KEY, x int, s text)")
        define(self.pond)
        for name, (sql, _) in views.items():
            self.pond.sql(f"CREATE MATERIALIZED VIEW {name} AS {sql}")

    def _open(self) -> Pond:
        return millpond.open(self.path, parallelism=self.rng.choice([1, 2, 3]), **self.settings)

    def epoch(self) -> None:
        """Rows come, change and go; then a restart, a compaction or another parallelism, or nothing."""
        rng = self.rng
        for _ in range(rng.randrange(1, 7)):
            key = rng.randrange(10)
            if rng.random() < 0.3:
                sql = f"DELETE FROM t WHERE id = {key}"
            elif rng.random() < 0.2:
                sql = f"UPDATE t SET x = x + 1 WHERE id <= {key}"
            else:
                x = rng.choice(["NULL", *map(str, range(-3, 6))])
                s = rng.choice(["NULL", "''", "'a'", "'cc'", "'abc'", "'c-c-c'", "'Ω c'"])
                sql = f"INSERT INTO t VALUES ({key}, {x}, {s})"
            self.pond.sql(sql)
            self.con.execute(sql.replace("INSERT", "INSERT OR REPLACE"))
        self.pond.sql("FLUSH")
        self.check()
        match rng.randrange(4):
            case 0:
                self.pond.close()
                self.pond = self._open()
            case 1:
                self.pond.compact()
            case 2:
                self.pond.rescale(rng.choice([1, 2, 3]))

    def check(self) -> None:
        """Every view is the batch answer over the table as it is (law 1)."""
        table = self.con.execute("from t order by id").fetchall()
        assert plain(self.pond.sql("SELECT * FROM t").fetchall()) == plain(table)
        for name, (sql, wanted) in self.views.items():
            given = plain(self.pond.sql(f"SELECT * FROM {name}").fetchall())
            right = plain(self.con.execute(wanted).fetchall()) if isinstance(wanted, str) else wanted(table)
            assert given == right, f"{name}: {sql}\n{self.pond.errors().to_pylist()[:3]}"

    def run(self, epochs: int) -> None:
        self.check()
        for _ in range(epochs):
            self.epoch()
        self.pond.close()
        self.con.close()
