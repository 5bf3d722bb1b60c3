"""The functions of a dialect, written as DuckDB macros in the `.sql` files beside its code.

Law: translated text calls them by their full name (`__pg."/"(a, b)`), which no user's object can have, so
texts of all dialects run in the same database, and a stored text keeps its meaning.
DuckDB chooses among the overloads of a macro by the types of its arguments; an overload without types comes
last and takes the rest.  Each dialect is an attached database, which lasts while others are emptied, and a
macro is created when the first text names it: creating all would cost half a millisecond each.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

import duckdb

from millpond.kernels.duck import Equipment, provide_named

CATALOGS = {"__pg": "postgres", "__spark": "spark"}  # of the functions of a dialect -> its folder
_CALL = re.compile(r'\b(__pg|__spark)\.(?:main\.)?("[^"]+"|\w+)\s*\(')
_DEFINED = re.compile(r'create macro (__\w+)\.("[^"]+"|\w+)\s*\(', re.IGNORECASE)

_TYPED = re.compile(r"^\([^()]*\b\w+ +[a-z]\w*")  # a parameter with a type


@cache
def definitions(catalog: str) -> dict[str, str]:
    """The statement that creates each macro of a dialect, by name."""
    found: dict[str, str] = {}
    folder = resources.files("millpond.sql.dialects").joinpath(CATALOGS[catalog])
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if not file.name.endswith(".sql"):
            continue
        for statement in file.read_text("utf-8").split(";\n"):
            head = _DEFINED.search(statement)
            if head is not None:
                assert head[1] == catalog, head[0]
                name = head[2].strip('"')
                assert name not in found, f"{catalog}.{name} is defined twice"
                found[name] = statement[head.start() :].rstrip().rstrip(";")
    return found


def has(catalog: str, name: str) -> bool:
    """Does a dialect define this function or operator?"""
    return name in definitions(catalog)


@cache
def is_typed(catalog: str, name: str) -> bool:
    """Are there overloads, among which DuckDB chooses by the types of the arguments?"""
    found = definitions(catalog).get(name) if catalog in CATALOGS else None
    return found is not None and _TYPED.search(found[found.index("(") :]) is not None


def equip(con: duckdb.DuckDBPyConnection, equipment: Equipment, sql: str) -> None:
    """Create the functions of dialects that a text calls, and those that they call themselves."""
    if "__pg" not in sql and "__spark" not in sql:
        provide_named(sql)
        equipment.refresh()
        return
    for catalog, name in _called(sql):
        _create(con, equipment, catalog, name)
    provide_named(sql)
    equipment.refresh()


def _create(con: duckdb.DuckDBPyConnection, equipment: Equipment, catalog: str, name: str) -> None:
    """Create a macro after everything that it calls: DuckDB binds the body of one with typed parameters."""
    if (catalog, name) in equipment.macros or name not in definitions(catalog):
        return
    if (catalog, "") not in equipment.macros:
        con.execute(f"attach ':memory:' as {catalog}")
        equipment.macros.add((catalog, ""))
    equipment.macros.add((catalog, name))
    statement = definitions(catalog)[name]
    for called in _called(statement):
        _create(con, equipment, *called)
    provide_named(statement)
    equipment.refresh()
    con.execute(statement)


def _called(sql: str) -> set[tuple[str, str]]:
    return {(catalog, name.strip('"')) for catalog, name in _CALL.findall(sql)}
