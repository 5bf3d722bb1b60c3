"""EmitPanes: the contents of windows as panes, one for every firing.

Inputs: the firings of windows, and the contents that a step computed from the rows that firings released.
The contents of a window change only in an epoch in which it fires, or because another window took its rows
over (sessions that merged).

Law: the table `panes` holds the newest pane of every window, and is the view.  In mode *retracting* the
output is its change: each pane retracts the one before.  In mode *accumulating* the output is every pane
once, without retractions; the table `feed` holds those of the last epoch, for readers of changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import HASH, WEIGHT, concat, consolidate, negate, weights, with_weights
from millpond.identity import one_chunk, take
from millpond.kernels.bounds import Bound, among, bucketed_by
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.panes import PANE, PANE_COLUMNS, PANE_FIELDS
from millpond.operators.traits import DependsOnArrival, ExpiresBehindBound
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet, RowsByKey
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]

FED_AT = "_fed_at"
HIDDEN = tuple(f"_{name}" for name in PANE_COLUMNS)


@dataclass(frozen=True)
class EmitPanes(ExpiresBehindBound, DependsOnArrival):
    key: tuple[str, ...]  # of windows: the user's key, the start and the end
    accumulates: bool = False  # emit every pane once, instead of retracting the one before
    shows: bool = False  # are the columns of the pane part of the output?
    single: bool = False  # do contents have one row per window?
    expires: Bound | None = None  # panes of windows behind it cannot change any more

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        _, contents = inputs
        schema = stored(contents.schema)
        shown = pa.schema([*schema, *PANE_FIELDS]) if self.shows else schema
        hidden = [] if self.shows else [f.with_name(n) for f, n in zip(PANE_FIELDS, HIDDEN, strict=True)]
        full = pa.schema([*shown, *hidden])
        panes = TableSpec(f"{step}/panes", full, self.key, rule="weights", **bucketed_by(self.expires))
        tables = [panes]
        if self.accumulates:
            feed = pa.schema([*full, pa.field(FED_AT, pa.timestamp("us"))])
            tables.append(
                TableSpec(f"{step}/feed", feed, self.key, rule="weights", time=FED_AT, bucket_width=1)
            )
        output = Shape(
            shown,
            append_only=self.accumulates,
            key=self.key if self.single and not self.accumulates else None,
            bounds=among(contents.bounds, self.key),
        )
        return Binding(
            output,
            (by_key(*self.key), by_key(*self.key)),
            tuple(tables),
            view=None if self.expires else panes.name,
            placed_by=self.key,
        )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        fired = frozenset({*self.key, *PANE_COLUMNS})
        return fired, frozenset(
            n for n in binding.shape.schema.names if n not in PANE_COLUMNS or not self.shows
        )

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        firings, contents = inputs
        panes = binding.tables[0]
        drops = self.ended(ctx, binding)[:1]
        if firings is None and contents is None:
            return StepResult(drops=drops)
        some = [t.select([*self.key, HASH]) for t in (firings, contents) if t is not None]
        every = pa.concat_tables(some, promote_options="permissive")
        keys = KeySet.of(every, self.key, one_chunk(every.column(HASH)).to_numpy())
        full = panes.schema.names
        names = [n for n in full if n not in (*PANE_COLUMNS, *HIDDEN)]
        stored = ctx.table(panes.name).lookup(keys)
        old = stored.table.select([*full, WEIGHT])
        parts = [stored.table.select([*names, WEIGHT])]
        if contents is not None:
            parts.append(with_weights(contents, weights(contents)).select([*names, WEIGHT]))
        new = consolidate(concat(parts))
        panes_of_epoch = EpochPanes.of(keys, stored, firings, self.shows)
        now = panes_of_epoch.marked(panes, new, self.key, panes_of_epoch.newest)
        change = consolidate(concat([now, negate(old)]))
        changes = [Change(panes.name, change)] if change.num_rows else []
        if not self.accumulates:
            out = change.select([*binding.shape.schema.names, WEIGHT])
            return StepResult(consolidate(out) if out.num_rows else None, tuple(changes), drops=drops)
        # Every pane of this epoch once; all of them have the contents after it.
        every_pane = [panes_of_epoch.marked(panes, new, self.key, fired) for fired in panes_of_epoch.fired]
        out = concat([p for p in every_pane if p.num_rows]) if any(p.num_rows for p in every_pane) else None
        if out is None:
            return StepResult(changes=tuple(changes), drops=drops)
        at = pa.array(np.full(out.num_rows, ctx.now_us)).cast(pa.timestamp("us"))
        fed = binding.tables[1]
        changes.append(Change(fed.name, out.append_column(FED_AT, at).select([*fed.schema.names, WEIGHT])))
        return StepResult(
            out.select([*binding.shape.schema.names, WEIGHT]),
            tuple(changes),
            drops=(*drops, (fed.name, ctx.now_us)),
        )


@dataclass(frozen=True)
class EpochPanes:
    """The panes that fired in this epoch, and the newest pane of each window."""

    keys: KeySet
    pool: dict[str, pa.Array]  # by column of a pane: those that windows had, then those of this epoch
    newest: Ints  # of each window: its newest pane in the pool, or -1
    fired: tuple[Ints, ...]  # of each window: its first pane of this epoch, its second, and so on, or -1

    @staticmethod
    def of(keys: KeySet, stored: RowsByKey, firings: pa.Table | None, shows: bool) -> EpochPanes:
        columns = PANE_COLUMNS if shows else HIDDEN
        pool = {n: one_chunk(stored.table.column(c)) for n, c in zip(PANE_COLUMNS, columns, strict=True)}
        newest = np.full(len(keys), -1, np.int64)
        newest[stored.key_index] = np.arange(stored.table.num_rows)
        fired: list[Ints] = []
        if firings is not None:
            window, first = keys.inverse[: firings.num_rows], stored.table.num_rows
            pool = {n: pa.concat_arrays([column, one_chunk(firings.column(n))]) for n, column in pool.items()}
            order = np.lexsort((one_chunk(firings.column(PANE)).to_numpy(), window))
            sorted_windows = window[order]
            starts = np.flatnonzero(np.append(True, sorted_windows[1:] != sorted_windows[:-1]))
            rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
            for number in range(int(rank.max()) + 1):
                mine = order[rank == number]
                positions = np.full(len(keys), -1, np.int64)
                positions[window[mine]] = first + mine
                fired.append(positions)
            newest[sorted_windows] = first + order  # the last assignment wins: the newest pane
        return EpochPanes(keys, pool, newest, tuple(fired))

    def marked(self, spec: TableSpec, rows: pa.Table, key: tuple[str, ...], panes: Ints) -> pa.Table:
        """Contents of windows with the columns of their pane; of windows without one there are no rows."""
        asked = KeySet.of(rows, key)
        positions = panes[_numbers(self.keys, asked)[asked.inverse]]
        there = positions >= 0
        if not there.all():
            rows, positions = rows.filter(pa.array(there)), positions[there]
        columns = {n: rows.column(n) for n in rows.column_names}
        for name, hidden in zip(PANE_COLUMNS, HIDDEN, strict=True):
            columns[name if name in spec.schema.names else hidden] = take(self.pool[name], positions)
        names = [*spec.schema.names, WEIGHT]
        return pa.table([columns[n] for n in names], names=names)


def _numbers(keys: KeySet, asked: KeySet) -> Ints:
    """The numbers of these keys among all keys."""
    both = pa.concat_tables([keys.columns, asked.columns.cast(keys.columns.schema)])
    every = KeySet.of(both, both.column_names, np.concatenate([keys.hashes, asked.hashes]))
    positions = np.empty(len(every), np.int64)
    positions[every.inverse[: len(keys)]] = np.arange(len(keys))
    indices: Ints = positions[every.inverse[len(keys) :]]
    return indices
