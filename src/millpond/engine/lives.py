"""Where the lives of a state's rows end, for rows that do not come from the step itself.

A state with a time to live has tables by time beside it, by which the step
finds what is over without looking at the rest. Whoever writes the state from
outside writes those as well, or its rows would stay for ever.
"""

from __future__ import annotations

import pyarrow as pa

from millpond.engine.state_rows import EXPIRES
from millpond.operators.process.spec import AT, StateSpec, sweep_name
from millpond.plan.nodes import Node
from millpond.state.table_spec import TableSpec


def declared(node: Node, spec: TableSpec) -> StateSpec | None:
    """What a process step says of the state of a table."""
    states = [s for s in getattr(node.operator, "states", ()) if isinstance(s, StateSpec)]
    return next((s for s in states if f"{node.step}/{s.name}" == spec.name), None)


def tables_of(node: Node, spec: TableSpec) -> list[str]:
    """The table of a state, and those that say when its rows end: they are written anew together."""
    ends = f"{node.step}/ttl.{spec.name.rpartition('/')[2]}."
    return [spec.name, *(t.name for t in node.binding.tables if t.name.startswith(ends))]


def with_ends(node: Node, spec: TableSpec, rows: pa.Table) -> list[tuple[TableSpec, pa.Table]]:
    """Rows of a state, and of the table by which they end."""
    found = [(spec, rows)]
    state = declared(node, spec)
    if state is not None and state.ttl is not None and EXPIRES in rows.column_names:
        mortal = rows.filter(pa.compute.is_valid(rows.column(EXPIRES)))
        name = sweep_name(node.step, state.name, state.sweep_tier)
        table = next(t for t in node.binding.tables if t.name == name)
        columns = [*(mortal.column(n) for n in spec.identity), mortal.column(EXPIRES)]
        found.append((table, pa.table(columns, names=[*spec.identity, AT])))
    return found
