"""The types of a statement's parameters, and its columns, without running it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millpond.server.pgwire.outcome import StatementShape, oids
from millpond.server.pgwire.parameter_types import ColumnTypes, parameter_types
from millpond.sql.binding.functions import inlined
from millpond.sql.binding.types import quoted
from millpond.sql.dml.merged_rows import MERGE_ACTION, action_as_column
from millpond.sql.pg_catalog.pg_types import TEXT, sql_type
from millpond.sql.reads.as_of_epoch import as_of
from millpond.sql.session import SqlSession
from millpond.sql.text.duckdb_text import readable
from millpond.sql.text.parameters import marks
from millpond.sql.text.parse import SqlFragment

QUERIES = ("SELECT", "WITH", "VALUES", "TABLE", "FROM", "(")
CHANGES = ("INSERT", "UPDATE", "DELETE", "MERGE")
_TARGET = {"INSERT": 2, "UPDATE": 1, "DELETE": 2, "MERGE": 2}  # where the name of the table is


def parameter_count(fragment: SqlFragment) -> int:
    """How many parameters a text has: the largest number in it."""
    numbers = [which for _, _, which in marks(fragment.tokens, None) if isinstance(which, int)]
    return max(numbers, default=0)


def with_params(fragment: SqlFragment, shown: Mapping[int, str]) -> SqlFragment:
    """The text with each parameter replaced."""
    found = [(a, b, which) for a, b, which in marks(fragment.tokens, None) if isinstance(which, int)]
    if not found:
        return fragment
    return fragment.rewritten((a, b, shown[which]) for a, b, which in found)


def typed_null(kind: str | None) -> str:
    return "NULL" if kind is None else f"CAST(NULL AS {kind})"


def describe(session: SqlSession, fragment: SqlFragment, declared: Sequence[int]) -> StatementShape:
    """The shape of a query or a change; other statements have neither parameters nor known columns."""
    verb = fragment.word(0)
    binder, objects = session.catalog.binder, session.catalog.objects
    if verb in QUERIES:
        fragment = _without_as_of(session, fragment)

    def sql_of(text: SqlFragment) -> str:
        return inlined(readable(text), objects).sql

    types = inferred(fragment, declared, _columns_of(session))
    nulls = {n: typed_null(kind) for n, kind in enumerate(types, 1)}
    columns: list[tuple[str, str]] | None = None
    if verb in QUERIES:
        columns = binder.columns(sql_of(with_params(fragment, nulls)))
    elif verb in CHANGES and (at := fragment.find("RETURNING")) is not None:
        table = fragment.tokens[_TARGET[verb]]
        listed = with_params(fragment, nulls)
        listed = listed.part((listed.find("RETURNING") or at) + 1)
        columns = binder.columns(_returning(verb, listed.sql, table.text))
    return StatementShape(oids(types, declared), None if columns is None else tuple(columns))


def _returning(verb: str, listed: str, table: str) -> str:
    """The query whose columns RETURNING gives."""
    if verb != "MERGE":
        return f"select {listed} from {quoted(table)}"
    rows = f"(select *, CAST(NULL AS VARCHAR) AS {MERGE_ACTION} from {quoted(table)})"
    return f"select {action_as_column(listed)} from {rows} AS {quoted(table)}"


def inferred(fragment: SqlFragment, declared: Sequence[int], column_types: ColumnTypes) -> list[str]:
    """The logical types of all parameters: those that the client declared, or where they stand tells."""
    count = parameter_count(fragment)
    types = [sql_type(declared[n]) if n < len(declared) else None for n in range(count)]
    if None in types:
        apart = with_params(fragment, {n: f" ${n} " for n in range(1, count + 1)})
        found = parameter_types(apart.sql, column_types)
        types = [kind or found.get(n) for n, kind in enumerate(types, 1)]
    return [kind or "VARCHAR" for kind in types]


def _columns_of(session: SqlSession) -> ColumnTypes:
    objects = session.catalog.objects

    def find(table: str, column: str) -> str | None:
        known = session.catalog.find(table) if table else None
        if column.startswith("#"):  # by its place
            listed = () if known is None else [c for c in known.columns if c.generated is None]
            place = int(column[1:])
            return listed[place].type if place < len(listed) else None
        of = [known] if known is not None else list(objects.values())
        types = {c.type for o in of for c in o.columns if c.name.lower() == column.lower()}
        return types.pop() if len(types) == 1 else None

    return find


def _without_as_of(session: SqlSession, fragment: SqlFragment) -> SqlFragment:
    if not any(fragment.has(n, "AS", "OF") for n in range(len(fragment))):
        return fragment
    zeros: list[Any] = [0] * parameter_count(fragment)
    return as_of(session.host, fragment, zeros).plain


def text_params(count: int, declared: Sequence[int]) -> tuple[int, ...]:
    """Parameters of statements that nobody binds: text, unless the client said otherwise."""
    return tuple(
        declared[n] if n < len(declared) and declared[n] not in (0, 705) else TEXT.oid for n in range(count)
    )
