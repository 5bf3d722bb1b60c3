"""DuckDB's text of a type as a tree: `STRUCT(a INTEGER, b DECIMAL(5,2)[])`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from millpond.kernels.spark.rows import RefusedValue, by_row

_TOKEN = re.compile(r'\s*("(?:[^"]|"")*"|\[\]|[(),]|[^\s"(),\[\]]+)')


@dataclass(frozen=True)
class Kind:
    """A type: `name` is STRUCT, LIST, MAP or that of a scalar, `parts` the types in it."""

    name: str
    parts: tuple[Kind, ...] = ()
    fields: tuple[str, ...] = ()  # of a STRUCT
    digits: tuple[int, int] = (0, 0)  # of a DECIMAL


_SPARK = {
    "INTEGER": "int",
    "VARCHAR": "string",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "TIMESTAMP": "timestamp_ntz",
    "BLOB": "binary",
    "NULL": "void",
    **{n: n.lower() for n in ("TINYINT", "SMALLINT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "DATE")},
}


@by_row("spark.type_name.1", ("VARCHAR",), "VARCHAR", pa.string())
def type_name(text: str) -> str:
    """Spark's name for a type of DuckDB."""
    return _in_spark(kind_of(text))


def _in_spark(kind: Kind) -> str:
    parts = [_in_spark(part) for part in kind.parts]
    match kind.name:
        case "STRUCT":
            return f"struct<{','.join(f'{n}:{p}' for n, p in zip(kind.fields, parts, strict=True))}>"
        case "LIST" | "MAP":
            return f"{'array' if kind.name == 'LIST' else 'map'}<{','.join(parts)}>"
        case "DECIMAL":
            return "decimal({},{})".format(*kind.digits)
    if kind.name not in _SPARK:
        raise RefusedValue(f"typeof of {kind.name} is not supported")
    return _SPARK[kind.name]


@cache
def kind_of(text: str) -> Kind:
    """Read the text of a type.

    >>> kind_of('MAP(VARCHAR, STRUCT("a b" INTEGER)[])').parts[1].parts[0].fields
    ('a b',)
    """
    tokens = _TOKEN.findall(text)
    found, rest = _read(tokens)
    assert not rest, text
    return found


def _read(tokens: list[str]) -> tuple[Kind, list[str]]:
    name, rest = tokens[0].strip('"').upper(), tokens[1:]
    if rest[:1] == ["("]:
        found, rest = _of_parts(name, rest[1:])
    else:
        while rest and rest[0] not in (",", ")", "[]"):  # TIMESTAMP WITH TIME ZONE
            name, rest = f"{name} {rest[0].upper()}", rest[1:]
        found = Kind("TIMESTAMP WITH TIME ZONE" if name == "TIMESTAMPTZ" else name)
    while rest[:1] == ["[]"]:
        found, rest = Kind("LIST", (found,)), rest[1:]
    return found, rest


def _of_parts(name: str, rest: list[str]) -> tuple[Kind, list[str]]:
    if name == "DECIMAL":
        return Kind(name, digits=(int(rest[0]), int(rest[2]))), rest[4:]
    parts, fields = [], []
    while True:
        if name == "STRUCT":
            fields.append(rest[0][1:-1].replace('""', '"') if rest[0].startswith('"') else rest[0])
            rest = rest[1:]
        part, rest = _read(rest)
        parts.append(part)
        sign, rest = rest[0], rest[1:]
        if sign == ")":
            return Kind(name, tuple(parts), tuple(fields)), rest
