"""Explains an error of the binder in PostgreSQL's words, from the statement as the user wrote it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import duckdb

from millpond.errors import InvalidError
from millpond.kernels.sql_pictures import picture
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.diagnosis.excerpts import Excerpt, excerpts
from millpond.sql.diagnosis.first_fault import FirstFault
from millpond.sql.diagnosis.mismatches import is_mismatch, may_assign
from millpond.sql.diagnosis.type_probe import Facts, TooManyProbes, TypeProbe
from millpond.sql.diagnosis.wrong_parts import Declared, Explanation, TextRange, explained, span
from millpond.sql.dialects.parse_tree import Tree, parsed
from millpond.sql.pg_catalog.pg_types import pg_type
from millpond.sql.text.duckdb_text import parsable_text
from millpond.sql.text.parse import SqlFragment, tokens_of
from millpond.sql.text.user_errors import aligned, between

ROWS_MAX = 20  # of VALUES, whose types are compared with those of the columns
ASSIGNED = "rewrite the expression, or cast it"
_WRITTEN = {"varchar": "character varying", "char": "character"}
Problem = Callable[[str], Facts | None]  # what the binder says about a query of the dialect


def declared_types(objects: Iterable[SqlObject]) -> Declared:
    """What columns were declared as, by name, if all columns of that name were: `varchar(4)` and others."""
    known: dict[str, set[str]] = {}
    for one in objects:
        for column in one.columns:
            known.setdefault(column.name.lower(), set()).add((column.declared or "").partition("(")[0])
    named = {name: min(kinds) for name, kinds in known.items() if len(kinds) == 1}
    return {name: _WRITTEN.get(kind, kind) for name, kind in named.items() if kind}


def explain(error: InvalidError, said: str, found: Explanation) -> None:
    """Let an error say what is wrong, and where in the statement."""
    near = error.hint if (error.hint or "").startswith("did you mean") else found.hint
    error.message, error.hint, error.is_of_binder = found.message, near, False
    error.detail = "in the statement\n" + picture(said, found.at)
    error.place = (said, found.at)


@dataclass(frozen=True)
class BoundNames:
    """What a session knows: its binder, and the columns of its tables."""

    problem: Problem
    declared: Declared
    columns: Callable[[str], Sequence[SqlColumn]]  # of a table


def explanation_of(said: str, known: BoundNames) -> Explanation | None:
    """What is wrong with the types of a statement, with the place in it; None if nothing is found."""
    statement = SqlFragment(said, tokens_of(said, "postgres"), "postgres")
    try:
        for excerpt in excerpts(statement):
            found = _in_excerpt(excerpt, known)
            if found is not None:
                return found
    except (InvalidError, duckdb.Error, TooManyProbes):
        return None  # the text cannot be read further than the binder did
    return None


def _in_excerpt(excerpt: Excerpt, known: BoundNames) -> Explanation | None:
    sql = parsable_text(excerpt.sql)
    tree = parsed(sql)
    if tree is None or len(tree["statements"]) != 1:
        return None
    is_bound = known.problem(sql) is None
    node, probe = tree["statements"][0]["node"], TypeProbe(tree, known.problem)
    part = FirstFault(probe, is_mismatch if is_bound else None).query(node)
    if part is not None:
        found = explained(part, sql.encode(), known.declared)
    else:
        found = _assigned(excerpt, node, probe, known, sql.encode()) if is_bound else None
    if found is None:
        return None
    at = found.at
    if at is not None and sql != excerpt.sql:
        at = aligned(sql, excerpt.sql, at) or between(sql, excerpt.sql, at)
        at = _at_operator(found.operator, excerpt.sql.encode(), at)
    return replace(found, at=None if at is None else excerpt.in_statement(at))


def _assigned(
    excerpt: Excerpt, node: Tree, probe: TypeProbe, known: BoundNames, sql: bytes
) -> Explanation | None:
    """The first value whose type its column does not take."""
    if not excerpt.table or node["type"] != "SELECT_NODE":
        return None
    listed = known.columns(excerpt.table)
    named = {column.name.lower(): column for column in listed}
    targets = [named.get(name.lower()) for name in excerpt.columns] if excerpt.columns else list(listed)
    values = node["select_list"]
    rows = [values]
    if values[0]["class"] == "STAR" and node["from_table"]["type"] == "EXPRESSION_LIST":
        rows = node["from_table"]["values"][:ROWS_MAX]
    for row in rows:
        if any(value["class"] == "STAR" for value in row):
            continue
        types = probe.types(node, row)
        if not isinstance(types, list):
            continue
        for column, value, kind in zip(targets, row, types, strict=False):
            if column is not None and not may_assign(pg_type(kind), pg_type(column.type)):
                wanted = pg_type(column.type)
                said = f'column "{column.name}" is of type {wanted} but expression is of type {pg_type(kind)}'
                return Explanation(said, span(value, sql), ASSIGNED)
    return None


def _at_operator(operator: str | None, sql: bytes, at: TextRange | None) -> TextRange | None:
    """The place of an operator, if what stands there is what is before it."""
    if operator is None or at is None or sql[at[0] : at[0] + at[1]] == operator.encode():
        return at
    found = sql.find(operator.encode(), at[0])
    return at if found < 0 else (found, len(operator.encode()))
