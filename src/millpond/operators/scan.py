"""Scan: reads rows from a source.  It has no state; its source's position is in the manifest.

If a step requires the origin of rows, the scan numbers them in the order in
which the epoch admitted them, whichever task reads them (law 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millpond.delta import ORIGIN, ORIGIN_BITS
from millpond.errors import InternalError
from millpond.operators.operator import Binding, Context, Inputs, Shape, StepResult
from millpond.operators.traits import CarriesOrigin


@dataclass(frozen=True)
class Scan(CarriesOrigin):
    """Rows of a source (see `sources.source.Source`), read by the tasks of level 0."""

    source: Any
    schema: pa.Schema
    append_only: bool

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        return Binding(Shape(self.schema, self.append_only), ())

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return ()

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        raise InternalError("a scan has no inputs to apply", step=ctx.step)


def with_origin(rows: pa.Table, split: int, before: int) -> pa.Table:
    """Number the rows of one split of the epoch; `before` rows of it have been read already.

    >>> [n - (3 << ORIGIN_BITS) for n in with_origin(pa.table({"k": ["a", "b"]}), 3, 5)["_o"].to_pylist()]
    [5, 6]
    """
    first = (split << ORIGIN_BITS) + before
    return rows.append_column(
        pa.field(ORIGIN, pa.int64()), pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
    )
