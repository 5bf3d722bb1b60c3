"""A user's Python function that SQL kernels can call, under a unique name.

Law: its result depends on its arguments alone, so that a retracted row has the result
it had when it was inserted.  An exception is an error of the row: it is reported with
the user's own line, while all other rows are processed (law 9).  Operators whose SQL
calls the function contain it, so every process that can run the operator can run the
function (law 4).

A scalar function returns a value for each row; a vectorised one takes and returns
complete Arrow arrays.  A table function returns rows, here as a list of them.  An
aggregate receives a group as a list of rows of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from millpond.identity import one_chunk
from millpond.kernels import duck
from millpond.kernels.python_rows import arrow_values, row_values
from millpond.kernels.python_values import python_values
from millpond.kernels.user_code import error_text, is_row_fault
from millpond.stored_code import Stored, loaded

Kind = Literal["scalar", "table", "aggregate"]


@dataclass(frozen=True)
class Steps:
    """An aggregate made of functions: each returns a new state, or changes the one it receives."""

    init: Callable[[], Any]
    accumulate: Callable[..., Any]
    finish: Callable[[Any], Any]
    retract: Callable[..., Any] | None = None


def _parts(steps: Steps) -> tuple[Any, ...]:
    return tuple(getattr(steps, f.name) for f in fields(steps))


@dataclass(frozen=True)
class PythonFunction:
    name: str  # for kernels: the user's name and a digest of everything else
    parameters: tuple[tuple[str, str], ...]  # names and types, as they are stored
    returns: str  # the result type, as it is stored; for a table function that of one row
    kind: Kind = "scalar"
    vectorised: bool = False
    nulls: bool = False  # is it called when an argument is NULL?
    function: Any = field(default=None, compare=False)  # the name identifies it

    def __post_init__(self) -> None:
        _ = self._type  # now, not while a kernel runs: it queries DuckDB
        duck.provide(self.name, self._takes, self._gives, self)

    @property
    def _takes(self) -> list[str]:
        if self.kind == "aggregate":
            inner = ", ".join(f"{duck.quoted(n)} {t}" for n, t in self.parameters)
            return [f"STRUCT({inner})[]"]
        return [t for _, t in self.parameters] or ["BOOLEAN"]  # a dummy column, to count rows by

    @property
    def _gives(self) -> str:
        return f"{self.returns}[]" if self.kind == "table" else self.returns

    @property
    def gives(self) -> pa.DataType:
        return self._type

    @property
    def label(self) -> str:
        """The user's name for it."""
        return self.name.rpartition("#")[0]

    @property
    def sleeps(self) -> bool:
        """Whether its code is stored and not loaded yet."""
        parts = _parts(self.function) if isinstance(self.function, Steps) else (self.function,)
        return any(isinstance(part, Stored) for part in parts)

    @cached_property
    def code(self) -> Any:
        """The callable; this loads stored code."""
        found = loaded(self.function)
        return Steps(*map(loaded, _parts(found))) if isinstance(found, Steps) else found

    @property
    def retracts(self) -> bool:
        """Whether an aggregate can retract a row."""
        if isinstance(self.function, Steps):
            return self.function.retract is not None
        return hasattr(self.code, "retract")

    @cached_property
    def _type(self) -> pa.DataType:
        found = duck.binder().sql(f"select cast(null as {self._gives}) as x limit 0")
        return found.to_arrow_table().schema.field(0).type

    @property
    def _shown(self) -> Callable[..., Any]:
        """The function whose line errors report."""
        return self.code if self.kind != "aggregate" else self.code.accumulate  # type: ignore[no-any-return]

    def __call__(self, *columns: pa.ChunkedArray) -> pa.Array:
        """Called by kernels: takes a column for each argument and returns a column."""
        try:
            return self._run(columns)
        except BaseException as error:
            if not is_row_fault(error):
                raise duck.Stop(error) from error
            raise duck.RowFailure(f"{self.label}(): {error_text(error, self._shown)}") from error

    def _run(self, columns: Sequence[pa.ChunkedArray]) -> pa.Array:
        if self.vectorised:
            return self._called_by_column(columns)
        rows = len(columns[0])
        arguments = [python_values(c) for c in columns] if self.parameters else []
        if self.kind == "scalar" and arguments and (self.nulls or not any(c.null_count for c in columns)):
            return arrow_values(list(map(self.code, *arguments)), self._type)  # no check needed row by row
        values = zip(*arguments, strict=True) if arguments else iter([()] * rows)
        call = {"scalar": self._value, "table": self._rows, "aggregate": self._group}[self.kind]
        return arrow_values([call(row) for row in values], self._type)

    def _value(self, row: tuple[Any, ...]) -> Any:
        return None if not self.nulls and _has_null(row) else self.code(*row)

    def _called_by_column(self, columns: Sequence[pa.ChunkedArray]) -> pa.Array:
        rows = len(columns[0])
        found = self.code(*(one_chunk(c) for c in columns[: len(self.parameters)]))
        if isinstance(found, pa.ChunkedArray):
            found = one_chunk(found)
        if isinstance(found, pa.Scalar):
            found = pa.repeat(found, rows)
        if not isinstance(found, pa.Array):
            found = arrow_values(list(found), self._type)
        if len(found) != rows:
            raise ValueError(f"returned {len(found)} values for {rows} rows")
        return found if found.type == self._type else found.cast(self._type)

    def _rows(self, row: tuple[Any, ...]) -> list[Any]:
        if not self.nulls and _has_null(row):
            return []
        found = self.code(*row)
        if found is None:
            return []
        if isinstance(found, str | dict) or not isinstance(found, Iterable):
            raise TypeError(f"must give an iterable of rows, gave {type(found).__name__}")
        names = tuple(f.name for f in self._type.value_type)
        single = len(names) == 1
        return [
            {names[0]: item}
            if single and not isinstance(item, tuple | list | dict)
            else dict(zip(names, row_values(item, names), strict=True))
            for item in found
        ]

    def _group(self, row: tuple[Any, ...]) -> Any:
        (listed,) = row
        rows = [tuple(item.values()) for item in listed or ()]
        if not self.nulls:
            rows = [each for each in rows if not _has_null(each)]
        made = self.code
        if isinstance(made, Steps):
            state = made.init()
            for each in rows:
                state = kept(state, made.accumulate(state, *each))
            return made.finish(state)
        state = made()
        for each in rows:
            state.accumulate(*each)
        return state.finish()


def kept(state: Any, returned: Any) -> Any:
    """The state after calling a function that returns a new one, or changes the one it receives."""
    return state if returned is None else returned


def _has_null(row: tuple[Any, ...]) -> bool:
    return any(value is None for value in row)


class CallsPythonFunctions:
    """An operator whose SQL may call Python functions; `carrying` sets `functions`."""

    functions: tuple[Any, ...]


def carrying(operator: Any) -> Any:
    """The operator with the Python functions that its SQL calls, so that they are shipped with it."""
    if not _calls_functions(operator):
        return operator
    text = "".join(
        t for f in fields(operator) if f.name != "functions" for t in _texts(getattr(operator, f.name))
    )
    if "#" not in text:
        return operator
    # The name of a user's function has a #; native functions are known in every process and not shipped.
    found = tuple(f for n, f in duck.provided().items() if "#" in n and duck.quoted(n) in text)
    return replace(operator, functions=found) if found else operator


def _calls_functions(operator: Any) -> bool:
    return isinstance(operator, CallsPythonFunctions)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _texts(each)
