"""DistinctValues against DuckDB's DISTINCT aggregates under conditions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from millpond.errors import InternalError, InvalidError
from millpond.operators.distinct_values import DistinctValues
from millpond.operators.operator import Shape
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("a", pa.bool_()), ("b", pa.bool_())])
COLUMNS = (("every", None), ("of_a", "a"), ("of_b", "b"))
WANTED = """
    select k, v as every, case when bool_or(a) then v end as of_a, case when bool_or(b) then v end as of_b
    from input0 where v is not null group by k, v
"""
ONLY = """
    select k, case when bool_or(a) then v end as of_a, case when bool_or(b) then v end as of_b
    from input0 where v is not null and (a or b) group by k, v
"""


@pytest.mark.parametrize("append_only", [False, True])
@pytest.mark.parametrize(("columns", "wanted"), [(COLUMNS, WANTED), (COLUMNS[1:], ONLY)])
@settings(max_examples=10, deadline=None)
@given(given_deltas=deltas(SCHEMA, epochs=5), parallelism=parallelisms())
def test_each_value_once_with_its_conditions(
    columns: tuple[tuple[str, str | None], ...],
    wanted: str,
    append_only: bool,
    given_deltas: list[pa.Table],
    parallelism: int,
) -> None:
    run = OperatorRun(
        DistinctValues(("k",), "v", columns), [Shape(SCHEMA, append_only)], parallelism=parallelism
    )
    for number, delta in enumerate(given_deltas):
        if append_only:
            delta = delta.filter(pa.array(np.asarray(delta["_w"]) > 0))
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        run.check_against(wanted)
        if number % 2:
            run.compact()


WIDE = pa.schema([("s", pa.string()), ("k", pa.int32()), ("v", pa.timestamp("us")), ("a", pa.bool_())])


@pytest.mark.parametrize("append_only", [False, True])
def test_many_rows_too(append_only: bool) -> None:
    """Enough of them that they are packed into words, with NULL in every column."""
    run = OperatorRun(
        DistinctValues(("s", "k"), "v", (("every", None), ("of_a", "a"))),
        [Shape(WIDE, append_only)],
        parallelism=3,
    )
    chance = np.random.default_rng(7)
    for _ in range(3):
        count = 20_000
        columns = [
            pa.array(chance.choice(["x", "why", "zed"], count), mask=chance.random(count) < 0.1),
            pa.array(chance.integers(-3, 3, count).astype(np.int32), mask=chance.random(count) < 0.1),
            pa.array(chance.integers(0, 100, count), pa.timestamp("us"), mask=chance.random(count) < 0.1),
            pa.array(chance.random(count) < 0.01, mask=chance.random(count) < 0.1),
        ]
        run.epoch(pa.table(columns, schema=WIDE))
        run.check_against(
            "select s, k, v as every, case when bool_or(a) then v end as of_a"
            " from input0 where v is not null group by s, k, v"
        )


def test_a_value_that_is_known_costs_nothing() -> None:
    run = OperatorRun(DistinctValues(("k",), "v", COLUMNS), [Shape(SCHEMA, append_only=True)])
    first = run.epoch(rows(SCHEMA, "+ 1 0.5 true false"))
    assert row_counts(first) == {(1, 0.5, 0.5, None): 1}
    runs = len(run.refs)
    assert row_counts(run.epoch(rows(SCHEMA, "+ 1 0.5 true false", "+ 1 0.5 false false"))) == {}
    assert len(run.refs) == runs
    assert row_counts(run.epoch(rows(SCHEMA, "+ 1 0.5 false true"))) == {
        (1, 0.5, 0.5, None): -1,
        (1, 0.5, 0.5, 0.5): 1,
    }


def test_a_value_leaves_with_its_last_row() -> None:
    run = OperatorRun(DistinctValues(("k",), "v", COLUMNS), [Shape(SCHEMA, append_only=False)])
    run.epoch(rows(SCHEMA, "+ 1 0.5 true false", "+2 1 0.5 false false"))
    gone = run.epoch(rows(SCHEMA, "- 1 0.5 true false"))
    assert row_counts(gone) == {(1, 0.5, 0.5, None): -1, (1, 0.5, None, None): 1}
    assert row_counts(run.epoch(rows(SCHEMA, "-2 1 0.5 false false"))) == {(1, 0.5, None, None): -1}


def test_more_retracted_than_there_is() -> None:
    run = OperatorRun(DistinctValues(("k",), "v", COLUMNS), [Shape(SCHEMA, append_only=False)])
    with pytest.raises(InternalError, match="more rows were retracted"):
        run.epoch(rows(SCHEMA, "- 1 0.5 true false"))


def test_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidError, match="no column 'c'"):
        DistinctValues(("k",), "v", (("x", "c"),)).bind("d", (Shape(SCHEMA, append_only=True),))


def test_it_is_stored() -> None:
    operator = DistinctValues(("k",), "v", COLUMNS)
    assert codec.loads(codec.dumps(operator)) == operator
