"""Connections to PostgreSQL.

Law: a server that does not answer raises UnavailableError and is asked again; a connection never outlives a
fork.  Passwords may be references (`secret_references`), which are resolved only here.
"""

from __future__ import annotations

import os
from typing import Any

from millpond.errors import InvalidError, MillpondError
from millpond.masking import masked
from millpond.secret_references import resolved_address
from millpond.sources.unavailable import away

CONNECT_S = 5
_SESSION = (
    "SET datestyle = 'ISO'",
    "SET timezone = 'UTC'",
    "SET intervalstyle = 'postgres'",
    "SET extra_float_digits = 3",
    "SET bytea_output = 'hex'",
    "SET statement_timeout = 0",
    "SET idle_in_transaction_session_timeout = 0",
    "SET client_encoding = 'UTF8'",
)


def library() -> Any:
    """Import the client library, which only PostgreSQL sources need."""
    try:
        import psycopg
    except ImportError as error:
        raise InvalidError(
            "the PostgreSQL client is not installed",
            detail=str(error),
            hint="pip install 'millpond[postgres]'",
        ) from error
    return psycopg


def connect(address: str, **options: Any) -> Any:
    """A connection that commits every statement by itself, with the texts that the decoder expects."""
    psycopg = library()
    try:
        found = psycopg.connect(
            resolved_address(address),
            autocommit=True,
            connect_timeout=CONNECT_S,
            prepare_threshold=None,
            application_name="millpond",
            **options,
        )
        for setting in _SESSION if not options else ():
            found.execute(setting)
    except psycopg.Error as error:
        raise refused(address, error) from None
    return found


_open: dict[tuple[int, str], Any] = {}


def shared(address: str) -> Any:
    """The connection of this process for short queries."""
    key = os.getpid(), resolved_address(address)
    found = _open.get(key)
    if found is None or found.closed or found.broken:
        found = _open[key] = connect(address)
    return found


def forget(address: str) -> None:
    """Close the shared connection of this process."""
    found = _open.pop((os.getpid(), resolved_address(address)), None)
    if found is not None:
        found.close()


def refused(address: str, error: Exception) -> MillpondError:
    """Turn an error of the library into one of our kinds."""
    psycopg = library()
    said = masked(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
    where = place_of(address)
    wrong = (
        psycopg.errors.InvalidPassword,
        psycopg.errors.InvalidAuthorizationSpecification,
        psycopg.errors.InsufficientPrivilege,
        psycopg.errors.InvalidCatalogName,
        psycopg.errors.UndefinedTable,
        psycopg.errors.UndefinedColumn,
        psycopg.errors.SyntaxError,
        psycopg.errors.ObjectNotInPrerequisiteState,
        psycopg.ProgrammingError,
    )
    if isinstance(error, wrong) and not isinstance(error, psycopg.errors.ObjectInUse):
        return InvalidError(
            "the PostgreSQL server cannot be used like this",
            detail=f"{where}: {said}",
            hint="correct the address, the user's rights or the settings of the server",
        )
    return away(
        "the PostgreSQL server does not answer",
        f"{said[:1].lower()}{said[1:]} ({where})",
        hint="check that the server runs and can be reached from here; nothing that was committed is lost",
    )


def place_of(address: str) -> str:
    """The host, port and database of an address, without user and password.

    >>> place_of("postgresql://ann:secret@db1:5433/shop")
    'db1:5433/shop'
    """
    try:
        parts = library().conninfo.conninfo_to_dict(address)
    except library().Error:
        return "?"
    host, port = parts.get("host", "localhost"), parts.get("port", 5432)
    return f"{host}:{port}/{parts.get('dbname', '')}"
