"""Branch: the ways are disjoint, and with the errors they are the input."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from millpond.errors import InvalidError
from millpond.operators.branch import Arm, Branch
from millpond.operators.operator import Shape
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
SHAPE = Shape(SCHEMA, append_only=False)


def has_text(row: Any) -> Any:
    return row.s


@pytest.mark.parametrize("python", [False, True])
@settings(max_examples=10, deadline=None)
@given(given_deltas=deltas(SCHEMA), parallelism=parallelisms())
def test_a_row_goes_the_first_way_that_is_true(
    python: bool, given_deltas: list[pa.Table], parallelism: int
) -> None:
    second = has_text if python else "s <> ''"
    run = OperatorRun(Branch(("k > 0", second, "s is null"), "way"), [SHAPE], parallelism=parallelism)
    for number, delta in enumerate(given_deltas):
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        run.check_against(
            "select *, (case when k > 0 then 0 when s <> '' then 1 when s is null then 2 else 3 end)::int "
            "as way from input0"
        )
    assert run.errors.num_rows == 0


def test_a_condition_is_asked_about_the_rows_that_are_left_and_once() -> None:
    seen: list[int] = []

    def look(row: Any) -> bool:
        seen.append(row.k)
        return bool(10 // row.k > 3)

    operator = Branch(("k = 0", look, "10 // k > 1"), "way")
    run = OperatorRun(operator, [SHAPE], parallelism=1)
    delta = rows(SCHEMA, "+ 0 a", "+ 2 b", "+ 5 c", "+ 9 d")
    out = operator.apply(run, operator.bind("b", (SHAPE,)), (delta,)).out  # type: ignore[arg-type]
    assert out is not None
    assert row_counts(out) == {(0, "a", 0): 1, (2, "b", 1): 1, (5, "c", 2): 1, (9, "d", 3): 1}
    assert sorted(seen) == [2, 5, 9]


@pytest.mark.parametrize("condition", ["s::int > 1", lambda row: int(row.s) > 1])
def test_a_row_on_which_a_condition_fails_is_one_error_and_goes_no_way(condition: Any) -> None:
    run = OperatorRun(Branch(("k = 1", condition), "way"), [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 x", "+2 2 y", "+ 3 5", "+ 4 0"))
    assert row_counts(run.output) == {(1, "x", 0): 1, (3, "5", 1): 1, (4, "0", 2): 1}
    assert [(row, n) for (row, _), n in row_counts(run.errors).items()] == [('{"k":2,"s":"y"}', 2)]
    run.epoch(rows(SCHEMA, "-2 2 y", "- 3 5"))
    assert row_counts(run.output) == {(1, "x", 0): 1, (4, "0", 2): 1}
    assert run.errors.num_rows == 0


def test_columns_that_nobody_needs_are_not_asked_for() -> None:
    operator = Branch(("k > 0",), "way")
    binding = operator.bind("b", (SHAPE,))
    assert operator.requires(binding, frozenset({"way"})) == (frozenset({"k"}),)
    run = OperatorRun(operator, [SHAPE], needed=["way"])
    run.epoch(rows(SCHEMA, "+ 1 a", "+ 0 b", "+ 2 c"))
    assert row_counts(run.output) == {(0,): 2, (1,): 1}


def test_an_arm_keeps_one_way_and_the_shape() -> None:
    shape = Shape(SCHEMA, append_only=True, key=("k",))
    both = Branch(("k > 0",), "way").bind("b", (shape,)).shape
    arm = Arm("way", 1)
    assert arm.bind("a", (both,)).shape == shape
    run = OperatorRun(arm, [both])
    run.epoch(rows(both.schema, "+ 1 a 0", "+ 0 b 1"))
    assert row_counts(run.output) == {(0, "b"): 1}


def test_a_column_of_truth_is_a_condition() -> None:
    schema = pa.schema([("k", pa.int64()), ("b", pa.bool_())])
    run = OperatorRun(Branch(("b -- as it is",), "way"), [Shape(schema, append_only=False)])
    run.epoch(rows(schema, "+ 1 true", "+ 2 false", "+ 3 NULL"))
    assert row_counts(run.output) == {(1, True, 0): 1, (2, False, 1): 1, (3, None, 1): 1}


def test_wrong_conditions_are_refused() -> None:
    for bad in ("k", "nothing > 1", "k >"):
        with pytest.raises(InvalidError) as caught:
            Branch((bad,), "way").bind("b", (SHAPE,))
        assert caught.value.step == "b"


def test_it_is_stored_and_comes_back() -> None:
    run = OperatorRun(codec.loads(codec.dumps(Branch(("k > 1", lambda row: row.s), "way"))), [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 a"))
    assert row_counts(run.output) == {(1, "a", 1): 1}
    assert codec.loads(codec.dumps(Arm("way", 2))) == Arm("way", 2)
