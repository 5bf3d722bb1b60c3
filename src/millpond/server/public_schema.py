"""The schema `public`: where PostgreSQL clients expect tables to be.

A pond has one schema, so `public.t` is `t`.  BI tools write every name with its schema.
"""

from __future__ import annotations

from millpond.errors import InvalidError
from millpond.sql.text.parse import tokens_of

PUBLIC = "public"
_BEFORE_A_TABLE = ("as", "from", "join", "with", ",")


def without_public(text: str, dialect: str = "postgres") -> str:
    """A text of statements in which `public.` is blank, so that all other positions stay the same.

    >>> without_public('SELECT "public"."t".id FROM public.t')
    'SELECT          "t".id FROM        t'
    >>> without_public("SELECT public.id FROM t AS public")
    'SELECT public.id FROM t AS public'
    """
    if PUBLIC not in text.lower():
        return text
    try:
        tokens = tokens_of(text, dialect)
    except InvalidError:
        return text  # whoever reads it next explains why
    words = ["", *(token.text.lower() for token in tokens), ""]
    places: list[tuple[int, int]] = []
    for n, token in enumerate(tokens, 1):
        if words[n] != PUBLIC or text[token.start] not in 'pP"':
            continue
        if words[n + 1] != ".":
            if words[n - 1] in _BEFORE_A_TABLE:
                return text  # a table of the statement's own has this name
        elif words[n - 1] != ".":
            places.append((token.start, tokens[n].end + 1))
    for start, end in places:
        text = text[:start] + " " * (end - start) + text[end:]
    return text
