"""Spark without ANSI mode, beside Spark's answers (`python -m tests.sql.spark.test_without_ansi` records them)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError, MillpondError
from millpond.pond import Pond
from tests.sql.spark.comparison import verdict
from tests.sql.spark.values import encoded

RECORDED = Path(__file__).with_name("without_ansi.json")


def recorded() -> dict[str, Any]:
    return json.loads(RECORDED.read_text("utf-8"))


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    with millpond.open(tmp_path_factory.mktemp("without_ansi") / "pond", engine="inline") as made:
        yield made


def answered(pond: Pond, sql: str) -> dict[str, Any]:
    try:
        result = pond.sql(sql, dialect="spark", ansi=False)
    except MillpondError as error:
        return {"error": str(error)}
    return {"rows": [[encoded(v) for v in row] for row in result.fetchall()]}


@pytest.mark.parametrize("sql", list(recorded()))
def test_reads(pond: Pond, sql: str) -> None:
    theirs, ours = recorded()[sql], answered(pond, sql)
    assert verdict(theirs, ours) == "same", f"Spark: {theirs}\nhere:  {ours}"


def test_a_view_keeps_the_mode_that_it_was_created_in(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, s STRING)", dialect="spark")
    query = "SELECT id, 10 / a AS q, CAST(s AS INT) AS n, a + 2147483647 AS m FROM t"
    pond.sql(f"CREATE MATERIALIZED VIEW v AS {query}", dialect="spark", ansi=False)
    pond.sql("INSERT INTO t VALUES (1, 0, 'x'), (2, 4, '7.9')", dialect="spark")
    pond.sql("FLUSH")
    assert pond.sql("SELECT * FROM v ORDER BY id").fetchall() == [
        (1, None, None, 2147483647),
        (2, 2.5, 7, -2147483645),
    ]
    pond.sql("DELETE FROM t WHERE id = 2")
    pond.sql("FLUSH")
    assert pond.sql("SELECT * FROM v").fetchall() == [(1, None, None, 2147483647)]
    assert pond.errors().num_rows == 0


def test_the_mode_of_a_session(pond: Pond) -> None:
    pond.sql("SET spark.sql.ansi.enabled = false; SET spark.sql.session.timeZone = UTC", dialect="spark")
    try:
        assert pond.sql("SHOW spark.sql.ansi.enabled", dialect="spark").fetchall() == [("false",)]
        assert pond.sql("SELECT 1 / 0", dialect="spark").fetchall() == [(None,)]
        with pytest.raises(InvalidError, match="division by zero"):
            pond.sql("SELECT 1 / 0", dialect="spark", ansi=True)
    finally:
        pond.sql("RESET spark.sql.ansi.enabled", dialect="spark")
    with pytest.raises(InvalidError, match="division by zero"):
        pond.sql("SELECT 1 / 0", dialect="spark")
    text = "SET spark.sql.ansi.enabled = false; SELECT 5 % 0; "
    assert pond.sql(text + "RESET spark.sql.ansi.enabled", dialect="spark").fetchall() == []


def test_the_mode_is_one_of_spark(pond: Pond) -> None:
    with pytest.raises(InvalidError, match="ansi is a mode of the dialect 'spark'"):
        pond.sql("SELECT 1", ansi=False)
    with pytest.raises(InvalidError, match="unrecognized configuration parameter"):
        pond.sql("SET spark.sql.shuffle.partitions = 5", dialect="spark")


def test_an_error_of_an_argument_stays_one(pond: Pond) -> None:
    with pytest.raises(InvalidError, match="stop"):
        pond.sql("SELECT 1.5 * CAST(raise_error('stop') AS DECIMAL(5, 1))", dialect="spark", ansi=False)


def record() -> None:
    from tests.sql.spark.oracle import Oracle

    oracle = Oracle()
    oracle.spark.conf.set("spark.sql.ansi.enabled", "false")
    answers = {
        sql: {k: v for k, v in oracle.answer(sql).items() if k in ("rows", "error")} for sql in recorded()
    }
    lines = [
        f"{json.dumps(sql, ensure_ascii=False)}: {json.dumps(answer, ensure_ascii=False)}"
        for sql, answer in answers.items()
    ]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    record()
