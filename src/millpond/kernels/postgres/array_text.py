"""Reads arrays from texts: PostgreSQL's literals (`{a,"b c",NULL}`) and JSON."""

from __future__ import annotations

import re
from typing import Any

from millpond.kernels.postgres.json_text import read_json
from millpond.kernels.postgres.rows import row_function

_ELEMENT = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|((?:[^,{}"\\]|\\.)+))\s*([,}])', re.DOTALL)


def read_array(text: str) -> list[str | None]:
    """The elements of an array of one dimension.

    >>> read_array('{a, "b,c", NULL}')
    ['a', 'b,c', None]
    """
    wrong = ValueError(f'malformed array literal: "{text}"')
    body = text.strip()
    if not body.startswith("{"):
        raise wrong
    if re.fullmatch(r"\{\s*\}", body):
        return []
    found: list[str | None] = []
    at = 1
    while True:
        part = _ELEMENT.match(body, at)
        if part is None:
            raise wrong
        if part[1] is not None:
            found.append(re.sub(r"\\(.)", r"\1", part[1]))
        else:
            plain = re.sub(r"\\(.)", r"\1", part[2].strip())
            found.append(None if plain.upper() == "NULL" else plain)
        at = part.end()
        if part[3] == "}":
            break
    if body[at:].strip():
        raise wrong
    return found


@row_function("pg.text_array.1", ("VARCHAR",), "VARCHAR[]")
def text_array(text: str) -> list[str | None]:
    return read_array(text)


@row_function("pg.json_texts.1", ("VARCHAR",), "VARCHAR[]")
def json_texts(text: str) -> list[Any]:
    return [None if v is None else str(v) for v in read_json(text)]
