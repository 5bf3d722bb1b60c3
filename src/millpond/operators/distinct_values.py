"""DistinctValues: each value of a column once per key, with the conditions under which it occurred.

One table serves `count(DISTINCT x)`, `count(DISTINCT x) FILTER (WHERE a)` and
`… FILTER (WHERE b)`: it has a row for each (key, value), which records what is
known about each condition.

Law: for every key and value that a row has under some condition there is one
row, and its column `name` is the value if a row has it under the
condition of that name, else NULL.  The output is a function of the input
multiset.  Over append-only input a value is written when it first occurs under a
condition, and never again; otherwise the table counts the rows under each
condition.  Senders send each key and value once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import hashing
from millpond.delta import HASH, weights, with_weights
from millpond.errors import InternalError, InvalidError
from millpond.identity import canonical, one_chunk
from millpond.kernels.bounds import Bound, among, bucketed_by, buckets_of
from millpond.kernels.packed_rows import pack
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.traits import ExpiresBehindBound, PreparesInput
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

VALUE = "_value"
SEEN = "_seen"  # bit n: the value occurred under condition n
CONDITIONS_MAX = 32

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class DistinctValues(ExpiresBehindBound, PreparesInput):
    key: tuple[str, ...]
    value: str
    columns: tuple[tuple[str, str | None], ...]  # (name, condition column; None for always)
    expires: Bound | None = None  # keys behind it have expired

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        if not 0 < len(self.columns) <= CONDITIONS_MAX:
            raise InvalidError(f"{len(self.columns)} conditions, at most {CONDITIONS_MAX} go", step=step)
        schema = stored(shape.schema)
        for name in (*self.key, self.value, *self._conditions):
            if name not in schema.names:
                raise InvalidError(
                    f"there is no column {name!r}", detail=f"columns are {', '.join(schema.names)}", step=step
                )
        key = [schema.field(name) for name in self.key]
        value = schema.field(self.value)
        if shape.append_only:
            known = [pa.field(SEEN, pa.int64())]
        else:
            known = [pa.field(f"_n{index}", pa.int64()) for index in range(len(self.columns))]
        contents = pa.schema([*key, value.with_name(VALUE), *known])
        table = TableSpec(f"{step}/values", contents, key=(*self.key, VALUE), **bucketed_by(self.expires))
        bounded = shape.time in self.key
        return Binding(
            Shape(
                pa.schema([*key, *(value.with_name(name).with_nullable(True) for name, _ in self.columns)]),
                append_only=shape.append_only and len(self.columns) == 1,
                time=shape.time if bounded else None,
                watermark=shape.watermark if bounded else None,
                bounds=among(shape.bounds, self.key),
            ),
            (by_key(*self.key, VALUE),),
            (table,),
            wire=contents,
        )

    @property
    def _conditions(self) -> list[str]:
        return [condition for _, condition in self.columns if condition is not None]

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset((*self.key, self.value, *self._conditions)),)

    # -- the sender's side ---------------------------------------------------------

    def prepare(self, binding: Binding, index: int, delta: pa.Table) -> pa.Table:
        """Each key and value of this sender once, with what it knows about the conditions."""
        names = [*self.key, VALUE]
        columns = [canonical(one_chunk(delta.column(name))) for name in (*self.key, self.value)]
        masks = [None if c is None else _true(delta.column(c)) for _, c in self.columns]
        if SEEN in binding.tables[0].schema.names:
            return _seen(names, columns, masks)
        rows = _given(pa.table(columns, names=names).append_column("_w", pa.array(weights(delta))), masks)
        table, conditions = rows
        keys = KeySet.of(table, names)
        known = {}
        for number, condition in enumerate(conditions):
            counts = np.zeros(len(keys), np.int64)
            w = weights(table)
            np.add.at(counts, keys.inverse, w if condition is None else np.where(condition, w, 0))
            known[f"_n{number}"] = pa.array(counts)
        counted = pa.table([*keys.columns.columns, *known.values()], names=[*names, *known])
        counted = counted.append_column(HASH, pa.array(keys.hashes))
        changed = np.zeros(len(keys), np.bool_)
        for counts in known.values():
            changed |= counts.to_numpy() != 0
        return counted if changed.all() else counted.filter(pa.array(changed))

    # -- the owner's side ----------------------------------------------------------

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        (spec,) = binding.tables
        drops = self.ended(ctx, binding)
        if delta is None or not delta.num_rows:
            return StepResult(drops=drops)
        names = [*self.key, VALUE]
        known = [name for name in spec.schema.names if name not in names]
        keys = KeySet.of(delta, names, one_chunk(delta.column(HASH)).to_numpy())
        _, state = ctx.table(spec.name, buckets=buckets_of(spec, keys.columns)).lookup_one(keys, known)
        more = {name: _ints(delta.column(name)) for name in known}
        old = {name: _ints(state.column(name)) for name in known}
        new: dict[str, Ints] = {}
        for name in known:
            if name == SEEN:
                new[name] = old[name].copy()
                np.bitwise_or.at(new[name], keys.inverse, more[name])
            else:
                new[name] = old[name].copy()
                np.add.at(new[name], keys.inverse, more[name])
                if (new[name] < 0).any():
                    raise InternalError(
                        "more rows were retracted than there are",
                        detail=f"{int((new[name] < 0).sum())} values, lowest count {int(new[name].min())}",
                        step=ctx.step,
                        epoch=ctx.epoch,
                    )
        changed = np.zeros(len(keys), np.bool_)
        for name in known:
            changed |= old[name] != new[name]
        where = np.flatnonzero(changed)
        rows = keys.columns.append_column(HASH, pa.array(keys.hashes))
        if len(where) < len(keys):
            rows = rows.take(pa.array(where))
            old = {name: values[where] for name, values in old.items()}
            new = {name: values[where] for name, values in new.items()}
        before, after = self._holds(old), self._holds(new)
        alive = np.logical_or.reduce(after)
        written = rows
        for name in known:
            written = written.append_column(name, pa.array(new[name]))
        change = Change(spec.name, with_weights(written, alive.astype(np.int64)), presorted=True)
        out = self._out(binding, rows, before, after, alive) if ctx.output_is_read else None
        return StepResult(out, (change,), drops=drops)

    def _holds(self, known: Mapping[str, Ints]) -> list[Bools]:
        """For each condition: does the value occur under it?"""
        if SEEN in known:
            return [(known[SEEN] >> index) & 1 == 1 for index in range(len(self.columns))]
        return [counts > 0 for counts in known.values()]

    def _out(
        self,
        binding: Binding,
        rows: pa.Table,
        before: Sequence[Bools],
        after: Sequence[Bools],
        alive: Bools,
    ) -> pa.Table:
        lived = np.logical_or.reduce(before)
        turned = np.logical_or.reduce([was != now for was, now in zip(before, after, strict=True)])
        gone = self._shown(binding, rows, before, np.flatnonzero(turned & lived), -1)
        come = self._shown(binding, rows, after, np.flatnonzero(turned & alive), 1)
        return pa.concat_tables([gone, come]) if gone.num_rows else come

    def _shown(
        self, binding: Binding, rows: pa.Table, holds: Sequence[Bools], where: Ints, weight: int
    ) -> pa.Table:
        if len(where) < rows.num_rows:
            rows, holds = rows.take(pa.array(where)), [mask[where] for mask in holds]
        values = one_chunk(rows.column(VALUE))
        columns: list[Any] = [rows.column(name) for name in self.key]
        nothing = pa.scalar(None, values.type)
        columns += [values if m.all() else pc.if_else(pa.array(m), values, nothing) for m in holds]
        shown = pa.table(columns, schema=binding.shape.schema)
        return with_weights(shown, np.full(rows.num_rows, weight, np.int64))


def _seen(names: Sequence[str], columns: list[pa.Array], masks: Sequence[Bools | None]) -> pa.Table:
    """Append-only rows: each key and value once, with a bit for each condition that was true."""
    bits = len(masks)
    always = sum(1 << index for index, mask in enumerate(masks) if mask is None)
    seen = np.full(len(columns[0]), always, np.uint64)
    for index, mask in enumerate(masks):
        if mask is not None:
            seen |= mask.astype(np.uint64) << np.uint64(index)
    packed = pack(columns, 64 - bits)
    if packed is None:
        keys = KeySet.of(pa.table(columns, names=names), names)
        known = np.zeros(len(keys), np.uint64)
        np.bitwise_or.at(known, keys.inverse, seen)
        arrays, hashes = [one_chunk(c) for c in keys.columns.columns], keys.hashes
    else:
        codes = packed.codes << np.uint64(bits) | seen
        codes.sort()
        bare = codes >> np.uint64(bits)
        starts = np.flatnonzero(np.concatenate(([True], bare[1:] != bare[:-1])))
        known = np.bitwise_or.reduceat(codes, starts) & np.uint64((1 << bits) - 1)
        encoded = packed.columns(bare[starts])
        hashes = hashing.hash_columns(encoded, len(starts))
        arrays = [one_chunk(column) for column in encoded]
    table = pa.table([*arrays, pa.array(known.view(np.int64)), pa.array(hashes)], names=[*names, SEEN, HASH])
    is_present = known != 0
    if arrays[-1].null_count:
        is_present &= arrays[-1].is_valid().to_numpy(zero_copy_only=False)
    return table if is_present.all() else table.filter(pa.array(is_present))


def _given(rows: pa.Table, masks: Sequence[Bools | None]) -> tuple[pa.Table, list[Bools | None]]:
    """The rows with a value, and their conditions."""
    if not rows.column(VALUE).null_count:
        return rows, list(masks)
    there = one_chunk(rows.column(VALUE)).is_valid()
    mask = there.to_numpy(zero_copy_only=False)
    return rows.filter(there), [None if one is None else one[mask] for one in masks]


def _true(condition: pa.ChunkedArray) -> Bools:
    array = one_chunk(condition)
    if array.null_count:
        array = array.fill_null(False)
    values: Bools = array.to_numpy(zero_copy_only=False)
    return values


def _ints(column: pa.ChunkedArray) -> Ints:
    array = one_chunk(column)
    values: Ints = (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)
    return values
