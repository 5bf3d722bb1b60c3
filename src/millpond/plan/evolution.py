"""How the state of a step may change when its code does.

An operator with a method `meaning()` lets its tables evolve: as long as that
stays equal, tables may come and go, and gain and lose value columns. What a
row is (key, order, rule, time) and the type of a column that stays may not
change: the runs that are there could not be read any more.

Law: what a run gives for a column never depends on whether it was merged. So
the default of a column is the one it came with; and a column that left may not
come back, since old runs still hold it and merged ones do not. The plan keeps
what it needs to know for that: `Plan.left` has the spec of each table that
left, and of each that lost columns, with all that its runs may still hold.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.operators.operator import Binding
from millpond.plan.nodes import Node, Plan
from millpond.state.table_spec import TableSpec

OWN = ("timers", "out", "rows", "late")  # tables of a step that are no state of its user's


def evolves(node: Node) -> bool:
    """May the state of this step change its shape?"""
    return hasattr(node.operator, "meaning")


def known_tables(plan: Plan, step: str) -> dict[str, TableSpec]:
    """The tables of a step as their runs were written, those that left as well."""
    left = {name: spec for name, spec in plan.left.items() if name.rpartition("/")[0] == step}
    return left | {table.name: table for table in plan.nodes[step].binding.tables}


def check_state(old: Plan, new: Plan, step: str, rewritten: Container[str]) -> None:
    """Refuse what cannot be read any more; `rewritten` tables are written anew and may be anything."""
    before = known_tables(old, step)
    for table in new.nodes[step].binding.tables:
        was = before.get(table.name)
        if was is None or table.name in rewritten:
            continue
        _check_rows(step, was, table)
        _check_columns(step, was, table)
        held = old.left.get(table.name, was).schema
        for name in table.schema.names:
            if name in held.names and name not in was.schema.names:
                raise _refusal(
                    step,
                    table,
                    f"column {name!r} was there before, and left",
                    "runs that were written before it left still hold it, others do not",
                    f"give it another name, or write all of it anew with pond.migrate({step!r}, fn)",
                )


def carried(old: Plan, new: Plan, rewritten: Container[str]) -> Plan:
    """The new plan with what the pond remembers: defaults and widths as they were, and what left."""
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
            kept = _as_before(was, table)
            tables.append(kept)
            gone = [f for f in old.left.get(table.name, was).schema if f.name not in kept.schema.names]
            if gone:
                left[table.name] = replace(kept, schema=pa.schema([*kept.schema, *gone]))
        left |= {name: old.left.get(name, spec) for name, spec in before.items() if name not in rewritten}
        if tuple(tables) != node.binding.tables:
            nodes[step] = replace(node, binding=_with_tables(node.binding, tuple(tables)))
    return replace(new, nodes={**new.nodes, **nodes}, left=left) if left or nodes else new


def _as_before(was: TableSpec, table: TableSpec) -> TableSpec:
    """A table's spec with the defaults that its columns came with, and the buckets that it has."""
    first = dict(was.defaults)
    new = [(name, value) for name, value in table.defaults if name not in was.schema.names]
    kept = [(name, first[name]) for name in table.schema.names if name in first]
    return replace(table, defaults=(*kept, *new), bucket_width=was.bucket_width)


def _with_tables(binding: Binding, tables: tuple[TableSpec, ...]) -> Binding:
    widths = {t.name: t.bucket_width for t in tables}
    wakes = tuple(replace(w, width_us=widths.get(w.table) or w.width_us) for w in binding.wakes)
    return replace(binding, tables=tables, wakes=wakes)


def _check_rows(step: str, was: TableSpec, table: TableSpec) -> None:
    """What makes a row this row must stay. The width of buckets may differ: the old one is kept."""
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
                f"its {what} is another",
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
    """A column's type for people; bytes that are a pickle are no plain bytes."""
    pickled = (field.metadata or {}).get(b"millpond") == b"pickle"
    return "pickle" if pickled else str(field.type)


def _shown(value: Any) -> str:
    return repr(value) if not isinstance(value, tuple) else f"({', '.join(map(str, value))})"


def _refusal(step: str, table: TableSpec, what: str, detail: str, hint: str | None = None) -> InvalidError:
    state = table.name.rpartition("/")[2]
    anew = f"write it anew with pond.migrate({step!r}, fn, state={state!r}), or give it a new name"
    if not _is_users(state):
        anew = "restore the old definition, or give the step a new id in a new pond"
    return InvalidError(
        f"state {state!r} of step {step!r} cannot go on: {what}",
        detail=detail,
        hint=hint or anew,
        step=step,
    )


def user_states(node: Node) -> dict[str, TableSpec]:
    """The states that a user declared, by name; bookkeeping beside them has a dot in its name."""
    tables = {table.name.rpartition("/")[2]: table for table in node.binding.tables}
    return {
        name: table
        for name, table in tables.items()
        if _is_users(name) and table.name != node.binding.view and table.rule == "latest"
    }


def _is_users(state: str) -> bool:
    return "." not in state and state not in OWN
