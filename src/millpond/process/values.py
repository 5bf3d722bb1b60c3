"""Converts the values of a state between Python objects (user code) and columns (the table).

A scalar is one column, a record is one column per field, anything else is pickled.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import cloudpickle
import pyarrow as pa

from millpond import moved_names
from millpond.errors import InvalidError
from millpond.kernels.python_rows import arrow_values
from millpond.kernels.python_values import python_values
from millpond.kernels.user_code import is_row_fault
from millpond.process.nested import Rebuilt, maker
from millpond.process.spec import StateSpec

HOLDS = "a state holds picklable values: no locks, files, connections or generators"


def decode(spec: StateSpec, table: pa.Table, step: str | None = None) -> list[Any]:
    """One Python value per row."""
    try:
        return _decoded(spec, table)
    except BaseException as error:  # a user's class may be missing, or raise anything when it is constructed
        if not is_row_fault(error):
            raise
        raise InvalidError(
            f"what is stored of state {spec.name!r} cannot be read",
            detail=f"{type(error).__name__}: {' '.join(str(error).split())}",
            hint="bring back the class it was made of, under its name, or rewrite the state: pond.migrate()",
            step=step,
        ) from error


def _decoded(spec: StateSpec, table: pa.Table) -> list[Any]:
    columns = [python_values(table.column(f.name)) for f in spec.fields]
    if spec.form == "pickle":
        return [None if raw is None else moved_names.loads(raw) for raw in columns[0]]
    if spec.form == "scalar":
        return columns[0] if spec.rebuilt is None else _made(spec.rebuilt, columns[0])
    inner = dict(spec.rebuilt.fields) if spec.rebuilt is not None else {}
    for index, name in enumerate(spec.fields.names):
        if (of := inner.get(name)) is not None:
            columns[index] = _made(of, columns[index])
    make = _maker(spec.record, tuple(spec.fields.names))
    return [make(values) for values in zip(*columns, strict=True)]


def _made(of: Rebuilt, values: list[Any]) -> list[Any]:
    make = maker(of)
    return [None if value is None else make(value) for value in values]


def encode(spec: StateSpec, values: Sequence[Any], step: str, tell: Callable[[int], str]) -> list[pa.Array]:
    """Convert values to columns; `tell(i)` names the key of the i-th value in an error."""
    try:
        if spec.form == "pickle":
            return [pa.array([_pickled(value) for value in values], pa.binary())]
        return [
            arrow_values(column, f.type)
            for column, f in zip(_columns(spec, values), spec.fields, strict=True)
        ]
    except BaseException as error:  # raised again below with the value that caused it
        if not is_row_fault(error):
            raise
        for number, value in enumerate(values):
            _refuse_value(spec, value, step, tell(number))
        raise


def _columns(spec: StateSpec, values: Sequence[Any]) -> list[list[Any]]:
    if spec.form == "scalar":
        return [list(values)]
    names = spec.fields.names
    if spec.record is None or _is_typed_dict(spec.record):
        return [[value[name] for value in values] for name in names]
    return [[getattr(value, name) for value in values] for name in names]


def _refuse_value(spec: StateSpec, value: Any, step: str, whose: str) -> None:
    """Raise the reason if this value cannot be stored."""
    try:
        if spec.form == "pickle":
            _pickled(value)
        else:
            for column, f in zip(_columns(spec, [value]), spec.fields, strict=True):
                arrow_values(column, f.type)
    except BaseException as error:  # a user's object may raise anything when it is pickled
        if not is_row_fault(error):
            raise
        declared = ", ".join(f"{f.name} {f.type}" for f in spec.fields)
        raise InvalidError(
            f"state {spec.name!r} of {whose} cannot be stored",
            detail=f"{type(value).__name__}: {type(error).__name__}: {' '.join(str(error).split())}",
            hint=HOLDS if spec.form == "pickle" else f"it is declared as {declared}",
            step=step,
        ) from error


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value, 5)
    except Exception:  # a class of __main__ or of a function is pickled by value
        return bytes(cloudpickle.dumps(value, 5))


def _is_typed_dict(record: type) -> bool:
    return issubclass(record, dict)


@lru_cache(maxsize=256)
def _maker(record: type | None, names: tuple[str, ...]) -> Callable[[tuple[Any, ...]], Any]:
    """A function that makes a record from the values of its columns."""
    if record is None or _is_typed_dict(record):
        return lambda values: dict(zip(names, values, strict=True))
    if hasattr(record, "_fields") or (
        dataclasses.is_dataclass(record)
        and [f.name for f in dataclasses.fields(record) if f.init and not f.kw_only] == list(names)
    ):
        return lambda values: record(*values)
    return lambda values: record(**dict(zip(names, values, strict=True)))
