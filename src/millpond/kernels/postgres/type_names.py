"""The types of DuckDB's values, read from their names: `STRUCT(a INTEGER, b VARCHAR[])`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class TypeName:
    """A scalar type has no parts; a list has one, without a name; a record has its fields."""

    name: str
    parts: tuple[tuple[str, TypeName], ...] = ()
    scale: int = 0

    @property
    def is_list(self) -> bool:
        return self.name == "LIST"

    @property
    def is_record(self) -> bool:
        return self.name in ("STRUCT", "TUPLE")


@lru_cache(512)
def type_named(text: str) -> TypeName:
    """
    >>> type_named("STRUCT(a INTEGER, b DECIMAL(4,2)[])").parts[1][1].parts[0][1].scale
    2
    """
    found, rest = _type(text)
    assert not rest, text
    return found


def _type(text: str) -> tuple[TypeName, str]:
    head = re.match(r'"NULL"|[A-Za-z_0-9]+(?: WITH TIME ZONE)?', text)
    assert head is not None, text
    name, rest = head[0].upper(), text[head.end() :]
    found = TypeName(name)
    if name in ("STRUCT", "TUPLE", "MAP") and rest.startswith("("):
        parts, rest = _fields(rest[1:], named=name == "STRUCT")
        found = TypeName(name, parts)
    elif rest.startswith("("):
        inner, _, rest = rest[1:].partition(")")
        if name == "DECIMAL":
            found = TypeName(name, scale=int(inner.split(",")[1]))
    while (brackets := re.match(r"\[\d*\]", rest)) is not None:
        found, rest = TypeName("LIST", (("", found),)), rest[brackets.end() :]
    return found, rest


def _fields(rest: str, named: bool) -> tuple[tuple[tuple[str, TypeName], ...], str]:
    found: list[tuple[str, TypeName]] = []
    while True:
        name = f"f{len(found) + 1}"
        if named:
            head = re.match(r'\s*(?:"((?:[^"]|"")*)"|(\w+))\s+', rest)
            assert head is not None, rest
            name, rest = (head[1] or "").replace('""', '"') or head[2], rest[head.end() :]
        one, rest = _type(rest.lstrip())
        found.append((name, one))
        end, rest = rest[0], rest[1:]
        if end == ")":
            return tuple(found), rest
