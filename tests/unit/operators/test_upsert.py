"""Tables with a key against a plain dict: changes one after the other, however they are cut into epochs."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.delta import assert_non_negative, with_weights
from millpond.errors import InvalidError
from millpond.operators.operator import Shape
from millpond.operators.upsert import Upsert
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, assert_same_rows, parallelisms, plain, row_counts

MORE = int(os.environ.get("MILLPOND_EXAMPLES", "1"))  # how many times more random examples

SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.float64()), ("x", pa.string())])
WITH_SEQUENCE = SCHEMA.append(pa.field("__seq", pa.int64()))

Row = tuple[int | None, float | None, str | None]
Step = tuple[str, Row]


class Table:
    """What a table is: a dict, and the deletes that met nothing."""

    def __init__(self, key: tuple[str, ...], **options: Any) -> None:
        self.key = [SCHEMA.names.index(name) for name in key]
        # the changes are commands in an order, not a multiset: each is in the input once
        self.run = OperatorRun(Upsert(key, "__seq"), [Shape(WITH_SEQUENCE, append_only=True)], **options)
        self.rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.refused = 0
        self.sequence = 0

    def epoch(self, steps: list[Step], **options: Any) -> pa.Table:
        for verb, row in steps:
            spot = tuple(plain(row[i]) for i in self.key)
            if verb == "put":
                self.rows[spot] = tuple(plain(value) for value in row)
            elif self.rows.pop(spot, None) is None:
                self.refused += 1
        columns = [pa.array([row[i] for _, row in steps], f.type) for i, f in enumerate(SCHEMA)]
        numbers = range(self.sequence, self.sequence + len(steps))
        self.sequence += len(steps)
        delta = pa.table([*columns, pa.array(numbers, pa.int64())], schema=WITH_SEQUENCE)
        delta = with_weights(delta, np.array([1 if verb == "put" else -1 for verb, _ in steps], np.int64))
        out = self.run.epoch(delta, **options)
        self.run.inputs = [WITH_SEQUENCE.empty_table()]
        return out

    def check(self) -> None:
        assert_same_rows(row_counts(self.run.output), Counter(self.rows.values()), "table", "dict")
        assert sum(row["_w"] for row in self.run.errors.to_pylist()) == self.refused


@pytest.fixture(autouse=True)
def deletes_are_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness refuses input that owes rows; a delete here is not a row that was ever sent."""

    def outputs_only(table: pa.Table, *, step: str | None = None, epoch: int | None = None) -> None:
        if step is None or not step.startswith("input"):
            assert_non_negative(table, step=step, epoch=epoch)

    monkeypatch.setattr("tests.unit.operators.harness.assert_non_negative", outputs_only)


rows_of = st.tuples(
    st.integers(0, 3) | st.none(),
    st.sampled_from([0.0, -0.0, float("nan"), 1.5, None]),
    st.sampled_from(["", "a", None]),
)
steps_of = st.lists(st.tuples(st.sampled_from(["put", "put", "delete"]), rows_of), max_size=20)


@settings(max_examples=40 * MORE, deadline=None)
@given(st.sampled_from([("k",), ("g",), ("g", "k")]), steps_of, st.data(), parallelisms())
def test_a_table_is_a_dict_however_it_is_cut(
    key: tuple[str, ...], steps: list[Step], data: st.DataObject, parallelism: int
) -> None:
    table = Table(key)
    while steps:
        cut = data.draw(st.integers(1, len(steps)))
        table.epoch(steps[:cut], parallelism=(parallelism + cut) % 7 + 1)
        table.check()
        steps = steps[cut:]
        if cut % 2:
            table.run.compact()


def test_a_row_put_again_replaces_the_old_one() -> None:
    table = Table(("k",))
    table.epoch([("put", (1, 1.0, "a"))])
    out = table.epoch([("put", (1, 2.0, "b")), ("put", (1, 3.0, "c"))])
    assert row_counts(out) == {(1, 1.0, "a"): -1, (1, 3.0, "c"): 1}
    assert table.epoch([("put", (1, 3.0, "c"))]).num_rows == 0  # the same again changes nothing
    table.check()


def test_a_delete_of_a_row_put_just_before_is_no_error() -> None:
    table = Table(("k",))
    assert table.epoch([("put", (1, 1.0, "a")), ("delete", (1, None, None))]).num_rows == 0
    assert table.run.errors.num_rows == 0
    table.epoch([("delete", (1, None, None)), ("put", (1, 2.0, "b"))])  # refused, and then put
    assert table.run.errors.to_pylist() == [{"row": '{"k":1}', "reason": "delete meets no row", "_w": 1}]
    table.check()


def test_a_delete_needs_the_key_alone() -> None:
    table = Table(("k",))
    table.epoch([("put", (1, 1.0, "a"))])
    assert row_counts(table.epoch([("delete", (1, None, None))])) == {(1, 1.0, "a"): -1}
    table.check()


@pytest.mark.parametrize("key", [(), ("nope",), ("__seq",)])
def test_a_key_that_is_none_is_refused(key: tuple[str, ...]) -> None:
    with pytest.raises(InvalidError):
        Upsert(key, "__seq").bind("step", (Shape(WITH_SEQUENCE, append_only=False),))


def test_the_plan_keeps_it() -> None:
    assert codec.loads(codec.dumps(Upsert(("k",), "__seq"))) == Upsert(("k",), "__seq")
