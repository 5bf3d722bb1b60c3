"""Seeded deltas with many rows, to stand beside the small ones that a random search makes; and `summed`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.delta import consolidate, with_weights
from millpond.operators.operator import Binding, Context, Inputs, StepResult


def churn(schema: pa.Schema, values: Sequence[Sequence[Any]], seed: int) -> Iterator[pa.Table]:
    """Without end: 50 rows come, a column's value out of its `values`, and up to 70 that live go."""
    random = np.random.default_rng(seed)
    live: list[tuple[Any, ...]] = []
    while True:
        born = [tuple(column[int(random.integers(len(column)))] for column in values) for _ in range(50)]
        dead = [
            live.pop(int(random.integers(len(live)))) for _ in range(min(len(live), int(random.integers(70))))
        ]
        live += born
        columns = [pa.array([row[i] for row in born + dead], f.type) for i, f in enumerate(schema)]
        yield with_weights(pa.table(columns, schema=schema), np.repeat([1, -1], [len(born), len(dead)]))


def summed(operator: Any) -> Any:
    """The operator, every output of which must be consolidated and not empty."""
    kind = type(operator)

    class Summed(kind):  # type: ignore[misc, valid-type]  # a subclass, so that it has the traits of the operator
        def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
            result: StepResult = kind.apply(self, ctx, binding, inputs)
            if result.out is not None:
                found = consolidate(result.out)
                assert 0 < found.num_rows == result.out.num_rows, (
                    f"not consolidated: {result.out.to_pylist()}"
                )
            return result

    made = object.__new__(Summed)
    made.__dict__.update(vars(operator))
    return made
