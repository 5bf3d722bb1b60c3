"""A view of another pond, read by the workers of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import millpond


def test_workers_read_another_pond(session: Any, tmp_path: Path) -> None:
    up = millpond.open(tmp_path / "up", engine="inline", durable=False, retain_epochs=2, collect_every=1)
    up.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, who TEXT, n BIGINT)")
    up.insert("orders", [{"id": i, "who": "abc"[i % 3], "n": i} for i in range(300)])
    up.drain()
    with millpond.open(tmp_path / "down", spark=session, parallelism=2, durable=False) as down:
        down.sql(
            f"CREATE SOURCE orders WITH (connector = 'millpond', path = '{tmp_path / 'up'}', view = 'orders');"
            "CREATE MATERIALIZED VIEW totals AS SELECT who, count(*) AS orders, sum(n) AS n FROM orders GROUP BY who"
        )
        down.drain()
        for n in range(4):
            up.sql(f"UPDATE orders SET who = 'd' WHERE id % 7 = {n}; DELETE FROM orders WHERE id % 11 = {n}")
            up.drain()
        down.drain()
        wanted = up.sql("SELECT who, count(*), sum(n) FROM orders GROUP BY who ORDER BY who").fetchall()
        assert down.sql("SELECT * FROM totals ORDER BY who").fetchall() == wanted
    up.close()
