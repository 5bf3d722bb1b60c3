"""Answers queries about the catalog: which ones they are, and over which rows."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from millpond.masking import masked_options
from millpond.pond import Pond
from millpond.server.client_session import ClientSession
from millpond.server.pgwire.describe import inferred, typed_null, with_params
from millpond.server.pgwire.error_reports import PgError
from millpond.server.pgwire.outcome import StatementShape, oids
from millpond.server.pgwire.session_settings import SessionSettings
from millpond.sql.binding.types import quoted
from millpond.sql.pg_catalog.catalog_database import CatalogDatabase, column_kind
from millpond.sql.pg_catalog.catalog_rewrite import (
    CatalogQuery,
    parse_query,
    rewritten,
    used_params,
)
from millpond.sql.pg_catalog.catalog_rows import catalog_rows
from millpond.sql.pg_catalog.server_settings import DEFAULTS
from millpond.sql.pg_catalog.server_version import VERSION_TEXT
from millpond.sql.session import SqlSession
from millpond.sql.text.parameters import for_duckdb
from millpond.sql.text.parse import SqlFragment

Rows = tuple[list[tuple[str, str]], pa.Table]
HINTS = (
    "pg_", "information_schema", "current_", "version", "session_user", "set_config", "to_reg", "user",
    "::reg", ".reg", "as reg", "obj_description", "has_", "txid_", "format_type", "quote_ident", "inet_",
)  # fmt: skip


@dataclass(frozen=True)
class Backend:
    """A connection, as pg_stat_activity shows it."""

    pid: int
    user: str
    program: str
    state: str
    address: str
    began: datetime.datetime
    said: str  # the statement that runs, or the last one


class Backends(Protocol):
    """The connections of a server."""

    def cancel_backend(self, pid: int) -> bool: ...
    def terminate_backend(self, pid: int) -> bool: ...
    def backends(self) -> list[Backend]: ...


class CatalogQueries:
    def __init__(self, pond: Pond, database: str, backends: Backends) -> None:
        self._pond = pond
        self._name = database
        self._backends = backends
        self._database: CatalogDatabase | None = None
        self._lock = threading.Lock()
        self._filled_for: Any = object()
        self._filled_path: tuple[str, ...] | None = None

    def answers(self, fragment: SqlFragment) -> bool:
        """Does this query read the catalog?"""
        text = fragment.sql
        lower = text.lower()
        return any(hint in lower for hint in HINTS) and parse_query(text) is not None

    def run(
        self, client: ClientSession, settings: SessionSettings, fragment: SqlFragment, params: Sequence[Any]
    ) -> Rows:
        """The names and types of the columns, and the rows."""
        asked, values = for_duckdb(fragment, list(params) or None)
        query = parse_query(asked.sql)
        assert query is not None
        given_params = values if isinstance(values, dict) else {}
        tables = _tables(client, query)
        sql = rewritten(
            query, lambda name, given: self._of_connection(client, settings, name, given), given_params
        )
        with self._filled(client) as database, database.with_tables(tables):
            if "pg_stat_activity" in query.relations:
                database.replace("pg_stat_activity", self._activity(client))
            columns, table = database.query(sql, used_params(sql, given_params), fragment.sql)
        shown = _in_pg_types(query, columns)
        return shown, _as_shown(shown, table)

    def describe(
        self, client: ClientSession, settings: SessionSettings, fragment: SqlFragment, declared: Sequence[int]
    ) -> StatementShape:
        def ask(name: str, given: list[Any]) -> Any:
            return self._of_connection(client, settings, name, given, really=False)

        def sql_of(text: SqlFragment) -> str:
            query = parse_query(text.sql)
            if query is None:
                raise PgError("0A000", "this query over the catalog is not supported")
            return rewritten(query, ask)

        asked = parse_query(fragment.sql)
        tables = {} if asked is None else _tables(client, asked, "LIMIT 0")
        with self._filled(client) as database, database.with_tables(tables):
            types = inferred(fragment, declared, column_kind)
            nulls = {n: typed_null(kind) for n, kind in enumerate(types, 1)}
            text = with_params(fragment, nulls)
            columns, _ = database.query(f"select * from ({sql_of(text)}) limit 0", None, fragment.sql)
        query = parse_query(text.sql)
        assert query is not None
        shown_types = ["PG_OID[]" if kind == "BIGINT[]" else kind for kind in types]
        return StatementShape(oids(shown_types, declared), tuple(_in_pg_types(query, columns)))

    # -- rows -----------------------------------------------------------------------------

    def _filled(self, client: ClientSession) -> _Locked:
        """The database with the rows of the newest program."""

        def read(session: SqlSession) -> tuple[Any, Any]:
            with session.lock:
                version = object() if session.has_definitions else session.host.program()[1]
                return version, session.catalog

        self._lock.acquire()
        try:
            version, catalog = client.with_session(read)
            if self._database is None:
                self._database = CatalogDatabase()
            if version is None or version != self._filled_for:
                users = list(dict.fromkeys([client.user.name, "millpond"]))
                self._database.fill(catalog_rows(catalog, self._name, users, DEFAULTS))
                self._filled_for = version
            path = tuple(_path(client))
            if path != self._filled_path:
                self._database.replace("millpond_path", [{"name": name} for name in (*path, "pg_catalog")])
                self._filled_path = path
        except BaseException:
            self._lock.release()
            raise
        return _Locked(self._database, self._lock)

    def _ended(self, client: ClientSession, pid: int, end: Callable[[int], bool]) -> bool:
        """Cancel or terminate a connection; that of another user needs an administrator."""
        owner = next((found.user for found in self._backends.backends() if found.pid == pid), None)
        if owner is not None and owner != client.user.name and not client.user.is_admin:
            raise PgError("42501", "must be a member of the role whose query is being canceled")
        return end(pid)

    def _activity(self, client: ClientSession) -> list[dict[str, Any]]:
        """The rows of pg_stat_activity; what other users run is shown to administrators."""
        own = client.user
        return [
            {
                "datname": self._name,
                "pid": found.pid,
                "usename": found.user,
                "application_name": found.program,
                "client_addr": found.address or None,
                "backend_start": found.began,
                "state": found.state,
                "query": masked_options(found.said)
                if own.is_admin or own.name == found.user
                else "<insufficient privilege>",
                "backend_type": "client backend",
            }
            for found in self._backends.backends()
        ]

    # -- the connection -------------------------------------------------------------------

    def _of_connection(
        self,
        client: ClientSession,
        settings: SessionSettings,
        name: str,
        given: list[Any],
        really: bool = True,
    ) -> Any:
        match name:
            case "version":
                return VERSION_TEXT
            case "current_schema":
                return next(iter(_path(client)), None)
            case "current_schemas":
                return [*(["pg_catalog"] if given and given[0] else []), *_path(client)]
            case "current_database" | "current_catalog":
                return self._name
            case "current_user" | "session_user" | "user" | "current_role":
                return client.user.name
            case "pg_backend_pid":
                return client.backend_pid
            case "pg_cancel_backend" | "pg_terminate_backend":
                cancels = name == "pg_cancel_backend"
                end = self._backends.cancel_backend if cancels else self._backends.terminate_backend
                return really and given[0] is not None and self._ended(client, int(given[0]), end)
            case "current_setting":
                if given[0] is None:
                    return None
                value = settings.get(str(given[0]))
                if value is None and not (len(given) > 1 and given[1]):
                    raise PgError("42704", f'unrecognized configuration parameter "{given[0]}"')
                return value
            case "set_config":
                if really:
                    settings.set(str(given[0]), str(given[1]))
                return str(given[1])
        return None


def _path(client: ClientSession) -> list[str]:
    """The schemas of the client's search path that exist."""
    return client.with_session(lambda session: list(session.catalog.names(client.search_path).searched()))


def _tables(client: ClientSession, query: CatalogQuery, end: str = "") -> dict[str, pa.Table]:
    """The rows of the pond's tables that a query joins with the catalog, as the client may read them."""
    return {name: client.execute(f"SELECT * FROM {quoted(name)} {end}").arrow() for name in query.tables}


class _Locked:
    """The database, for one query."""

    def __init__(self, database: CatalogDatabase, lock: threading.Lock) -> None:
        self._database = database
        self._lock = lock

    def __enter__(self) -> CatalogDatabase:
        return self._database

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


FITTING = {
    "PG_OID": ("BIGINT",),
    "PG_NAME": ("VARCHAR",),
    "PG_CHAR": ("VARCHAR",),
    "PG_VECTOR": ("SMALLINT[]", "BIGINT[]"),
    "PG_OID[]": ("BIGINT[]",),
}


def _in_pg_types(query: CatalogQuery, columns: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Columns of PostgreSQL's own types, such as `oid` and `"char"`, are shown as such."""
    found = []
    for name, kind in columns:
        wanted = query.kinds.get(name.lower())
        if wanted is None and kind == "BIGINT[]":  # asyncpg knows oid[] by itself, and asks for others
            wanted = "PG_OID[]"
        found.append((name, wanted if wanted is not None and kind in FITTING[wanted] else kind))
    return found


def _as_shown(columns: list[tuple[str, str]], table: pa.Table) -> pa.Table:
    """Vectors are texts such as `1 2`."""
    for place, (_, kind) in enumerate(columns):
        if kind == "PG_VECTOR":
            rows = [None if v is None else " ".join(map(str, v)) for v in table.column(place).to_pylist()]
            table = table.set_column(place, table.field(place).name, pa.array(rows, pa.string()))
    return table
