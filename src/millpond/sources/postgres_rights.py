"""Checks what a source needs on the server when it is defined, not at its first epoch, which stops the pond.

The right to replicate is not checked: managed servers grant it by roles of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millpond.errors import InvalidError
from millpond.sources.postgres_schema import PostgresTable, identifier

_TABLE = """
SELECT has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT'),
    pg_has_role(c.relowner, 'USAGE')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""


def check_rights(server: Any, publication: str, tables: Sequence[PostgresTable]) -> None:
    """Refuse a server without a logical log, and a user who cannot read the tables or publish them."""
    (level, user, database, creates) = server.execute(
        "SELECT current_setting('wal_level'), current_user, current_database(),"
        " has_database_privilege(current_database(), 'CREATE')"
    ).fetchone()
    if level != "logical":
        raise InvalidError(
            f"the server's wal_level is {level!r}, and changes are in the log of 'logical' only",
            hint="ALTER SYSTEM SET wal_level = 'logical', and restart the server",
        )
    exists = server.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [publication]).fetchone()
    for table in tables:
        name = f"{identifier(table.namespace)}.{identifier(table.name)}"
        found = server.execute(_TABLE, [table.namespace, table.name]).fetchone()
        if found is None:
            continue  # the definition is refused for this
        if not found[0]:
            raise InvalidError(
                f"user {user!r} may not read table {table.relation}",
                hint=f"GRANT SELECT ON {name} TO {identifier(user)} on the server",
            )
        if not exists and not found[1]:
            raise InvalidError(
                f"user {user!r} does not own table {table.relation}, and only its owner can publish it",
                hint=f"CREATE PUBLICATION … FOR TABLE {name} as its owner; publication.name = '…' names it",
            )
    if not exists and not creates:
        raise InvalidError(
            f"user {user!r} may not create a publication in database {database!r}",
            hint=f"GRANT CREATE ON DATABASE {identifier(database)} TO {identifier(user)} on the server, or "
            "name a publication that exists: publication.name = '…'",
        )
