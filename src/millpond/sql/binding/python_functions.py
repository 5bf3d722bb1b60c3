"""Python functions with a name in SQL: their types, read from hints, and the text that replaces a call.

The function is stored with the program, like functions of the flow API: by name if an
importable module defines it, else by its code.  So it is available after a restart and
in other processes.  Registering the same function again changes nothing.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import typing
from collections import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import duckdb
import pyarrow as pa

from millpond.arguments.schemas import arrow_type, is_record, result_schema, schema_of
from millpond.errors import ConflictError, HeldError, InvalidError
from millpond.flow.builder import Builder
from millpond.kernels.python_function import Kind, PythonFunction, Steps
from millpond.kernels.storable_types import storable_text
from millpond.kernels.user_code import name_of
from millpond.kernels.watermark_strategies import Custom
from millpond.plan import codec
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.binding.catalog import columns_of
from millpond.sql.binding.functions import (
    AGGREGATE,
    CALLS,
    COLUMNS,
    KIND,
    RETURNS,
    SCALAR,
    STRATEGY,
    TABLE,
    WATERMARK,
    argument,
)
from millpond.sql.binding.types import quoted
from millpond.sql.session import TRIES, SqlSession
from millpond.sql.statements.create_function import check_name
from millpond.sql.text.duckdb_parser import parser
from millpond.sql.text.parameters import literal_of

_MANY = (list, tuple, abc.Iterable, abc.Iterator, abc.Sequence, abc.Generator)


@dataclass(frozen=True)
class Registered:
    """The arguments with which a function was registered."""

    name: str
    function: Any  # a callable; for an aggregate, a class or Steps
    returns: Any = None
    arguments: Any = None
    kind: Kind | Literal["watermark"] | None = None
    vectorised: bool = False
    nulls: bool = False


def register(session: SqlSession, said: Registered) -> None:
    """Define a function for all later statements; committed on return, if there is a program."""
    made = _object(said)
    for _ in range(TRIES):
        with session.lock:
            if session.catalog.find(said.name) == made:
                return
            check_name(session.catalog, said.name, True)

            def edit(builder: Builder) -> None:
                builder.plan = builder.plan.with_object(made)

            session.define(edit)
            try:
                session.commit()
                return
            except HeldError:
                raise
            except ConflictError:  # another process changed the program: try again on the new one
                continue
    raise ConflictError(
        "the program was changed several times meanwhile", hint="try again when they are done"
    )


def _object(said: Registered) -> SqlObject:
    name, kind = said.name, said.kind or _kind(said.function)
    if not isinstance(name, str) or not name or '"' in name or "#" in name:
        _refuse("a function needs a name without quotes and #", f"got {name!r}", "")
    if kind == "watermark":
        return _watermark(said)
    if kind not in (SCALAR, TABLE, AGGREGATE):
        _refuse(f"no kind of function named {kind!r}", "", "scalar, table, aggregate or watermark")
    if said.vectorised and kind != SCALAR:
        _refuse("only scalar functions can be vectorised", f"{name}() is of kind {kind}", "")
    _check_callable(said, kind)
    columns = _parameters(said, kind)
    rows = _columns(said) if kind == TABLE else None
    returns = "" if rows is not None else _returns(said, kind)
    parameters = tuple((c.name, _stored(c.type, f"parameter {c.name!r}", name)) for c in columns)
    if rows is None:
        gives = _stored(returns, "what it returns", name)
    else:
        listed = ", ".join(f"{quoted(n)} {_stored(t, f'column {n!r}', name)}" for n, t in rows)
        gives = f"STRUCT({listed})"
    facts = repr((parameters, gives, kind, said.vectorised, said.nulls)).encode()
    digest = hashlib.blake2b(facts + _code(said.function), digest_size=6).hexdigest()
    called = PythonFunction(  # DuckDB ignores case in function names
        f"{name.lower()}#{digest}", parameters, gives, kind, said.vectorised, said.nulls, said.function
    )
    options: dict[str, Any] = {KIND: kind, "language": "python", CALLS: (called,)}
    options |= {RETURNS: returns} if rows is None else {COLUMNS: rows}
    shown = said.function.accumulate if isinstance(said.function, Steps) else said.function
    return SqlObject(
        "function",
        name,
        tuple(columns),
        text=_text(called, columns, returns, rows),
        options=options,
        said=f'pond.function("{name}", {name_of(shown)})',
    )


def _watermark(said: Registered) -> SqlObject:
    """A function `(batch, state) -> (bound, state)` for WATERMARK FOR."""
    if said.vectorised or said.nulls or said.returns is not None or said.arguments is not None:
        _refuse(
            f"{said.name}() is a function of watermarks",
            "it takes a batch and its state, and returns a bound and the next state",
            "leave returns, arguments, vectorised and nulls out",
        )
    _check_callable(said, WATERMARK)
    options: dict[str, Any] = {
        KIND: WATERMARK,
        "language": "python",
        CALLS: (),
        STRATEGY: Custom(said.function),
    }
    shown = f'pond.function("{said.name}", {name_of(said.function)}, kind="watermark")'
    return SqlObject("function", said.name, (), options=options, said=shown)


def _code(function: Any) -> bytes:
    """Return bytes that identify a function, without the random number that pickling a class by code adds."""
    return re.sub(rb"[0-9a-f]{32}", b"", codec.pickled(function))


def _text(
    called: PythonFunction,
    columns: Sequence[SqlColumn],
    returns: str,
    rows: tuple[tuple[str, str], ...] | None,
) -> str:
    """Return the body that replaces calls."""
    own = quoted(called.name)
    if called.kind == AGGREGATE:
        listed = quoted(argument(0))
        if any(c.type != t for c, (_, t) in zip(columns, called.parameters, strict=True)):
            kinds = ", ".join(f"{quoted(n)} {t}" for n, t in called.parameters)
            listed = f"CAST({listed} AS STRUCT({kinds})[])"
        return f"CAST({own}({listed}) AS {returns})"
    given = [
        quoted(argument(n)) if c.type == t else f"CAST({quoted(argument(n))} AS {t})"
        for n, (c, (_, t)) in enumerate(zip(columns, called.parameters, strict=True))
    ]
    call = f"{own}({', '.join(given) or 'true'})"
    if rows is None:
        return f"CAST({call} AS {returns})"
    picked = ", ".join(f"CAST(q.r.{quoted(n)} AS {t}) AS {quoted(n)}" for n, t in rows)
    return f"SELECT {picked} FROM (SELECT unnest({call})) AS q(r)"  # no alias captures the arguments


# -- parameters and results --------------------------------------------------------------------


def _kind(function: Any) -> Kind:
    if isinstance(function, Steps) or (isinstance(function, type) and hasattr(function, "accumulate")):
        return "aggregate"
    return "table" if inspect.isgeneratorfunction(function) else "scalar"


def _check_callable(said: Registered, kind: str) -> None:
    function = said.function
    if kind == AGGREGATE:
        whole = isinstance(function, Steps) or (
            isinstance(function, type) and hasattr(function, "accumulate") and hasattr(function, "finish")
        )
        if not whole:
            _refuse(
                f"{said.name}() is no aggregate",
                f"got {function!r}",
                "pass a class with accumulate(self, …) and finish(self), or init=, accumulate= and finish=",
            )
        return
    if not callable(function) or isinstance(function, type):
        _refuse(f"{said.name}() needs a function", f"got {function!r}", "")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        _refuse(f"{name_of(function)} is async", "nobody awaits what it gives", "write a plain function")
    if kind == SCALAR and inspect.isgeneratorfunction(function):
        _refuse(f"{name_of(function)} is a generator", "a scalar function gives a value", 'kind="table"')


def _parameters(said: Registered, kind: str) -> list[SqlColumn]:
    function, skipped = said.function, 0
    if kind == AGGREGATE:
        function, skipped = function.accumulate, 1  # skip the state, or self
    taken = list(inspect.signature(function).parameters.values())[skipped:]
    hints = _hints(function)
    given = said.arguments
    if isinstance(given, str):
        _refuse("arguments are a list or a dict of types", f"got {given!r}", f"arguments=[{given!r}]")
    variadic = (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    plain = [p for p in taken if p.kind not in variadic]
    if len(plain) < len(taken) and given is None:
        _refuse(
            f"the parameters of {name_of(function)} cannot be told",
            f"they are {inspect.signature(function)}",
            'pass arguments={"name": type, …}',
        )
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif given is not None:
        names = [p.name for p in plain]
        names += [f"a{n + 1}" for n in range(len(names), len(list(given)))]
        pairs = list(zip(names, given, strict=False))
    else:
        pairs = [(p.name, hints.get(p.name)) for p in plain]
    least = sum(p.default is inspect.Parameter.empty for p in plain)
    if len(pairs) < least or (len(pairs) > len(plain) and len(plain) == len(taken)):
        _refuse(
            f"{name_of(function)} takes other arguments than declared",
            f"declared {len(pairs)}, its parameters are {inspect.signature(function)}",
            "declare a type for each parameter",
        )
    if kind == AGGREGATE and not pairs:
        _refuse(f"{said.name}() needs an argument", "an aggregate is over values of rows", "")
    defaults = [p.default for p in plain]
    found = []
    for number, (name, thing) in enumerate(pairs):
        default = (
            defaults[number] if number < len(defaults) and kind != AGGREGATE else inspect.Parameter.empty
        )
        text = None if default is inspect.Parameter.empty else literal_of(default)
        found.append(SqlColumn(str(name), _logical(thing, f"parameter {name!r}", said.name), text))
    return found


def _returns(said: Registered, kind: str) -> str:
    made = said.function
    thing = said.returns
    if thing is None:
        thing = _hints(made.finish if kind == AGGREGATE else made).get("return")
    return _logical(thing, "what it returns", said.name, "returns=")


def _columns(said: Registered) -> tuple[tuple[str, str], ...]:
    """Return the columns of a table function."""
    thing = said.returns
    if thing is None:
        schema = result_schema(said.function)
        if schema is not None:
            return tuple((c.name, c.type) for c in columns_of(schema))
        hint = _hints(said.function).get("return")
        inner = typing.get_args(hint)
        if typing.get_origin(hint) in _MANY and inner and typing.get_origin(inner[0]) is not tuple:
            return ((said.name, _logical(inner[0], "what it yields", said.name, "returns=")),)
        _refuse(f"the columns of {said.name}() cannot be told", "", 'pass returns={"name": type, …}')
    if isinstance(thing, Mapping):
        return tuple((str(n), _logical(t, f"column {n!r}", said.name)) for n, t in thing.items())
    if isinstance(thing, pa.Schema) or is_record(thing):
        return tuple((c.name, c.type) for c in columns_of(schema_of(thing)))
    return ((said.name, _logical(thing, "what it yields", said.name, "returns=")),)


def _logical(thing: Any, what: str, name: str, by: str = "arguments=") -> str:
    """Return the SQL type for a type, a type hint or a text."""
    if thing is None:
        _refuse(
            f"the type of {what} of {name}() is not known", "it has no type hint", f"write one, or pass {by}"
        )
    if isinstance(thing, str):
        try:
            return str(parser().sql(f"select cast(null as {thing}) as c").types[0])
        except duckdb.Error as error:
            raise InvalidError(
                f"no type named {thing!r}", detail=f"{what} of {name}()", hint="BIGINT, VARCHAR, DOUBLE, …"
            ) from error
    try:
        kind = arrow_type(thing)
    except InvalidError as error:
        raise InvalidError(
            f"the type of {what} of {name}() is not known",
            detail=error.message,
            hint=f"write a plain type, or pass {by}",
        ) from error
    return columns_of(pa.schema([("c", kind)]))[0].type


def _stored(kind: str, what: str, name: str) -> str:
    if "INTERVAL" in kind:
        _refuse(
            f"{what} of {name}() cannot be an INTERVAL", "Python has no months", "use BIGINT and epoch_us(…)"
        )
    return storable_text(kind)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise InvalidError(
            f"the type hints of {name_of(function)} cannot be read",
            detail=f"{type(error).__name__}: {error}",
            hint="define the types at the top of the module, or pass arguments= and returns=",
        ) from error


def _refuse(message: str, detail: str, hint: str) -> NoReturn:
    raise InvalidError(message, detail=detail or None, hint=hint or None)
