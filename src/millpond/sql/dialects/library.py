"""The functions of a dialect, written as DuckDB macros in the `.sql` files beside its code.

Law: translated text calls them by their full name (`__pg."/"(a, b)`), which no user's object can have, so
texts of all dialects run in the same database, and a stored text keeps its meaning.
DuckDB chooses among the overloads of a macro by the types of its arguments; an overload without types comes
last and takes the rest.  Each dialect is an attached database, which lasts while others are emptied, and a
macro is created when the first text names it: creating all would cost half a millisecond each.
Some macros are parts of others or of translated texts; their files list them as `-- internal`.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

import duckdb

from millpond.kernels.duck import Equipment, provide_named

CATALOGS = {
    "__pg": "postgres",
    "__spark": "spark",
    "__flink": "flink",
}  # of the functions of a dialect -> its folder
_CALL = re.compile(r'\b(__pg|__spark|__flink)\.(?:main\.)?("[^"]+"|\w+)\s*\(')
_DEFERRED = ("__spark", "__flink")  # whose macros know types by `typeof`
_SIGN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|[(\[{)\]},]")  # quoted text, brackets and commas
_SIGN_OR_NAME = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|(?<![.\w])[A-Za-z_]\w*(?!\s*\(|\w|\s*:=)")
_INLINE = re.compile(r"/\* inline((?: \w+)*) \*/")
_DEFINED = re.compile(r'create macro (__\w+)\.("[^"]+"|\w+)\s*\(', re.IGNORECASE)

_INTERNAL = re.compile(r"^-- internal: (.*)$", re.MULTILINE)
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


def is_public(catalog: str, name: str) -> bool:
    """Does a dialect define this function for its users, not only for translated texts?"""
    return has(catalog, name) and name not in _internal(catalog)


@cache
def _internal(catalog: str) -> frozenset[str]:
    """The macros that the files list as `-- internal: name …`: a user's function may have such a name."""
    folder = resources.files("millpond.sql.dialects").joinpath(CATALOGS[catalog])
    texts = (file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".sql"))
    return frozenset(name for text in texts for names in _INTERNAL.findall(text) for name in names.split())


@cache
def is_typed(catalog: str, name: str) -> bool:
    """Are there overloads, among which DuckDB chooses by the types of the arguments?"""
    found = definitions(catalog).get(name) if catalog in CATALOGS else None
    if catalog in _DEFERRED:  # nearly all of their functions call such functions
        return found is not None
    return found is not None and _TYPED.search(found[found.index("(") :]) is not None


def equip(con: duckdb.DuckDBPyConnection, equipment: Equipment, sql: str) -> None:
    """Create the functions of dialects that a text calls, and those that they call themselves."""
    if not any(catalog in sql for catalog in CATALOGS):
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
        _beside(con, f"attach ':memory:' as {catalog}")
        equipment.macros.add((catalog, ""))
    equipment.macros.add((catalog, name))
    statement = definitions(catalog)[name]
    for called in _called(statement):
        _create(con, equipment, *called)
    provide_named(statement)
    equipment.refresh()
    _beside(con, deferred(statement) if catalog in _DEFERRED else statement)


def _beside(con: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Run a definition outside of the connection's transaction, which may write to one database only."""
    with con.cursor() as other:
        other.execute(statement)


def _called(sql: str) -> set[tuple[str, str]]:
    return {(catalog, name.strip('"')) for catalog, name in _CALL.findall(sql)}


def deferred(statement: str) -> str:
    """The statement with each body as a lambda of those parameters that it reads several times.

    A macro is replaced by its text, so without this a nested call would be copied again and again.
    DuckDB also binds the body when the macro is created, and then cannot choose among overloads by an
    argument whose type is not known: it stops at once, and is content, at a list of such an argument.
    `/* inline */` keeps the body of an overload as it is, `/* inline n */` a parameter that has to stay
    constant.

    >>> deferred("create macro __x.f (a) as a || a").partition(" as ")[2]
    'invoke(lambda a_: case when typeof([a_]) is null then null else a_ || a_ end, a)'
    """
    head = _DEFINED.search(statement)
    assert head is not None, statement
    start = head.end() - 1
    return statement[:start] + ", ".join(map(_bound_once, _overloads(statement[start:])))


def _bound_once(overload: str) -> str:
    inline = _INLINE.search(overload)
    kept = [] if inline is None else inline[1].split()
    if inline is not None and not kept:
        return overload
    names, body = re.split(r"\)\s+as\s", _INLINE.sub("", overload), maxsplit=1)
    given = [one.split() for one in names.lstrip("( ").split(",") if one.strip()]
    untyped = any(len(one) == 1 for one in given)
    counts = {one[0]: sum(found[0] == one[0] for found in _SIGN_OR_NAME.finditer(body)) for one in given}
    several = [name for name, count in counts.items() if name not in kept and (count > 1 or untyped)]
    if not several or not (untyped or max(counts.values()) > 1):
        return overload
    body = _SIGN_OR_NAME.sub(lambda found: f"{found[0]}_" if found[0] in several else found[0], body)
    guard = " or ".join(f"typeof([{name}_]) is null" for name in several)
    body = f"case when {guard} then null else {body} end" if untyped else body
    return f"{names}) as invoke(lambda {', '.join(f'{n}_' for n in several)}: {body}, {', '.join(several)})"


def _overloads(text: str) -> list[str]:
    """The overloads of a macro: its text divided at the commas outside of brackets and quotes."""
    found, depth, start = [], 0, 0
    for match in _SIGN.finditer(text):
        sign = match[0]
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            found.append(text[start : match.start()].strip())
            start = match.end()
    return [*found, text[start:].strip()]
