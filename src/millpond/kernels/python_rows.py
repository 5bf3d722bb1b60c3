"""Rows of a delta as Python objects, and Python objects as columns."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from collections import namedtuple
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, ClassVar, NoReturn

import numpy as np
import pyarrow as pa

from millpond.kernels.python_values import python_values

Values = tuple[Any, ...]  # of one row, by position
NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)


_READ_ONLY = "rows are read-only; make a new one: row.as_dict() | {...}"


class Row(tuple[Any, ...]):
    """One row, read-only: `row.price`, `row["price"]`, `row[0]`, or unpacked.

    >>> row_of(row_type(("price", "count")), (3, 4)).count
    4
    """

    __slots__ = ()
    _places: ClassVar[Mapping[str, int]] = {}

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, str):
            try:
                which = self._places[which]
            except KeyError:
                raise KeyError(f"no column {which!r}; columns are {', '.join(self._places)}") from None
        return tuple.__getitem__(self, which)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no column {name!r}; columns are {', '.join(self._places)}")

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(_READ_ONLY)

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(_READ_ONLY)

    def __setitem__(self, which: Any, value: Any) -> NoReturn:
        raise TypeError(_READ_ONLY)

    def __delitem__(self, which: Any) -> NoReturn:
        raise TypeError(_READ_ONLY)

    def as_dict(self) -> dict[str, Any]:
        return dict(zip(self._places, self, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return _row_again, (tuple(self._places), tuple(self))

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={self[place]!r}' for name, place in self._places.items())})"


@lru_cache(maxsize=256)
def row_type(names: tuple[str, ...]) -> type[Row]:
    """The class of rows with these columns; a column hides a method of its name."""
    # Attributes of a named tuple are read without running Python.
    fields = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    places = {name: index for index, name in enumerate(names)}
    return type("Row", (fields, Row), {"__slots__": (), "_places": places, "__repr__": Row.__repr__})


def row_of(kind: type[Row], values: Iterable[Any]) -> Row:
    return tuple.__new__(kind, values)


def _row_again(names: tuple[str, ...], values: Values) -> Row:
    """Restore a pickled row: its class is built again from the names."""
    return row_of(row_type(names), values)


def python_rows(table: pa.Table) -> list[Row]:
    """The rows as Python objects; nanoseconds are truncated to Python's microseconds."""
    kind = row_type(tuple(table.column_names))
    columns = [python_values(column) for column in table.columns]
    if not columns:
        return [row_of(kind, ())] * table.num_rows
    return list(
        map(partial(tuple.__new__, kind), zip(*columns, strict=True))
    )  # row_of, without running Python


def row_values(item: Any, names: tuple[str, ...]) -> Values:
    """The values of a row that a function returned, by position; a row with names is read by name.

    >>> row_values({"b": 2, "a": 1}, ("a", "b"))
    (1, 2)
    """
    if type(item) is dict and len(item) == len(names):
        try:
            return tuple([item[name] for name in names])
        except KeyError:  # reported below
            pass
    mine = row_fields(item)
    if mine is not None:
        if mine == names and isinstance(item, tuple):
            return tuple(item)
        if len(mine) != len(names) or set(mine) != set(names):
            raise ValueError(f"row has columns {', '.join(map(str, mine))}; declared {', '.join(names)}")
        if isinstance(item, Mapping):
            return tuple([item[name] for name in names])
        if isinstance(item, tuple):
            return tuple([tuple.__getitem__(item, mine.index(name)) for name in names])
        return tuple([getattr(item, name) for name in names])
    if not isinstance(item, tuple | list):
        raise TypeError(f"rows must be dicts or tuples, not {type(item).__name__}")
    if len(item) != len(names):
        raise ValueError(f"row has {len(item)} values; declared {', '.join(names)}")
    return tuple(item)


def row_fields(item: Any) -> tuple[str, ...] | None:
    """The names of a row's columns, if it has them: a mapping, Row, NamedTuple or dataclass instance."""
    if type(item) is dict or isinstance(item, Mapping):
        return tuple(item)
    kind: Any = type(item)
    return _fields(kind)


@lru_cache(maxsize=1024)
def _fields(kind: type) -> tuple[str, ...] | None:
    if issubclass(kind, Row):
        return tuple(kind._places)
    if issubclass(kind, tuple):
        return getattr(kind, "_fields", None)
    return tuple(f.name for f in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def arrow_values(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Python values as a column, with an inferred type if `kind` is None.

    Dataclasses inside lists, maps and structs are converted.  Nothing is lost:
    a float with a fraction is not accepted as an integer, nor a datetime as a date,
    nor a struct with additional fields.
    """
    if kind is None:
        values = [_plain(value) for value in values]
    elif pa.types.is_nested(kind) or _may_be_cut(values, kind):
        values = [_fitted(value, kind) for value in values]
    return pa.array(values, kind)


def _may_be_cut(values: list[Any], kind: pa.DataType) -> bool:
    cut = _cut_for(kind)
    return bool(cut) and any(issubclass(given, cut) for given in set(map(type, values)))


@lru_cache(maxsize=256)
def _cut_for(kind: pa.DataType) -> tuple[type, ...]:
    """Types of values that Arrow would silently truncate to fit this one."""
    if pa.types.is_integer(kind):
        return float, np.floating, decimal.Decimal
    if pa.types.is_date(kind):
        return float, np.floating, datetime.datetime
    return (float, np.floating) if pa.types.is_temporal(kind) else ()


def _fitted(value: Any, kind: pa.DataType) -> Any:
    """The value in a form that Arrow accepts for this type."""
    if value is None:
        return None
    cut: Any = _cut_for(kind)
    if isinstance(value, cut):
        if not pa.types.is_integer(kind):
            raise ValueError(f"{value!r} is no {kind}")
        if value % 1 != 0:
            raise ValueError(f"{value!r} is not a whole number")
        return value
    if pa.types.is_struct(kind):
        mine = row_fields(value)
        if mine is None:
            return value
        known = {field.name: field.type for field in kind}
        if lost := [name for name in mine if name not in known]:
            raise ValueError(f"{lost[0]!r} is not a field of {kind}")
        return {n: _fitted(v, known[n]) for n, v in zip(mine, row_values(value, mine), strict=True)}
    if pa.types.is_map(kind) and isinstance(value, Mapping):
        return [(_fitted(k, kind.key_type), _fitted(v, kind.item_type)) for k, v in value.items()]
    if isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType) and isinstance(
        value, list | tuple | set | frozenset
    ):
        return [_fitted(each, kind.value_type) for each in value]
    return value


def _plain(value: Any) -> Any:
    """The value as dicts, lists and scalars, from which Arrow can infer a type."""
    mine = row_fields(value)
    if mine is not None:
        return {n: _plain(v) for n, v in zip(mine, row_values(value, mine), strict=True)}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return value
