"""Errors of statements in the words of their dialect, and views whose types PostgreSQL refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millpond.errors import InvalidError
from millpond.plan.objects import SqlColumn
from millpond.sql.binding.functions import inlined
from millpond.sql.binding.known_columns import by_column_types
from millpond.sql.binding.types import Json, text_literal
from millpond.sql.diagnosis.doubtful_plans import cast_literals, is_doubtful
from millpond.sql.diagnosis.explain import BoundNames, declared_types, explain, explanation_of
from millpond.sql.text.as_of_now import plain_tables
from millpond.sql.text.duckdb_text import readable
from millpond.sql.text.parse import SqlFragment, tokens_of
from millpond.sql.text.time_windows import as_plain_sql
from millpond.sql.text.user_errors import in_user_words, show_call

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def put_in_user_words(session: SqlSession, error: InvalidError, fragment: SqlFragment) -> None:
    """Let an error of a statement show the user's own text, in the words of its dialect."""
    said = fragment.said or fragment.sql
    if error.is_of_binder and fragment.dialect == "postgres":
        with session.lock:
            _explain(session, error, said)
    objects = session.catalog.objects
    in_user_words(error, said, objects, fragment.dialect)
    is_placed = error.place is not None and error.place[1] is not None
    if not is_placed and error.message.startswith("cannot cast type"):
        show_call(error, said, [name for name, found in objects.items() if found.kind == "function"])


def refuse_wrong_types(session: SqlSession, fragment: SqlFragment, plan: Json) -> None:
    """Refuse the query of a definition that PostgreSQL refuses, and DuckDB computes or makes errors of."""
    if fragment.dialect != "postgres":
        return
    binder = session.catalog.binder
    for text, kind in cast_literals(plan):
        binder.constant(f"select cast({text_literal(text)} as {kind})")
    if is_doubtful(plan):
        error = InvalidError("")
        if _explain(session, error, fragment.said or fragment.sql):
            raise error


def _explain(session: SqlSession, error: InvalidError, said: str) -> bool:
    def problem(sql: str) -> Mapping[str, Any] | None:
        fragment = SqlFragment(sql, tokens_of(sql, "postgres"))
        try:
            text = readable(session.resolved(fragment, session.variables.search_path))
            text = by_column_types(text, session.catalog, "postgres")
            bound = plain_tables(as_plain_sql(inlined(text, session.catalog.objects).sql))
        except InvalidError as refused:
            return {"exception_message": refused.message}
        return session.catalog.binder.problem(bound)

    def columns(table: str) -> Sequence[SqlColumn]:
        found = session.catalog.find(table)
        return () if found is None else [c for c in found.columns if c.generated is None]

    declared = declared_types(session.catalog.objects.values())
    found = explanation_of(said, BoundNames(problem, declared, columns))
    if found is not None:
        explain(error, said, found)
    return found is not None
