"""Reads schemas from Python type hints.

Law: the schema of a step is known before any row is seen.  It is passed as an Arrow schema, a dict, a
dataclass, a NamedTuple or a TypedDict, or it is read from the return annotation of a function.  A type
without an Arrow type is refused when the step is defined, with what to write instead.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import inspect
import types
import typing
import uuid
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.kernels.user_code import name_of
from millpond.valid_text import require_text

Like: TypeAlias = pa.Schema | Mapping[str, Any] | type  # what can be read as a schema

DECIMAL = pa.decimal128(38, 9)

_PLAIN: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    datetime.datetime: pa.timestamp("us"),
    datetime.date: pa.date32(),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
    decimal.Decimal: DECIMAL,
}
_LISTS = (list, abc.Sequence, abc.Iterable, abc.Collection, abc.MutableSequence)
_MAPS = (dict, abc.Mapping, abc.MutableMapping)
_MANY = (*_LISTS, abc.Iterator, abc.Generator, tuple)


# ---------------------------------------------------------------- from types


def schema_of(thing: Any, *, step: str | None = None) -> pa.Schema:
    """The schema described by any accepted form.

    >>> schema_of({"name": str, "price": float}).types
    [DataType(string), DataType(double)]
    """
    if isinstance(thing, pa.Schema):
        if not thing.names:
            refuse("a schema needs at least one column", "got an empty schema", None, step)
        return thing
    if isinstance(thing, Mapping):
        fields = dict(thing)
        if odd := [name for name in fields if not isinstance(name, str)]:
            refuse("the names of columns are text", f"got {odd[0]!r}", 'write {"name": str, ...}', step)
        for name in fields:
            require_text(name, "the name of a column")
    elif is_record(thing):
        fields = record_fields(thing, step=step)
    else:
        refuse(
            "this is not a schema",
            f"got {said(thing)}",
            'write pa.schema([...]), {"name": str, "n": int}, or a dataclass, NamedTuple or TypedDict',
            step,
        )
    if not fields:
        refuse("a schema needs at least one column", f"got {said(thing)}", None, step)
    return pa.schema([(name, arrow_type(hint, step=step, at=name)) for name, hint in fields.items()])


def is_record(thing: Any) -> bool:
    """Does a type have named fields: is it a dataclass, a NamedTuple or a TypedDict?"""
    if not isinstance(thing, type):
        return False
    return dataclasses.is_dataclass(thing) or typing.is_typeddict(thing) or _is_named_tuple(thing)


def record_fields(kind: type, *, step: str | None = None) -> dict[str, Any]:
    """The fields of such a type with their hints, in order."""
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise InvalidError(
            f"the type hints of {kind.__qualname__} cannot be read",
            detail=f"{type(error).__name__}: {error}",
            hint="define the types it names at the top of the module, or pass schema=...",
            step=step,
        ) from error
    if dataclasses.is_dataclass(kind):
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    if _is_named_tuple(kind):
        names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
        if untyped := [name for name in names if name not in hints]:
            refuse(
                f"field {untyped[0]!r} of {kind.__qualname__} has no type",
                "a collections.namedtuple has names only",
                "write it as a class of typing.NamedTuple, or pass schema=...",
                step,
            )
        return {name: hints[name] for name in names}
    return hints


def arrow_type(
    hint: Any, *, step: str | None = None, at: str | None = None, within: tuple[type, ...] = ()
) -> pa.DataType:
    """The Arrow type of a Python type; `at` is the column, for errors.

    >>> arrow_type(list[int] | None)
    ListType(list<item: int64>)
    """
    if isinstance(hint, pa.DataType):
        return hint
    if isinstance(hint, typing.NewType):
        return arrow_type(hint.__supertype__, step=step, at=at, within=within)
    if hasattr(hint, "__value__") and not isinstance(hint, type):  # type Price = float
        return arrow_type(hint.__value__, step=step, at=at, within=within)
    try:
        if hint in _PLAIN:
            return _PLAIN[hint]
    except TypeError:  # not hashable: no type at all
        _refuse_type(hint, "a value is not a type", "write the type, such as int or pa.int64()", step, at)
    inner = functools.partial(arrow_type, step=step, at=at, within=within)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        exact = [extra for extra in args[1:] if isinstance(extra, pa.DataType)]
        return exact[0] if exact else inner(args[0])
    if origin in (typing.Union, types.UnionType):
        given = [arg for arg in args if arg is not types.NoneType]
        if len(given) != 1:
            _refuse_type(hint, "a column has one type", "choose one; None is always allowed", step, at)
        return inner(given[0])
    if origin in (typing.Required, typing.NotRequired, typing.Final):
        return inner(args[0])
    if origin is typing.Literal:
        kinds = {type(value) for value in args if value is not None}
        if len(kinds) != 1 or not kinds <= {str, int, bool, bytes}:
            _refuse_type(hint, "its values are of more than one plain type", "write str or int", step, at)
        return _PLAIN[kinds.pop()]
    if origin in _LISTS:
        return pa.list_(inner(args[0]))
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return pa.list_(inner(args[0]))
    if origin in _MAPS:
        return pa.map_(inner(args[0]), inner(args[1]))
    if is_record(hint):
        if hint in within:
            _refuse_type(hint, "it contains itself", "a column has a fixed depth", step, at)
        fields = record_fields(hint, step=step)
        return pa.struct(
            [
                (name, arrow_type(h, step=step, at=f"{at}.{name}" if at else name, within=(*within, hint)))
                for name, h in fields.items()
            ]
        )
    _refuse_type(hint, *_why(hint), step, at)


def _why(hint: Any) -> tuple[str, str]:
    """(why this is no type of a column, what to write instead)."""
    if hint in (list, tuple, *_LISTS):
        return "it does not say what it holds", "write list[int], for example"
    if hint in (dict, *_MAPS):
        return "it does not say what it holds", "write dict[str, int], for example, or a dataclass"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "an Enum is not stored", "write str or int and keep its .value"
    if hint is uuid.UUID:
        return "a UUID is not stored", "write str and keep str(...), or bytes and keep its .bytes"
    if isinstance(hint, str):
        return "it is text", "write the type itself, such as int or pa.int64()"
    if hint is None or hint is types.NoneType:
        return "a column cannot hold only None", "write the type of its other values"
    return "Arrow has nothing like it", "use int, float, str, bool, bytes, a time, Decimal, or pa.DataType"


# ---------------------------------------------------------------- from functions


@dataclass(frozen=True)
class Returned:
    """The declared return type of a function."""

    row: type  # a dataclass, NamedTuple or TypedDict
    many: bool  # any number of them, or one
    optional: bool


def result_schema(function: Callable[..., Any], *, step: str | None = None) -> pa.Schema | None:
    """The schema of the rows that a function declares to return, one or many; None without annotation."""
    found = returned(function, step=step)
    return None if found is None else schema_of(found.row, step=step)


def returned(function: Callable[..., Any], *, step: str | None = None) -> Returned | None:
    hint = _return_hint(function, step)
    many = optional = False
    while True:
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            hint = args[0]
        elif origin in (typing.Union, types.UnionType):
            given = [arg for arg in args if arg is not types.NoneType]
            if len(given) != 1:
                return None
            hint, optional = given[0], optional or len(args) > 1
        elif origin in _MANY and args and not many:
            if origin is tuple and args[1:] != (Ellipsis,):
                return None
            hint, many = args[0], True
        else:
            return Returned(hint, many, optional) if is_record(hint) else None


def _return_hint(function: Callable[..., Any], step: str | None) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if is_record(function):  # a dataclass makes itself
        return function
    if not inspect.isroutine(function):
        function = type(function).__call__
    hint = getattr(function, "__annotations__", {}).get("return")
    if hint is None:
        return None

    def bare() -> None: ...

    bare.__annotations__ = {"return": hint}
    plain = getattr(function, "__func__", function)
    names = getattr(plain, "__globals__", {})
    code, cells = getattr(plain, "__code__", None), getattr(plain, "__closure__", None) or ()
    near = {}
    for name, cell in zip(code.co_freevars if code else (), cells, strict=False):
        with_value = _content(cell)
        if with_value:
            near[name] = with_value[0]
    try:
        return typing.get_type_hints(bare, names, near, include_extras=True)["return"]
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise InvalidError(
            f"the result type of {name_of(function)} is not known",
            detail=f"its annotation {hint!r} cannot be read: {type(error).__name__}: {error}",
            hint="define the type at the top of the module, or pass schema=... or sample=[...]",
            step=step,
        ) from error


def _content(cell: Any) -> tuple[Any, ...]:
    """What a name of the surrounding function stands for, if it has a value yet."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def check_parameters(function: Any, *given: str, yields: bool = True, step: str | None = None) -> None:
    """Refuse what cannot be called with these arguments, as far as its signature tells.

    `yields` says that it may be a generator.
    """
    arguments = " and ".join(given)
    if not callable(function):
        sql = "; SQL goes into select(), with_columns() or filter()" if isinstance(function, str) else ""
        refuse(
            "a function is needed here", f"got {said(function)}", f"it is called with {arguments}{sql}", step
        )
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        refuse(f"{name_of(function)} is async", "nobody awaits what it gives", "write a plain function", step)
    if not yields and inspect.isgeneratorfunction(function):
        refuse(
            f"{name_of(function)} is a generator",
            "what it yields is not what it returns",
            "return the value; or use flat_map(), whose functions may yield rows",
            step,
        )
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # a builtin that does not tell
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        raise InvalidError(
            f"{name_of(function)} cannot be called with {arguments}",
            detail=f"its parameters are {signature}: {error}",
            hint=f"write a function of {len(given)} parameter{'s' if len(given) > 1 else ''}: {arguments}",
            step=step,
        ) from error


# ---------------------------------------------------------------- words


def _is_named_tuple(thing: type) -> bool:
    return issubclass(thing, tuple) and hasattr(thing, "_fields")


def is_typed(kind: type) -> bool:
    """Do the values of this type say what their fields are?"""
    if _is_named_tuple(kind):
        return set(kind._fields) <= set(kind.__annotations__)  # type: ignore[attr-defined]
    return dataclasses.is_dataclass(kind)


def said(thing: Any) -> str:
    if isinstance(thing, type):
        return f"the type {thing.__qualname__}"
    text = repr(thing)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse_type(hint: Any, why: str, instead: str, step: str | None, at: str | None) -> NoReturn:
    name = hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    where = f" of column {at!r}" if at else ""
    refuse(f"{name} cannot be the type{where}", why, instead, step)


def refuse(message: str, detail: str, hint: str | None, step: str | None) -> NoReturn:
    raise InvalidError(message, detail=detail, hint=hint, step=step)
