"""Iterate: WITH RECURSIVE, a query over its own last result, round after round.

Law: the output is what the rounds of the batch query give together.  Round 0
is the first input; round i + 1 is what the inner steps make of round i and of
the other inputs.  With `distinct` a row is in the first round that gives it and
in no other, else it is in all of them, as often as they give it.

Rows inside carry the number of their round, and the inner steps keep it apart,
so they are plain operators over all rounds at once, with plain state (the
nested time of differential dataflow).  An epoch is a little loop over them in
one task: changes go through, what comes out are changes of the rounds after,
and so on until there are none.  It costs the rows whose first round changes,
and what follows from them (law 5); deletes are as exact as inserts, also
around cycles.

A row that would come after `rounds_max` rounds, or more than `copies_max` times in
one round, is an error row, taken back if it goes; so a recursion without end is
told, and stops nobody.  Rows can multiply faster than rounds can be counted: a
recursion that gives more than `rows_max` rows in one epoch is refused while its view
is filled, and later it *stops*: from then on it has no rows, and one error row says
why.  Its view must be created again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from millpond.errors import InternalError, InvalidError
from millpond.operators.iterate_epoch import (
    COUNT,
    LAST,
    STOPPED,
    Inner,
    IterateEpoch,
    Limits,
    input_name,
)
from millpond.operators.operator import Binding, Context, Inputs, Operator, Result, Shape, by_key
from millpond.operators.watermark import stored
from millpond.ordering import Order
from millpond.state.table_spec import TableSpec


@dataclass(frozen=True)
class Last:
    """The rows of the last round, while the steps that read them are being made; no plan keeps it."""

    schema: pa.Schema
    distinct: bool

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        key = tuple(self.schema.names) if self.distinct else None
        return Binding(Shape(self.schema, append_only=False, key=key), ())

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return ()

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        raise InternalError("the last round was asked for outside of its recursion", step=ctx.step)


@dataclass(frozen=True)
class InnerStep:
    """A step of the loop; its inputs are other steps of it, `last`, or `input1` and on."""

    name: str
    operator: Operator
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Iterate:
    """The first input is round 0; all inputs are in one task."""

    columns: tuple[str, ...]  # of a row
    round: str  # the column that inner steps carry beside them
    steps: tuple[InnerStep, ...]  # inputs first
    result: str  # the step that gives the next round
    distinct: bool
    rounds_max: int
    rows_max: int = 4_000_000  # that one epoch may give to rounds after the first
    copies_max: int = 1 << 31  # of one row in one round

    canonical: ClassVar[bool] = True
    alone: ClassVar[bool] = True  # one task does it all, and its tables lie anywhere

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        # A column that is never NULL at first can be so in a later round.
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

    def _check(self, step: str, wanted: pa.Schema, given: pa.Schema) -> None:
        for field in wanted:
            kind = given.field(field.name).type if field.name in given.names else None
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

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        limits = Limits(self.rounds_max, self.rows_max, self.copies_max)
        work = IterateEpoch(ctx, binding, self.columns, self.round, self.result, self.distinct, limits)
        given: Mapping[str, pa.Table] = {
            input_name(n): delta for n, delta in enumerate(inputs) if delta is not None and delta.num_rows
        }
        return work.run(given)
