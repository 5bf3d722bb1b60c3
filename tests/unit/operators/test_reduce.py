"""Reduce: the fold of a key's rows in their total order, whatever came and went (law 1)."""

from __future__ import annotations

import functools
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from millpond.operators.operator import Shape
from millpond.operators.reduce import Reduce
from millpond.plan import codec
from tests.unit.operators.harness import OperatorRun, deltas, parallelisms, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("s", pa.string())])
SHAPE = Shape(SCHEMA, append_only=False)


@dataclass
class Rest:
    n: int | None
    s: str | None


def joined(a: Any, b: Any) -> Any:
    """Neither commutative nor associative: the order shows."""
    return {"n": (a.n or 0) * 3 % 1000 - (b.n or 0) % 1000, "s": f"({a.s}{b.s})"}


def with_key(a: Any, b: Any) -> Any:
    return (a.k, *joined(a, b).values())


def as_dataclass(a: Any, b: Any) -> Any:
    return Rest(**joined(a, b))


def folded(found: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """The same in plain Python: NULLs come last, as in the total order of rows."""

    class Plain:
        def __init__(self, k: Any, n: Any, s: Any) -> None:
            self.k, self.n, self.s = k, n, s

    by_key: dict[Any, list[tuple[Any, ...]]] = {}
    for row, times in found.items():
        by_key.setdefault(row[0], []).extend([row] * times)
    result: Counter[tuple[Any, ...]] = Counter()
    for key, mine in by_key.items():
        mine.sort(key=lambda row: tuple((v is None, v if v is not None else 0) for v in row[1:]))
        last = functools.reduce(lambda a, b: Plain(key, **joined(a, b)), [Plain(*row) for row in mine])
        result[(key, last.n, last.s)] += 1
    return result


@pytest.mark.parametrize("function", [joined, with_key, as_dataclass])
@settings(max_examples=15, deadline=None)
@given(given_deltas=deltas(SCHEMA, epochs=5), parallelism=parallelisms())
def test_it_is_the_fold_in_total_order(function: Any, given_deltas: list[pa.Table], parallelism: int) -> None:
    run = OperatorRun(Reduce(("k",), function), [SHAPE], parallelism=parallelism)
    for number, delta in enumerate(given_deltas):
        run.epoch(delta, parallelism=(parallelism + number) % 7 + 1)
        assert row_counts(run.output) == folded(row_counts(run.inputs[0]))
        if number % 2:
            run.compact()
    assert run.errors.num_rows == 0


def test_one_row_per_key_that_can_be_looked_up_by_it() -> None:
    binding = Reduce(("k",), joined).bind("r", (Shape(SCHEMA, append_only=True),))
    assert (binding.shape.key, binding.shape.append_only, binding.placed_by) == (("k",), False, ("k",))


def test_nanoseconds_of_a_row_alone_are_kept() -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("ns"))])
    run = OperatorRun(Reduce(("k",), joined), [Shape(schema, append_only=False)])
    delta = pa.table({"k": [1], "t": pa.array([1_001], pa.timestamp("ns"))}, schema=schema)
    run.epoch(delta)
    assert run.output.column("t").cast(pa.int64()).to_pylist() == [1_001]


@pytest.mark.parametrize(
    ("given_back", "reason"),
    [
        ({"n": 1}, "ValueError: row has columns n; declared k, n, s"),
        ((1,), "ValueError: row has 1 values; declared k, n, s"),
        (None, "TypeError: rows must be dicts or tuples, not NoneType"),
        ({"k": 2, "n": 1, "s": "x"}, "ValueError: changed the key column 'k' from 1 to 2"),
        ({"n": "x", "s": "x"}, "TypeError: column 'n' must be int64: "),
        ({"n": 1.5, "s": "x"}, "TypeError: column 'n' must be int64: 1.5 is not a whole number"),
    ],
)
def test_a_key_on_which_it_fails_is_an_error_that_goes_away(given_back: Any, reason: str) -> None:
    def bad(a: Any, b: Any) -> Any:
        return given_back

    run = OperatorRun(Reduce(("k",), bad), [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 1 a", "+ 1 2 b", "+ 2 1 a"))
    assert row_counts(run.output) == {(2, 1, "a"): 1}
    ((row, found),) = row_counts(run.errors)
    assert json.loads(row) == {"k": 1}
    assert found.startswith(reason), found
    assert f"(test_reduce.py:{bad.__code__.co_firstlineno}" in found
    run.epoch(rows(SCHEMA, "- 1 1 a"))
    assert run.errors.num_rows == 0
    assert row_counts(run.output) == {(1, 2, "b"): 1, (2, 1, "a"): 1}


def test_it_is_stored_and_comes_back() -> None:
    plus = 10
    operator = Reduce(("k",), lambda a, b: {"n": a.n + b.n + plus, "s": a.s})
    run = OperatorRun(codec.loads(codec.dumps(operator)), [SHAPE])
    run.epoch(rows(SCHEMA, "+ 1 1 a", "+ 1 2 b"))
    assert row_counts(run.output) == {(1, 13, "a"): 1}
