"""Numbers with a fraction that would be cut where a column holds whole numbers: Arrow does so silently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa


def require_whole(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Refuse the first such number.

    >>> require_whole([{"k": 1.0}], pa.schema([("k", pa.int64())]))
    >>> require_whole([{"k": 1.5}], pa.schema([("k", pa.int64())]))
    Traceback (most recent call last):
    ValueError: column 'k' is int64, got 1.5
    """
    names = [f.name for f in schema if pa.types.is_integer(f.type)]
    for row in rows if names else ():
        for name in names:
            value = row.get(name)
            if isinstance(value, float) and not value.is_integer():
                raise ValueError(f"column {name!r} is {schema.field(name).type}, got {value!r}")
