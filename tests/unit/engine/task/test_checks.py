"""The checks around operators: each catches the liar it is there for, and lets honest ones pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond import hashing
from millpond.engine.task.checks import check_result
from millpond.errors import InternalError
from millpond.operators.operator import Binding, Change, Shape, StepResult, by_key
from millpond.plan.nodes import Node
from millpond.state.tables.table_spec import TableSpec

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
LATEST = TableSpec("s/rows", SCHEMA, key=("k",))
WEIGHTS = TableSpec("s/bag", SCHEMA, key=("k",), rule="weights")


@dataclass
class Where:
    """As much of a context as the checks look at."""

    h_min: int = 0
    h_max: int = 2**64 - 1
    epoch: int = 7


def node(*, append_only: bool = False) -> Node:
    binding = Binding(Shape(SCHEMA, append_only), (by_key("k"),), (LATEST, WEIGHTS))
    return Node("s", None, ("in",), binding)  # type: ignore[arg-type]


def table(**columns: Any) -> pa.Table:
    kinds = {"k": pa.int64(), "v": pa.string(), "_w": pa.int64(), "_h": pa.uint64()}
    return pa.table({name: pa.array(values, kinds.get(name)) for name, values in columns.items()})


def check(result: StepResult, where: Where | None = None, *, append_only: bool = False) -> None:
    check_result(node(append_only=append_only), result, where or Where())  # type: ignore[arg-type]


HASH = int(hashing.hash_columns([pa.array([1], pa.int64())], 1)[0])


@pytest.mark.parametrize(
    "result",
    [
        StepResult(),
        StepResult(table(k=[1], v=["a"])),
        StepResult(table(k=[1], v=["a"], _w=[-2])),
        StepResult(table(k=[1])),  # pruned: nobody needs v
        StepResult(changes=(Change("s/rows", table(k=[1], v=["a"], _w=[0])),)),
        StepResult(changes=(Change("s/rows", table(k=[1], v=["a"], _h=[HASH])),)),
        StepResult(changes=(Change("s/bag", table(k=[1], v=["a"], _w=[-1])),)),
    ],
    ids=["nothing", "rows", "retraction", "pruned", "tombstone", "hashes", "weights"],
)
def test_honest_results_pass(result: StepResult) -> None:
    check(result)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (StepResult(table(k=[1], x=[1])), "columns that the schema does not"),
        (StepResult(pa.table({"k": ["1"]})), "column 'k' has another type than declared"),
        (StepResult(table(k=[1], v=["a"], _w=[0])), "rows of weight zero"),
        (StepResult(changes=(Change("s/other", table(k=[1])),)), "names a table the step does not have"),
        (StepResult(changes=(Change("s/rows", table(k=[1])),)), "lacks columns"),
        (StepResult(changes=(Change("s/rows", table(k=[1], v=["a"], _h=[5])),)), "has wrong hashes"),
    ],
)
def test_liars_are_caught_with_step_and_epoch(result: StepResult, said: str) -> None:
    with pytest.raises(InternalError, match=said) as caught:
        check(result)
    assert (caught.value.step, caught.value.epoch) == ("s", 7)


def test_an_append_only_step_takes_nothing_back() -> None:
    check(StepResult(table(k=[1], v=["a"], _w=[2])), append_only=True)
    with pytest.raises(InternalError, match="an append-only step retracted rows") as caught:
        check(StepResult(table(k=[1, 2], v=["a", "b"], _w=[-1, 1])), append_only=True)
    assert caught.value.detail == "1 rows"


def test_rows_of_another_task_are_caught() -> None:
    rows = table(k=[1], v=["a"])
    low = np.uint64(HASH)
    check(StepResult(changes=(Change("s/rows", rows),)), Where(int(low), int(low)))
    for where in (Where(h_min=HASH + 1), Where(h_max=HASH - 1)):
        with pytest.raises(InternalError, match="outside the task's hash range"):
            check(StepResult(changes=(Change("s/rows", rows),)), where)
        check(StepResult(changes=(Change("s/bag", rows),)), where)  # weights are sums: any task may add
