"""Map against the same projection as a batch query."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings

from millpond.errors import InvalidError
from millpond.operators.map import Map
from millpond.operators.operator import Shape
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("l", pa.list_(pa.int32()))])
SHAPE = Shape(SCHEMA, append_only=False)
COLUMNS = (("y", "x * 2"), ("k", "k"), ("t", "coalesce(s, '?') || k"), ("n", "len(l)"), ("f", "x::varchar"))
SQL = "select x * 2 as y, k, coalesce(s, '?') || k as t, len(l) as n, x::varchar as f from input0"


@settings(max_examples=10, deadline=None)
@given(deltas(SCHEMA), parallelisms())
def test_it_is_the_projection(given_deltas: list[pa.Table], parallelism: int) -> None:
    run = OperatorRun(Map(COLUMNS), [SHAPE], parallelism=parallelism)
    for number, delta in enumerate(given_deltas):
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        run.check_against(SQL)
    assert run.errors.num_rows == 0


@pytest.mark.parametrize("needed", [["y"], ["t", "n"], ["k"]])
def test_it_works_with_the_columns_it_requires(needed: list[str]) -> None:
    run = OperatorRun(Map(COLUMNS), [SHAPE], needed=needed)
    schema = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
    delta = rows(schema, "+ 1 0.5 a", "+ 2 NULL b").append_column(
        "l", pa.array([[1], None], SCHEMA.field("l").type)
    )
    run.epoch(delta.select([*SCHEMA.names, "_w"]))
    run.check_against(f"select {', '.join(f.name for f in run.schema)} from ({SQL})")
    assert run.output.num_rows == 2


def test_what_it_requires() -> None:
    operator = Map(COLUMNS)
    binding = operator.bind("m", (SHAPE,))
    assert operator.requires(binding, frozenset({"t"})) == (frozenset({"s", "k"}),)
    assert operator.requires(binding, frozenset({"y", "k"})) == (frozenset({"x", "k"}),)
    assert operator.requires(binding, frozenset()) == (frozenset(),)


def test_a_bad_row_is_an_error_until_it_is_taken_back() -> None:
    schema = pa.schema([("s", pa.string())])
    run = OperatorRun(Map((("n", "s::int"),)), [Shape(schema, append_only=False)])
    run.epoch(rows(schema, "+ 1", "+2 bad", "+ 3"))
    assert row_counts(run.output) == {(1,): 1, (3,): 1}
    ((row, reason),) = row_counts(run.errors)
    assert json.loads(row) == {"s": "bad"}
    assert "Could not convert string 'bad'" in reason
    assert run.errors.column("_w").to_pylist() == [2]
    run.epoch(rows(schema, "-2 bad"))
    assert run.errors.num_rows == 0


def test_what_is_known_of_the_input_is_known_of_the_output() -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.int64())])
    shape = Shape(schema, append_only=True, key=("id",), time="ts", watermark="w")
    kept = Map((("a", "id"), ("at_", "ts"), ("b", "v + 1"))).bind("m", (shape,)).shape
    assert (kept.append_only, kept.key, kept.time, kept.watermark) == (True, ("a",), "at_", "w")
    lost = Map((("a", "id + 0"), ("b", "ts + interval 1 hour"))).bind("m", (shape,)).shape
    assert (lost.key, lost.time, lost.watermark) == (None, None, None)


def test_volatile_functions_only_over_append_only_input() -> None:
    Map((("u", "uuid()"),)).bind("m", (Shape(SCHEMA, append_only=True),))
    with pytest.raises(InvalidError, match="retracts"):
        Map((("u", "uuid()"),)).bind("m", (SHAPE,))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((("a", "k"), ("A", "x")), "twice"),
        ((("_w", "k"),), "cannot be called"),
        ((("", "k"),), "cannot be called"),
        ((("a", "kk"),), "no column 'kk'"),
    ],
)
def test_wrong_columns_are_refused(columns: tuple[tuple[str, str], ...], message: str) -> None:
    with pytest.raises(InvalidError, match=message) as caught:
        Map(columns).bind("m", (SHAPE,))
    assert caught.value.step == "m"


def test_it_is_stored_and_comes_back() -> None:
    operator = Map(COLUMNS)
    binding = operator.bind("m", (SHAPE,))
    assert codec.loads(codec.dumps(operator)) == operator
    assert codec.loads(codec.dumps(binding)) == binding
