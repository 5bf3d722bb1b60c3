"""Expressions of macros are as short as if they had been written by hand."""

from __future__ import annotations

import re

import pytest

from millpond.sql.binding.bind import Binder
from millpond.sql.bound.expression_reader import read_expression
from millpond.sql.bound.expressions import BoundExpression
from millpond.sql.dialects.spark.translate import translated
from millpond.sql.lowering.expressions import StepColumn, render

COLUMNS = [StepColumn("a", "INTEGER"), StepColumn("d", "DECIMAL(10,2)"), StepColumn("l", "INTEGER[]")]


def plain(sql: str) -> str:
    """The text without the types of numbers."""
    while sql != (sql := re.sub(r"CAST\((\d+) AS INTEGER\)", r"\1", sql)):
        pass
    return sql


def bound(sql: str) -> BoundExpression:
    binder = Binder()
    binder.table("t", COLUMNS)
    return read_expression(binder.plan(f"SELECT {sql} AS named FROM t")["expressions"][0])


@pytest.mark.parametrize(
    ("sql", "short"),
    [
        ("invoke(lambda x: x + x, a)", '("a" + "a")'),
        ("invoke(lambda x, y: x - y, a, 2)", '("a" - 2)'),
        ("invoke(lambda x: x * 2, a + 1)", '(("a" + 1) * 2)'),
        ("invoke(lambda x: invoke(lambda y: y + x, x), a)", '("a" + "a")'),
        ("CASE WHEN false THEN 1 WHEN a > 0 THEN 2 ELSE 3 END", 'CASE WHEN ("a" > 0) THEN 2 ELSE 3 END'),
        ("CASE WHEN typeof(a) IS NULL OR false THEN 1 ELSE a END", '"a"'),
    ],
)
def test_short_forms(sql: str, short: str) -> None:
    found = bound(sql)
    assert found.alias == "named"
    assert plain(render(found, COLUMNS)) == short


@pytest.mark.parametrize(
    "sql",
    [
        "invoke(lambda x: x + x, a + 1)",  # would be computed twice
        "invoke(lambda x: CASE WHEN a > 0 THEN x ELSE 0 END, a // 0)",  # would be computed for some rows only
        "invoke(lambda x: list_transform(l, lambda e: e + x), a + 1)",  # would be computed for each element
    ],
)
def test_an_argument_is_computed_once(sql: str) -> None:
    assert "invoke" in render(bound(sql), COLUMNS)


def test_arithmetic_of_spark_is_one_operation() -> None:
    (sql,) = translated("SELECT d * 2 AS named FROM t")
    binder = Binder()
    binder.table("t", COLUMNS)
    found = render(read_expression(binder.plan(sql)["expressions"][0]), COLUMNS)
    assert "CASE" not in found and "invoke" not in found, found
