"""EmitDiscarded: panes that contain only what came since the pane before.

Inputs: the firings of windows, and contents by window and pane.  All contents of a pane come in the epoch
in which it fires, so nothing is stored.  A firing without rows is a pane as well: where contents have one
row per pane, it is the row that they have over no rows (`empty`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millpond.delta import WEIGHT, concat, weights, with_weights
from millpond.identity import one_chunk, take
from millpond.kernels.bounds import among
from millpond.operators.operator import Binding, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.panes import LAST, PANE, PANE_FIELDS, TIMING
from millpond.operators.traits import DependsOnArrival
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet


@dataclass(frozen=True)
class EmitDiscarded(DependsOnArrival):
    key: tuple[str, ...]  # of windows: the user's key, the start and the end
    shows: bool = False  # are the columns of the pane part of the output?
    empty: tuple[tuple[str, Any], ...] | None = None  # columns that are not NULL in a pane without rows

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        _, contents = inputs
        own = [f for f in stored(contents.schema) if f.name != PANE]
        schema = pa.schema([*own, *(PANE_FIELDS if self.shows else ())])
        shape = Shape(schema, append_only=True, bounds=among(contents.bounds, self.key))
        return Binding(shape, (by_key(*self.key), by_key(*self.key)), placed_by=self.key)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        fired = frozenset({*self.key, PANE, TIMING, LAST})
        return fired, frozenset({*(n for n in binding.shape.schema.names if n not in (TIMING, LAST)), PANE})

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        firings, contents = inputs
        if firings is None:
            return StepResult()
        names = [n for n in binding.shape.schema.names if n not in (PANE, TIMING, LAST)]
        key = (*self.key, PANE)
        window_rows = [t.select(list(key)) for t in (firings, contents) if t is not None]
        keys = KeySet.of(pa.concat_tables(window_rows, promote_options="permissive"), key)
        firing = np.full(len(keys), -1, np.int64)
        firing[keys.inverse[: firings.num_rows]] = np.arange(firings.num_rows)
        parts = []
        there = np.zeros(len(keys), np.bool_)
        if contents is not None:
            of_row = keys.inverse[firings.num_rows :]
            there[of_row] = True
            rows = with_weights(contents, weights(contents)).select([*names, WEIGHT])
            parts.append(self._marked(rows, firings, firing[of_row]))
        without = np.flatnonzero(~there & (firing >= 0))
        if self.empty is not None and len(without):
            parts.append(self._marked(self._empty(binding, names, keys, without), firings, firing[without]))
        if not parts:
            return StepResult()
        return StepResult(concat(parts).select([*binding.shape.schema.names, WEIGHT]))

    def _marked(self, rows: pa.Table, firings: pa.Table, number_of: Any) -> pa.Table:
        if not self.shows:
            return rows
        for field in PANE_FIELDS:
            rows = rows.append_column(field, take(one_chunk(firings.column(field.name)), number_of))
        return rows

    def _empty(self, binding: Binding, names: list[str], keys: KeySet, which: Any) -> pa.Table:
        values = dict(self.empty or ())
        columns = []
        for name in names:
            kind = binding.shape.schema.field(name).type
            if name in self.key:
                columns.append(take(one_chunk(keys.columns.column(name)), which))
            else:
                columns.append(pa.array([values.get(name)] * len(which), kind))
        table = pa.table(columns, schema=pa.schema([binding.shape.schema.field(n) for n in names]))
        return with_weights(table, np.ones(len(which), np.int64))
