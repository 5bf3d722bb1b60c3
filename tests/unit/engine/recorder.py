"""An operator for tests that asks for the origin of its rows, and tells in which order they came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millpond.operators.operator import Binding, Context, Inputs, Shape, StepResult, by_key


def recorder(asks: bool = True) -> Any:
    """Gives each row its place among the rows of its key in the epoch, and its origin (-1: it has none).

    The class is made here so that it travels by value: workers cannot import the tests.
    """

    @dataclass(frozen=True)
    class Recorder:
        asks: bool

        canonical: ClassVar[bool] = True

        def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
            told = [pa.field("place", pa.int64()), pa.field("origin", pa.int64())]
            return Binding(Shape(pa.schema([*inputs[0].schema, *told]), True), (by_key("k"),))

        def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
            columns = frozenset(binding.shape.schema.names) - {"place", "origin"}
            return (columns | {"_o"} if self.asks else columns,)

        def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
            (delta,) = inputs
            if delta is None:
                return StepResult()
            origin = np.full(delta.num_rows, -1)
            if "_o" in delta.column_names:
                origin = delta.column("_o").to_numpy()
                order = np.argsort(origin, kind="stable")
                delta, origin = delta.take(pa.array(order)), origin[order]
            met: dict[int, int] = {}
            place = []
            for k in delta.column("k").to_pylist():
                place.append(met.get(k, 0))
                met[k] = place[-1] + 1
            names = [n for n in binding.shape.schema.names if n in delta.column_names]
            out = delta.select(names).append_column("place", pa.array(place, pa.int64()))
            return StepResult(out.append_column("origin", pa.array(origin)))

    return Recorder(asks)
