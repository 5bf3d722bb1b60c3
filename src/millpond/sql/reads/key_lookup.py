"""Finds the keys that a query can need: `WHERE key = constant` becomes a point lookup.

The condition stays in the query; only rows that it would drop anyway are not read.  So a
key is used only where SQL compares it in the key's own type.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import duckdb

from millpond.plan.objects import SqlObject
from millpond.sql.binding.catalog import tree_of
from millpond.sql.binding.types import text_literal
from millpond.sql.text.duckdb_parser import ask
from millpond.state.tables.table_spec import TableSpec

Json = Mapping[str, Any]
Keys = list[tuple[Any, ...]]

KEYS_MAX = 10_000
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
_BOUNDS = {name: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in _BITS.items()}
_BOUNDS |= {f"U{name}": (0, 2**bits - 1) for name, bits in _BITS.items()}


def wanted_keys(
    sql: str, objects: Sequence[tuple[SqlObject, TableSpec]], params: Mapping[str, Any]
) -> dict[str, Keys]:
    """Return, by state table, the only keys that the query can need; other tables are scanned."""
    uses, selects, hidden = _parts(sql)
    found: dict[str, Keys] = {}
    for made, spec in objects:
        mine = [n for n in uses if str(n["table_name"]).lower() == made.name.lower()]
        if len(mine) != 1 or made.name.lower() in hidden or not spec.key:
            continue
        for select in selects:
            sides = list(_tables(select.get("from_table") or {}))
            if mine[0] in sides:
                keys = _keys(select.get("where_clause"), mine[0], len(sides) == 1, made, spec, params)
                if keys is not None:
                    found[spec.name] = keys
    return found


@lru_cache(maxsize=256)
def _parts(sql: str) -> tuple[list[Json], list[Json], set[str]]:
    """Return the tables that a query names, its selects, and the names of its own CTEs."""
    tree = tree_of(sql)
    uses = [n for n in _walk(tree) if n.get("type") == "BASE_TABLE"]
    selects = [n for n in _walk(tree) if n.get("type") == "SELECT_NODE"]
    hidden = {str(n.get("key", "")).lower() for n in _walk(tree) if "key" in n and "value" in n}
    return uses, selects, hidden


def own_names(sql: str) -> set[str]:
    """Return the names of a query's own CTEs, in lower case."""
    return _parts(sql)[2]


def constant_keys(where: str, made: SqlObject, spec: TableSpec) -> Keys | None:
    """Return the keys that can satisfy a condition over one table, if it fixes them."""
    keys = wanted_keys(
        f'select 1 from "{made.name.replace(chr(34), chr(34) * 2)}" {where}', [(made, spec)], {}
    )
    return keys.get(spec.name)


def _keys(
    where: Json | None,
    table: Json,
    alone: bool,
    made: SqlObject,
    spec: TableSpec,
    params: Mapping[str, Any],
) -> Keys | None:
    types = {c.name.lower(): c.type for c in made.columns}
    held = {c.name.lower(): c.stored_name.lower() for c in made.columns}
    called = str(table.get("alias") or table["table_name"]).lower()
    values: dict[str, list[Any]] = {}
    for part in _conjuncts(where):
        for column, given in _equalities(part):
            path = [str(p).lower() for p in column["column_names"]]
            if not (path[-1] in types and (path[:-1] == [called] or (alone and len(path) == 1))):
                continue
            made_of = [_value(g, types[path[-1]], params) for g in given]
            if all(m is not None for m in made_of):
                values.setdefault(held[path[-1]], [m[0] for m in made_of if m is not None])
    if any(k.lower() not in values for k in spec.key):
        return None
    lists = [values[k.lower()] for k in spec.key]
    count = 1
    for one in lists:
        count *= len(one)
    if count > KEYS_MAX:
        return None
    return [k for k in dict.fromkeys(product(*lists)) if None not in k]


def _conjuncts(where: Json | None) -> Iterator[Json]:
    if where is None:
        return
    if where.get("type") == "CONJUNCTION_AND":
        for child in where["children"]:
            yield from _conjuncts(child)
    else:
        yield where


def _equalities(part: Json) -> Iterator[tuple[Json, Sequence[Json]]]:
    if part.get("type") == "COMPARE_EQUAL":
        for one, other in ((part["left"], part["right"]), (part["right"], part["left"])):
            if one.get("class") == "COLUMN_REF":
                yield one, [other]
    elif part.get("type") == "COMPARE_IN" and part["children"][0].get("class") == "COLUMN_REF":
        yield part["children"][0], part["children"][1:]


def _value(node: Json, kind: str, params: Mapping[str, Any]) -> tuple[Any] | None:
    """Convert a constant or a parameter to the column's type; None if SQL would compare it in another."""
    if node.get("class") != "PARAMETER":
        return key_constant(node, kind)
    value = params.get(str(node["identifier"]))
    if kind == "VARCHAR":
        return (value,) if isinstance(value, str) else None
    if kind == "DATE":
        return (value,) if type(value) is datetime.date else None
    if kind == "UUID":
        return (str(value),) if isinstance(value, uuid.UUID) else None
    return _integer_key(value, kind) if isinstance(value, int) and not isinstance(value, bool) else None


def type_bounds(kind: str) -> tuple[int, int] | None:
    """The least and the greatest value of an integer type; None for other types.

    >>> type_bounds("TINYINT"), type_bounds("VARCHAR")
    ((-128, 127), None)
    """
    return _BOUNDS.get(kind)


def key_constant(node: Json, kind: str) -> tuple[Any] | None:
    """Convert a constant to the column's type; None if SQL would compare it in another type."""
    if node.get("class") != "CONSTANT" or "literal" not in node:
        return None
    literal = node["literal"]
    if kind == "VARCHAR":
        return (literal["text"],) if literal["kind"] == "STRING" else None
    text = str(literal["text"])
    if kind in _BOUNDS and literal["kind"] in ("INTEGER", "STRING"):
        return _integer_key(int(text), kind) if text.removeprefix("-").isdecimal() else None
    if kind in ("DATE", "UUID") and literal["kind"] == "STRING":
        cast = _cast(text, kind)
        return None if cast is None else ((str(cast) if kind == "UUID" else cast),)
    return None


def _integer_key(value: int, kind: str) -> tuple[int] | None:
    low, high = _BOUNDS.get(kind, (1, 0))
    return (value,) if low <= value <= high else None


def _cast(text: str, kind: str) -> Any:
    try:
        return ask(f"select try_cast({text_literal(text)} as {kind})")
    except duckdb.Error:
        return None


def _tables(node: Json) -> Iterator[Json]:
    """Yield the base tables of a FROM clause, without its subqueries."""
    if node.get("type") == "BASE_TABLE":
        yield node
    for side in ("left", "right"):
        if isinstance(node.get(side), Mapping):
            yield from _tables(node[side])


def _walk(node: Any) -> Iterator[Json]:
    if isinstance(node, Mapping):
        yield node
        for value in node.values():
            yield from _walk(value)
    elif isinstance(node, list):
        for value in node:
            yield from _walk(value)
