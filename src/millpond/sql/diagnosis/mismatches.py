"""Expressions that DuckDB takes and PostgreSQL refuses, because of the types of their operands.

Law: what PostgreSQL takes is never called a mismatch.
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.sql.diagnosis.signatures import family, takes
from millpond.sql.dialects.parse_tree import Tree
from millpond.sql.dialects.postgres.types_written import written_type
from millpond.sql.pg_catalog.pg_types import pg_type

_SIGNS = {
    "COMPARE_EQUAL": "=", "COMPARE_NOTEQUAL": "<>", "COMPARE_LESSTHAN": "<", "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=", "COMPARE_GREATERTHANOREQUALTO": ">=", "COMPARE_DISTINCT_FROM": "=",
    "COMPARE_NOT_DISTINCT_FROM": "=",
}  # fmt: skip
_SCALARS = frozenset(["number", "boolean", "date", "time", "interval", "uuid", "bytea"])
# Casts between families of which PostgreSQL has none; a text can be cast to all, and all to a text.
_CASTS = {
    "number": _SCALARS - {"number", "boolean"},
    "boolean": _SCALARS - {"boolean", "number"},
    "date": _SCALARS - {"date", "time"},
    "time": _SCALARS - {"time", "interval"},
    "interval": _SCALARS - {"interval", "time"},
    "uuid": _SCALARS - {"uuid"},
    "json": _SCALARS - {"number", "boolean"},
}


def is_mismatch(node: Tree, operands: Sequence[Tree], types: Sequence[str]) -> bool:
    """Does PostgreSQL refuse this expression?"""
    kinds = [pg_type(one) for one in types]
    kind, form = node["class"], node["type"]
    if "record" in kinds:
        return False
    if kind == "COMPARISON" and form in _SIGNS:
        return not takes(_SIGNS[form], kinds)
    if form in ("COMPARE_IN", "COMPARE_NOT_IN"):
        return any(not takes("=", (kinds[0], other)) for other in kinds[1:])
    if kind == "BETWEEN":
        return not (takes(">=", (kinds[0], kinds[1])) and takes("<=", (kinds[0], kinds[2])))
    if kind == "SUBQUERY" and len(kinds) == 2:
        return not takes("=", (kinds[0], kinds[1].removesuffix("[]")))
    if form == "ARRAY_EXTRACT":
        return kinds[0] not in ("unknown", "json") and not kinds[0].endswith("[]")
    if kind in ("FUNCTION", "WINDOW"):
        return _is_wrong_call(node, kinds)
    if kind == "CAST":
        return _is_wrong_cast(node, kinds[0])
    if kind == "CASE" or form in ("OPERATOR_COALESCE", "ARRAY_CONSTRUCTOR"):
        return are_mixed(types, operands)
    return False


def _is_wrong_call(node: Tree, kinds: list[str]) -> bool:
    if len(node["qualified_name"]["path"]) != 1 or any(a["name"] for a in node.get("arguments") or ()):
        return False
    name = str(node["function_name"]).lower()
    if name == "nullif" and len(kinds) == 2:
        return not takes("=", kinds)
    return not takes(name, kinds)


def _is_wrong_cast(node: Tree, kind: str) -> bool:
    given, wanted = family(kind), family(written_type(node["type_expr"]))
    if given.endswith("[]"):
        return wanted in _SCALARS
    if wanted.endswith("[]"):
        return given in _SCALARS
    return wanted in _CASTS.get(given, ())


def are_mixed(types: Sequence[str], operands: Sequence[Tree]) -> bool:
    """Have these types none in common?"""
    families = {family(kind) for one in types if (kind := pg_type(one)) not in ("unknown", "record")}
    return len({one for one in families if "unknown" not in one}) > 1


def may_assign(kind: str, column: str) -> bool:
    """May a column of a type get a value of another one?

    >>> may_assign("integer", "numeric"), may_assign("integer", "date"), may_assign("date", "text")
    (True, False, True)
    """
    given, wanted = family(kind), family(column)
    if "unknown" in given or "record" in given or wanted in ("text", "json") or given == wanted:
        return True
    return (given, wanted) in (("time", "interval"), ("interval", "time"), ("date", "time"))
