"""What user code gave, as columns; and which of it does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millpond.operators.flat_map import arrow_values, row_values

NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError)


def columns(items: Sequence[Any], schema: pa.Schema) -> list[pa.Array]:
    """The rows as columns; raises when any does not fit."""
    if not items:
        return [pa.nulls(0, f.type) for f in schema]
    names = tuple(schema.names)
    kinds, widths = set(map(type, items)), set()
    if kinds <= {dict, tuple}:
        widths = set(map(len, items))
    if kinds == {dict} and widths == {len(names)}:
        return [arrow_values([item[f.name] for item in items], f.type) for f in schema]
    if kinds != {tuple} or widths != {len(names)}:
        items = [row_values(item, names) for item in items]
    return [
        arrow_values(list(values), f.type) for values, f in zip(zip(*items, strict=True), schema, strict=True)
    ]


def check_fits(item: Any, schema: pa.Schema) -> None:
    """Raise what is wrong with one row."""
    for value, f in zip(row_values(item, tuple(schema.names)), schema, strict=True):
        try:
            arrow_values([value], f.type)
        except NOT_ARROW as error:
            raise TypeError(f"column {f.name!r} must be {f.type}: {error}") from error


def misfits(items: Sequence[Any], schema: pa.Schema) -> list[int]:
    """The numbers of the rows that do not fit."""
    found = []
    for number, item in enumerate(items):
        try:
            check_fits(item, schema)
        except NOT_ARROW:
            found.append(number)
    return found
