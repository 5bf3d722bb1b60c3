"""Union against UNION ALL."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings

from millpond.errors import InvalidError
from millpond.operators.operator import Shape
from millpond.operators.union import Union
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
SHAPE = Shape(SCHEMA, append_only=False)


@settings(max_examples=10, deadline=None)
@given(deltas(SCHEMA), deltas(SCHEMA), deltas(SCHEMA), parallelisms())
def test_it_is_union_all(
    one: list[pa.Table], two: list[pa.Table], three: list[pa.Table], parallelism: int
) -> None:
    run = OperatorRun(Union(), [SHAPE] * 3, parallelism=parallelism)
    for number in range(max(map(len, (one, two, three)))):
        given_deltas = [d[number] if number < len(d) else None for d in (one, two, three)]
        run.epoch(*given_deltas, parallelism=(parallelism + number) % 7 + 1)
        run.check_against("from input0 union all from input1 union all from input2")


def test_inputs_may_come_with_more_columns_than_asked_for() -> None:
    """Another step may need them of the same input."""
    operator = Union()
    binding = operator.bind("u", (SHAPE, SHAPE))
    run = OperatorRun(operator, [SHAPE, SHAPE])
    one, two = rows(SCHEMA, "+ 1 a"), rows(SCHEMA, "- 2 b").drop_columns(["k"])
    out = operator.apply(run, binding, (one, two)).out  # type: ignore[arg-type]
    assert out is not None
    assert row_counts(out) == {("a",): 1, ("b",): -1}


def test_hashes_of_different_keys_do_not_mix() -> None:
    operator = Union()
    run = OperatorRun(operator, [SHAPE, SHAPE])
    hashed = rows(SCHEMA, "+ 1 a").append_column("_h", pa.array([7], pa.uint64()))
    out = operator.apply(run, run.binding, (hashed, hashed)).out  # type: ignore[arg-type]
    assert out is not None
    assert out.column_names == ["k", "s", "_w"]


def test_what_is_known_of_all_inputs_is_known_of_the_output() -> None:
    timed = Shape(SCHEMA, append_only=True, key=("k",), time="k", watermark="w")
    both = Union().bind("u", (timed, timed)).shape
    assert (both.append_only, both.key, both.time, both.watermark) == (True, None, "k", "w")
    mixed = Union().bind("u", (timed, SHAPE)).shape
    assert (mixed.append_only, mixed.time, mixed.watermark) == (False, None, None)


def test_schemas_must_match() -> None:
    other = Shape(pa.schema([("k", pa.int32()), ("s", pa.string())]), append_only=True)
    with pytest.raises(InvalidError) as caught:
        Union().bind("both", (SHAPE, SHAPE, other))
    assert caught.value.step == "both"
    assert caught.value.detail == "column 'k' is int64 in input 1 and int32 in input 3"
    with pytest.raises(InvalidError, match="same columns"):
        Union().bind("both", (SHAPE, Shape(pa.schema([("s", pa.string()), ("k", pa.int64())]), True)))
    with pytest.raises(InvalidError, match="at least one"):
        Union().bind("both", ())
