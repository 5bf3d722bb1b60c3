"""Random expressions: as a read and as a view they have the values that Spark gives.

The default run compares with recorded answers; `make slow` and `make fuzz` ask Spark itself with other seeds
(`MILLPOND_SPARK_FIRST`, `MILLPOND_SPARK_BATCHES`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.pond import Pond
from tests.sampling import first
from tests.sql.spark.comparison import answered
from tests.sql.spark.oracle import Answer, Oracle
from tests.sql.spark.random_expressions import TABLE, Maker
from tests.sql.spark.values import encoded, same

RECORDED = Path(__file__).with_name("expressions.json")
SIZE = 16  # expressions of one query


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    with millpond.open(tmp_path_factory.mktemp("random") / "pond", engine="inline") as made:
        made.sql(
            "CREATE TABLE t (id INT PRIMARY KEY, i INT, l BIGINT, f DOUBLE, d DECIMAL(10, 2), s STRING, b BOOLEAN, "
            "dt DATE, ts TIMESTAMP, ai ARRAY<INT>, at ARRAY<STRING>)",
            dialect="spark",
        )
        made.sql(f"INSERT INTO t {TABLE}", dialect="spark")
        made.sql("FLUSH")
        yield made


FROM = "FROM t ORDER BY id"


def each(ask: Callable[[str], Answer], expressions: list[str], source: str = FROM) -> list[Any]:
    """The values of each expression; an error divides the query, so that it is found by halves."""
    listed = ", ".join(f"{e} AS e{n}" for n, e in enumerate(expressions))
    answer = ask(f"SELECT {listed} {source}")
    if "error" not in answer:
        return [[row[n] for row in answer["rows"]] for n in range(len(expressions))]
    if len(expressions) == 1:
        return [None]
    half = len(expressions) // 2
    return each(ask, expressions[:half], source) + each(ask, expressions[half:], source)


def compared(
    pond: Pond, expressions: list[str], theirs: list[Any], source: str = FROM, *, ansi: bool = True
) -> list[str]:
    """The expressions with the values of Spark; those that are refused here are left out."""
    ours = each(lambda sql: answered(pond, sql, ansi=ansi), expressions, source)
    right = []
    for expression, there, here in zip(expressions, theirs, ours, strict=True):
        if here is None:
            continue
        if there is None and "TRY_CAST" in expression:
            continue  # Spark raises an error for some texts that are no times
        if there is None and ("NULL" in expression or "struct(" in expression):
            continue  # Spark refuses a NULL without a type in places, and computes fields that nobody reads
        assert there is not None, f"{expression} is an error in Spark, and gives {here}"
        assert same(there, here), f"{expression}\n  Spark: {there}\n  here:  {here}"
        right.append(expression)
    return right


def in_a_view(pond: Pond, expressions: list[str], theirs: dict[str, Any], *, ansi: bool = True) -> None:
    listed = ", ".join(f"{e} AS e{n}" for n, e in enumerate(expressions))
    pond.sql(f"CREATE MATERIALIZED VIEW v AS SELECT id, {listed} FROM t", dialect="spark", ansi=ansi)
    try:
        pond.drain()
        rows = [[encoded(v) for v in row] for row in pond.sql("SELECT * FROM v ORDER BY id").fetchall()]
        for n, expression in enumerate(expressions):
            assert same(theirs[expression], [row[n + 1] for row in rows]), f"{expression}, in a view"
    finally:
        pond.sql("DROP MATERIALIZED VIEW v")


@pytest.mark.parametrize("quarter", first(1, range(4)))
def test_recorded_expressions(quarter: int, pond: Pond) -> None:
    recorded: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))
    expressions = list(recorded)[quarter::4]
    refused = 0
    for start in range(0, len(expressions), SIZE):
        part = expressions[start : start + SIZE]
        right = compared(pond, part, [recorded[e] for e in part])
        refused += sum(recorded[e] is not None for e in part) - len(right)
        in_a_view(pond, right, recorded)
    assert refused <= len(expressions) // 20


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    made = Oracle()
    made.spark.sql(f"CREATE OR REPLACE TEMP VIEW t AS {TABLE}")
    return made


def _seeds() -> range:
    start, count = (
        int(os.environ.get(f"MILLPOND_SPARK_{n}", d)) for n, d in (("FIRST", "0"), ("BATCHES", "60"))
    )
    return range(start, start + count)


@pytest.mark.slow
@pytest.mark.parametrize("ansi", [True, False])
def test_fresh_expressions(pond: Pond, oracle: Oracle, ansi: bool) -> None:
    oracle.spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    for seed in _seeds():
        maker = Maker(seed, ansi=ansi)
        expressions = [maker.expression() for _ in range(SIZE)]
        theirs = each(oracle.answer, expressions)
        right = compared(pond, expressions, theirs, ansi=ansi)
        in_a_view(pond, right, dict(zip(expressions, theirs, strict=True)), ansi=ansi)


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["", "GROUP BY b ORDER BY b", "WHERE id > 100"])
def test_fresh_aggregates(pond: Pond, oracle: Oracle, rows: str) -> None:
    oracle.spark.conf.set("spark.sql.ansi.enabled", "true")
    for seed in _seeds()[:20]:
        maker = Maker(seed)
        aggregates = [maker.aggregate() for _ in range(SIZE)]
        source = f"FROM t {rows}"
        compared(pond, aggregates, each(oracle.answer, aggregates, source), source)
