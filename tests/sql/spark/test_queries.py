"""Queries with the answers that Spark gave (`python -m tests.sql.spark.test_queries` records them)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.pond import Pond
from tests.sql.spark.comparison import answered, equal_rows, verdict
from tests.sql.spark.values import encoded

RECORDED = Path(__file__).with_name("queries.json")
TIMES = """SELECT a, CAST(b AS TIMESTAMP) AS b, n FROM VALUES ('A1', '2021-01-01 00:00:00', 1),
 ('A1', '2021-01-01 00:04:30', 2), ('A1', '2021-01-01 00:06:00', 3), ('A2', '2021-01-01 00:01:00', 4),
 ('A3', NULL, 5), ('A2', '1969-12-31 23:58:00.5', 6) AS tab(a, b, n)"""


def recorded() -> dict[str, dict[str, Any]]:
    return json.loads(RECORDED.read_text("utf-8"))


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    with millpond.open(tmp_path_factory.mktemp("queries") / "pond", engine="inline") as made:
        made.sql("CREATE TABLE times (a STRING, b TIMESTAMP, n INT PRIMARY KEY)", dialect="spark")
        made.sql(f"INSERT INTO times {TIMES}", dialect="spark")
        made.sql("FLUSH")
        yield made


@pytest.mark.parametrize("sql", list(recorded()["reads"]))
def test_reads(pond: Pond, sql: str) -> None:
    theirs, ours = recorded()["reads"][sql], answered(pond, sql)
    assert verdict(theirs, ours) == "same", f"Spark: {theirs}\nhere:  {ours}"


def test_views(pond: Pond) -> None:
    """Windows over time are for views."""
    views = recorded()["views"]
    for n, sql in enumerate(views):
        pond.sql(f"CREATE MATERIALIZED VIEW v{n} AS {sql}", dialect="spark")
    pond.drain()
    for n, (sql, theirs) in enumerate(views.items()):
        ours = [[encoded(v) for v in row] for row in pond.sql(f"SELECT * FROM v{n}").fetchall()]
        assert equal_rows(theirs["rows"], ours), f"{sql}\nSpark: {theirs['rows']}\nhere:  {ours}"


def record() -> None:
    from tests.sql.spark.oracle import Oracle

    oracle = Oracle()
    oracle.spark.sql(f"CREATE OR REPLACE TEMP VIEW times AS {TIMES}")
    found = {
        kind: {
            sql: {k: v for k, v in oracle.answer(sql).items() if k in ("rows", "error")} for sql in queries
        }
        for kind, queries in recorded().items()
    }
    RECORDED.write_text(written(found), "utf-8")


def written(found: dict[str, dict[str, Any]]) -> str:
    parts = []
    for kind, answers in found.items():
        lines = [
            f"{json.dumps(sql, ensure_ascii=False)}: {json.dumps(a, ensure_ascii=False)}"
            for sql, a in answers.items()
        ]
        parts.append(f'"{kind}": {{\n' + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    record()
