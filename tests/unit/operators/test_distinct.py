"""Distinct against SELECT DISTINCT."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings

from millpond.errors import InternalError, InvalidError
from millpond.operators.distinct import Distinct
from millpond.operators.operator import Shape
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
SHAPE = Shape(SCHEMA, append_only=False)


@pytest.mark.parametrize("columns", [None, ("s",), ("x", "k")])
@settings(max_examples=10, deadline=None)
@given(given_deltas=deltas(SCHEMA, epochs=5), parallelism=parallelisms())
def test_it_is_select_distinct(
    columns: tuple[str, ...] | None, given_deltas: list[pa.Table], parallelism: int
) -> None:
    run = OperatorRun(Distinct(columns), [SHAPE], parallelism=parallelism)
    for number, delta in enumerate(given_deltas):
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        run.check_against(f"select distinct {', '.join(columns or SCHEMA.names)} from input0")
        if number % 2:
            run.compact()


NESTED = pa.schema([("l", pa.list_(pa.float64())), ("st", pa.struct([("x", pa.int64())]))])


@settings(max_examples=10, deadline=None)
@given(deltas(NESTED), parallelisms())
def test_nested_columns_too(given_deltas: list[pa.Table], parallelism: int) -> None:
    run = OperatorRun(Distinct(), [Shape(NESTED, append_only=False)], parallelism=parallelism)
    for delta in given_deltas:
        run.epoch(delta)
        run.check_against("select distinct * from input0")


def test_a_row_leaves_with_its_last_copy() -> None:
    schema = pa.schema([("s", pa.string())])
    run = OperatorRun(Distinct(), [Shape(schema, append_only=False)])
    assert row_counts(run.epoch(rows(schema, "+3 a", "+ b"))) == {("a",): 1, ("b",): 1}
    assert row_counts(run.epoch(rows(schema, "-2 a"))) == {}
    assert run.state("out").select(["s", "_n"]).to_pylist() != []
    assert row_counts(run.epoch(rows(schema, "- a", "+ c"))) == {("a",): -1, ("c",): 1}
    assert row_counts(run.epoch(rows(schema, "+ a"))) == {("a",): 1}


def test_senders_add_up_equal_rows() -> None:
    operator = Distinct(("s",))
    binding = operator.bind("d", (SHAPE,))
    sent = operator.prepare(binding, 0, rows(SCHEMA, "+ 1 0 a", "+ 2 0 a", "- 3 1 b", "+ 4 1 c", "- 5 1 c"))
    assert row_counts(sent) == {("a",): 2, ("b",): -1}
    assert sent.num_rows == 2
    hashes = sent.column("_h").to_pylist()
    assert hashes == sorted(hashes)


def test_nothing_is_sent_where_nobody_reads() -> None:
    run = OperatorRun(Distinct(), [SHAPE], wanted=False)
    assert run.epoch(rows(SCHEMA, "+ 1 0 a")).num_rows == 0
    assert row_counts(run.view()) == {(1, 0.0, "a"): 1}


def test_a_retraction_that_meets_no_row_is_our_bug() -> None:
    operator = Distinct()
    run = OperatorRun(operator, [SHAPE])
    with pytest.raises(InternalError, match="more rows were retracted"):
        run.epoch(rows(SCHEMA, "- 1 0 a"))


def test_what_is_known_of_the_output() -> None:
    binding = Distinct(("s", "k")).bind("d", (Shape(SCHEMA, append_only=True),))
    assert (binding.shape.append_only, binding.shape.key, binding.placed_by) == (True, ("s", "k"), ("s", "k"))
    assert binding.shape.schema.names == ["s", "k"]


def test_wrong_columns_are_refused() -> None:
    with pytest.raises(InvalidError, match="no column 'q'"):
        Distinct(("q",)).bind("d", (SHAPE,))
    with pytest.raises(InvalidError, match="at least one"):
        Distinct(()).bind("d", (SHAPE,))


def test_it_is_stored_and_comes_back() -> None:
    for operator in (Distinct(), Distinct(("s",))):
        assert codec.loads(codec.dumps(operator)) == operator
