"""Finds in a bound plan what PostgreSQL may refuse: values that become another type by themselves.

Law: a plan without doubts is not looked at again; a doubt is no proof, since users write such casts, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millpond.sql.binding.types import Json, type_text
from millpond.sql.bound.clock import CLOCK, STAMP

_FAMILIES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UHUGEINT"), "number"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "DECIMAL", "FLOAT", "DOUBLE"), "number"),
    **dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_TZ"), "date"),
    **dict.fromkeys(("TIME", "TIME WITH TIME ZONE", "TIME_TZ"), "time"),
    **{name: name.lower() for name in ("BOOLEAN", "INTERVAL", "UUID", "BLOB", "LIST")},
}
_READ = frozenset(["number", "boolean", "date", "time", "interval", "uuid", "list"])
_TAKE_NO = {"sum", "avg", "min", "max", "string_agg"}  # which take neither booleans nor documents
_TESTED = ("regexp_full_match", "regexp_matches", "~~")  # before a text is cast as its user asked


def is_doubtful(plan: Json) -> bool:
    """Is there a value that becomes another type by itself?"""
    return any(map(_is_doubtful, _calls(plan)))


def cast_literals(plan: Json) -> Iterator[tuple[str, str]]:
    """The texts of literals that become another type, and the type."""
    for node in _calls(plan):
        if node["type"] != "OPERATOR_CAST" or (node.get("function_data") or {}).get("try_cast"):
            continue
        (child,) = node["children"]
        if child["expression_class"] != "BOUND_CONSTANT" or _family(node["return_type"]) not in _READ:
            continue
        text = child["value"].get("value")
        is_text = child["value"]["type"]["id"] == "VARCHAR" and isinstance(text, str)
        if is_text and text not in (CLOCK, STAMP):  # which become now() and proctime()
            yield text, type_text(node["return_type"])


def _calls(node: Any) -> Iterator[Json]:
    if isinstance(node, list):
        for one in node:
            yield from _calls(one)
    elif isinstance(node, dict):
        if node.get("expression_class") in ("BOUND_FUNCTION", "BOUND_AGGREGATE"):
            yield node
        if node.get("expression_class") == "BOUND_CASE":
            for check in node["case_checks"]:
                yield from _calls(check["when_expr"])
                if _name(check["when_expr"]) not in _TESTED:
                    yield from _calls(check["then_expr"])
            yield from _calls(node["else_expr"])
            return
        for value in node.values():
            if isinstance(value, dict | list):
                yield from _calls(value)


def _is_doubtful(node: Json) -> bool:
    given = [_family(kind) for kind in node.get("arguments") or ()]
    name = _name(node)
    if node["type"] == "OPERATOR_CAST":
        wanted = _family(node["return_type"])
        if (node.get("function_data") or {}).get("try_cast") or not given or "" in (given[0], wanted):
            return False
        return given[0] != wanted and wanted != "text" and (given[0], wanted) != ("date", "time")
    if node["expression_class"] == "BOUND_AGGREGATE":
        alone = name == "string_agg" and len(given) == 1
        return name in _TAKE_NO and (alone or bool({"boolean", "json"} & set(given[:1])))
    return name == "array_extract" and given[:1] == ["text"]


def _name(node: Json) -> str:
    return str((node.get("qname") or {"path": [""]})["path"][-1]).lower()


def _family(kind: Json) -> str:
    """The family of a type; "" for one that has none."""
    if kind["id"] == "VARCHAR":
        return "json" if (kind.get("type_info") or {}).get("alias") == "JSON" else "text"
    return _FAMILIES.get(kind["id"], "")
