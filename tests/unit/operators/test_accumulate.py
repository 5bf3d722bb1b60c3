"""Accumulate: what Python makes of a group's rows, whatever came and went, and however calls fail (laws 1 and 9)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings

from millpond.kernels.python_function import PythonFunction, Steps
from millpond.operators.accumulate import Accumulate, Call
from millpond.operators.operator import Shape
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("ok", pa.bool_())])


class Sum:
    """It cannot be told of multiples of seven; in slots, as a careful user writes it."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def accumulate(self, n: int) -> None:
        if n % 7 == 0:
            raise ValueError(n)
        self.total += n

    def retract(self, n: int) -> None:
        self.total -= n

    def finish(self) -> int:
        return self.total % 1_000_003


def count(state: dict[str, int], n: int | None) -> dict[str, int]:
    return {"all": state["all"] + 1, "none": state["none"] + (n is None)}


def uncount(state: dict[str, int], n: int | None) -> None:
    if not state["all"]:
        raise AssertionError("more went than came")
    state["all"] -= 1
    state["none"] -= n is None


def shown(state: dict[str, int]) -> str:
    return f"{state['none']} of {state['all']}"


def operator(key: tuple[str, ...]) -> Accumulate:
    total = PythonFunction("total#000000000001", (("n", "BIGINT"),), "BIGINT", "aggregate", function=Sum)
    steps = Steps(lambda: {"all": 0, "none": 0}, count, shown, uncount)
    counts = PythonFunction(
        "counts#000000000002", (("n", "BIGINT"),), "VARCHAR", "aggregate", nulls=True, function=steps
    )
    return Accumulate(key, (Call("total", total, ("n",), "ok"), Call("counts", counts, ("n",))))


def batch(found: Counter[tuple[Any, ...]], keyed: bool) -> tuple[Counter[Any], set[Any]]:
    """The same from scratch in plain Python: the rows, and the groups that fail."""
    groups: dict[Any, list[tuple[Any, ...]]] = {}
    for row, times in found.items():
        groups.setdefault(row[:1] if keyed else (), []).extend([row] * times)
    result: Counter[Any] = Counter()
    failed = set()
    for key, mine in groups.items():
        told = [n for _, n, ok in mine if ok and n is not None]
        if any(n % 7 == 0 for n in told):
            failed.add(key)
        else:
            none = sum(n is None for _, n, _ in mine)
            result[(*key, sum(told) % 1_000_003, f"{none} of {len(mine)}")] += 1
    return result, failed


@settings(max_examples=25, deadline=None)
@given(given_deltas=deltas(SCHEMA, epochs=5), parallelism=parallelisms())
def test_it_is_what_the_rows_give(given_deltas: list[pa.Table], parallelism: int) -> None:
    for key in (("k",), ()):
        run = OperatorRun(operator(key), [Shape(SCHEMA, append_only=False)], parallelism=parallelism)
        for number, delta in enumerate(given_deltas):
            run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
            wanted, failed = batch(row_counts(run.inputs[0]), bool(key))
            assert row_counts(run.output) == wanted
            assert sum(row_counts(run.errors).values()) == len(failed)
            assert all("total(): ValueError: " in row[1] for row in row_counts(run.errors))
            if number % 2:
                run.compact()


def test_where_no_row_can_go_no_rows_are_kept() -> None:
    made = operator(("k",))
    binding = made.bind("step", (Shape(SCHEMA, append_only=True),))
    assert [table.name for table in binding.tables] == ["step/out"]
    assert len(made.bind("step", (Shape(SCHEMA, append_only=False),)).tables) == 2


def test_it_is_stored_with_the_plan() -> None:
    made = operator(("k",))
    again = codec.loads(codec.dumps(made))
    assert again == made and again.calls[0].function.function().finish() == 0


def test_rows_that_came_and_went_do_not_hide_those_of_a_group_that_fails() -> None:
    run = OperatorRun(operator(("k",)), [Shape(SCHEMA, append_only=False)], parallelism=1)
    passing = [(sign, k) for k in range(1, 30) for sign in ("+", "-")]
    run.epoch(rows(SCHEMA, *(f"{sign} {k} 1 true" for sign, k in passing), "+ 0 7 true", "+ 40 7 true"))
    assert sum(row_counts(run.errors).values()) == 2
    run.epoch(rows(SCHEMA, "- 0 7 true", "+ 0 2 true"))
    assert list(row_counts(run.output)) == [(0, 2, "0 of 1")]
