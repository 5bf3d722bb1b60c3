"""What a MERGE did: the action of each row, as RETURNING can show it."""

from __future__ import annotations

from dataclasses import replace

from millpond.errors import InvalidError
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.binding.types import quoted
from millpond.sql.text.parse import SqlFragment, tokens_of

MERGE_ACTION = "merge_action"  # INSERT, UPDATE or DELETE


def with_action(found: SqlObject) -> SqlObject:
    """The table with a column for what was done to each row."""
    return replace(found, columns=(*found.columns, SqlColumn(MERGE_ACTION, "VARCHAR")))


def action_as_column(listed: str) -> str:
    """The list of RETURNING: `merge_action()` is a column that `*` does not show."""
    fragment = SqlFragment(listed, tokens_of(listed, "duckdb"), "duckdb")
    edits = []
    for n, token in enumerate(fragment.tokens):
        if fragment.has(n, "MERGE_ACTION", "(", ")"):
            edits.append((token.start, fragment.tokens[n + 2].end + 1, quoted(MERGE_ACTION)))
        elif token.text == "*" and fragment.word(n - 1) in ("", ",", "."):
            edits.append((token.start, token.end + 1, f"* EXCLUDE ({quoted(MERGE_ACTION)})"))
    return fragment.rewritten(edits).sql if edits else listed


def twice_affected(error: InvalidError) -> InvalidError:
    """The error for a row that two rows of the source would change, in PostgreSQL's words; or the given."""
    if "affect the same target row" not in error.message:
        return error
    return InvalidError(
        "MERGE command cannot affect row a second time",
        hint="let at most one row of the source match each row of the table: use DISTINCT ON or GROUP BY",
    )
