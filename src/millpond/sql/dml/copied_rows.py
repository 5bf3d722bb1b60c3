"""Inserts rows whose values are texts, as COPY sends them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.plan.objects import SqlColumn
from millpond.sql.binding.types import quoted
from millpond.sql.dialects.postgres.time_casts import reader_of
from millpond.sql.dialects.postgres.translate import translated_expression
from millpond.sql.dml.deferred_change import rows_change, target
from millpond.sql.reads.scratch import returned, thread_scratch
from millpond.sql.result import Result
from millpond.sql.text.column_definitions import stored_schema

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def insert_texts(session: SqlSession, table: str, given: pa.Table) -> Result:
    """Insert rows into a table; columns that `given` lacks have their defaults."""
    found = target(session, table, "insert")
    columns = {c.name: c for c in found.columns}
    names = [f"c{n}" for n in range(given.num_columns)]
    casts = ", ".join(_cast(n, columns[c]) for n, c in zip(names, given.column_names, strict=True))
    into = ", ".join(quoted(c) for c in given.column_names)
    with thread_scratch(session.time_zone).for_statement(session.now_us()) as scratch:
        scratch.table(found)
        rows_name = scratch.rows(given.rename_columns(names))
        sql = f"insert into {quoted(found.name)} ({into}) select {casts} from {rows_name}"
        try:
            rows = scratch.arrow(f"{sql} RETURNING {returned(found.columns)}")
        except InvalidError as error:
            raise InvalidError(error.message, hint=error.hint) from error
        rows = rows.cast(stored_schema(found.columns))
    sent = session.send_change(rows_change(found, rows), ())
    return sent if found.is_checked else Result.changed("INSERT", rows.num_rows)


def _cast(name: str, column: SqlColumn) -> str:
    if column.type.upper() == "BLOB":
        return (
            f"CASE WHEN starts_with({name}, '\\x') THEN from_hex(substr({name}, 3)) ELSE encode({name}) END"
        )
    cast = f"CAST({name} AS {column.type})"
    kind = column.type.lower()
    return translated_expression(cast) if kind in _INTEGERS or reader_of(kind) else cast


_INTEGERS = ("smallint", "integer", "bigint")
