"""Scan: where rows enter.  It keeps no state; its source's position is in the manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from millpond.errors import InternalError
from millpond.operators.operator import Binding, Context, Inputs, Result, Shape


@dataclass(frozen=True)
class Scan:
    """Rows of a source (see `sources.source.Source`), read by the tasks of level 0."""

    source: Any
    schema: pa.Schema
    append_only: bool

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        return Binding(Shape(self.schema, self.append_only), ())

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return ()

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        raise InternalError("a scan has no inputs to apply", step=ctx.step)
