"""COMMENT ON: a text about an object or a column, stored with the object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType

from millpond.errors import InvalidError
from millpond.plan.objects import SqlObject
from millpond.sql.binding.types import quoted, text_literal
from millpond.sql.result import Result
from millpond.sql.text.parse import Words, closest_name

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

COMMENTS = "comments"  # an option of objects: by column, or "" for the object itself
_KINDS = {
    ("TABLE",): "table",
    ("SOURCE",): "source",
    ("VIEW",): "view",
    ("MATERIALIZED", "VIEW"): "materialized view",
    ("SINK",): "sink",
    ("INDEX",): "index",
    ("FUNCTION",): "function",
}


def run(session: SqlSession, words: Words) -> Result:
    words.need("ON")
    if words.take("COLUMN"):
        table, column = _column(words)
        found = session.catalog.get(table, "table", "source", "view", "materialized view")
        known = {c.name.lower(): c.name for c in found.columns}
        if column.lower() not in known:
            raise InvalidError(
                f'column "{column}" of relation "{found.name}" does not exist',
                hint=closest_name(column, list(known.values())),
            )
        column = known[column.lower()]
    else:
        kind = next((k for w, k in _KINDS.items() if words.take(*w)), None)
        if kind is None:
            listed = ", ".join(" ".join(w) for w in _KINDS)
            words.fail("COMMENT ON what?", f"one of {listed} or COLUMN")
            raise AssertionError
        found, column = session.catalog.get(words.name(f"name of the {kind}"), kind), ""
        if kind == "function" and words.fragment.word(words.at) == "(":
            words.at = words.fragment.bracket(words.at)[1]
    words.need("IS")
    text = None
    if not words.take("NULL"):
        token = None if words.over else words.fragment.tokens[words.at]
        if token is None or token.token_type is not TokenType.STRING:
            words.fail("a text in quotes, or NULL, should stand here")
            raise AssertionError
        text, words.at = str(token.text), words.at + 1
    words.end()
    if found.name not in session.plan.objects:
        raise InvalidError(
            f"{found.kind} {found.name!r} was made by the flow API and has no comment",
            hint="say what it is in the code that defines it",
        )
    session.edit(lambda plan: plan.with_object(_with(plan.objects[found.name], column, text)))
    return Result.said("COMMENT")


def _column(words: Words) -> tuple[str, str]:
    """Read `table.column`; the last name is the column."""
    fragment, at = words.fragment, words.at
    end = fragment.find("IS", start=at)
    names = [t.text for t in fragment.tokens[at:end] if t.text != "."]
    if len(names) < 2:
        words.fail("column name must be qualified", "COMMENT ON COLUMN table.column IS '…'")
    words.at = len(fragment) if end is None else end
    return ".".join(n for n in names[:-1] if n.lower() not in ("main", "public")), names[-1]


def comments(found: SqlObject) -> Mapping[str, str]:
    """The comments of an object: by column, or "" for the object itself."""
    held: Any = found.options.get(COMMENTS, {})
    return {str(k): str(v) for k, v in held.items()}


def comment_statements(found: SqlObject) -> list[str]:
    """The statements that give an object its comments."""
    made = []
    for column, text in comments(found).items():
        what = (
            f"COLUMN {quoted(found.name)}.{quoted(column)}"
            if column
            else f"{found.kind.upper()} {quoted(found.name)}"
        )
        made.append(f"COMMENT ON {what} IS {text_literal(text)}")
    return made


def _with(found: SqlObject, column: str, text: str | None) -> SqlObject:
    held = {k: v for k, v in comments(found).items() if k != column}
    if text is not None:
        held[column] = text
    options = {k: v for k, v in found.options.items() if k != COMMENTS}
    return replace(found, options={**options, COMMENTS: held} if held else options)
