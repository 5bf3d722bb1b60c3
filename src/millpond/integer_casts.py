"""Refuses numbers with a fraction for integer columns, where Arrow would truncate them silently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa


def require_integers(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Refuse the first such number.

    >>> require_integers([{"k": 1.0}], pa.schema([("k", pa.int64())]))
    >>> require_integers([{"k": [1.5]}], pa.schema([("k", pa.list_(pa.int64()))]))
    Traceback (most recent call last):
    ValueError: column 'k' is list<item: int64>, got 1.5
    """
    fields = [f for f in schema if pa.types.is_integer(f.type) or pa.types.is_nested(f.type)]
    for row in rows if fields else ():
        for field in fields:
            found = _cut(row.get(field.name), field.type)
            if found is not None:
                raise ValueError(f"column {field.name!r} is {field.type}, got {found}")


def _cut(value: Any, kind: pa.DataType) -> float | Decimal | None:
    """The first number in a value that would lose its fraction."""
    if pa.types.is_integer(kind):
        if isinstance(value, Decimal):
            return None if value == value.to_integral_value() else value
        return value if isinstance(value, float) and not value.is_integer() else None
    inner: list[tuple[Any, pa.DataType]] = []
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        inner = [(value.get(kind.field(n).name), kind.field(n).type) for n in range(kind.num_fields)]
    elif pa.types.is_map(kind) and isinstance(value, Mapping | list | tuple):
        pairs = value.items() if isinstance(value, Mapping) else value
        inner = [one for k, v in pairs for one in ((k, kind.key_type), (v, kind.item_type))]
    elif hasattr(kind, "value_type") and isinstance(value, list | tuple):
        inner = [(one, kind.value_type) for one in value]
    return next((found for one, of in inner if (found := _cut(one, of)) is not None), None)
