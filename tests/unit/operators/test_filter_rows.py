"""FilterRows: a Python condition, one bad row alone."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from millpond.errors import UnavailableError
from millpond.kernels.python_rows import Row
from millpond.operators.filter_rows import FilterRows
from millpond.operators.operator import Shape
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
SHAPE = Shape(SCHEMA, append_only=False, key=("k",), time=None)
LOOSE = Shape(SCHEMA, append_only=False)


def short(row: Row) -> Any:
    return row.s and len(row.s) < 2  # None, "", True or False


@settings(max_examples=10, deadline=None)
@given(deltas(SCHEMA), parallelisms())
def test_it_is_the_condition_over_all_rows(given_deltas: list[pa.Table], parallelism: int) -> None:
    run = OperatorRun(FilterRows(short), [LOOSE], parallelism=parallelism)
    for number, delta in enumerate(given_deltas):
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        run.check_against("select * from input0 where s <> '' and len(s) < 2")
    assert run.errors.num_rows == 0


def test_a_bad_row_is_an_error_that_goes_away_with_it() -> None:
    def picky(row: Row) -> bool:
        if row.s == "bad":
            raise ValueError("not this one")
        return bool(row.k > 1)

    run = OperatorRun(FilterRows(picky), [LOOSE])
    run.epoch(rows(SCHEMA, "+ 1 a", "+ 2 b", "+2 3 bad"))
    assert row_counts(run.output) == {(2, "b"): 1}
    ((row, reason),) = row_counts(run.errors)
    assert json.loads(row) == {"k": 3, "s": "bad"}
    assert reason == f"ValueError: not this one (test_filter_rows.py:{picky.__code__.co_firstlineno + 2})"
    run.epoch(rows(SCHEMA, "-2 3 bad"))
    assert run.errors.num_rows == 0


def test_the_shape_stays_and_all_columns_are_seen() -> None:
    operator = FilterRows(short)
    binding = operator.bind("f", (SHAPE,))
    assert binding.shape == SHAPE
    assert operator.requires(binding, frozenset({"k"})) == (frozenset({"k", "s"}),)


def test_an_error_of_ours_stops_the_epoch() -> None:
    def away(row: Row) -> Any:
        raise UnavailableError("the server is away")

    with pytest.raises(UnavailableError):
        OperatorRun(FilterRows(away), [LOOSE]).epoch(rows(SCHEMA, "+ 1 a"))


def test_it_is_stored_and_comes_back() -> None:
    least = 2
    run = OperatorRun(codec.loads(codec.dumps(FilterRows(lambda row: row.k >= least))), [LOOSE])
    run.epoch(rows(SCHEMA, "+ 1 a", "+ 2 b"))
    assert row_counts(run.output) == {(2, "b"): 1}
