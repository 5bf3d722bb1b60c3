"""Bootstrap: loads the state of a step from rows that a user passes.

The columns are those of the state's table.  If the state has a time to live, a row expires as if the step had
just written it (at the clock, or at the watermark), unless the rows have a column `expires`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from millpond.engine.change.state_expiry import state_of_table, tables_of, with_expiry_rows
from millpond.engine.change.state_rewriter import StateRewriter
from millpond.engine.change.state_rows import EXPIRES, from_arrow, from_python, misfit, refuse_unknown
from millpond.errors import InvalidError
from millpond.identity import repeat
from millpond.plan.nodes import Node
from millpond.process.spec import INSTANT
from millpond.state.tables.table_spec import TableSpec

PYTHON_ROWS = 65_536  # rows that are converted to columns together
ARROW_ROWS = 1 << 20

Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[Mapping[str, Any]]


def bootstrap(
    rewriter: StateRewriter, node: Node, spec: TableSpec, rows: Rows, now_us: int, watermark: int | None
) -> int:
    """Write the rows of one state; returns how many."""
    for name in tables_of(node, spec):
        rewriter.replace(name)
    count = 0
    for batch in _batches(node.step, spec, rows):
        rewriter.write(
            node.step, with_expiry_rows(node, spec, _with_expiry(node, spec, batch, now_us, watermark))
        )
        count += batch.num_rows
    return count


def _batches(step: str, spec: TableSpec, rows: Rows) -> Iterator[pa.Table]:
    """The rows with the columns of the table, in bounded batches; `expires` only if the rows have it."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.RecordBatchReader):
        for batch in rows:
            yield from _batches(step, spec, pa.Table.from_batches([batch]))
    elif isinstance(rows, pa.Table):
        refuse_unknown(step, spec, rows.column_names)
        declared = _given(spec, rows.column_names)
        for start in range(0, rows.num_rows, ARROW_ROWS):
            yield from_arrow(step, declared, rows.slice(start, ARROW_ROWS))
    elif isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        raise InvalidError(
            f"rows of a state cannot be {type(rows).__name__}",
            hint="pass an Arrow table, or dicts: [{'user': 'ann', 'last': 2.5}]",
            step=step,
        )
    else:
        source, known = iter(rows), frozenset(spec.schema.names)
        while some := list(islice(source, PYTHON_ROWS)):
            for row in some:
                if not isinstance(row, Mapping):
                    raise misfit(step, spec, None, f"a row is a dict, got {type(row).__name__} {row!r}")
                if not known.issuperset(row):
                    refuse_unknown(step, spec, row)
            yield from_python(step, _given(spec, {name for row in some for name in row}), some)


def _given(spec: TableSpec, names: Iterable[str]) -> TableSpec:
    if EXPIRES not in spec.rest or EXPIRES in names:
        return spec
    return replace(
        spec,
        schema=pa.schema([f for f in spec.schema if f.name != EXPIRES]),
        defaults=tuple(d for d in spec.defaults if d[0] != EXPIRES),
    )


def _with_expiry(node: Node, spec: TableSpec, rows: pa.Table, now_us: int, watermark: int | None) -> pa.Table:
    """Add the expiry time to the rows, if their state has a time to live."""
    state = state_of_table(node, spec)
    if state is None or (ttl := state.ttl) is None:
        return rows
    if EXPIRES in rows.column_names:
        if lost := rows.column(EXPIRES).null_count:
            raise misfit(node.step, spec, None, f"{EXPIRES!r} is NULL in {lost} rows")
        return rows
    base = now_us if ttl.clock == "processing" else watermark
    if base is None:
        raise InvalidError(
            f"the expiry of rows of state {state.name!r} is not known yet",
            detail="its time to live is in event time, and no row has moved the watermark yet",
            hint=f"give the rows a column {EXPIRES!r}, or bootstrap after the first epoch",
            step=node.step,
        )
    ends = repeat(pa.array(np.array([base + ttl.us])).cast(INSTANT), rows.num_rows)
    return rows.append_column(EXPIRES, ends).select(spec.schema.names)
