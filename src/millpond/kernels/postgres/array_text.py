"""Reads arrays from texts: PostgreSQL's literals (`{a,"b c",NULL}`) and JSON."""

from __future__ import annotations

import re
from typing import Any

from millpond.kernels.postgres.json_text import read_json, read_pairs, shown
from millpond.kernels.postgres.rows import row_function
from millpond.kernels.postgres.type_names import type_named

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
    if re.match(r"\{\s*\{", body):
        raise ValueError(
            f'an array of several dimensions cannot be read from a text, write ARRAY[…]: "{text}"'
        )
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


@row_function("pg.array_shape.1", ("VARCHAR", "VARCHAR"), "BIGINT[]")
def array_shape(text: str, kind: str) -> list[int]:
    """The length of every dimension; an empty array has none."""
    value, dimensions = read_json(text), re.search(r"(?:\[\d*\])*$", kind)
    assert dimensions is not None
    found: list[int] = []
    for _ in range(dimensions[0].count("[")):
        if not value:
            break
        found.append(len(value))
        value = value[0]
    return found


@row_function(
    "pg.array_to_string.1", ("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR", takes_nulls=True
)
def array_to_string(text: str | None, kind: str, between: str, null: str | None) -> str | None:
    if text is None:
        return None
    inner = type_named(kind)
    values = [read_pairs(text)]
    while inner.is_list:
        inner = inner.parts[0][1]
        values = [v for one in values if one is not None for v in one]
    texts = (shown(v, inner) for v in values)
    kept = (null if t is None else t for t in texts)
    return between.join(t for t in kept if t is not None)
