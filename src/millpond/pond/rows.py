"""Encodes rows for a table as an inbox entry, or refuses them and says what does not fit."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from millpond.arguments.call_errors import need_text
from millpond.errors import InvalidError, nearest
from millpond.integer_casts import require_integers
from millpond.operators.scan import Scan
from millpond.plan.nodes import Node, Plan
from millpond.sources.inbox_table import ROWS_MAX, InboxTable
from millpond.valid_text import require_texts

Rows: TypeAlias = pa.Table | Iterable[Mapping[str, Any]]


def table_step(plan: Plan, name: str) -> str:
    """The step that reads the rows of a table: SQL can rename a table, its step keeps the first name."""
    if not isinstance(name, str):
        return name  # refused with a reason by `entry`
    tables = [o for o in plan.objects.values() if o.kind == "table" and o.scan is not None]
    steps = {o.name.lower(): o.scan for o in tables}
    if name.lower() in steps:
        return str(steps[name.lower()])
    renamed = next((o.name for o in tables if o.scan == name), None)
    if renamed is not None:
        raise InvalidError(f"no table named {name!r}", hint=f"it was renamed: {renamed!r} is its name now")
    return name


def table_rows(plan: Plan, table: str, rows: Rows) -> Rows:
    """Rows for the table of a step, with columns renamed from their SQL names to the stored names."""
    if isinstance(rows, Mapping):
        rows = [rows]  # one row
    elif not isinstance(rows, pa.Table) and hasattr(rows, "__arrow_c_stream__"):
        rows = pa.table(rows)  # a pandas, Polars or Arrow table
    objects = (o for o in plan.objects.values() if o.kind == "table" and o.scan == table)
    names = {c.name: c.stored_name for o in objects for c in o.columns}
    if all(name == stored for name, stored in names.items()):
        return rows
    if isinstance(rows, pa.Table):
        return rows.rename_columns([names.get(n, n) for n in rows.column_names])
    return [{names.get(n, n): v for n, v in row.items()} for row in rows]


def entry(plan: Plan, name: str, rows: Rows, weight: int) -> tuple[dict[str, Any], bytes]:
    """The arguments and bytes of the entry that inserts rows into a table, or deletes them."""
    called = getattr(name, "name", None)  # the object that pond.table() returned
    need_text(
        "the name of a table",
        name,
        f"pass its name, {called!r}" if called else "the table comes first, by its name",
    )
    node = plan.nodes.get(name)
    source = _source(node)
    if not isinstance(source, InboxTable):
        tables = [n.step for n in plan.nodes.values() if isinstance(_source(n), InboxTable)]
        raise InvalidError(
            f"no table named {name!r}",
            detail=f"tables are {', '.join(tables) or 'none'}",
            hint=nearest(name, tables, "define it with pond.table(name, schema, key=...)"),
        )
    table = _as_declared(name, rows, source)
    if weight > 0:
        _check_required(plan, name, table)
    if table.num_rows > ROWS_MAX:
        raise InvalidError("too many rows in one call", detail=f"{table.num_rows} rows, at most {ROWS_MAX}")
    table = table.append_column("_w", pa.array(np.full(table.num_rows, weight, np.int64)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return {"table": name, "rows": table.num_rows}, sink.getvalue().to_pybytes()


def _source(node: Node | None) -> Any:
    return node.operator.source if node is not None and isinstance(node.operator, Scan) else None


def _as_declared(name: str, rows: Rows, source: InboxTable) -> pa.Table:
    """Rows as the table declares them, or an error that says what differs."""
    schema = source.columns
    items: list[dict[str, Any]] = []
    try:
        if isinstance(rows, pa.Table):
            _match_columns(name, rows.column_names, schema)
            may_lack = {n for n, _ in source.fill} - set(rows.column_names)
            schema = pa.schema([f for f in schema if f.name not in may_lack])
            missing = [c for c in schema.names if c not in rows.column_names]
            if missing:
                raise InvalidError(
                    f"the rows lack column {missing[0]!r} of table {name!r}",
                    detail=f"columns are {', '.join(schema.names)}",
                )
            return rows.select(schema.names).cast(schema)
        if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
            raise TypeError(f"got {type(rows).__name__} {rows!r}"[:200])
        items = [dict(r) if isinstance(r, Mapping) else _no_row(r) for r in rows]
        _match_columns(name, (k for r in items for k in r), schema)
        require_integers(items, schema)
        return pa.Table.from_pylist(items, schema=schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, UnicodeEncodeError):
            require_texts(items, f"a text in the rows for table {name!r}")
        shown = ", ".join(f"{f.name} {f.type}" for f in schema)
        raise InvalidError(
            f"rows do not fit table {name!r}",
            detail=str(error),
            hint=f"pass a dict, a list of dicts or an Arrow table with columns {shown}",
        ) from error


def _check_required(plan: Plan, name: str, rows: pa.Table) -> None:
    """Columns that SQL declared NOT NULL, among them those of a primary key, have no NULL."""
    for table in plan.objects.values():
        if table.kind != "table" or table.scan != name:
            continue
        for column in table.columns:
            if column.identity is not None:
                continue  # the pond numbers the row
            if (
                column.required
                and column.stored_name in rows.column_names
                and rows.column(column.stored_name).null_count
            ):
                raise InvalidError(
                    f"column {column.name!r} of table {table.name!r} cannot be NULL",
                    detail="a row lacks it"
                    if rows.num_rows == 1
                    else f"some of {rows.num_rows} rows lack it",
                )


def _no_row(row: Any) -> dict[str, Any]:
    raise TypeError(f"a row is a dict of its columns, got {type(row).__name__} {row!r}"[:200])


def _match_columns(name: str, columns: Iterable[str], schema: pa.Schema) -> None:
    unknown = sorted(set(columns) - set(schema.names))
    if unknown:
        matches = difflib.get_close_matches(unknown[0], schema.names, 1)
        raise InvalidError(
            f"table {name!r} has no column {unknown[0]!r}",
            detail=f"columns are {', '.join(schema.names)}",
            hint=f"did you mean {matches[0]!r}?" if matches else None,
        )
