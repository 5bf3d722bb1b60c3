"""PostgreSQL's array literals among the rows of INSERT … VALUES: '{1,2}' for a column that is an array."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import TokenType

from millpond.plan.objects import SqlColumn
from millpond.sql.text.parse import SqlFragment


def with_arrays(fragment: SqlFragment, columns: Sequence[SqlColumn]) -> SqlFragment:
    """The same INSERT with each such literal as a call that reads it.

    Law: only a literal that is all of a value of an array's column changes.
    """
    kinds = {c.name.lower(): c.type for c in columns}
    literals = [t.token_type is TokenType.STRING and t.text.lstrip().startswith("{") for t in fragment.tokens]
    start = fragment.find("VALUES")
    if start is None or not any(literals) or not any(kind.endswith("]") for kind in kinds.values()):
        return fragment
    given = _given(fragment, start) or [c.name for c in columns if c.generated is None]
    edits = []
    depth, place = 0, 0
    for n in range(start + 1, len(fragment)):
        token, word = fragment.tokens[n], fragment.word(n)
        if depth == 0 and word not in ("(", ","):
            break
        if literals[n] and depth == 1 and place < len(given):
            alone = fragment.word(n - 1) in ("(", ",") and fragment.word(n + 1) in (")", ",")
            kind = kinds.get(given[place].lower(), "")
            if alone and kind.endswith("]"):
                said = fragment.text[token.start : token.end + 1]
                fresh = f"CAST(__pg.main.text_array_in({said}) AS {kind})"
                edits.append((token.start, token.end + 1, fresh))
        if word in ("(", "["):
            depth, place = depth + 1, 0 if depth == 0 else place
        elif word in (")", "]"):
            depth -= 1
        elif word == "," and depth == 1:
            place += 1
    return fragment.rewritten(edits) if edits else fragment


def _given(fragment: SqlFragment, values: int) -> list[str]:
    """The columns that INSERT lists before VALUES."""
    if fragment.word(values - 1) != ")":
        return []
    opened = max(n for n in range(values) if fragment.word(n) == "(")
    return [t.text for t in fragment.tokens[opened + 1 : values - 1] if t.token_type is not TokenType.COMMA]
