"""State evolution: how the state of a step may change when its code changes.

An operator with a method `meaning()` lets its tables evolve.
As long as the meaning stays equal, tables can be added and removed, and can gain and lose value columns.
What identifies a row (key, order, merge rule, time) and the type of a column must not change, since existing
runs could not be read.

Law: the value of a column never depends on whether its run was merged.
So the default of a column is the one with which it was added; and a removed column cannot come back, since
old runs still contain it and merged ones do not.
`Plan.left` records this: the spec of each removed table, and of each table that lost columns, with everything
that its runs may still contain.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.operators.operator import Binding
from millpond.operators.traits import EvolvesState
from millpond.plan.nodes import Node, Plan
from millpond.state.tables.table_spec import TableSpec

OWN = ("timers", "out", "rows", "late")  # tables of a step that are not the user's state


def evolves(node: Node) -> bool:
    """Can the state of this step change its columns?"""
    return isinstance(node.operator, EvolvesState)


def known_tables(plan: Plan, step: str) -> dict[str, TableSpec]:
    """The tables of a step as their runs were written, including removed ones."""
    left = {name: spec for name, spec in plan.left.items() if name.rpartition("/")[0] == step}
    return left | {table.name: table for table in plan.nodes[step].binding.tables}


def check_state(old: Plan, new: Plan, step: str, rewritten: Container[str]) -> None:
    """Refuse state that could not be read; `rewritten` tables may change in any way."""
    before = known_tables(old, step)
    for table in new.nodes[step].binding.tables:
        was = before.get(table.name)
        if was is None or table.name in rewritten:
            continue
        _check_rows(step, was, table)
        _check_columns(step, was, table)
        stored_schema = old.left.get(table.name, was).schema
        for name in table.schema.names:
            if name in stored_schema.names and name not in was.schema.names:
                raise _refusal(
                    step,
                    table,
                    f"column {name!r} was removed before",
                    "runs that were written before its removal still contain it, others do not",
                    f"give it another name, or rewrite the state with pond.migrate({step!r}, fn)",
                )


def carried(old: Plan, new: Plan, rewritten: Container[str]) -> Plan:
    """The new plan with the defaults and bucket widths of the pond, and with what was removed."""
    left: dict[str, TableSpec] = {}
    nodes: dict[str, Node] = {}
    for step, node in new.nodes.items():
        if step not in old.nodes or not evolves(node):
            continue
        before = known_tables(old, step)
        tables = []
        for table in node.binding.tables:
            was = before.pop(table.name, None)
            if was is None or table.name in rewritten:
                tables.append(table)
                continue
            columns = _as_before(was, table)
            tables.append(columns)
            gone = [f for f in old.left.get(table.name, was).schema if f.name not in columns.schema.names]
            if gone:
                left[table.name] = replace(columns, schema=pa.schema([*columns.schema, *gone]))
        left |= {name: old.left.get(name, spec) for name, spec in before.items() if name not in rewritten}
        if tuple(tables) != node.binding.tables:
            nodes[step] = replace(node, binding=_with_tables(node.binding, tuple(tables)))
    return replace(new, nodes={**new.nodes, **nodes}, left=left) if left or nodes else new


def _as_before(was: TableSpec, table: TableSpec) -> TableSpec:
    """A table's spec with the original defaults of its columns, and the buckets that it has."""
    first = dict(was.defaults)
    new = [(name, value) for name, value in table.defaults if name not in was.schema.names]
    columns = [(name, first[name]) for name in table.schema.names if name in first]
    return replace(table, defaults=(*columns, *new), bucket_width=was.bucket_width)


def _with_tables(binding: Binding, tables: tuple[TableSpec, ...]) -> Binding:
    widths = {t.name: t.bucket_width for t in tables}
    wakes = tuple(replace(w, width_us=widths.get(w.table) or w.width_us) for w in binding.wakes)
    return replace(binding, tables=tables, wakes=wakes)


def _check_rows(step: str, was: TableSpec, table: TableSpec) -> None:
    """Check that what identifies a row is unchanged; the width of buckets may differ, the old one is used."""
    facts: dict[str, tuple[Any, Any]] = {
        "key": (was.key, table.key),
        "order": (
            tuple((o.column, o.descending, o.nulls_first) for o in was.order),
            tuple((o.column, o.descending, o.nulls_first) for o in table.order),
        ),
        "merge rule": (was.rule, table.rule),
        "time column": (was.time, table.time),
        "bucketing by time": (was.bucket_width is not None, table.bucket_width is not None),
    }
    for what, (before, after) in facts.items():
        if before != after:
            raise _refusal(
                step,
                table,
                f"its {what} changed",
                f"{_shown(before)} in the pond, {_shown(after)} in this pipeline",
            )


def _check_columns(step: str, was: TableSpec, table: TableSpec) -> None:
    defaults = dict(table.defaults)
    for field in table.schema:
        if field.name not in was.schema.names:
            if not field.nullable and field.name not in defaults:
                raise _refusal(
                    step,
                    table,
                    f"column {field.name!r} is new and has no default",
                    f"it is {field.type} and not NULL",
                    "give the field a default",
                )
            continue
        stored = was.schema.field(field.name)
        if _kind(stored) != _kind(field):
            raise _refusal(
                step,
                table,
                f"column {field.name!r} has another type",
                f"{_kind(stored)} in the pond, {_kind(field)} in this pipeline",
            )
    if table.rule == "weights":
        names = [n for n in table.schema.names if n in was.schema.names]
        if names != was.schema.names:
            raise _refusal(
                step,
                table,
                "it is a multiset and lost columns, or has them in another order",
                f"{', '.join(was.schema.names)} in the pond, {', '.join(names)} in this pipeline",
            )


def _kind(field: pa.Field) -> str:
    """A column's type for messages; pickled bytes are not plain bytes."""
    pickled = (field.metadata or {}).get(b"millpond") == b"pickle"
    return "pickle" if pickled else str(field.type)


def _shown(value: Any) -> str:
    return repr(value) if not isinstance(value, tuple) else f"({', '.join(map(str, value))})"


def _refusal(step: str, table: TableSpec, what: str, detail: str, hint: str | None = None) -> InvalidError:
    state = table.name.rpartition("/")[2]
    rewrite = f"rewrite it with pond.migrate({step!r}, fn, state={state!r}), or give it a new name"
    if not _is_users(state):
        rewrite = "restore the old definition, or give the step a new id in a new pond"
    return InvalidError(
        f"state {state!r} of step {step!r} cannot continue: {what}",
        detail=detail,
        hint=hint or rewrite,
        step=step,
    )


def user_states(node: Node) -> dict[str, TableSpec]:
    """The states that a user declared, by name; internal tables have a dot in their names."""
    tables = {table.name.rpartition("/")[2]: table for table in node.binding.tables}
    return {
        name: table
        for name, table in tables.items()
        if _is_users(name) and table.name != node.binding.view and table.rule == "latest"
    }


def _is_users(state: str) -> bool:
    return "." not in state and state not in OWN
