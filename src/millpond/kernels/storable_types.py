"""The types to which DuckDB's values are cast before they leave it, so that they can be stored."""

from __future__ import annotations

from typing import Any

from millpond.kernels.duck import binder, quoted

_TEXT = frozenset({"uuid", "enum", "bit", "time with time zone"})
_WIDE = frozenset({"hugeint", "uhugeint", "bignum"})


def storable_type(kind: Any) -> str:
    """The SQL type to which a value is cast before it leaves DuckDB: 128-bit integers never do."""
    name = kind.id
    if name in _WIDE:
        return "DECIMAL(38,0)"
    if name in _TEXT or str(kind) == "JSON":
        return "VARCHAR"
    if name == "null":
        return "INTEGER"  # DuckDB's type for a column of NULLs
    if name == "list":
        return f"{storable_type(kind.children[0][1])}[]"
    if name == "array":
        return f"{storable_type(kind.children[0][1])}[{kind.children[1][1]}]"
    if name == "map":
        return f"MAP({storable_type(kind.children[0][1])}, {storable_type(kind.children[1][1])})"
    if name == "struct":
        return f"STRUCT({', '.join(f'{quoted(n)} {storable_type(k)}' for n, k in kind.children)})"
    return str(kind)


def storable_text(kind: str) -> str:
    """The type to which values of a type, passed by name, are cast.

    >>> storable_text("HUGEINT")
    'DECIMAL(38,0)'
    """
    return storable_type(binder().sql(f"select cast(null as {kind})").types[0])
