"""Answers a SELECT that reads pg_catalog or information_schema, or calls a function about the session.

Law: such a query is answered over the names of the pond, never over those of the database that computes it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from millpond.errors import InvalidError
from millpond.sql.binding.types import UTC, quoted
from millpond.sql.pg_catalog.catalog_database import SCHEMAS, CatalogDatabase, relations
from millpond.sql.pg_catalog.catalog_rewrite import parse_query, rewritten, used_params
from millpond.sql.pg_catalog.catalog_rows import catalog_rows
from millpond.sql.pg_catalog.server_settings import DEFAULTS
from millpond.sql.pg_catalog.server_version import VERSION_TEXT
from millpond.sql.result import Result
from millpond.sql.text.named_places import NamedPlaces
from millpond.sql.text.parameters import Params, for_duckdb
from millpond.sql.text.parse import SqlFragment, statements

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

DATABASE, USER = "pond", "millpond"
_ABOUT = re.compile(
    r"\bpg_(?!typeof\b|size_|sleep\b)\w+|\binformation_schema\b|\bcurrent_(schemas?|database|catalog|user|role|setting)\b"
    r"|\bsession_user\b|\bversion\s*\(|\bset_config\s*\(|\bto_reg\w+\s*\(|::\s*reg\w+|\bas\s+reg(class|type|namespace)"
    r"|\b(obj|col)_description\s*\(|\bhas_\w+_privilege\s*\(|\bformat_type\s*\(",
    re.IGNORECASE,
)


class CatalogReads:
    """The catalog of a session, filled again when its program changes."""

    def __init__(self) -> None:
        self._database: CatalogDatabase | None = None
        self._filled_for: object = self
        self._filled_zone = UTC
        self._filled_path: tuple[str, ...] | None = None

    def answer(self, session: SqlSession, fragment: SqlFragment, params: Params) -> Result | None:
        """The rows of a query about the catalog; None if it is about something else."""
        if fragment.dialect != "postgres" or _ABOUT.search(fragment.sql) is None:
            return None
        asked, values = for_duckdb(fragment, params)
        query = parse_query(asked.sql)
        if query is None:
            refuse_catalog(fragment, session.catalog.objects)
            return None
        given: Mapping[str, Any] = values if isinstance(values, dict) else {}
        sql = rewritten(query, lambda name, arguments: _of_session(session, name, arguments), given)
        tables = {name: _rows(session, name) for name in query.tables}
        database = self._filled(session)
        with database.with_tables(tables):
            columns, table = database.query(sql, used_params(sql, given), fragment.sql)
        return Result.of_rows([name for name, _ in columns], [kind for _, kind in columns], table)

    def _filled(self, session: SqlSession) -> CatalogDatabase:
        if self._database is None:
            self._database = CatalogDatabase()
        plan = session.plan
        if plan is not self._filled_for or session.time_zone != self._filled_zone:
            self._database.fill(catalog_rows(session.catalog, DATABASE, [USER], _settings(session)))
            self._filled_for, self._filled_zone = plan, session.time_zone
        path = tuple(session.catalog.names(session.variables.search_path).searched())
        if path != self._filled_path:
            self._database.replace("millpond_path", [{"name": name} for name in (*path, "pg_catalog")])
            self._filled_path = path
        return self._database


def refuse_catalog(fragment: SqlFragment, known: Collection[str]) -> None:
    """Refuse a statement that names a relation of the catalog where only those of the pond can stand."""
    if _ABOUT.search(fragment.sql) is None:
        return
    places = NamedPlaces(fragment)
    lower = {name.lower() for name in known}
    for place in sorted(places.objects):
        names = [str(t.text).lower() for t in fragment.tokens[place : place + 2 * places.parts(place) : 2]]
        schema, name = names if len(names) == 2 else ("pg_catalog", names[0])
        if schema not in SCHEMAS or name in lower or name in places.with_names:
            continue
        if len(names) == 2 or name in relations()["pg_catalog"]:
            fragment.fail(
                f"{name!r} is a relation of the catalog, and can only be read by a query of its own",
                place,
                "SELECT reads it, also joined with tables; views and changes cannot",
            )


def _rows(session: SqlSession, name: str) -> Any:
    (ask,) = statements(f"SELECT * FROM {quoted(name)}", "postgres")
    return session.run_one(ask).arrow()


def _settings(session: SqlSession) -> dict[str, str]:
    return {**DEFAULTS, "search_path": session.variables.shown_path, "TimeZone": session.time_zone}


def _of_session(session: SqlSession, name: str, given: list[Any]) -> Any:
    """The value of a function that depends on the session."""
    path = list(session.catalog.names(session.variables.search_path).searched())
    match name:
        case "version":
            return VERSION_TEXT
        case "current_schema":
            return next(iter(path), None)
        case "current_schemas":
            return [*(["pg_catalog"] if given and given[0] else []), *path]
        case "current_database" | "current_catalog":
            return DATABASE
        case "current_user" | "session_user" | "user" | "current_role":
            return USER
        case "current_setting":
            known = {n.lower(): v for n, v in _settings(session).items()}
            value = known.get(str(given[0]).lower())
            if value is None and not (len(given) > 1 and given[1]):
                raise InvalidError(f'unrecognized configuration parameter "{given[0]}"')
            return value
        case "set_config":
            raise InvalidError("set_config is not supported here", hint="SET search_path TO …")
        case "pg_backend_pid":
            return 0
    raise InvalidError(f"{name} is for connections to a server", hint="millpond serve POND")
