"""PaneView: a view of accumulating panes: the newest pane of each window, and a feed with every pane.

Inputs: the changes of the newest panes, as *retracting* windows emit them, and every pane once, as
*accumulating* windows do; both with the columns of the view.

Law: the table `rows` is the sum of the first input, and steps that read the view receive that input, so they
agree with what the view shows (law 1).  The table `feed` holds the rows of the last epoch that had a pane:
readers of changes and sinks receive each pane once, and no retractions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond import delta as deltas
from millpond.delta import HASH, WEIGHT
from millpond.operators.emit_panes import FED_AT
from millpond.operators.operator import HERE, Binding, Change, Context, Inputs, Shape, StepResult
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table_spec import TableSpec


@dataclass(frozen=True)
class PaneView:
    key: tuple[str, ...]  # for lookups

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        newest, _ = inputs
        schema = stored(newest.schema)
        rows = TableSpec(f"{step}/rows", schema, key=self.key, rule="weights")
        fed_schema = pa.schema([*schema, pa.field(FED_AT, pa.timestamp("us"))])
        feed = TableSpec(f"{step}/feed", fed_schema, self.key, rule="weights", time=FED_AT, bucket_width=1)
        return Binding(newest, (HERE, HERE), (rows, feed), view=rows.name)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        every = frozenset(binding.shape.schema.names)
        return every, every

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        newest, every = inputs
        rows, feed = binding.tables
        names = rows.schema.names
        out: pa.Table | None = None
        changes: list[Change] = []
        drops: tuple[tuple[str, int], ...] = ()
        if newest is not None:
            out = deltas.consolidate(newest.drop_columns([HASH] if HASH in newest.column_names else []))
            changes.append(Change(rows.name, out))
        if every is not None and every.num_rows:
            at = pa.array(np.full(every.num_rows, ctx.now_us)).cast(pa.timestamp("us"))
            fed = deltas.with_weights(every.select(names).append_column(FED_AT, at), deltas.weights(every))
            changes.append(Change(feed.name, fed.select([*feed.schema.names, WEIGHT])))
            drops = ((feed.name, ctx.now_us),)
        return StepResult(out if ctx.output_is_read else None, tuple(changes), drops=drops)
