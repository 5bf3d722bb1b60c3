"""Reading bound plans: what is known becomes typed, the rest is refused with its place."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from millpond.sql.binding.bind import Binder
from millpond.sql.bound.expressions import (
    BoundExpression,
    Cast,
    Comparison,
    Constant,
    CurrentTime,
    MonthsDaysMicros,
    mapped,
    references,
)
from millpond.sql.bound.reader import read_plan
from millpond.sql.bound.relations import BoundProject, nodes_of
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.refusal import NotSupported


@pytest.fixture(scope="module")
def binder() -> Binder:
    found = Binder()
    found.table("t", [StepColumn("id", "INTEGER"), StepColumn("b", "VARCHAR"), StepColumn("l", "INTEGER[]")])
    return found


def output(binder: Binder, text: str) -> BoundExpression:
    """Return the bound expression of a text over t, without casts around it."""
    plan = read_plan(binder.plan(f"select {text} from t"))
    assert isinstance(plan, BoundProject)
    found = plan.outputs[0]
    while isinstance(found, Cast):
        found = found.argument
    return found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("12345678901234567890123456789012345.678", Decimal("12345678901234567890123456789012345.678")),
        ("-0.05", Decimal("-0.05")),
        ("170141183460469231731687303715884105727", 2**127 - 1),
        ("'it''s'", "it's"),
        ("true", True),
        ("NULL", None),
    ],
)
def test_constants(binder: Binder, text: str, value: Any) -> None:
    found = output(binder, text)
    assert isinstance(found, Constant) or text.startswith("-")
    written = binder.constant(f"select {render(found, ())} as v").column(0)[0].as_py()
    assert written == value


def test_a_nested_constant_and_an_interval(binder: Binder) -> None:
    plan = binder.plan(
        "select * from generate_series(TIMESTAMP '2024-01-01', TIMESTAMP '2024-01-02', INTERVAL '1 day 2 hours')"
    )
    parameters = next(node for node in nodes_of(read_plan(plan)) if not node.inputs).parameters  # type: ignore[attr-defined]
    assert parameters[2].value == MonthsDaysMicros(0, 1, 7_200_000_000)


def test_equal_wherever_they_stand(binder: Binder) -> None:
    one, two = output(binder, "id > 1 or id > 1").children
    assert one == two and one.at != two.at
    assert isinstance(one, Comparison) and one.how == ">"
    assert output(binder, "id > 2") != one


def test_now_is_recognized(binder: Binder) -> None:
    assert isinstance(output(binder, "now()"), CurrentTime)
    assert isinstance(output(binder, "current_date"), CurrentTime)
    assert output(binder, "proctime()").stamp  # type: ignore[attr-defined]


def test_a_function_that_nobody_knows_passes(binder: Binder) -> None:
    plan = binder.plan("select upper(b) from t")
    plan["expressions"][0]["qname"]["path"][-1] = "to_char"
    (found,) = read_plan(plan).expressions
    assert render(found, [StepColumn("b", "VARCHAR")]) == '"to_char"("b")'


def test_an_unknown_relation_is_refused(binder: Binder) -> None:
    with pytest.raises(NotSupported, match="positional_join is not supported"):
        read_plan(binder.plan("select * from t positional join t as s"))


def test_an_unknown_expression_is_refused_with_its_place(binder: Binder) -> None:
    plan = binder.plan("select upper(b) from t")
    plan["expressions"][0]["expression_class"] = "BOUND_SURPRISE"
    with pytest.raises(NotSupported, match="upper is not supported") as refused:
        read_plan(plan)
    assert refused.value.at == (7, 8)


@pytest.mark.parametrize(
    "text",
    [
        "case when id > 1 then b when id < 0 then 'x' else upper(b) end",
        "coalesce(b, id::varchar)",
        "list_transform(l, lambda x: x + id)",
        "sum(id order by b) filter (where b > 'a')",
        "sum(id order by b) filter (where id > 1) over (partition by b order by id rows between 2 preceding and id following)",
    ],
)
def test_children_are_put_back_in_order(binder: Binder, text: str) -> None:
    for node in nodes_of(read_plan(binder.plan(f"select {text} from t"))):
        for expression in node.expressions:
            assert mapped(expression, lambda child: child) == expression
            assert set(references(expression)) <= {0, 1, 2}
