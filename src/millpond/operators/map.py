"""Map: a full projection by SQL expressions.

Linear: every output row is a function of one input row and keeps its weight,
so retractions need no state.  A row whose expression fails is an error row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from millpond.delta import ORIGIN
from millpond.errors import InvalidError
from millpond.operators.expressions import bind
from millpond.operators.kernel import project
from millpond.operators.operator import HERE, Binding, Context, Inputs, Result, Shape


@dataclass(frozen=True)
class Map:
    """Columns by (name, SQL expression), in this order; nothing else is kept.

    >>> Map((("id", "id"), ("total", "price * quantity"))).columns[1]
    ('total', 'price * quantity')
    """

    columns: tuple[tuple[str, str], ...]
    functions: tuple[Any, ...] = ()  # in Python, that the text calls

    canonical: ClassVar[bool] = True
    carries_origin: ClassVar[bool] = True
    by_piece: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        check_names([name for name, _ in self.columns], step)
        bound = tuple(
            (name, bind(shape.schema, sql, name=name, append_only=shape.append_only, step=step))
            for name, sql in self.columns
        )
        renamed = {e.column: name for name, e in reversed(bound) if e.column is not None}
        key = None
        if shape.key is not None and renamed.keys() >= set(shape.key):
            key = tuple(renamed[column] for column in shape.key)
        time = renamed.get(shape.time) if shape.time is not None else None
        watermark = shape.watermark if time is not None else None
        schema = pa.schema([(name, e.type) for name, e in bound])
        bounds = tuple(
            replace(b, column=name) for name, e in bound for b in shape.bounds if e.column == b.column
        )
        return Binding(Shape(schema, shape.append_only, key, time, watermark, bounds), (HERE,), extra=bound)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        columns = frozenset(column for name, e in binding.extra if name in needed for column in e.needs)
        return (columns | (needed & {ORIGIN}),)

    def looks_at(self, binding: Binding, index: int) -> frozenset[str]:
        return frozenset(column for _, e in binding.extra if e.column is None for column in e.needs)

    def passes(self, binding: Binding) -> dict[str, str]:
        """The columns that are only named anew, by their new names."""
        return {name: e.column for name, e in binding.extra if e.column is not None}

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        (delta,) = inputs
        if delta is None:
            return Result()
        # A plan that needs only some of the output gets only what those columns are made of.
        given = set(delta.column_names)
        found = project(delta, [(name, e) for name, e in binding.extra if given.issuperset(e.needs)])
        return Result(found.rows, errors=found.errors)


def check_names(names: list[str], step: str) -> None:
    """Refuse output columns that would hide each other or Millpond's own."""
    for name in names:
        if not name or name.startswith("_"):
            raise InvalidError(
                f"a column cannot be called {name!r}",
                hint="names that begin with an underscore are hidden columns; choose another",
                step=step,
            )
    folded = [name.lower() for name in names]
    twice = next((name for name in names if folded.count(name.lower()) > 1), None)
    if twice is not None:
        raise InvalidError(
            f"column {twice!r} is there twice",
            detail=f"columns are {', '.join(names)}",
            hint="give one of them another name",
            step=step,
        )
