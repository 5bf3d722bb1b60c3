"""Shared by INSERT, UPDATE, DELETE and MERGE: a change stored in the inbox as text until it is executed."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import TokenType

from millpond.errors import InvalidError
from millpond.plan.objects import SqlObject
from millpond.sql.binding.catalog import Catalog
from millpond.sql.binding.functions import inlined_fragment
from millpond.sql.binding.known_columns import change_by_column_types
from millpond.sql.binding.types import UTC, quoted
from millpond.sql.dml.change_rows import answer
from millpond.sql.dml.merged_rows import MERGE_ACTION, with_action
from millpond.sql.dml.text_changes import SessionChange
from millpond.sql.dml.volatile import CHANCE
from millpond.sql.reads.key_lookup import constant_keys
from millpond.sql.reads.scratch import PLACE, Scratch, returned, thread_scratch
from millpond.sql.result import Result
from millpond.sql.text.column_definitions import PROCTIME, stored_schema
from millpond.sql.text.parameters import Params, canonical, literal_of
from millpond.sql.text.parse import SqlFragment

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

_NOW = ("NOW", "PROCTIME", "CURRENT_TIMESTAMP", "TRANSACTION_TIMESTAMP", "GET_CURRENT_TIMESTAMP")
_TODAY = ("CURRENT_DATE", "TODAY")
_INSTANT = "TIMESTAMP WITH TIME ZONE"
_CLOCKS = ("LOCALTIME", "LOCALTIMESTAMP", "CURRENT_TIME", "CLOCK_TIMESTAMP")


def target(session: SqlSession, name: str, verb: str) -> SqlObject:
    found = session.catalog.get(name)
    if found.kind != "table":
        raise InvalidError(
            f"{found.name!r} is a {found.kind}: only the rows of tables can be changed",
            hint="change the tables that it is made of",
        )
    if "connector" in found.options:
        raise InvalidError(
            f"table {found.name!r} is a copy: it follows the changes of its original",
            hint="change the original, or make a table of your own",
        )
    if session.time_zone != UTC:
        _check_columns(found, session.time_zone)
    if found.append_only and verb != "insert":
        raise InvalidError(
            f"table {found.name!r} is APPEND ONLY: no row of it can be changed or deleted",
            hint="make a table without APPEND ONLY; it has no watermark then",
        )
    return found


def _check_columns(found: SqlObject, zone: str) -> None:
    """Refuse a table whose rows would depend on the time zone in a way that is not PostgreSQL's."""
    for column in found.columns:
        computed = column.generated is not None and any(_INSTANT in c.type for c in found.columns)
        if "TIME WITH TIME ZONE" in column.type or (computed and column.generated != PROCTIME):
            raise InvalidError(
                f"rows of table {found.name!r} cannot be changed in the time zone {zone!r}",
                detail=f"column {column.name!r} could depend on it",
                hint="SET TimeZone = 'UTC'",
            )


def change_to_run(session: SqlSession, fragment: SqlFragment, params: Params) -> SqlFragment:
    """A change in DuckDB's SQL, with the values of its parameters and the bodies of functions in it."""
    at = fragment.find("RETURNING")
    if at is not None and at == len(fragment) - 1:
        fragment.fail("what should it give?", at, "RETURNING * or some of the columns")
    catalog = session.catalog
    made = inlined_fragment(canonical(fragment, params), catalog.objects)
    return change_by_column_types(made, catalog) if fragment.dialect == "postgres" else made


def cut_returning(fragment: SqlFragment, called: str) -> tuple[SqlFragment, list[str] | None]:
    """Split off RETURNING: return the change without it, and its list with the table's name there."""
    at = fragment.find("RETURNING")
    if at is None:
        return fragment, None
    listed = fragment.part(at + 1)
    return fragment.part(0, at), [listed.sql, called]


def named(catalog: Catalog, fragment: SqlFragment) -> list[SqlObject]:
    """Return all objects whose names occur in a fragment; it does no harm if one is only a column."""
    words = {t.text.lower() for t in fragment.tokens if t.token_type is not TokenType.STRING}
    unread = ("sink", "index", "function")
    found = [o for o in catalog.objects.values() if o.name.lower() in words and o.kind not in unread]
    for one in found:
        if one.kind == "source":
            raise InvalidError(
                f"the rows of source {one.name!r} are not kept", hint="create a materialized view of it"
            )
    return found


def with_current_time(session: SqlSession, fragment: SqlFragment) -> SqlFragment:
    """Replace clock functions with the current time, so that executing it later or again means the same."""
    edits = []
    tokens = fragment.tokens
    now = literal_of(_now(session))
    for n in range(len(tokens)):
        word, call = fragment.word(n), fragment.word(n + 1) == "("
        if word in CHANCE and call:
            hint = "make the value where the statement is made, and pass it as a parameter"
            fragment.fail(
                f"{word.lower()}() gives another value each time, and cannot be part of a change", n, hint
            )
        if word in _CLOCKS:
            fragment.fail(f"{word.lower()} is not supported in a change", n, "use now()")
        if (word in _NOW or word in _TODAY) and (call or word.startswith("CURRENT")):
            end = n + 2 if call else n
            fresh = now if word in _NOW else f"CAST({now} AS DATE)"
            edits.append((tokens[n].start, tokens[end].end + 1, fresh))
    return fragment.rewritten(edits) if edits else fragment


def _now(session: SqlSession) -> Any:
    return datetime.datetime.fromtimestamp(session.now_us() / 1e6, datetime.UTC)


def dry_run(
    session: SqlSession,
    found: SqlObject,
    reads: Sequence[SqlObject],
    verb: str,
    sql: str,
    returning: Sequence[str] | None = None,
) -> list[tuple[str, str]]:
    """Run the statement over empty tables to find its errors now; return the columns of RETURNING.

    A transaction executes the statement at once, over its own rows, and finds the same errors.
    """
    if session.transaction is not None and returning is None:
        return []
    catalog = session.catalog
    with thread_scratch(session.time_zone).for_statement() as scratch:
        numbered = any(c.identity is not None and c.name in found.key for c in found.columns)
        scratch.table(found, places=verb != "insert", key=verb == "insert" and not numbered)
        show_empty(scratch, catalog, [o for o in reads if o.name != found.name])
        listed = [] if verb == "delete" else [returned(found.columns)]
        listed += [] if verb == "insert" else [quoted(PLACE)]
        if verb == "merge":  # over an empty table no row is matched, so all are inserted: values do not count
            plain = [replace(c, declared=None) for c in found.columns]
            found, listed = with_action(found), [returned(plain), *listed[1:], MERGE_ACTION]
        scratch.arrow(f"{sql} RETURNING {', '.join(listed)}", shown=sql)
        if returning is None:
            return []
        return answer(scratch, found, stored_schema(found.columns).empty_table(), returning)[0]


def show_empty(scratch: Scratch, catalog: Catalog, reads: Sequence[SqlObject]) -> None:
    """Show relations without rows, so that a statement over them can be checked."""
    for one in catalog.expanded(reads):
        if one.kind == "view":
            scratch.view(one.name, one.text)
        else:
            spec = catalog.stored(one)
            if spec is None:
                raise InvalidError(f"the rows of {one.kind} {one.name!r} are not kept")
            scratch.relation(one, spec.schema.empty_table())


def defer_change(
    session: SqlSession,
    found: SqlObject,
    verb: str,
    sql: str,
    reads: Sequence[SqlObject],
    *,
    names: Sequence[tuple[str, str]] = (),
    **more: Any,
) -> Result:
    """Send a change: executed after all earlier entries, or as part of the session's transaction."""
    return session.send_change(change_of(session, found, verb, sql, reads, **more), names)


def change_of(
    session: SqlSession,
    found: SqlObject,
    verb: str,
    sql: str,
    reads: Sequence[SqlObject] = (),
    *,
    keys: list[Any] | None = None,
    conflict: bool = False,
    conflict_key: Sequence[str] | None = None,
    moves: bool = False,
    returning: Sequence[str] | None = None,
    source_keys: str | None = None,
    untold: bool = False,
) -> SessionChange:
    """A change as text, with what its execution needs to know."""
    args: dict[str, Any] = {
        "table": found.scan,
        "name": found.name,
        "verb": verb,
        "sql": sql,
        "reads": [o.name for o in reads],
        "now_us": session.now_us(),  # for defaults
        "columns": [[c.name, c.stored_name] for c in found.columns],
    }
    if session.time_zone != UTC:
        args["time_zone"] = session.time_zone
    if found.is_checked:
        args["checked"] = True
    if keys is not None:
        args["keys"] = [list(k) for k in keys]
    if conflict:
        args["conflict"] = True
    if conflict_key is not None:
        args["conflict_key"] = list(conflict_key)  # not the primary key: columns of a UNIQUE constraint
    if moves:
        args["moves"] = True  # the change can give rows other keys
    if returning is not None:
        args["returning"] = list(returning)
    if source_keys is not None:
        args["source_keys"] = source_keys  # a query for the keys that a MERGE can touch
    if untold:
        args["untold"] = True  # the client does not learn how many rows it changes
    views = any(o.kind not in ("table", "view") for o in session.catalog.expanded(reads))
    return SessionChange(args, reads_views=views)


def rows_change(
    found: SqlObject, rows: pa.Table, returning: Sequence[str] | None = None, overriding: bool = False
) -> SessionChange:
    """Rows of an INSERT or COPY for a table."""
    args: dict[str, Any] = {"verb": "rows", "table": found.scan, "name": found.name}
    args["columns"] = [[c.name, c.stored_name] for c in found.columns]
    if found.is_checked:
        args["checked"] = True  # its rows are written in order, and RETURNING shows them as they are then
        if returning is not None:
            args["returning"] = list(returning)
        if overriding:
            args["overriding"] = True
    return SessionChange(args, rows)


def keys_of(catalog: Catalog, found: SqlObject, fragment: SqlFragment, alias: str | None) -> list[Any] | None:
    """Return the keys that a change can touch, if its condition fixes them and it reads no other rows."""
    spec, at = catalog.stored(found), fragment.find("WHERE")
    looks = any(fragment.word(n) in ("SELECT", "FROM", "TABLE", "USING") for n in range(2, len(fragment)))
    if at is None or spec is None or not found.key or looks:
        return None
    where = fragment.part(at)
    called = f"as {quoted(alias)} " if alias else ""
    keys = constant_keys(f"{called}{where.sql}", found, spec)
    if keys is None or not all(isinstance(v, int | str) for key in keys for v in key):
        return None
    return keys
