"""The harness itself: what it must let pass, and the liars it must catch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings

from millpond import hashing
from millpond.delta import concat, consolidate, negate, weights, with_weights
from millpond.errors import InternalError
from millpond.operators.operator import (
    BROADCAST,
    HERE,
    Binding,
    Change,
    Context,
    Inputs,
    Placement,
    Shape,
    StepResult,
    by_key,
)
from millpond.operators.traits import FiresByTime
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec
from tests.unit.operators.harness import OperatorRun, assert_same_rows, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
SHAPE = Shape(SCHEMA, append_only=False)
BY_K, BY_V, ONE_TASK = by_key("k"), by_key("v"), by_key()


@dataclass(frozen=True)
class Pass:
    """Gives what it gets."""

    placement: Placement = HERE
    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        return Binding(inputs[0], (self.placement,))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed,)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        return StepResult(inputs[0])


@dataclass(frozen=True)
class Count(Pass):
    """Rows per key in a latest table that is the view; sums on the sender when asked to."""

    placement: Placement = BY_K

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        schema = pa.schema([("k", pa.int64()), ("n", pa.int64())])
        spec = TableSpec(f"{step}/out", schema, ("k",))
        shape = Shape(schema, append_only=False, key=("k",))
        return Binding(shape, (self.placement,), (spec,), view=spec.name)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        assert inputs[0] is not None
        keys = KeySet.of(inputs[0], ["k"])
        added = np.zeros(len(keys), np.int64)
        np.add.at(added, keys.inverse, weights(inputs[0]))
        found, old = ctx.table(f"{ctx.step}/out").lookup_one(keys)
        before = old.column("n").to_numpy()
        old = with_weights(old, found.astype(np.int64))
        new = old.set_column(1, "n", pa.array(before + added))
        new = with_weights(new, (before + added > 0).astype(np.int64))
        return StepResult(consolidate(concat([new, negate(old)])), (Change(f"{ctx.step}/out", new),))


COUNT_SQL = "select k, count(*) as n from input0 group by k"


@settings(max_examples=10, deadline=None)
@given(deltas(SCHEMA), parallelisms())
def test_a_correct_operator_passes(given_deltas: list[pa.Table], parallelism: int) -> None:
    run = OperatorRun(Count(), [SHAPE], parallelism=parallelism)
    for number, delta in enumerate(given_deltas):
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        run.check_against(COUNT_SQL)
        if number == 1:
            run.compact()
            assert len(run.refs) <= 1
    assert row_counts(run.view()) == row_counts(run.output)


@pytest.mark.parametrize("placement", [HERE, by_key("k"), by_key(), by_key("v", "k")])
def test_every_placement_brings_every_row_once(placement: Placement) -> None:
    run = OperatorRun(Pass(placement), [SHAPE], parallelism=5)
    run.epoch(rows(SCHEMA, "+3 1 a", "+ 2 b", "+ NULL ''"))
    run.epoch(rows(SCHEMA, "-2 1 a", "- NULL ''"))
    assert row_counts(run.output) == {(1, "a"): 1, (2, "b"): 1}
    run.check_against("select * from input0")


def test_broadcast_brings_every_row_to_every_task() -> None:
    once = replace(Pass(BROADCAST))
    with pytest.raises(AssertionError, match="canonical"):  # 3 copies at 3 tasks, 4 copies at 4
        OperatorRun(once, [SHAPE], parallelism=3).epoch(rows(SCHEMA, "+ 1 a"))


def test_rows_of_a_key_meet_in_the_task_that_owns_its_hash() -> None:
    seen: dict[int, set[int]] = {}

    @dataclass(frozen=True)
    class Look(Pass):
        placement: Placement = BY_K

        def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
            assert inputs[0] is not None
            hashes = inputs[0].column("_h").to_numpy()
            assert (hashes == hashing.hash_array(inputs[0].column("k"))).all()
            assert ((hashes >= np.uint64(ctx.h_min)) & (hashes <= np.uint64(ctx.h_max))).all()
            for key in inputs[0].column("k").to_pylist():
                seen.setdefault(key, set()).add(ctx.task)
            return StepResult(inputs[0])

    run = OperatorRun(Look(), [Shape(SCHEMA, append_only=True)], parallelism=4)
    Look.canonical = False
    run.epoch(rows(SCHEMA, *[f"+ {k} {v}" for k in range(8) for v in "abc"]))
    assert set(seen) == set(range(8))
    assert all(len(tasks) == 1 for tasks in seen.values())


def test_a_canonical_operator_that_depends_on_row_order_is_caught() -> None:
    @dataclass(frozen=True)
    class Liar(Pass):
        placement: Placement = ONE_TASK

        def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
            assert inputs[0] is not None
            return StepResult(inputs[0].slice(0, 1))

    run = OperatorRun(Liar(), [Shape(SCHEMA, append_only=True)])
    with pytest.raises(AssertionError, match="says it is canonical"):
        for _ in range(8):
            run.epoch(rows(SCHEMA, *[f"+ {k} a" for k in range(20)]))


def test_an_output_that_owes_rows_is_caught() -> None:
    @dataclass(frozen=True)
    class Debtor(Pass):
        def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
            assert inputs[0] is not None
            return StepResult(negate(inputs[0]))

    with pytest.raises(InternalError, match="negative weight"):
        OperatorRun(Debtor(), [SHAPE]).epoch(rows(SCHEMA, "+ 1 a"))


def test_an_input_that_owes_rows_is_the_tests_own_mistake() -> None:
    with pytest.raises(InternalError, match="negative weight"):
        OperatorRun(Pass(), [SHAPE]).epoch(rows(SCHEMA, "- 1 a"))


def test_another_schema_than_declared_is_caught() -> None:
    @dataclass(frozen=True)
    class Other(Pass):
        def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
            assert inputs[0] is not None
            out = inputs[0]
            return StepResult(out.set_column(0, "k", pc.cast(out.column("k"), pa.int32())))

    with pytest.raises(AssertionError, match="declared"):
        OperatorRun(Other(), [SHAPE]).epoch(rows(SCHEMA, "+ 1 a"))


def test_state_outside_the_hash_range_is_caught() -> None:
    @dataclass(frozen=True)
    class Misplaced(Count):
        placement: Placement = BY_V

    with pytest.raises(AssertionError, match="outside the hash range"):
        OperatorRun(Misplaced(), [SHAPE], parallelism=7).epoch(rows(SCHEMA, *[f"+ {k} a" for k in range(20)]))


def test_a_change_with_the_hash_of_another_key_is_caught() -> None:
    @dataclass(frozen=True)
    class Stale(Count):
        def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
            result = super().apply(ctx, binding, inputs)
            (change,) = result.changes
            wrong = pa.array(np.full(change.rows.num_rows, ctx.h_min, np.uint64))
            return replace(result, changes=(replace(change, rows=change.rows.append_column("_h", wrong)),))

    with pytest.raises(AssertionError, match="hash of another key"):
        OperatorRun(Stale(), [SHAPE]).epoch(rows(SCHEMA, "+ 1 a"))


def test_a_view_that_is_not_the_output_is_caught() -> None:
    @dataclass(frozen=True)
    class Forgetful(Count):
        def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
            return replace(super().apply(ctx, binding, inputs), changes=())

    with pytest.raises(AssertionError, match="view differs"):
        OperatorRun(Forgetful(), [SHAPE]).epoch(rows(SCHEMA, "+ 1 a"))


def test_two_rows_for_one_key_are_caught() -> None:
    @dataclass(frozen=True)
    class Twice(Pass):
        def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
            return Binding(replace(inputs[0], key=("k",)), (HERE,))

    with pytest.raises(AssertionError, match="two rows for one key"):
        OperatorRun(Twice(), [SHAPE]).epoch(rows(SCHEMA, "+ 1 a", "+ 1 b"))


def test_a_wrong_answer_is_caught_by_the_batch_query() -> None:
    run = OperatorRun(Pass(), [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 a", "+ 2 b"))
    with pytest.raises(AssertionError, match=re.escape("too many: {(1, 'a'): 1}")):
        run.check_against("select * from input0 where k > 1")


def test_floats_may_be_compared_with_a_tolerance() -> None:
    schema = pa.schema([("x", pa.float64())])
    run = OperatorRun(Pass(), [Shape(schema, append_only=False)])
    run.epoch(rows(schema, "+ 0.1", "+ NaN", "+ 2.5"))
    run.check_against("select x + 1e-12 as x from input0", close=1e-9)
    with pytest.raises(AssertionError):
        run.check_against("select x + 1e-12 as x from input0")
    with pytest.raises(AssertionError):
        run.check_against("select x + 1e-3 as x from input0", close=1e-9)


def test_idle_epochs_call_nobody_who_is_not_due() -> None:
    run = OperatorRun(Pass(), [SHAPE])
    run.idle(watermark=5)
    assert run.calls == 0


def test_an_operator_is_woken_when_it_is_due_and_dropped_buckets_are_gone() -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64())])

    @dataclass(frozen=True)
    class Late(Pass, FiresByTime):
        """Keeps rows in buckets of 10 and sends them when the bound passes their bucket."""

        placement: Placement = BY_K

        def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
            spec = TableSpec(f"{step}/rows", schema, ("k",), rule="weights", time="t", bucket_width=10)
            return Binding(replace(inputs[0], append_only=True), (self.placement,), (spec,))

        def due(
            self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
        ) -> bool:
            return "step/rows" in earliest and earliest["step/rows"] < watermarks.get("up", 0) // 10

        def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
            changes = () if inputs[0] is None else (Change("step/rows", inputs[0].drop_columns(["_h"])),)
            bound = ctx.watermark("up")
            if bound is None:
                return StepResult(None, changes)
            held = ctx.table("step/rows").scan()
            over = held.filter(pc.less(held.column("t"), bound // 10 * 10))
            return StepResult(over, changes, drops=(("step/rows", bound // 10),))

    run = OperatorRun(Late(), [Shape(schema, append_only=True, time="t", watermark="up")])
    run.epoch(rows(schema, "+ 1 3", "+ 2 12", "+ 3 25"))
    calls = run.calls
    run.idle(watermark={"up": 9})
    assert run.calls == calls
    run.idle(watermark={"up": 20})
    assert row_counts(run.output) == {(1, 3): 1, (2, 12): 1}
    assert {ref.bucket for ref in run.refs} == {2}
    assert row_counts(run.state("rows")) == {(3, 25): 1}


@settings(max_examples=50, deadline=None)
@given(deltas(SCHEMA, epochs=6, rows_max=8))
def test_random_deltas_never_owe_a_row(given_deltas: list[pa.Table]) -> None:
    total = rows(SCHEMA)
    for delta in given_deltas:
        assert delta.schema.remove(2) == SCHEMA
        total = consolidate(concat([total, delta]))
        assert (weights(total) > 0).all()


@settings(max_examples=10, deadline=None)
@given(deltas(SCHEMA, append_only=True, nullable=False))
def test_append_only_deltas_only_add(given_deltas: list[pa.Table]) -> None:
    for delta in given_deltas:
        assert (weights(delta) > 0).all()
        assert not any(column.null_count for column in delta.columns)


def test_rows_are_compared_by_canonical_value() -> None:
    schema = pa.schema([("x", pa.float64()), ("l", pa.list_(pa.float64()))])
    one = pa.table({"x": [0.0, float("nan")], "l": [[-0.0], None]}, schema=schema)
    two = pa.table({"x": [float("nan"), -0.0], "l": [None, [0.0]]}, schema=schema)
    assert_same_rows(row_counts(one), row_counts(two))
