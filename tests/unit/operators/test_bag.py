"""Tables without a key against a Counter that refuses to owe."""

from __future__ import annotations

import math
import os
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.delta import assert_non_negative, with_weights
from millpond.operators.bag import Bag
from millpond.operators.operator import Shape
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, assert_same_rows, parallelisms, plain, row_counts, rows

MORE = int(os.environ.get("MILLPOND_EXAMPLES", "1"))  # how many times more random examples

SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.float64()), ("l", pa.list_(pa.int64()))])
SMALL = pa.schema([("k", pa.int64()), ("s", pa.string())])


@pytest.fixture(autouse=True)
def input_may_owe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness refuses input that owes rows; refusing it is what this operator is for."""

    def outputs_only(table: pa.Table, *, step: str | None = None, epoch: int | None = None) -> None:
        if step is None or not step.startswith("input"):
            assert_non_negative(table, step=step, epoch=epoch)

    monkeypatch.setattr("tests.unit.operators.harness.assert_non_negative", outputs_only)


changes_of = st.tuples(
    st.integers(0, 2) | st.none(),
    st.sampled_from([0.0, -0.0, math.nan, None]),
    st.sampled_from([[], [1], None]),
    st.sampled_from([1, 1, 2, -1, -1, -3]),
)


@settings(max_examples=40 * MORE, deadline=None)
@given(st.lists(st.lists(changes_of, max_size=8), min_size=1, max_size=5), parallelisms())
def test_no_weight_falls_below_zero(script: list[list[Any]], parallelism: int) -> None:
    run = OperatorRun(Bag(), [Shape(SCHEMA, append_only=False)])
    held: Counter[tuple[Any, ...]] = Counter()
    refused = 0
    for number, changes in enumerate(script):
        columns = [pa.array([c[i] for c in changes], f.type) for i, f in enumerate(SCHEMA)]
        delta = pa.table(columns, schema=SCHEMA)
        run.epoch(
            with_weights(delta, np.array([c[3] for c in changes], np.int64)),
            parallelism=(parallelism + number) % 7 + 1,
        )
        for *row, weight in changes:
            held[tuple(plain(value) for value in row)] += weight
        for row_, weight in list(held.items()):  # at the end of the epoch, which is one multiset
            if weight < 0:
                refused -= weight
            if weight <= 0:
                del held[row_]
        assert_same_rows(row_counts(run.output), held, "bag", "counter")
        assert sum(row["_w"] for row in run.errors.to_pylist()) == refused
        if number % 2:
            run.compact()


def test_what_is_refused_is_an_error_with_its_row() -> None:
    run = OperatorRun(Bag(), [Shape(SMALL, append_only=False)])
    run.epoch(rows(SMALL, "+2 1 a", "- 2 b"))
    assert row_counts(run.output) == {(1, "a"): 2}
    assert run.errors.to_pylist() == [
        {"row": '{"k":2,"s":"b"}', "reason": "retraction meets no row", "_w": 1}
    ]
    out = run.epoch(rows(SMALL, "-5 1 a"))
    assert row_counts(out) == {(1, "a"): -2}
    assert sum(row["_w"] for row in run.errors.to_pylist()) == 4


def test_the_sequence_is_no_part_of_the_row() -> None:
    schema = SMALL.append(pa.field("__seq", pa.int64()))
    run = OperatorRun(Bag("__seq"), [Shape(schema, append_only=False)])
    run.epoch(rows(schema, "+ 1 a 5", "+ 1 a 6"))
    run.epoch(rows(schema, "- 1 a 7"))
    assert row_counts(run.output) == {(1, "a"): 1}


def test_encoded_columns_are_stored_plain() -> None:
    schema = pa.schema([("s", pa.dictionary(pa.int32(), pa.string()))])
    run = OperatorRun(Bag(), [Shape(schema, append_only=False)])
    assert run.binding.shape.schema.field("s").type == pa.string()
    run.epoch(pa.table([pa.array(["a", "b", "a"]).dictionary_encode()], schema=schema))
    assert row_counts(run.output) == {("a",): 2, ("b",): 1}


def test_the_plan_keeps_it() -> None:
    assert codec.loads(codec.dumps(Bag("__seq"))) == Bag("__seq")
