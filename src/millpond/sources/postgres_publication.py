"""The publication of replicated tables: which of their changes the server puts into the log.

Law: a publication that leaves changes of a table out is refused, when the table is defined and whenever
changes are read.
PostgreSQL says nothing about changes that it leaves out: the copy would differ and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millpond.errors import DataError, InvalidError, MillpondError
from millpond.sources.postgres_schema import PostgresTable, identifier

_VIA_ROOT = 130000  # versions of the server: changes of partitions can be those of their table
_FILTERS = 150000  # publications of some rows or columns
_FLAGS = """
SELECT puballtables, pubinsert AND pubupdate AND pubdelete AND pubtruncate
FROM pg_publication WHERE pubname = %s
"""
_COLUMNS = """
SELECT a.attname FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped
"""


def ensure(server: Any, name: str, tables: Sequence[PostgresTable]) -> None:
    """Create the publication if there is none, and check it."""
    if server.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [name]).fetchone() is None:
        listed = ", ".join(f"{identifier(t.namespace)}.{identifier(t.name)}" for t in tables)
        via = " WITH (publish_via_partition_root = true)" if server.info.server_version >= _VIA_ROOT else ""
        server.execute(f"CREATE PUBLICATION {identifier(name)} FOR TABLE {listed}{via}")
    wrong = problem(server, name, tables)
    if wrong is not None:
        raise InvalidError(wrong[0], hint=f"{wrong[1]} on the server")


def check_existing(server: Any, name: str, tables: Sequence[PostgresTable]) -> None:
    """Check a publication that a definition names; one that does not exist will be created."""
    if server.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [name]).fetchone() is not None:
        ensure(server, name, tables)


def changed(server: Any, name: str, tables: Sequence[PostgresTable]) -> MillpondError | None:
    """The error if a publication that was right leaves changes out now."""
    wrong = problem(server, name, tables)
    if wrong is None:
        return None
    return DataError(
        f"changes were lost: {wrong[0]}",
        hint=f"{wrong[1]} on the server, then drop the tables here and create them again",
    )


def problem(server: Any, name: str, tables: Sequence[PostgresTable]) -> tuple[str, str] | None:
    """What a publication leaves out, and the statement that corrects it; None if it has all changes."""
    flags = server.execute(_FLAGS, [name]).fetchone()
    if flags is None:
        return f"there is no publication {name!r}", f"CREATE PUBLICATION {identifier(name)}"
    alter = f"ALTER PUBLICATION {identifier(name)}"
    if not flags[1]:
        kinds = "insert, update, delete, truncate"
        return f"publication {name!r} leaves out some kinds of changes", f"{alter} SET (publish = '{kinds}')"
    filters = server.info.server_version >= _FILTERS
    if flags[0] and not filters:
        return None
    more = "attnames, rowfilter IS NOT NULL" if filters else "NULL, false"
    rows = server.execute(
        f"SELECT schemaname, tablename, {more} FROM pg_publication_tables WHERE pubname = %s"
        " AND schemaname = ANY (%s) AND tablename = ANY (%s)",
        [name, [t.namespace for t in tables], [t.name for t in tables]],
    ).fetchall()
    found = {(row[0], row[1]): (row[2], row[3]) for row in rows}
    for table in tables:
        place = f"{identifier(table.namespace)}.{identifier(table.name)}"
        if (table.namespace, table.name) not in found:
            if _is_partitioned(server, table):
                why = f"publication {name!r} has the partitions of table {table.relation}, not the table"
                return why, f"{alter} SET (publish_via_partition_root = true)"
            return f"publication {name!r} does not have table {table.relation}", f"{alter} ADD TABLE {place}"
        columns, filtered = found[table.namespace, table.name]
        absent = [] if columns is None else [c for c in table.schema.names if c not in columns]
        if absent:  # one that was dropped is found in the log
            there = server.execute(_COLUMNS, [table.namespace, table.name]).fetchall()
            absent = [c for c in absent if (c,) in there]
        if filtered or absent:
            left = "some rows" if filtered else f"column {absent[0]!r}"
            again = f"{alter} DROP TABLE {place}; {alter} ADD TABLE {place}"
            return f"publication {name!r} leaves out {left} of table {table.relation}", again
    return None


def _is_partitioned(server: Any, table: PostgresTable) -> bool:
    found = server.execute(
        "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s AND c.relkind = 'p'",
        [table.namespace, table.name],
    ).fetchone()
    return found is not None
