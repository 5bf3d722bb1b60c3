"""process(): from a user's class or function to a step of the plan."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from millpond.arguments.durations import Duration, microseconds
from millpond.arguments.names import check_name
from millpond.arguments.schemas import Like, check_parameters, result_schema, schema_of
from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.states import State
from millpond.operators.operator import Shape
from millpond.process.batch_process import BatchProcess
from millpond.process.function import Code, Process
from millpond.process.keyed_process import KeyedProcess
from millpond.process.pick import Pick
from millpond.process.spec import StateSpec

Target = Process | type[Process] | Callable[..., Any]


def process_step(
    builder: Builder,
    source: str,
    key: tuple[str, ...],
    target: Target,
    schema: Like | None,
    *,
    sides: Mapping[str, Like] | None,
    control: str | None,
    latest: bool,
    timeout: Duration | None,
    id: str | None,
) -> tuple[str, Mapping[str, str]]:
    """Add the step; its main output, and the side outputs by name."""
    step = id or f"{source}.{_name(target)}"
    shape = builder.shape(source)
    code, states = read(target, shape, step)
    columns = _schema(code, schema, step)
    if sides is not None and not isinstance(sides, Mapping):
        raise InvalidError(
            "sides must say the schema of each output",
            detail=f"got {sides!r}"[:200],
            hint='sides={"late": {"k": str}}',
            step=step,
        )
    outputs = tuple((name, schema_of(like, step=step)) for name, like in (sides or {}).items())
    for name, _ in outputs:
        check_name("a side output", name, step=step)
        if name == "main":
            raise InvalidError("a side output needs a name of its own, other than 'main'", step=step)
    limit = None if timeout is None else microseconds(timeout)
    if limit is not None and limit <= 0:
        raise InvalidError("the timeout must be positive", detail=f"got {timeout!r}", step=step)
    operator = KeyedProcess(key, code, states, columns, outputs, latest, limit)
    inputs = (source,) if control is None else (source, control)
    added = builder.add(id, operator, inputs, step)
    if not outputs:
        return added, {}
    picked = {
        name: builder.add(None, Pick(name, of), (added,), f"{added}.{name or 'main'}")
        for name, of in (("", columns), *outputs)
    }
    return picked.pop(""), picked


def process_batch_step(
    builder: Builder,
    source: str,
    key: tuple[str, ...],
    function: Callable[..., pa.Table],
    schema: Like,
    *,
    id: str | None,
) -> str:
    step = id or f"{source}.{_name(function)}"
    if not callable(function):
        raise InvalidError("process_batch takes a function", detail=f"got {function!r}"[:200], step=step)
    declared = _parameters(function, step)
    shape = builder.shape(source)
    states = tuple(state.spec(name, shape, step) for name, state in declared.items())
    if [s.name for s in states] != list(declared):
        raise InvalidError("states of a batch function are named by its parameters", step=step)
    return builder.add(id, BatchProcess(key, function, states, schema_of(schema, step=step)), (source,), step)


def read(target: Target, shape: Shape, step: str) -> tuple[Code, tuple[StateSpec, ...]]:
    """The code to call and the states it declares."""
    if isinstance(target, type) and issubclass(target, Process):
        made = target
        try:
            target = made()
        except TypeError as error:
            raise InvalidError(
                f"{made.__name__} cannot be made without arguments",
                detail=str(error),
                hint="pass an instance: process(Class(...))",
                step=step,
            ) from error
    if isinstance(target, Process):
        declared = _attributes(target, step)
        if type(target).on_row is Process.on_row:
            raise InvalidError(
                f"{type(target).__name__} has no on_row", hint="define on_row(self, row, ctx)", step=step
            )
        for method, first in (
            ("on_row", "row"),
            ("on_timer", "timer"),
            ("on_control", "row"),
            ("on_control_removed", "row"),
        ):
            check_parameters(getattr(target, method), first, "ctx", step=step)
    elif callable(target):
        declared = _parameters(target, step)
    else:
        raise InvalidError(
            "process takes a Process class or a function", detail=f"got {type(target).__name__}", step=step
        )
    states = tuple(state.spec(attribute, shape, step) for attribute, state in declared.items())
    names = tuple((attribute, spec.name) for attribute, spec in zip(declared, states, strict=True))
    return Code(target, names), states


def _attributes(target: Process, step: str) -> dict[str, State]:
    states: dict[str, State] = {}
    for cls in reversed(type(target).__mro__):
        for attribute, value in vars(cls).items():
            _refuse_class(attribute, value, step)
            if isinstance(value, State):
                states[attribute] = value
    states |= {a: v for a, v in vars(target).items() if isinstance(v, State)}
    return states


def _parameters(function: Callable[..., Any], step: str) -> dict[str, State]:
    parameters = list(inspect.signature(function).parameters.values())
    rest = [p for p in parameters[1:] if p.name != "ctx"]
    if not parameters or (
        odd := [p for p in rest if not isinstance(p.default, State) and p.default is p.empty]
    ):
        detail = f"its parameters are {inspect.signature(function)}"
        raise InvalidError(
            f"{getattr(function, '__name__', 'the function')} cannot be a process function",
            detail=detail if not parameters else f"{detail}; {odd[0].name!r} has no default",
            hint="write def f(row, ctx, n=ValueState(int)): the row first, then ctx if wanted, then states",
            step=step,
        )
    for p in rest:
        _refuse_class(p.name, p.default, step)
    return {p.name: p.default for p in rest if isinstance(p.default, State)}


def _refuse_class(name: str, value: Any, step: str) -> None:
    if isinstance(value, type) and issubclass(value, State):
        raise InvalidError(
            f"{name!r} is the class {value.__name__}, not a state of it",
            hint=f"write {name} = {value.__name__}(...), for example with the type of what it holds",
            step=step,
        )


def _schema(code: Code, schema: Like | None, step: str) -> pa.Schema:
    if schema is not None:
        return schema_of(schema, step=step)
    methods = [m for m in ("on_row", "on_timer") if code.has(m)]
    schemas = [s for m in methods if (s := result_schema(code.where(m), step=step)) is not None]
    if not schemas:
        raise InvalidError(
            "the columns of the process step's rows are not known",
            hint="pass schema={...}, or annotate on_row with the dataclass it returns or yields",
            step=step,
        )
    if any(other != schemas[0] for other in schemas):
        raise InvalidError("on_row and on_timer say that they give different rows", step=step)
    return schemas[0]


def _name(target: Any) -> str:
    if isinstance(target, Process):
        return type(target).__name__.lower()
    return str(getattr(target, "__name__", "process")).lower().strip("<>")
