"""Views over plain streams hold the rows they were sent."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import millpond
from millpond.operators.materialize import Materialize
from millpond.operators.operator import HERE, Shape
from millpond.plan import codec
from millpond.sources.memory import MemorySource
from tests.unit.operators.harness import (
    OperatorRun,
    assert_same_rows,
    deltas,
    parallelisms,
    row_counts,
    rows,
)

MORE = int(os.environ.get("MILLPOND_EXAMPLES", "1"))  # how many times more random examples

SCHEMA = pa.schema(
    [("k", pa.int64()), ("g", pa.float64()), ("s", pa.string()), ("l", pa.list_(pa.float64()))]
)


@settings(max_examples=30 * MORE, deadline=None)
@given(
    st.booleans().flatmap(lambda only: st.tuples(st.just(only), deltas(SCHEMA, append_only=only))),
    st.sampled_from([("k",), ("g", "s"), ()]),
    parallelisms(),
)
def test_the_view_is_the_multiset_of_its_input(
    input_: tuple[bool, list[pa.Table]], key: tuple[str, ...], parallelism: int
) -> None:
    append_only, script = input_
    run = OperatorRun(Materialize(key), [Shape(SCHEMA, append_only=append_only)], wanted=False)
    for number, delta in enumerate(script):
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        assert_same_rows(row_counts(run.view()), row_counts(run.inputs[0]), "view", "input")
        if number % 3 == 1:
            run.compact()


def test_rows_are_written_where_they_are() -> None:
    run = OperatorRun(Materialize(("k",)), [Shape(SCHEMA, append_only=True)], wanted=False)
    assert run.binding.placements == (HERE,)


def test_encoded_columns_are_stored_plain() -> None:
    schema = pa.schema([("s", pa.dictionary(pa.int32(), pa.string()))])
    run = OperatorRun(Materialize(("s",)), [Shape(schema, append_only=False)], wanted=False)
    run.epoch(pa.table([pa.array(["a", "b", "a"]).dictionary_encode()], schema=schema))
    assert row_counts(run.view()) == {("a",): 2, ("b",): 1}


def test_rows_come_back_by_the_key() -> None:
    schema = pa.schema([("k", pa.int64()), ("s", pa.string())])
    run = OperatorRun(Materialize(("s",)), [Shape(schema, append_only=False)], wanted=False)
    run.epoch(rows(schema, "+ 1 a", "+ 2 a", "+ 3 b"))
    run.epoch(rows(schema, "- 1 a"))
    from millpond.state.tables.table import KeySet

    keys = KeySet.of(pa.table({"s": ["a", "c"]}), ["s"])
    assert run.table("step/rows").lookup(keys).table.select(["k", "_w"]).to_pylist() == [{"k": 2, "_w": 1}]


def test_what_is_built_on_a_view_gets_its_rows(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    source = MemorySource(schema)
    with millpond.open(tmp_path / "pond", engine="inline", checks=True, durable=False) as pond:
        some = pond.stream("in", source).filter("v > 1").view("some")
        some.key_by("k").aggregate(n="count(*)").view("n")
        source.push([{"k": 1, "v": 1}, {"k": 1, "v": 2}, {"k": 1, "v": 3}])
        pond.drain()
        assert pond.read("n").to_pylist() == [{"k": 1, "n": 2}]


def test_the_plan_keeps_it() -> None:
    assert codec.loads(codec.dumps(Materialize(("k",)))) == Materialize(("k",))
