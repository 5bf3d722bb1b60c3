"""Filter against the same condition as a batch query."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings

from millpond.errors import InvalidError
from millpond.operators.filter import Filter
from millpond.operators.operator import Shape
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
SHAPE = Shape(SCHEMA, append_only=False)


@pytest.mark.parametrize(
    "predicate", ["k > 0", "x > 0 or s = 'a' and k is not null", "isnan(x)", "s is null"]
)
@settings(max_examples=10, deadline=None)
@given(given_deltas=deltas(SCHEMA), parallelism=parallelisms())
def test_it_is_the_condition(predicate: str, given_deltas: list[pa.Table], parallelism: int) -> None:
    run = OperatorRun(Filter(predicate), [SHAPE], parallelism=parallelism)
    for number, delta in enumerate(given_deltas):
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        run.check_against(f"select * from input0 where {predicate}")


def test_it_works_with_the_columns_it_requires() -> None:
    run = OperatorRun(Filter("k > 1"), [SHAPE], needed=["s"])
    assert run.asked == [["k", "s"]]
    run.epoch(rows(SCHEMA, "+ 1 0.5 a", "+ 2 NULL b"))
    run.check_against("select s from input0 where k > 1")


def test_a_bad_row_is_an_error_and_no_other() -> None:
    run = OperatorRun(Filter("s <> '' and s::int > 1"), [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 0.5 1", "+ 2 0 2", "+ 3 0 x", "+ 4 0 ''"))
    assert row_counts(run.output) == {(2, 0.0, "2"): 1}
    assert run.errors.num_rows == 1
    run.epoch(rows(SCHEMA, "- 3 0 x"))
    assert run.errors.num_rows == 0


def test_what_is_known_of_the_input_stays_known() -> None:
    shape = Shape(SCHEMA, append_only=True, key=("k",))
    assert Filter("k > 1").bind("f", (shape,)).shape == shape


def test_a_wrong_condition_is_refused_where_the_step_is_made() -> None:
    with pytest.raises(InvalidError, match="true or false") as caught:
        Filter("k + 1").bind("positive", (SHAPE,))
    assert caught.value.step == "positive"


def test_it_is_stored_and_comes_back() -> None:
    operator = Filter("k > 1 and x < 2")
    binding = operator.bind("f", (SHAPE,))
    assert codec.loads(codec.dumps((operator, binding))) == (operator, binding)
