"""The filters that Spark pushes into a read of a view: keys to look up, and conditions on rows.

Law: what is computed here keeps every row for which Spark's filter is true.  Spark evaluates all filters
again, so a condition that has no exact equal in Arrow is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

KEYS_MAX = 10_000  # more keys than this are found faster by a scan

_COMPARISONS: Mapping[type[Filter], Callable[[Any, Any], Any]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}


def keys_of(filters: Iterable[Filter], key: Sequence[str], schema: pa.Schema) -> pa.Table | None:
    """The keys that can pass the filters, if these fix every key column; None if they do not.

    >>> schema = pa.schema({"k": pa.int64(), "n": pa.int64()})
    >>> keys_of([In(("k",), (3, 5)), GreaterThan(("n",), 0)], ["k"], schema).to_pylist()
    [{'k': 3}, {'k': 5}]
    >>> keys_of([EqualTo(("n",), 0)], ["k"], schema) is None
    True
    """
    chosen: dict[str, list[Any]] = {}
    for one in filters:
        match one:
            case EqualTo(attribute=(name,), value=value) | EqualNullSafe(attribute=(name,), value=value):
                values = [value]
            case In(attribute=(name,), value=many):
                values = [v for v in many if v is not None]
            case _:
                continue
        if name in key and (name not in chosen or len(values) < len(chosen[name])):
            chosen[name] = values
    if not key or any(name not in chosen for name in key):
        return None
    count = 1
    for values in chosen.values():
        count *= len(values)
    if count > KEYS_MAX:
        return None
    rows = [dict(zip(key, values, strict=True)) for values in product(*(chosen[name] for name in key))]
    try:
        return pa.Table.from_pylist(rows, schema=pa.schema([schema.field(name) for name in key]))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None  # a value of another type: Spark compares it


def condition(filters: Iterable[Filter], schema: pa.Schema) -> pc.Expression | None:
    """The conditions that Arrow can evaluate exactly; None if there are none.

    >>> condition([GreaterThan(("n",), 0), StringStartsWith(("s",), "a")], pa.schema({"n": pa.int64()}))
    <pyarrow.compute.Expression (n > 0)>
    """
    found: pc.Expression | None = None
    for one in filters:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) != 1 or path[0] not in schema.names:
            continue
        try:
            added = _condition(one, schema.field(path[0]))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue  # a value of another type: Spark compares it
        if added is not None:
            found = added if found is None else found & added
    return found


def columns_of(filters: Iterable[Filter]) -> set[str]:
    """The columns that some filters read."""
    return {path[0] for one in filters for path in [getattr(one, "attribute", ())] if path}


def _condition(one: Filter, field: pa.Field) -> pc.Expression | None:
    column = pc.field(field.name)
    match one:
        case IsNull():
            return column.is_null()
        case IsNotNull():
            return column.is_valid()
    if not _compares_alike(field.type):
        return None
    match one:
        case In(value=values):
            known = pa.array([v for v in values if v is not None], field.type)
            return column.isin(known)
        case StringStartsWith(value=text) if pa.types.is_string(field.type):
            return pc.starts_with(column, text)
        case EqualTo(value=value) | GreaterThan(value=value) | GreaterThanOrEqual(value=value):
            return _COMPARISONS[type(one)](column, pa.scalar(value, field.type))
        case LessThan(value=value) | LessThanOrEqual(value=value):
            return _COMPARISONS[type(one)](column, pa.scalar(value, field.type))
        case _:
            return None


def _compares_alike(kind: pa.DataType) -> bool:
    """Do Spark and Arrow order the values of a type alike?  They do not for NaN."""
    types = pa.types
    checks = (types.is_integer, types.is_boolean, types.is_string, types.is_large_string)
    more = (types.is_date32, types.is_timestamp, types.is_decimal, types.is_binary)
    return any(check(kind) for check in (*checks, *more))
