"""Union: the rows of several inputs with the same schema, with all their weights.

Linear; this is UNION ALL: a row that two inputs contain occurs twice.
The watermark is the least of the inputs' (`engine.task.settled_watermarks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from millpond.delta import HASH, concat
from millpond.errors import InvalidError
from millpond.kernels.bounds import of_all
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.operators.traits import CarriesOrigin


@dataclass(frozen=True)
class Union(CarriesOrigin):
    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        if not inputs:
            raise InvalidError("a union needs at least one input", step=step)
        first = inputs[0]
        for index, other in enumerate(inputs[1:], 2):
            self._check(step, first.schema, index, other.schema)
        time, watermark = self._time(step, inputs)
        append_only = all(shape.append_only for shape in inputs)
        key = first.key if len(inputs) == 1 else None
        bounds = of_all([shape.bounds for shape in inputs])
        return Binding(Shape(first.schema, append_only, key, time, watermark, bounds), (HERE,) * len(inputs))

    def _time(self, step: str, inputs: tuple[Shape, ...]) -> tuple[str | None, str | None]:
        """The time column and its watermark: the inputs' own, or the least of them, named by this step."""
        times, watermarks = {shape.time for shape in inputs}, {shape.watermark for shape in inputs}
        if len(times) > 1 or None in times or None in watermarks:
            return None, None
        return times.pop(), watermarks.pop() if len(watermarks) == 1 else step

    def _check(self, step: str, first: pa.Schema, number: int, other: pa.Schema) -> None:
        if other.names != first.names:
            raise InvalidError(
                "the inputs of a union must have the same columns",
                detail=f"input 1 has {', '.join(first.names)}; input {number} has {', '.join(other.names)}",
                hint="map them to the same names in the same order",
                step=step,
            )
        for one, two in zip(first, other, strict=True):
            if one.type != two.type:
                raise InvalidError(
                    "the inputs of a union must have the same types",
                    detail=f"column {one.name!r} is {one.type} in input 1 and {two.type} in input {number}",
                    hint="cast one of them in a map before the union",
                    step=step,
                )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed,) * len(binding.placements)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        parts = [self._without_hash(delta) for delta in inputs if delta is not None]
        if not parts:
            return StepResult()
        # An input may have more columns than this step required, for another consumer.
        common = [name for name in parts[0].column_names if all(name in d.column_names for d in parts)]
        weight = [] if "_w" in common or all("_w" not in d.column_names for d in parts) else ["_w"]
        return StepResult(
            concat([d.select([n for n in (*common, *weight) if n in d.column_names]) for d in parts])
        )

    def _without_hash(self, delta: pa.Table) -> pa.Table:
        """Inputs may be hashed by different keys; their sum has no hash."""
        return delta.drop_columns([HASH]) if HASH in delta.column_names else delta
