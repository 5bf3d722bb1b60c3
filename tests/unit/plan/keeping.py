"""Keep: a small operator whose state may evolve: how often each key came, and whatever columns it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millpond.flow.stream import Stream
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.traits import EvolvesState
from millpond.ordering import Order
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

COUNT = pa.schema([("n", pa.int64())])
OUT = pa.schema([("k", pa.int64()), ("n", pa.int64())])


@dataclass(frozen=True)
class Kept:
    """One state: `n` is the count, in any type; other columns keep what they have."""

    name: str
    columns: pa.Schema = COUNT
    defaults: tuple[tuple[str, Any], ...] = ()
    order: tuple[Order, ...] = ()


@dataclass(frozen=True)
class Keep(EvolvesState):
    key: tuple[str, ...]
    states: tuple[Kept, ...]

    canonical: ClassVar[bool] = True

    def meaning(self) -> Any:
        return self.key

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        key = [inputs[0].schema.field(name) for name in self.key]
        tables = tuple(
            TableSpec(
                f"{step}/{s.name}", pa.schema([*key, *s.columns]), self.key, s.order, defaults=s.defaults
            )
            for s in self.states
        )
        return Binding(Shape(OUT, append_only=True), (by_key(*self.key),), tables)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(self.key),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        keys = KeySet.of(delta, self.key)
        more = np.bincount(keys.inverse, minlength=len(keys)).tolist()
        changes, out = [], []
        for table in binding.tables:
            found, old = ctx.table(table.name).lookup_one(keys)
            kind = table.schema.field("n").type
            rows = []
            for there, row, count in zip(found.tolist(), old.to_pylist(), more, strict=True):
                if not there:
                    row |= dict.fromkeys(table.rest) | dict(table.defaults)
                number = int(row["n"] or 0) + count
                rows.append(row | {"n": str(number) if pa.types.is_string(kind) else number})
            changes.append(Change(table.name, pa.Table.from_pylist(rows, schema=table.schema)))
            out = rows
        result = pa.table({"k": [r["k"] for r in out], "n": [int(r["n"]) for r in out]}, schema=OUT)
        return StepResult(result, tuple(changes))


def keep(stream: Stream, *states: Kept, id: str = "keep") -> Stream:
    step = stream._builder.add(id, Keep(("k",), states), (stream.step,), id)
    return Stream(stream._builder, step)
