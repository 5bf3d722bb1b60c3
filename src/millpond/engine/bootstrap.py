"""Bootstrap: the state of a step from rows that the pond never read.

Columns are those of the state's table. Where the state has a time to live, a
row lives as long from now (or from the watermark) as if the step had just
written it, unless the rows say in `expires` when they end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from millpond.engine.lives import declared, tables_of, with_ends
from millpond.engine.rewrite import Rewriter
from millpond.engine.state_rows import EXPIRES, from_arrow, from_python, misfit, refuse_unknown
from millpond.errors import InvalidError
from millpond.operators.process.spec import INSTANT
from millpond.plan.nodes import Node
from millpond.state.segment import repeat
from millpond.state.table_spec import TableSpec

PYTHON_ROWS = 65_536  # that are turned into columns at once
ARROW_ROWS = 1 << 20

Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[Mapping[str, Any]]


def bootstrap(
    rewriter: Rewriter, node: Node, spec: TableSpec, rows: Rows, now_us: int, watermark: int | None
) -> int:
    """Write the rows of one state; how many."""
    for name in tables_of(node, spec):
        rewriter.replace(name)
    count = 0
    for piece in _pieces(node.step, spec, rows):
        rewriter.write(node.step, with_ends(node, spec, _living(node, spec, piece, now_us, watermark)))
        count += piece.num_rows
    return count


def _pieces(step: str, spec: TableSpec, rows: Rows) -> Iterator[pa.Table]:
    """The rows in the columns of the table, a bounded number at a time; `expires` only if they have it."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.RecordBatchReader):
        for batch in rows:
            yield from _pieces(step, spec, pa.Table.from_batches([batch]))
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


def _living(node: Node, spec: TableSpec, rows: pa.Table, now_us: int, watermark: int | None) -> pa.Table:
    """The rows with the time at which they end, where their state has a time to live."""
    state = declared(node, spec)
    if state is None or (ttl := state.ttl) is None:
        return rows
    if EXPIRES in rows.column_names:
        if lost := rows.column(EXPIRES).null_count:
            raise misfit(node.step, spec, None, f"{EXPIRES!r} is NULL in {lost} rows")
        return rows
    base = now_us if ttl.clock == "processing" else watermark
    if base is None:
        raise InvalidError(
            f"when rows of state {state.name!r} end is not known yet",
            detail="it lives by event time, and no row has come that moved the watermark",
            hint=f"give the rows a column {EXPIRES!r}, or bootstrap after the first epoch",
            step=node.step,
        )
    ends = repeat(pa.array(np.array([base + ttl.us])).cast(INSTANT), rows.num_rows)
    return rows.append_column(EXPIRES, ends).select(spec.schema.names)
