"""Writes the expiry tables of a state with a time to live, for rows that the step did not write itself.

Such a state has tables by time, in which the step finds expired rows without scanning the state.  Code that
writes the state from outside must write these tables, too, or its rows would never expire.
"""

from __future__ import annotations

import pyarrow as pa

from millpond.engine.change.state_rows import EXPIRES
from millpond.plan.nodes import Node
from millpond.process.batch_process import BatchProcess
from millpond.process.keyed_process import KeyedProcess
from millpond.process.spec import AT, StateSpec, sweep_name
from millpond.state.tables.table_spec import TableSpec


def state_of_table(node: Node, spec: TableSpec) -> StateSpec | None:
    """The state that a process step stores in this table, if any."""
    states = node.operator.states if isinstance(node.operator, KeyedProcess | BatchProcess) else ()
    return next((s for s in states if f"{node.step}/{s.name}" == spec.name), None)


def tables_of(node: Node, spec: TableSpec) -> list[str]:
    """The table of a state and its expiry tables: they are rewritten together."""
    prefix = f"{node.step}/ttl.{spec.name.rpartition('/')[2]}."
    return [spec.name, *(t.name for t in node.binding.tables if t.name.startswith(prefix))]


def with_expiry_rows(node: Node, spec: TableSpec, rows: pa.Table) -> list[tuple[TableSpec, pa.Table]]:
    """The rows of a state, and those of its expiry table."""
    rows_by_spec = [(spec, rows)]
    state = state_of_table(node, spec)
    if state is not None and state.ttl is not None and EXPIRES in rows.column_names:
        mortal = rows.filter(pa.compute.is_valid(rows.column(EXPIRES)))
        name = sweep_name(node.step, state.name, state.sweep_tier)
        table = next(t for t in node.binding.tables if t.name == name)
        columns = [*(mortal.column(n) for n in spec.identity), mortal.column(EXPIRES)]
        rows_by_spec.append((table, pa.table(columns, names=[*spec.identity, AT])))
    return rows_by_spec
