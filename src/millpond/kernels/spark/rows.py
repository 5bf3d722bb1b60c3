"""Functions of single values as functions of columns: each different combination is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millpond.kernels.duck import RowFailure
from millpond.kernels.native_functions import NativeFunction, native


class RefusedValue(ValueError):
    """A value for which the function of Spark raises an error."""


def _listed(column: pa.Array) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        raise RowFailure("a time outside of the years 1 to 9999 is not supported here") from None


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def by_row(
    name: str, takes: tuple[str, ...], gives: str, kind: pa.DataType
) -> Callable[[Callable[..., Any]], NativeFunction]:
    """Decorate a function of single values: NULL gives NULL, `RefusedValue` is an error of the row."""

    def define(code: Callable[..., Any]) -> NativeFunction:
        def columns(*given: pa.Array) -> pa.Array:
            held: dict[tuple[Any, ...], Any] = {}
            found = []
            for values in zip(*map(_listed, given), strict=True):
                key = tuple(map(_frozen, values))
                if key not in held:
                    try:
                        held[key] = None if None in values else code(*values)
                    except RefusedValue as error:
                        raise RowFailure(str(error)) from None
                found.append(held[key])
            return pa.array(found, kind)

        return native(name, takes, gives)(columns)

    return define
