"""Renders DuckDB's logical types as text, from the JSON of a bound plan."""

from __future__ import annotations

from typing import Any

from millpond.kernels.duck import quoted as quoted

Json = dict[str, Any]
UTC = "UTC"  # the time zone of every computation that no session has given another one

# Arrow and our state store another type than the logical type: a reference is cast back to it.
_RESTORED = (
    "HUGEINT",
    "UHUGEINT",
    "BIGNUM",
    "UUID",
    "ENUM",
    "BIT",
    "TIME WITH TIME ZONE",
    "JSON",
    "INTERVAL",
)


def type_text(kind: Json) -> str:
    """Render a logical type as text.

    >>> type_text({"id": "DECIMAL", "type_info": {"width": 10, "scale": 2}})
    'DECIMAL(10,2)'
    """
    name, info = str(kind["id"]), kind.get("type_info") or {}
    if info.get("alias") == "JSON":
        return "JSON"
    if name == "DECIMAL":
        return f"DECIMAL({info['width']},{info['scale']})"
    if name == "LIST":
        return f"{type_text(info['child_type'])}[]"
    if name == "ARRAY":
        return f"{type_text(info['child_type'])}[{info['size']}]"
    if name == "MAP":
        pair = {c["first"]: c["second"] for c in info["child_type"]["type_info"]["child_types"]}
        return f"MAP({type_text(pair['key'])}, {type_text(pair['value'])})"
    if name in ("STRUCT", "TUPLE"):
        parts = info["child_types"]
        if all(not part["first"] for part in parts):
            return f"TUPLE({', '.join(type_text(part['second']) for part in parts)})"
        inner = ", ".join(f"{quoted(part['first'])} {type_text(part['second'])}" for part in parts)
        return f"STRUCT({inner})"
    if name == "ENUM":
        values = info.get("values") or []
        return f"ENUM({', '.join(text_literal(v) for v in values)})" if values else "VARCHAR"
    if name in ("NULL", "SQLNULL", "UNKNOWN", "INVALID"):
        return "INTEGER"
    return name


def restored(text: str) -> bool:
    """Must a column of this type be cast back to it before it is used?"""
    return any(word in text for word in _RESTORED)


def as_stored(sql: str, kind: str) -> str:
    """Convert an expression of this type to its stored form: an interval is stored as text.

    >>> as_stored("a - b", "INTERVAL")
    'CAST(a - b AS VARCHAR)'
    """
    return f"CAST({sql} AS {kind.replace('INTERVAL', 'VARCHAR')})" if "INTERVAL" in kind else sql


def stored_distinctly(text: str) -> bool:
    """Are two values of the type equal if and only if their stored forms are?

    One month equals thirty days, and noon in London equals one o'clock in Paris.
    """
    return "INTERVAL" not in text and "TIME WITH TIME ZONE" not in text.replace("TIMESTAMP WITH", "")


# Settings of a DuckDB that reads only registered relations: no files, no network, no Python variables.
CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "python_enable_replacements": False,
}


def text_literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
