"""Adds the key of a window to what a query or a function returns for its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.arguments.call_errors import need_text
from millpond.arguments.schemas import Like, check_parameters, schema_of
from millpond.errors import InvalidError
from millpond.kernels.duck import quoted
from millpond.kernels.function_with_key import FunctionWithKey
from millpond.operators.per_key import PerKey

if TYPE_CHECKING:
    from millpond.flow.keyed_stream import KeyedStream
    from millpond.flow.stream import Stream


def with_key_columns(
    keyed: KeyedStream,
    function: Callable[..., Any] | None,
    schema: Like | None,
    sql: str | None,
    id: str | None,
) -> Stream:
    """A step that computes a query or a function for each key, and adds the columns of the key."""
    step = keyed.stream._named(id, "apply")
    own = [keyed.stream.schema.field(name) for name in keyed.key]
    if sql is not None:
        need_text("sql", sql, "a query over `input`")
        firsts = ", ".join(f"any_value({quoted(n)}) AS {quoted(n)}" for n in keyed.key)
        query = f"SELECT k.*, q.* FROM (SELECT {firsts} FROM input) AS k, (\n{sql}\n) AS q"
        return keyed._then(id, PerKey(keyed.key, None, None, query, passes=keyed.key, alone=True), "apply")
    if function is None or schema is None:
        raise InvalidError("apply needs a query, or a function and the schema of its result", step=step)
    check_parameters(function, "the key", "its rows as an Arrow table", yields=False, step=step)
    found = schema_of(schema, step=step)
    full = pa.schema([*(f for f in own if f.name not in found.names), *found])
    return keyed._then(
        id, PerKey(keyed.key, full, FunctionWithKey(function, keyed.key), passes=keyed.key), "apply"
    )
