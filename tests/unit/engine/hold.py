"""An operator for tests that wakes by the clock: it holds rows back, and lets them go when their time has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, Wake, by_key
from millpond.operators.traits import FiresByTime
from millpond.state.tables.table_spec import TableSpec

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
HELD = pa.schema([*SCHEMA, pa.field("at", pa.int64())])
SECOND = 1_000_000


def hold(delay_us: int, width_us: int = SECOND, *, lets_go: bool = True) -> Any:
    """Rows go out in the first epoch after the bucket of (time they came + delay) is over.

    The class is made here so that it travels by value: workers cannot import the tests.
    """

    @dataclass(frozen=True)
    class Hold(FiresByTime):
        delay_us: int
        width_us: int
        lets_go: bool

        canonical: ClassVar[bool] = True

        def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
            held = TableSpec(
                f"{step}/held", HELD, ("k",), rule="weights", time="at", bucket_width=self.width_us
            )
            wake = Wake(held.name, self.width_us, after=1)
            return Binding(Shape(HELD, append_only=True), (by_key("k"),), (held,), wakes=(wake,))

        def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
            return (frozenset(SCHEMA.names),)

        def due(
            self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
        ) -> bool:
            (wake,) = binding.wakes
            return wake.table in earliest and wake.due(earliest[wake.table], now_us)

        def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
            (delta,) = inputs
            name = binding.tables[0].name
            changes: tuple[Change, ...] = ()
            if delta is not None:
                at = pa.array(np.full(delta.num_rows, ctx.now_us + self.delay_us))
                changes = (Change(name, delta.select(["k", "v"]).append_column("at", at)),)
            over = ctx.now_us // self.width_us
            out = ctx.table(name, below_bucket=over).scan().drop_columns(["_h"])
            return StepResult(out, changes, drops=((name, over),) if self.lets_go else ())

    return Hold(delay_us, width_us, lets_go)
