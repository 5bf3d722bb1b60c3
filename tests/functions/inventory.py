"""What a user of PostgreSQL could call: the functions, aggregates, window functions and operators of its
catalog over the types that Millpond has, and the reasons for which the others are left out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

TYPES = [
    "bool",
    "int2",
    "int4",
    "int8",
    "float4",
    "float8",
    "numeric",
    "text",
    "varchar",
    "bpchar",
    "bytea",
    "date",
    "time",
    "timetz",
    "timestamp",
    "timestamptz",
    "interval",
    "uuid",
    "json",
    "jsonb",
    "record",
    "any",
    "anyelement",
    "anyarray",
    "anynonarray",
    "anycompatible",
    "anycompatiblearray",
    "anycompatiblenonarray",
    "jsonpath",
]

QUERY = """
with known as (
    select oid from pg_type where typname = any(%(types)s) or typname = any(select '_' || t from unnest(%(types)s::text[]) t)
)
select p.proname, p.prokind::text, p.proretset, pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid),
    coalesce(obj_description(p.oid, 'pg_proc'), ''),
    exists (select from pg_operator o where o.oprcode = p.oid),
    exists (select from pg_cast c where c.castfunc = p.oid),
    array(select format_type(t, null) from unnest(p.proargtypes::oid[]) t),
    p.proargnames
from pg_proc p
where p.pronamespace = 'pg_catalog'::regnamespace
    and p.proargtypes::oid[] <@ array(select oid from known) and p.prorettype in (select oid from known)
order by 1, 4
"""
OPERATORS = """
with known as (
    select oid from pg_type where typname = any(%(types)s) or typname = any(select '_' || t from unnest(%(types)s::text[]) t)
)
select o.oprname, o.oprkind::text, format_type(nullif(o.oprleft, 0), null), format_type(o.oprright, null), format_type(o.oprresult, null)
from pg_operator o
where o.oprnamespace = 'pg_catalog'::regnamespace and (o.oprleft = 0 or o.oprleft in (select oid from known))
    and o.oprright in (select oid from known) and o.oprresult in (select oid from known)
order by 1, 3, 4
"""

# Why a function that exists is not for users; the first pattern that fits its description, then its name.
BY_DESCRIPTION = {
    r"^I/O|^internal|\bsend\b|recv": "input and output of types",
    r"aggregate (transition|final|combine|inverse|serial|deserial)|transition function|final function": "parts of aggregates",
    r"^(less-equal-greater|hash|window RANGE support|sort support|planner support|larger of two|smaller of two|equal image)": "index and sort support",
    r"selectivity|implementation of": "implements an operator, which is listed",
    r"advisory lock": "locks of sessions",
    r"large object|from a file|file size": "large objects and the server's files",
}
BY_NAME = {
    r"^pg_|^has_|^txid_|^lo_|^lo(read|write)|^inet_|^current_(setting|query|schema|database)|^set_config|^row_security|^version$|_privs?$|^(current|session)_user$": "system administration and information",
    r"^(brin|gin|gist|spg|hash|bt[a-z0-9]+cmp|array_subscript|raw_array|jsonb_subscript)": "index and subscript support",
    r"range_subdiff$|^(int8|int4|numeric_?)inc|^int8dec|^numeric_(exp|ln|log|sqrt|div_trunc)$|^d(exp|log1|log10|round|trunc)$|^textlen$|^dsqrt$|^dpow$|^float8_(regr|accum|combine)|_accum|_combine$|^(i|j)?(textregexeq)|in_range|^textcat|unknown": "internal names of listed functions",
    r"^ts_|^xml|_to_xml|^query_to|^table_to|^schema_to|^database_to|^cursor_to": "full text search and XML",
    r"^(lastval|nextval|setval|currval)": "sequences",
    r"^(date_part|timestamp|timestamptz|date|time|timetz|interval|abstime|bool|int[248]|float[48]|numeric|text|varchar|bpchar|char|name|bytea|json|jsonb)$": "cast functions: write CAST",
    r"^(like|notlike|like_escape|similar_escape|similar_to_escape)$": "implements LIKE and SIMILAR TO",
}
SUPPORT = re.compile(
    r"^(in_range|.*_(send|recv|in|out|cmp|support|sortsupport|larger|smaller|transfn|finalfn|sfunc))$"
)


@dataclass(frozen=True)
class Callable_:
    """One function with its argument types, or one operator."""

    name: str
    kind: str  # function, set, aggregate, window, operator
    arguments: tuple[str, ...]
    written: str  # its arguments as PostgreSQL shows them
    result: str
    left_out: str = ""  # why, if users do not call it

    @property
    def signature(self) -> str:
        if self.kind == "operator":
            shown = [a for a in self.arguments if a]
            return f"{shown[0]} {self.name} {shown[1]}" if len(shown) == 2 else f"{self.name} {shown[0]}"
        return f"{self.name}({self.written})"


def read(con: Any) -> list[Callable_]:
    """Everything in the catalog of a server."""
    found = []
    for name, kind, is_set, written, result, told, is_operator, is_cast, types, _ in con.execute(
        QUERY, {"types": TYPES}
    ).fetchall():
        written = re.sub(r",? ?OUT [^,]+", "", written).strip(", ")
        word = {"a": "aggregate", "w": "window"}.get(kind, "set" if is_set else "function")
        left_out = reason(name, told, is_operator, is_cast)
        found.append(Callable_(name, word, tuple(types), written, result, left_out))
    for name, kind, left, right, result in con.execute(OPERATORS, {"types": TYPES}).fetchall():
        arguments = (right,) if kind == "l" else (left, right)
        found.append(
            Callable_(
                name, "operator", arguments, " , ".join(arguments), result, operator_reason(name, arguments)
            )
        )
    return found


USED = frozenset(
    [
        "array_append",
        "array_prepend",
        "array_cat",
        "starts_with",
        "json_extract_path",
        "json_extract_path_text",
        "jsonb_extract_path",
        "jsonb_extract_path_text",
        "mod",
        "power",
        "jsonb_path_exists_opr",
        "jsonb_path_match_opr",
        "jsonb_exists",
        "date_part",
        "timezone",
        "array_to_json",
        "to_json",
    ]
)  # these implement operators or casts, and users call them by name


def reason(name: str, told: str, is_operator: bool, is_cast: bool) -> str:
    if name.endswith("_opr") or name in ("jsonb_exists", "jsonb_exists_any", "jsonb_exists_all"):
        return "implements an operator, which is listed"
    if name in USED:
        return ""
    for pattern, why in BY_DESCRIPTION.items():
        if re.search(pattern, told):
            return why
    if SUPPORT.match(name):
        return "index and sort support"
    for pattern, why in BY_NAME.items():
        if re.search(pattern, name):
            return why
    if is_operator:
        return "implements an operator, which is listed"
    return "cast functions: write CAST" if is_cast else ""


def operator_reason(name: str, arguments: tuple[str, ...] = ()) -> str:
    if name == "@@" and "jsonpath" not in arguments:
        return "full text search and XML"
    if name in ("~<~", "~<=~", "~>=~", "~>~", "*<", "*<=", "*<>", "*=", "*>", "*>="):
        return "index support"
    return ""
