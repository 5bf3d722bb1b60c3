"""Rebuilds records inside values: converts what Arrow returns to what the type hints declare.

Law: a value is the same Python object, by type and content, in the epoch that
set it and in all later ones.  The conversion is derived where the step is
defined: a worker that received a class by value cannot resolve its type hints.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections import abc
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

_LISTS = (list, abc.Sequence, abc.Iterable, abc.Collection, abc.MutableSequence)
_MAPS = (dict, abc.Mapping, abc.MutableMapping)


@dataclass(frozen=True)
class Rebuilt:
    """A record with these fields, or a list, tuple or dict of something; None means Arrow's value as is."""

    kind: Literal["record", "list", "tuple", "map"]
    record: type | None = None  # None: a dict
    fields: tuple[tuple[str, Rebuilt | None], ...] = ()
    of: Rebuilt | None = None


def rebuilt(hint: Any) -> Rebuilt | None:
    """
    >>> rebuilt(int), rebuilt(tuple[int, ...] | None)
    (None, Rebuilt(kind='tuple', record=None, fields=(), of=None))
    """
    if isinstance(hint, typing.NewType):
        return rebuilt(hint.__supertype__)
    if hasattr(hint, "__value__") and not isinstance(hint, type):  # type Prices = list[float]
        return rebuilt(hint.__value__)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated or origin in (typing.Required, typing.NotRequired, typing.Final):
        return rebuilt(args[0])
    if origin in (typing.Union, types.UnionType):
        types_left = [arg for arg in args if arg is not types.NoneType]
        return rebuilt(types_left[0]) if len(types_left) == 1 else None
    if origin is tuple:
        return Rebuilt("tuple", of=rebuilt(args[0]))
    if origin in _LISTS or origin in _MAPS:
        inner = rebuilt(args[-1])
        return inner and Rebuilt("list" if origin in _LISTS else "map", of=inner)
    if not isinstance(hint, type):
        return None
    if typing.is_typeddict(hint):
        fields = tuple((name, rebuilt(h)) for name, h in typing.get_type_hints(hint).items())
        return Rebuilt("record", fields=fields) if any(inner for _, inner in fields) else None
    if dataclasses.is_dataclass(hint) or (issubclass(hint, tuple) and hasattr(hint, "_fields")):
        return Rebuilt(
            "record", hint, tuple((name, rebuilt(h)) for name, h in typing.get_type_hints(hint).items())
        )
    return None


@lru_cache(maxsize=256)
def maker(of: Rebuilt) -> Callable[[Any], Any]:
    """A function that converts a value from Arrow, never None, to the value that was stored."""
    if of.kind == "record":
        inner = [(name, maker(each)) for name, each in of.fields if each is not None]
        return lambda value: _record(of.record, inner, value)
    make = None if of.of is None else maker(of.of)
    if of.kind == "map":
        return lambda value: {k: _each(make, v) for k, v in dict(value).items()}
    if of.kind == "tuple":
        return lambda value: tuple(_each(make, v) for v in value)
    return lambda value: [_each(make, v) for v in value]


def _each(make: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if make is None or value is None else make(value)


def _record(record: type | None, inner: list[tuple[str, Callable[[Any], Any]]], value: Any) -> Any:
    values = dict(value)
    for name, make in inner:
        if values.get(name) is not None:
            values[name] = make(values[name])
    return values if record is None else record(**values)
