"""Migration: rewrites the state of a step with a user's function, row by row or table by table.

Rows are read with the old table spec and written with the new one.  A column
that the function omits keeps its value, or gets its default if it is new; None
in place of a row drops the row.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_type_hints

import pyarrow as pa

from millpond.engine.change.state_expiry import tables_of, with_expiry_rows
from millpond.engine.change.state_rewriter import StateRewriter
from millpond.engine.change.state_rows import (
    EXPIRES,
    from_arrow,
    from_python,
    misfit,
    python_rows,
    refuse_unknown,
)
from millpond.errors import InvalidError
from millpond.kernels.user_code import error_text, is_row_fault, name_of
from millpond.plan.evolution import evolves, known_tables, user_states
from millpond.plan.nodes import Node, Plan
from millpond.state.tables.table_spec import TableSpec

ROWS_AT_ONCE = 16_384  # Python rows per call

Function = Callable[[Any], Any]
Functions = Function | Mapping[str, Function]  # for all states of a step, or by state


@dataclass(frozen=True)
class Move:
    """One state to rewrite."""

    node: Node  # from the new plan
    old: TableSpec
    new: TableSpec
    function: Function

    @property
    def step(self) -> str:
        return self.node.step

    @cached_property
    def known(self) -> frozenset[str]:
        """The columns that a new row may have; columns that were removed are ignored."""
        return frozenset([*self.new.schema.names, *self.old.schema.names])

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """The columns that keep their values unless the function sets them."""
        return tuple(name for name in self.new.schema.names if name in self.old.schema.names)


def asked_for(
    step: str | Mapping[str, Functions], function: Functions | None, state: str | None
) -> Mapping[str, Functions]:
    """Normalize the arguments of `migrate`: by step, the functions for its states.

    >>> asked_for("fraud", dict, "last")
    {'fraud': {'last': <class 'dict'>}}
    """
    if isinstance(step, Mapping) and function is None and state is None:
        return step
    if isinstance(step, str) and function is not None:
        if state is None:
            return {step: function}
        if not isinstance(function, Mapping):
            return {step: {state: function}}
    raise InvalidError(
        "migrate() needs a step and a function",
        hint="pond.migrate('step', fn), with state='name' for one state, or {step: {state: fn}} for several",
    )


def plan_moves(old: Plan, new: Plan, wanted: Mapping[str, Functions]) -> tuple[Move, ...]:
    """The states to rewrite: by step, one function for all its states or one for each of some."""
    moves = []
    for step, functions in wanted.items():
        states = user_states(state_node(new, step))
        before = known_tables(old, step) if step in old.nodes else {}
        if not isinstance(functions, Mapping):
            functions = {name: functions for name, table in states.items() if table.name in before}
        for name, function in functions.items():
            table = state_table(new, step, name)
            if table.name not in before:
                raise InvalidError(
                    f"state {name!r} of step {step!r} is new: there is nothing to migrate",
                    hint=f"fill it with pond.bootstrap({step!r}, {name!r}, rows)",
                    step=step,
                )
            if not callable(function):
                raise InvalidError(
                    f"state {name!r} cannot be migrated by {type(function).__name__}",
                    hint="pass a function from a row (a dict) to a row or None",
                    step=step,
                )
            moves.append(Move(new.nodes[step], before[table.name], table, function))
    return tuple(moves)


def state_node(plan: Plan, step: str) -> Node:
    """A step with user-defined state; raises an error that lists such steps."""
    node = plan.nodes.get(step)
    if node is not None and evolves(node):
        return node
    known = [s for s, n in plan.nodes.items() if evolves(n)]
    matches = difflib.get_close_matches(step, known, 1)
    raise InvalidError(
        f"no step named {step!r}" if node is None else f"step {step!r} keeps no state of its user's",
        detail=f"steps with such state are {', '.join(known) or 'none'}",
        hint=f"did you mean {matches[0]!r}?" if matches else None,
    )


def state_table(plan: Plan, step: str, state: str) -> TableSpec:
    """The table of one state; raises an error that lists the states."""
    states = user_states(state_node(plan, step))
    if state in states:
        return states[state]
    if state == "timers":
        raise InvalidError(
            "timers cannot be written from outside",
            detail="a timer is what the step itself set",
            hint="set them in the step, on the first row of a key",
            step=step,
        )
    matches = difflib.get_close_matches(state, states, 1)
    raise InvalidError(
        f"step {step!r} has no state {state!r}",
        detail=f"its states are {', '.join(states) or 'none'}",
        hint=f"did you mean {matches[0]!r}?" if matches else None,
        step=step,
    )


def migrate(rewriter: StateRewriter, moves: Iterable[Move]) -> int:
    """Rewrite all these states; returns the number of rows written."""
    rows = 0
    for move in moves:
        for name in tables_of(move.node, move.new):
            rewriter.replace(name)
        for unit in rewriter.units(move.old):
            made = _by_table(move, unit) if _takes_tables(move.function) else _by_row(move, unit)
            rewriter.write(move.step, with_expiry_rows(move.node, move.new, made))
            rows += made.num_rows
    return rows


def _by_row(move: Move, unit: pa.Table) -> pa.Table:
    parts = []
    for start in range(0, unit.num_rows, ROWS_AT_ONCE):
        some = unit.slice(start, ROWS_AT_ONCE)
        made = [row for old_row in _rows(move, some) if (row := _row(move, old_row)) is not None]
        parts.append(from_python(move.step, move.new, made))
    return pa.concat_tables(parts)


def _rows(move: Move, unit: pa.Table) -> list[dict[str, Any]]:
    try:
        return python_rows(move.old, unit)
    except Exception as error:  # unpickling a user's value may raise anything
        raise InvalidError(
            f"values of state {_name(move)!r} cannot be unpickled",
            detail=f"{type(error).__name__}: {error}",
            hint="let the class be importable, or take whole tables: def fn(table: pa.Table) -> pa.Table",
            step=move.step,
        ) from error


def _row(move: Move, row: dict[str, Any]) -> dict[str, Any] | None:
    before = dict(row)
    try:
        made = move.function(row)
    except BaseException as error:  # a user's function may raise anything: the error shows the row
        if not is_row_fault(error):
            raise
        raise _failed(move, error, f", in row {before!r}") from error
    if made is None:
        return None
    if not isinstance(made, Mapping):
        raise misfit(move.step, move.new, before, f"{name_of(move.function)} gave {type(made).__name__}")
    if not move.known.issuperset(made):
        refuse_unknown(move.step, move.new, made, move.known)
    return {**{name: before[name] for name in move.kept}, **made}


def _by_table(move: Move, unit: pa.Table) -> pa.Table:
    try:
        made = move.function(unit)
    except BaseException as error:  # as above
        if not is_row_fault(error):
            raise
        raise _failed(move, error) from error
    if made is None:
        return move.new.schema.empty_table()
    if not isinstance(made, pa.Table):
        raise misfit(move.step, move.new, None, f"{name_of(move.function)} gave {type(made).__name__}")
    refuse_unknown(move.step, move.new, made.column_names, move.known)
    for name in move.new.schema.names:
        if name in made.column_names or name not in unit.column_names:
            continue
        if made.num_rows == unit.num_rows:
            made = made.append_column(unit.schema.field(name), unit.column(name))
        elif name == EXPIRES:
            raise misfit(move.step, move.new, None, f"with other rows than were given, they need {name!r}")
    return from_arrow(move.step, move.new, made)


def _takes_tables(function: Function) -> bool:
    """Is the first parameter annotated as an Arrow table?"""
    try:
        first = next(iter(inspect.signature(function).parameters), None)
        hints = get_type_hints(function)
    except (ValueError, TypeError, NameError, AttributeError):
        return False
    return first is not None and hints.get(first) is pa.Table


def _failed(move: Move, error: BaseException, where: str = "") -> InvalidError:
    return InvalidError(
        f"the migration of state {_name(move)!r} failed; nothing was changed",
        detail=error_text(error, move.function) + where,
        hint="fix the function; with state=... it is only given rows of that state",
        step=move.step,
    )


def _name(move: Move) -> str:
    return move.new.name.rpartition("/")[2]
