"""Builds the delta of a process step from the outputs of its passes.

With `latest` it is the change of an upsert map: the newest row of a key replaces
the one in the step's own table (the step *remembers*).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from millpond.delta import HASH, WEIGHT, concat, with_weights
from millpond.identity import equal_rows, one_chunk
from millpond.operators.operator import Change
from millpond.process.outputs import MAIN, OUTPUT, OutputColumns, side_column
from millpond.state.tables.table import KeySet, Table

Parts = Mapping[str, Sequence[OutputColumns]]


def appended(main_schema: pa.Schema, schemas: Mapping[str, pa.Schema], parts: Parts) -> pa.Table | None:
    """All rows of all outputs; `given` is the schema with the columns of every output."""
    tables = []
    for side, schema in schemas.items():
        for part in parts[side]:
            rows = pa.table(part.columns, schema=schema)
            tables.append(rows if len(schemas) == 1 else _of_side(main_schema, side, rows))
    return pa.concat_tables(tables) if tables else None


def _of_side(schema: pa.Schema, side: str, rows: pa.Table) -> pa.Table:
    made = {side_column(side, name): rows.column(name) for name in rows.column_names}
    made[OUTPUT] = pa.array([side] * rows.num_rows, pa.string())
    return pa.table(
        [made[f.name] if f.name in made else pa.nulls(rows.num_rows, f.type) for f in schema], schema=schema
    )


def replaced(
    main_schema: pa.Schema, schema: pa.Schema, parts: Parts, keys: KeySet, table: Table
) -> tuple[pa.Table | None, list[Change]]:
    """One row per key: the newest row replaces the previous one."""
    main = parts[MAIN]
    if not main:
        return None, []
    numbers = np.concatenate([part.keys for part in main])
    there = np.concatenate([part.there for part in main])
    rows = pa.concat_tables([pa.table(part.columns, schema=schema) for part in main])
    positions = pa.array(np.cumsum(there) - 1, mask=~there)
    order = np.argsort(numbers)  # a key is in one chunk only
    numbers, there, positions = numbers[order], there[order], positions.take(pa.array(order))
    key = keys.columns.take(pa.array(numbers))
    # Key columns come from the key itself, whatever values user code set in the row.
    columns = [
        one_chunk(key.column(f.name))
        if f.name in key.column_names
        else one_chunk(rows.column(f.name)).take(positions)
        for f in main_schema
    ]
    fresh = pa.table(columns, schema=main_schema)
    asked = KeySet(keys.hashes[numbers], key, np.empty(0, np.int64))
    is_found, old = table.lookup_one(asked)
    same = equal_rows(columns, [one_chunk(old.column(n)) for n in main_schema.names], len(numbers))
    moved = np.where(there, ~(same & is_found), is_found)
    written = fresh.append_column(HASH, pa.array(asked.hashes)).append_column(
        WEIGHT, pa.array(there.astype(np.int64))
    )
    gone, come = old.filter(pa.array(is_found & moved)), fresh.filter(pa.array(there & moved))
    delta = concat(
        [
            with_weights(gone, np.full(gone.num_rows, -1, np.int64)),
            with_weights(come, np.ones(come.num_rows, np.int64)),
        ]
    )
    return delta, [Change(table.spec.name, written.filter(pa.array(moved)), True)]
