"""ReplicatedTable: the copy of a table of another system, made from a log of its changes.

Law: after every epoch the rows are those of the original after the same changes.  Changes
apply one after the other, by sequence.  At most one row per key: a put of an existing key
replaces the row; columns that a put leaves *unchanged* keep the value of the row that it
replaces.  A truncation, which reaches every task, removes all rows before it.

A log that is delivered at least once may repeat changes, so a delete of a missing key is
not an error if `repeats` is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import delta as deltas
from millpond.errors import InvalidError
from millpond.identity import equal_rows, one_chunk
from millpond.kernels.expression_kernel import error_rows, join_errors
from millpond.operators.operator import (
    BROADCAST,
    Binding,
    Change,
    Context,
    Inputs,
    Shape,
    StepResult,
    by_key,
)
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

SEQUENCE = "__seq"  # the order of the changes
PUT = "__put"  # true: the row is put; false: the row with this key is deleted
TRUNCATED = "seq"  # of a truncation: its place in the order of the changes
UNCHANGED = "__unchanged"  # the numbers of columns that keep their value, or NULL
LOG_FIELDS = (
    pa.field(SEQUENCE, pa.int64()),
    pa.field(PUT, pa.bool_()),
    pa.field(UNCHANGED, pa.list_(pa.int32())),
)
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ReplicatedTable:
    """The inputs are changes (`LOG_FIELDS` beside the columns), and truncations (`seq`) if there are any."""

    key: tuple[str, ...]
    repeats: bool = False

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        hidden = {field.name for field in LOG_FIELDS}
        schema = stored(pa.schema([f for f in inputs[0].schema if f.name not in hidden]))
        missing = [k for k in self.key if k not in schema.names]
        if missing or not self.key:
            raise InvalidError(
                f"the key of a table must be some of its columns, got {self.key!r}",
                detail=f"columns are {', '.join(schema.names)}",
                step=step,
            )
        table = TableSpec(f"{step}/rows", schema, key=self.key)
        return Binding(
            Shape(schema, append_only=False, key=self.key),
            (by_key(*self.key), *(BROADCAST for _ in inputs[1:])),
            (table,),
            view=table.name,
            placed_by=self.key,
        )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        changes = frozenset([*binding.shape.schema.names, *(f.name for f in LOG_FIELDS)])
        return changes, *(frozenset([TRUNCATED]) for _ in binding.placements[1:])

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        delta = inputs[0]
        truncations = inputs[1] if len(inputs) > 1 else None
        since: int | None = None
        if truncations is not None and truncations.num_rows:
            since = pc.max(truncations.column(TRUNCATED)).as_py()
        if delta is not None and since is not None:
            delta = delta.filter(pc.greater(delta.column(SEQUENCE), since))
        if since is not None:
            return self._anew(ctx, binding, delta)
        if delta is None or not delta.num_rows:
            return StepResult()
        keys = KeySet.of(delta, self.key)
        is_found, old = ctx.table(binding.tables[0].name).lookup_one(keys)
        names = binding.shape.schema.names
        rows, puts, errors = self._last(binding, delta, keys, is_found, old)
        same = equal_rows(
            [one_chunk(old.column(n)) for n in names], [one_chunk(rows.column(n)) for n in names], len(keys)
        )
        moved = np.where(puts, ~(same & is_found), is_found)
        changed = deltas.with_weights(rows.filter(pa.array(moved)), puts[moved].astype(np.int64))
        gone = old.select(names).filter(pa.array(is_found & moved))
        come = rows.filter(pa.array(puts & moved))
        out = deltas.concat(
            [
                deltas.with_weights(gone, np.full(gone.num_rows, -1, np.int64)),
                deltas.with_weights(come, np.ones(come.num_rows, np.int64)),
            ]
        )
        return StepResult(out, (Change(binding.tables[0].name, changed),), errors)

    def _anew(self, ctx: Context, binding: Binding, delta: pa.Table | None) -> StepResult:
        """A truncation: all old rows go, and what was put since comes."""
        table = binding.tables[0]
        names = binding.shape.schema.names
        old = ctx.table(table.name).scan().select(names)
        gone = deltas.with_weights(old, np.full(old.num_rows, -1, np.int64))
        tombs = deltas.with_weights(old, np.zeros(old.num_rows, np.int64))
        if delta is None or not delta.num_rows:
            return StepResult(gone, (Change(table.name, tombs),))
        keys = KeySet.of(delta, self.key)
        nothing = binding.shape.schema.empty_table().take(pa.array([None] * len(keys), pa.int64()))
        rows, puts, errors = self._last(binding, delta, keys, np.zeros(len(keys), bool), nothing)
        come = rows.filter(pa.array(puts))
        come = deltas.with_weights(come, np.ones(come.num_rows, np.int64))
        if old.num_rows and come.num_rows:  # a key that is put again is not deleted
            both = KeySet.of(
                pa.concat_tables([old.select(list(self.key)), come.select(list(self.key))]), self.key
            )
            again = np.isin(both.inverse[: old.num_rows], both.inverse[old.num_rows :])
            tombs = tombs.filter(pa.array(~again))
        changes = deltas.concat([tombs, come])
        out = deltas.consolidate(deltas.concat([gone, come]))
        return StepResult(out, (Change(table.name, changes),), errors)

    def _last(
        self, binding: Binding, delta: pa.Table, keys: KeySet, is_found: Bools, old: pa.Table
    ) -> tuple[pa.Table, Bools, pa.Table | None]:
        """By key: the row after all changes, and whether it is there; impossible changes are errors."""
        schema = binding.shape.schema
        sequence = one_chunk(delta.column(SEQUENCE)).to_numpy()
        order: Ints = np.lexsort((sequence, keys.inverse))
        positions = keys.inverse[order]
        put: Bools = one_chunk(delta.column(PUT)).to_numpy(zero_copy_only=False)[order]
        later = positions[1:] == positions[:-1]
        first = np.flatnonzero(np.concatenate(([True], ~later)))
        last = np.flatnonzero(np.concatenate((~later, [True])))
        there: Bools = np.concatenate(([False], put[:-1]))  # does the key exist when a change arrives?
        there[first] = is_found
        rows = delta.select(schema.names).cast(schema)
        errors: list[pa.Table | None] = []
        if delta.column(UNCHANGED).null_count < delta.num_rows:
            rows, lost = _filled(rows, delta.column(UNCHANGED), order, positions, put, there, old)
            if len(lost):
                reason = "an unchanged value is not known and is NULL here; set REPLICA IDENTITY FULL"
                bad = delta.select(list(self.key)).take(pa.array(lost))
                errors.append(error_rows(bad, [reason] * len(lost)))
        absent = order[np.flatnonzero(~put & ~there)]
        if len(absent) and not self.repeats:
            bad = delta.select(list(self.key)).take(pa.array(absent))
            errors.append(error_rows(bad, ["delete meets no row"] * len(absent)))
        return rows.take(pa.array(order[last])), put[last], join_errors(*errors)


def _filled(
    rows: pa.Table,
    unchanged: pa.ChunkedArray,
    order: Ints,
    positions: Ints,
    put: Bools,
    there: Bools,
    old: pa.Table,
) -> tuple[pa.Table, list[int]]:
    """The rows with their unchanged values, from the change before or the row in the table.

    Returns also the rows without such a value: there is no row before them.
    """
    values_before = unchanged.to_pylist()
    columns: dict[int, list[Any]] = {}
    before: dict[int, list[Any]] = {}
    for number in sorted({c for each in values_before if each for c in each}):
        columns[number] = rows.column(number).to_pylist()
        before[number] = old.column(rows.column_names[number]).to_pylist()
    lost = []
    latest: dict[int, int] = {}  # by key: the change before
    for at, (row, key) in enumerate(zip(order.tolist(), positions.tolist(), strict=True)):
        if put[at] and values_before[row]:
            if not there[at]:
                lost.append(row)
            for number in values_before[row]:
                if there[at]:
                    came = latest.get(key)
                    columns[number][row] = before[number][key] if came is None else columns[number][came]
        latest[key] = row
    for number, values in columns.items():
        field = rows.schema.field(number)
        rows = rows.set_column(number, field, pa.array(values, field.type))
    return rows, lost
