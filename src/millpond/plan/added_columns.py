"""Adds columns to tables without rewriting rows and without changing the steps that read them.

Law: a row that is older than a column has the default with which the column was added, in every later epoch,
merged or not (`state.tables.table_spec`).
An older step receives only the columns that it was bound to (`Node.reads`), so it is the same function of the
same rows.
A dropped column stays in the stored rows, invisible, and its stored name is never used again; so no step
changes its meaning.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond.kernels.duck import quoted
from millpond.operators.bag import Bag
from millpond.operators.map import Map
from millpond.operators.materialize import Materialize
from millpond.operators.operator import Operator
from millpond.operators.scan import Scan
from millpond.operators.source_traits import ReadsInbox
from millpond.operators.stamp import Stamp
from millpond.operators.upsert import Upsert
from millpond.operators.watermark import Watermark
from millpond.plan.nodes import Node, Plan, upstream
from millpond.plan.prune import needed_columns
from millpond.state.tables.table_spec import TableSpec

SEQUENCE = "__seq"  # a column of tables that users do not see


def with_column(plan: Plan, own: Collection[str], field: pa.Field, default: Any) -> Plan:
    """The plan in which a table has one more column; `own` are the steps of the table."""
    nodes = dict(plan.nodes)
    for node in plan.topological():
        if node.step in own:
            operator = _wider(node, field, default)
            binding = operator.bind(node.step, tuple(nodes[i].binding.shape for i in node.inputs))
            before = {t.name: t for t in node.binding.tables}
            tables = tuple(_with_default(before[t.name], t, field, default) for t in binding.tables)
            nodes[node.step] = replace(node, operator=operator, binding=replace(binding, tables=tables))
        elif any(i in own for i in node.inputs):
            known = node.reads or (None,) * len(node.inputs)
            reads = tuple(
                tuple(plan.shape(i).schema.names) if i in own and k is None else k
                for i, k in zip(node.inputs, known, strict=True)
            )
            nodes[node.step] = replace(node, reads=reads)
    return replace(plan, nodes=nodes)


def may_lack(plan: Plan, scan: str, column: str) -> Plan:
    """The plan in which new rows may omit a column."""
    node = plan.nodes[scan]
    operator: Any = node.operator
    fill = (*((n, v) for n, v in operator.source.fill if n != column), (column, None))
    made = replace(operator, source=replace(operator.source, fill=fill))
    return replace(plan, nodes={**plan.nodes, scan: replace(node, operator=made)})


def _wider(node: Node, field: pa.Field, default: Any) -> Operator:
    operator: Any = node.operator
    match operator:
        case Scan():
            fill = (*operator.source.fill, (field.name, default))
            source = replace(operator.source, columns=operator.source.columns.append(field), fill=fill)
            return replace(operator, source=source, schema=source.schema)
        case Map():
            return replace(operator, columns=(*operator.columns, (field.name, quoted(field.name))))
        case Bag():
            return replace(operator, key=node.binding.tables[0].key)
    made: Operator = operator
    return made


def _with_default(before: TableSpec, table: TableSpec, field: pa.Field, default: Any) -> TableSpec:
    fresh = () if default is None else ((field.name, default),)
    return replace(table, defaults=(*before.defaults, *fresh))


# -- compatibility ------------------------------------------------------------------------


def widens(old: Plan, new: Plan, step: str) -> bool:
    """Is it the same step of a table, except that the table gained columns or lets rows omit some?"""
    before, after = old.nodes[step], new.nodes[step]
    one: Any = before.operator
    other: Any = after.operator
    if type(one) is not type(other) or before.inputs != after.inputs:
        return False
    if isinstance(one, Scan):
        return _source_widens(one.source, other.source)
    if len(before.inputs) != 1 or after.inputs[0] not in old.nodes:
        return False
    (source,) = before.inputs
    if not widens(old, new, source):
        return False
    had, has = (_columns(node.binding.shape.schema) for node in (before, after))
    came_in = [n for n in new.shape(source).schema.names if n not in old.shape(source).schema.names]
    if has.names[len(had) :] != came_in or not _begins(has, had):
        return False
    match one:
        case Map():
            return bool(other.columns[: len(one.columns)] == one.columns) and _plain(other)
        case Upsert() | Materialize() | Stamp() | Watermark():
            return bool(one == other) and _tables_widen(before, after)
        case Bag():
            return bool(one.sequence == other.sequence) and _tables_widen(before, after)
    return False


def _source_widens(a: Any, b: Any) -> bool:
    if not isinstance(a, ReadsInbox) or type(a) is not type(b) or a.append_only != b.append_only:
        return False
    came = b.columns.names[len(a.columns) :]
    return _begins(b.columns, a.columns) and set(came) <= {name for name, _ in b.fill}


def _plain(operator: Map) -> bool:
    return all(text == quoted(name) for name, text in operator.columns)


def _tables_widen(old: Node, new: Node) -> bool:
    tables = old.binding.tables, new.binding.tables
    return len(tables[0]) == len(tables[1]) and all(map(_table_widens, *tables))


def _table_widens(a: TableSpec, b: TableSpec) -> bool:
    if not _begins(b.schema, a.schema) or b.defaults[: len(a.defaults)] != a.defaults:
        return False
    return replace(b, schema=a.schema, defaults=a.defaults) == a


def _columns(schema: pa.Schema) -> pa.Schema:
    """The columns of a table; steps before those that store rows also pass on the order of changes."""
    return pa.schema([f for f in schema if f.name != SEQUENCE])


def _begins(longer: pa.Schema, shorter: pa.Schema) -> bool:
    return longer.names[: len(shorter)] == shorter.names and all(longer.field(f.name) == f for f in shorter)


# -- readers of a column ------------------------------------------------------------------


def views_reading(plan: Plan, own: Collection[str], column: str) -> list[str]:
    """The views that read a column of a table; `own` are the table's steps."""
    reading = []
    for view in plan.views.values():
        if view.step in own:
            continue
        steps = upstream(plan, [view.step])
        part = replace(
            plan, nodes={s: n for s, n in plan.nodes.items() if s in steps}, views={view.name: view}
        )
        needed = needed_columns(part)
        for node in part.nodes.values():
            if node.step in own or not any(i in own for i in node.inputs):
                continue
            wanted = node.operator.requires(node.binding, needed[node.step])
            if any(column in w for w, i in zip(wanted, node.inputs, strict=True) if i in own):
                reading.append(view.name)
                break
    return reading
