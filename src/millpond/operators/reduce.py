"""Reduce: one row per key, made by combining its rows two at a time.

Law: the output is, for every key that has rows, the fold of its rows in their
total order (a row of weight 3 counts three times).  So it is a function of the
current rows, in whatever order they arrived and whatever was retracted.  PerKey
does the work: an epoch folds the keys it touches again, which costs
the size of those keys.  A key on which the function fails is an error row and
has no output (law 9).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from millpond.kernels.bounds import Bound
from millpond.kernels.python_rows import (
    Row,
    arrow_values,
    python_rows,
    row_fields,
    row_of,
    row_type,
    row_values,
)
from millpond.operators.operator import Binding, Context, Inputs, Shape, StepResult
from millpond.operators.per_key import PerKey
from millpond.operators.traits import ExpiresBehindBound
from millpond.state.tables.stored_schema import stored


@dataclass(frozen=True)
class Fold:
    """The function over the rows of one key, as PerKey calls it."""

    function: Callable[[Row, Row], Any]
    key: tuple[str, ...]
    schema: pa.Schema

    @property
    def __wrapped__(self) -> Callable[[Row, Row], Any]:
        return self.function  # errors report the user's own line

    def __call__(self, key: Row, rows: pa.Table) -> pa.Table:
        if rows.num_rows == 1:
            return pa.table(rows.columns, schema=self.schema)
        first, *others = python_rows(rows)
        kind = row_type(tuple(self.schema.names))
        for row in others:
            first = row_of(kind, self._values(key, self.function(first, row)))
        columns = []
        for value, field in zip(first, self.schema, strict=True):
            try:
                columns.append(arrow_values([value], field.type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise TypeError(f"column {field.name!r} must be {field.type}: {error}") from error
        return pa.table(columns, schema=self.schema)

    def _values(self, key: Row, returned: Any) -> tuple[Any, ...]:
        """A row of all columns, from one that may omit the key."""
        names = tuple(self.schema.names)
        mine = row_fields(returned)
        short = self._without_key
        bare = isinstance(returned, tuple | list) and len(returned) == len(short)
        if self.key and (set(mine) == set(short) if mine is not None else bare):
            own = dict(zip(short, row_values(returned, short), strict=True))
            return tuple([own[name] if name in own else key[name] for name in names])
        values = row_values(returned, names)
        for column in self.key:
            if not _same(values[names.index(column)], key[column]):
                raise ValueError(
                    f"changed the key column {column!r} from {key[column]!r} "
                    f"to {values[names.index(column)]!r}; leave the key as it is, or leave it out"
                )
        return values

    @cached_property
    def _without_key(self) -> tuple[str, ...]:
        return tuple(name for name in self.schema.names if name not in self.key)


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


@dataclass(frozen=True)
class Reduce(ExpiresBehindBound):
    key: tuple[str, ...]
    function: Callable[[Row, Row], Any]  # two rows of the key -> one; key columns optional
    expires: Bound | None = None  # keys behind it have expired

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        binding = self._per_key(shape.schema).bind(step, inputs)
        return replace(binding, shape=replace(binding.shape, key=self.key), placed_by=self.key)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.tables[0].schema.names),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        return self._per_key(binding.shape.schema).apply(ctx, binding, inputs)

    def _per_key(self, schema: pa.Schema) -> PerKey:
        schema = stored(schema)
        return PerKey(
            self.key,
            schema,
            Fold(self.function, self.key, schema),
            passes=self.key,
            expires=self.expires,
        )
