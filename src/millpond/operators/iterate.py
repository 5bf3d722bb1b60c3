"""Iterate: WITH RECURSIVE, a query that reads its own last result, round after round.

Law: the output is the sum of all rounds of the batch query.  Round 0 is the
first input; round i + 1 is what the inner steps compute from round i and the
other inputs.  With `distinct` a row belongs to the first round that produces it and
to no other; otherwise it belongs to all of them, as often as they produce it.

Rows inside carry the number of their round, and the inner steps keep rounds
separate, so they are plain operators over all rounds together, with plain state
(the nested time of differential dataflow).  An epoch is a small loop over them in
one task: changes go in, changes of later rounds come out, until there are none.
It costs the rows whose first round changes, and what follows from them (law 5);
deletes are as exact as inserts, also around cycles.

A row that would appear after `rounds_max` rounds, or more than `copies_max` times in
one round, is an error row, retracted when the row disappears.  So a recursion without
end is reported and blocks nothing.  Rows can multiply faster than rounds can be
counted: a recursion that produces more than `rows_max` rows in one epoch is refused
while its view is backfilled.  Later it *stops*: from then on it has no rows, and one
error row says why.  Its view must be created again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond import hashing
from millpond.delta import HASH, WEIGHT, consolidate, with_weights
from millpond.errors import InternalError, InvalidError
from millpond.kernels.expression_kernel import error_rows, join_errors
from millpond.kernels.recursion import (
    COUNT,
    LAST,
    STOPPED,
    Limits,
    Recursion,
    TooManyRows,
    called,
    input_name,
    ints_of,
    without_hash,
)
from millpond.operators.operator import (
    Binding,
    Change,
    Context,
    Inputs,
    Operator,
    Shape,
    StepResult,
    by_key,
)
from millpond.operators.traits import PreparesInput, RunsInOneTask
from millpond.ordering import Order
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import Table
from millpond.state.tables.table_spec import TableSpec
from millpond.state.tables.write_buffer import WriteBuffer


@dataclass(frozen=True)
class Last:
    """The rows of the last round, while the steps that read them are being built; no plan contains it."""

    schema: pa.Schema
    distinct: bool

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        key = tuple(self.schema.names) if self.distinct else None
        return Binding(Shape(self.schema, append_only=False, key=key), ())

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return ()

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        raise InternalError("the last round was asked for outside of its recursion", step=ctx.step)


@dataclass(frozen=True)
class InnerStep:
    """A step of the loop; its inputs are other steps of the loop, `last`, or `input1` and so on."""

    name: str
    operator: Operator
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Inner:
    """A bound step of the loop."""

    name: str
    operator: Operator
    inputs: tuple[str, ...]
    binding: Binding


@dataclass(frozen=True)
class Iterate(RunsInOneTask):
    """The first input is round 0; all inputs are in one task."""

    columns: tuple[str, ...]  # of a row
    round: str  # the column that inner steps carry in addition
    steps: tuple[InnerStep, ...]  # inputs first
    result: str  # the step that produces the next round
    distinct: bool
    rounds_max: int
    rows_max: int = 4_000_000  # that one epoch may add to rounds after the first
    copies_max: int = 1 << 31  # of one row in one round

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        # A column that is never NULL in round 0 can be NULL in a later round.
        first = stored(inputs[0].schema)
        schema = pa.schema([first.field(name).with_nullable(True) for name in self.columns])
        rounds = schema.append(pa.field(self.round, pa.int64()))
        key = (*self.columns, self.round) if self.distinct else None
        shapes = {LAST: Shape(rounds, append_only=False, key=key)}
        for number, shape in enumerate(inputs[1:], 1):
            shapes[input_name(number)] = replace(shape, time=None, watermark=None)
        inner = []
        for part in self.steps:
            binding = part.operator.bind(f"{step}/{part.name}", tuple(shapes[i] for i in part.inputs))
            shapes[part.name] = binding.shape
            inner.append(Inner(part.name, part.operator, part.inputs, binding))
        self._check(step, schema, shapes[self.result].schema)
        seen = TableSpec(
            f"{step}/seen",
            rounds.append(pa.field(COUNT, pa.int64())),
            key=self.columns,
            order=(Order(self.round),),
        )
        stopped = TableSpec(f"{step}/{STOPPED}", pa.schema([("epoch", pa.int64())]), key=())
        return Binding(
            Shape(schema, append_only=False, key=self.columns if self.distinct else None),
            (by_key(),) * len(inputs),
            (seen, *(table for part in inner for table in part.binding.tables), stopped),
            extra=(tuple(inner), self._needed(inner, len(inputs))),
        )

    def _check(self, step: str, wanted: pa.Schema, actual: pa.Schema) -> None:
        for field in wanted:
            kind = actual.field(field.name).type if field.name in actual.names else None
            if kind != field.type:
                raise InvalidError(
                    "every round of a recursion must have the same columns",
                    detail=f"column {field.name!r} is {field.type} in the first round, {kind} in the others",
                    hint="cast one of them",
                    step=step,
                )

    def _needed(self, inner: list[Inner], inputs: int) -> tuple[frozenset[str], ...]:
        """The columns of each input that the loop reads."""
        needed: dict[str, frozenset[str]] = {self.result: frozenset([*self.columns, self.round])}
        for part in reversed(inner):
            asked = part.operator.requires(part.binding, needed.get(part.name, frozenset()))
            for source, columns in zip(part.inputs, asked, strict=True):
                needed[source] = needed.get(source, frozenset()) | columns
        rest = (needed.get(input_name(n), frozenset()) for n in range(1, inputs))
        return (frozenset(self.columns), *rest)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        asked: tuple[frozenset[str], ...] = binding.extra[1]
        return asked

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        mine = [table for table in binding.tables if table.name != f"{ctx.step}/{STOPPED}"]
        can_stop = len(mine) < len(binding.tables)  # views of older versions cannot
        if can_stop and ctx.table(f"{ctx.step}/{STOPPED}").scan().num_rows:
            return StepResult()
        buffer = WriteBuffer({table.name: table for table in mine})
        seen = mine[0].name
        inputs = tuple(delta if delta is not None and delta.num_rows else None for delta in inputs)
        inner = _InnerSteps(ctx, binding.extra[0], self.result, buffer)
        rounds = Recursion(
            ctx.step,
            ctx.epoch,
            ctx.backfilling,
            self.columns,
            self.round,
            binding.shape.schema,
            self.distinct,
            self._limits,
            seen,
            lambda: buffer.applied_to(ctx.table(seen)),
            buffer,
            inner.next_round,
        )
        try:
            rounds.run({input_name(n): delta for n, delta in enumerate(inputs) if delta is not None})
        except TooManyRows:
            if ctx.backfilling or not can_stop:
                raise InvalidError(
                    f"{called(ctx.step)} gives more than {self.rows_max} rows in one epoch",
                    detail="its rows multiply from round to round (recursion_rows_max)",
                    hint="bound the recursion, use UNION in place of UNION ALL, or raise recursion_rows_max",
                    step=ctx.step,
                ) from None
            return self._stop(ctx, seen)
        merged = [(table.name, buffer.merged(table.name)) for table in mine]
        changes = (Change(name, rows, presorted=True) for name, rows in merged if rows is not None)
        errors = join_errors(*inner.errors, *rounds.errors)
        return StepResult(
            rounds.output(),
            tuple(change for change in changes if change.rows.num_rows),
            None if errors is None else consolidate(errors),
        )

    @property
    def _limits(self) -> Limits:
        return Limits(self.rounds_max, self.rows_max, self.copies_max)

    def _stop(self, ctx: Context, seen: str) -> StepResult:
        """Stop for good: retract all rows, and write an error row that says why."""
        stored_rows = ctx.table(seen).scan()
        rounds, counts = ints_of(stored_rows, self.round), ints_of(stored_rows, COUNT)
        there = (rounds <= self.rounds_max) & (self.distinct | (counts <= self.copies_max))
        rows = stored_rows.filter(pa.array(there)).select(list(self.columns))
        out = consolidate(with_weights(rows, -counts[there])) if rows.num_rows else None
        if out is not None and self.distinct:  # a row counts only in the first of its rounds
            out = with_weights(out, np.full(out.num_rows, -1, np.int64))
        why = (
            f"{called(ctx.step)} gives more than {self.rows_max} rows in one epoch "
            "(recursion_rows_max); it has no rows until the view is created again"
        )
        epoch = pa.table({"epoch": pa.array([ctx.epoch], pa.int64())})
        mark = epoch.append_column(WEIGHT, pa.array([1], pa.int64()))
        return StepResult(out, (Change(f"{ctx.step}/{STOPPED}", mark),), error_rows(epoch, [why]))


class _InnerSteps:
    """Runs the inner steps of a recursion during one epoch."""

    def __init__(self, ctx: Context, steps: tuple[Inner, ...], result: str, buffer: WriteBuffer) -> None:
        self.steps = steps
        self.result = result
        self.buffer = buffer
        self.contexts = {inner.name: InnerContext(ctx, buffer, inner.name) for inner in steps}
        self.errors: list[pa.Table] = []

    def next_round(self, deltas_in: Mapping[str, pa.Table]) -> pa.Table | None:
        """Send changes through all steps once; returns the rows that they produce."""
        outputs: dict[str, pa.Table] = dict(deltas_in)
        for inner in self.steps:
            inputs = [outputs.get(source) for source in inner.inputs]
            if all(delta is None for delta in inputs):
                continue
            placed = tuple(
                None if delta is None else _placed(inner, index, delta) for index, delta in enumerate(inputs)
            )
            result = inner.operator.apply(self.contexts[inner.name], inner.binding, placed)
            for change in result.changes:
                self.buffer.add(change.table, change.rows)
            if result.errors is not None:
                self.errors.append(result.errors)
            if result.out is not None and result.out.num_rows:
                outputs[inner.name] = without_hash(result.out)
        return outputs.get(self.result)


class InnerContext:
    """The context of an inner step: reads like the outer one, plus the step's own changes in this epoch."""

    def __init__(self, outer: Context, buffer: WriteBuffer, name: str) -> None:
        self._outer = outer
        self._buffer = buffer
        self.step = f"{outer.step}/{name}"
        self.epoch = outer.epoch
        self.now_us = outer.now_us
        self.task = 0
        self.h_min = 0
        self.h_max = (1 << 64) - 1
        self.output_is_read = True
        self.backfilling = outer.backfilling
        self.vectorize_user_code = outer.vectorize_user_code

    def table(
        self,
        name: str,
        *,
        everywhere: bool = False,
        buckets: Collection[int] | None = None,
        below_bucket: int | None = None,
    ) -> Table:
        outer = self._outer.table(name, everywhere=True, buckets=buckets, below_bucket=below_bucket)
        return self._buffer.applied_to(outer)

    def watermark_before(self, step: str) -> int | None:
        return None

    def watermark(self, step: str) -> int | None:
        return None

    def watermark_at(self, step: str, share: float) -> int | None:
        return None


def _placed(inner: Inner, index: int, delta: pa.Table) -> pa.Table:
    """An input as the engine would deliver it: with its hash if the step wants rows by key."""
    placement = inner.binding.placements[index]
    if placement.kind != "hash":
        return delta
    operator = inner.operator
    if isinstance(operator, PreparesInput):
        prepared: pa.Table = operator.prepare(inner.binding, index, delta)
        return prepared
    hashes = hashing.hash_columns([delta.column(name) for name in placement.key], delta.num_rows)
    return delta.append_column(HASH, pa.array(hashes))
