"""What PostgreSQL says about a part of a query that it cannot type, and where it points."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from millpond.sql.diagnosis.first_fault import MIXED, WrongPart, compared_array
from millpond.sql.diagnosis.signatures import is_listed
from millpond.sql.dialects.parse_tree import Tree, nodes
from millpond.sql.dialects.postgres.types_written import written_type
from millpond.sql.dialects.postgres.unknown_literals import is_jsonb
from millpond.sql.pg_catalog.pg_types import pg_type
from millpond.sql.text.postgres_errors import in_postgres_words, postgres_hint

TextRange = tuple[int, int]
_NOWHERE = 1 << 63
NO_FUNCTION = (
    "no function matches the given name and argument types; you might need to add explicit type casts"
)
NO_OPERATOR = (
    "no operator matches the given name and argument types; you might need to add explicit type casts"
)
_COMPARED = {
    "COMPARE_EQUAL": "=", "COMPARE_NOTEQUAL": "<>", "COMPARE_LESSTHAN": "<", "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=", "COMPARE_GREATERTHANOREQUALTO": ">=", "COMPARE_DISTINCT_FROM": "=",
    "COMPARE_NOT_DISTINCT_FROM": "=", "COMPARE_IN": "=", "COMPARE_NOT_IN": "=",
}  # fmt: skip
_WRITTEN = {
    "<>": r"<>|!=",
    "~~": r"(?:not\s+)?like",
    "!~~": r"not\s+like",
    "~~*": r"ilike",
    "!~~*": r"not\s+ilike",
}
_PARSED_AS = {  # calls that DuckDB's parser makes of operators and clauses, and PostgreSQL's words
    "regexp_full_match": "similar to", "date_part": "extract", "timezone": "timezone",
}  # fmt: skip
_FAMILIES = (
    {"smallint": 1, "integer": 2, "bigint": 3, "numeric": 4, "real": 5, "double precision": 6},
    {"text": 2, "character varying": 1, "character": 1},
    {"date": 1, "timestamp without time zone": 2, "timestamp with time zone": 3},
    {"time without time zone": 1, "time with time zone": 2},
)


Declared = Mapping[str, str]  # what columns were declared as, where their logical type does not say it


@dataclass(frozen=True)
class Explanation:
    message: str
    at: TextRange | None
    hint: str | None = None
    operator: str | None = None  # what stands at the place, if it is an operator


def _type_of(kind: str, node: Tree, declared: Declared) -> str:
    """PostgreSQL's name of the type of an expression."""
    known = node["column_names"][-1].lower() if node["class"] == "COLUMN_REF" else ""
    if known in declared:
        return declared[known]
    return "jsonb" if kind == "JSON" and is_jsonb(node) else pg_type(kind)


def explained(part: WrongPart, sql: bytes, declared: Declared = MappingProxyType({})) -> Explanation | None:
    """What is wrong with a part, if it is its types; None if DuckDB's message says more."""
    node, kind = part.node, part.node["class"]
    known = bool(part.operands) and len(part.types) == len(part.operands)
    types = [_type_of(t, n, declared) for t, n in zip(part.types, part.operands, strict=False)]
    if part.clause:
        own = _type_of(part.types[0], node, declared)
        return Explanation(f"argument of {part.clause} must be type boolean, not type {own}", span(node, sql))
    message = _lower(str(part.facts.get("exception_message", "")).split("\n")[0])
    if kind == "COLUMN_REF":
        said = in_postgres_words(message, sql.decode())
        return Explanation(said, span(node, sql), _suggestion(said, part))
    if kind == "SUBQUERY":
        return _subquery(node, types, part.operands, sql, message)
    if kind == "FUNCTION" and "window functions are not supported" in message.lower():
        said = f"window function {node['function_name'].lower()} requires an OVER clause"
        return Explanation(said, span(node, sql))
    if not _is_about_types(part, kind):
        return None
    if kind in ("FUNCTION", "WINDOW"):
        if part.operands and not known:
            return None
        found = _call(node, types, sql)
        near = _suggestion(found.message, part)
        is_public = near is not None and is_listed(near.split('"')[1])
        return replace(found, hint=near) if is_public else found
    if not known:
        return None
    if kind == "COMPARISON":
        return _operator(_COMPARED.get(node["type"], "="), types, part.operands, sql)
    if kind == "BETWEEN":
        return _between(types, part.operands, sql)
    if kind == "CAST":
        return _cast(node, types[0], sql)
    if kind == "CASE":
        return _mixed("CASE", types, part.operands, sql)
    if kind == "OPERATOR":
        return _special(node, types, part.operands, sql)
    return None


def _suggestion(message: str, part: WrongPart) -> str | None:
    """The name that was meant, if the binder knows a close one."""
    lines = str(part.facts.get("exception_message", "")).split("\n")[1:]
    line = next(
        (one for one in lines if one.startswith(("Candidate b", "Candidate t", "Did you mean"))), None
    )
    return postgres_hint(message, line)


_ABOUT_PLACE = re.compile(
    r"nested|cannot contain|not allowed|not supported|must appear|subquery returns|must be a constant|"
    r"must be constant|unnest|lambda expressions|parameter|recursive|ambiguous reference|is not an aggregate|"
    r"named argument|distinct (?:is|aggregate)|order by",
    re.IGNORECASE,
)


def _is_about_types(part: WrongPart, kind: str) -> bool:
    """Is the message about the types of the operands, or an internal one, and not about the place?"""
    message = str(part.facts.get("exception_message", "")).split("\n")[0]
    if part.facts.get("error_subtype") in ("NO_MATCHING_FUNCTION",):
        return True
    if kind == "CAST":
        return "type with name" not in message.lower()
    if "lambda function" in message or "does not exist" in message or message.startswith("UNNEST"):
        return True
    return _ABOUT_PLACE.search(message) is None


# -- kinds of parts -------------------------------------------------------------------------


def _call(node: Tree, types: list[str], sql: bytes) -> Explanation:
    name = str(node["function_name"])
    start = int(node["query_location"])
    operands = tuple(a["expression"] for a in node.get("arguments") or ())
    if not name[:1].isalpha() and name[:1] != "_":
        return _operator(name, types, operands, sql)
    if name.lower() in ("greatest", "least"):
        mixed = _mixed(name.upper(), types, operands, sql)
        if mixed is not None:
            return mixed
    if name.lower() == "nullif" and len(types) == 2:
        said = f"operator does not exist: {types[0]} = {types[1]}"
        return Explanation(said, (start, len(name)), NO_OPERATOR)
    written = _word_at(sql, start)
    if name == "regexp_matches" and written != name and len(operands) >= 2:
        found = re.search(rb"!?~\*?", sql[_end(operands[0], sql) : _start(operands[1])])
        if found is not None:
            return _operator(found[0].decode(), types, operands[:2], sql)
    if name in _PARSED_AS and written.lower() != name:
        if name == "regexp_full_match":
            return _operator("similar to", types, operands, sql)
        written = "extract" if name == "date_part" else "timezone"
    shown = name.lower() if not written or written.lower() == name.lower() else written.lower()
    said = f"function {_as_name(shown, name)}({', '.join(types)}) does not exist"
    at = (start, len(written.encode()) or 1) if start < _NOWHERE else None
    return Explanation(said, at, NO_FUNCTION)


def _lower(message: str) -> str:
    return (message if message[1:2].isupper() else message[:1].lower() + message[1:]).rstrip("!. ")


def _as_name(shown: str, name: str) -> str:
    return f'"{name}"' if name != name.lower() and shown == name else shown


def _operator(name: str, types: list[str], operands: tuple[Tree, ...], sql: bytes) -> Explanation:
    said = f"{name} {types[0]}" if len(types) == 1 else f" {name} ".join(types)
    place = _operator_place(name, operands, sql)
    return Explanation(f"operator does not exist: {said}", place, NO_OPERATOR, name)


def _operator_place(name: str, operands: tuple[Tree, ...], sql: bytes) -> TextRange | None:
    """Where an operator stands: between its operands, or before the only one."""
    starts = [_start(one) for one in operands]
    if any(start >= _NOWHERE for start in starts):
        return None
    pattern = _WRITTEN.get(name, re.escape(name).replace(r"\ ", r"\s+")).encode()
    if len(operands) == 1:
        found = list(re.finditer(pattern, sql[: starts[0]], re.IGNORECASE))
        return (found[-1].start(), len(found[-1][0])) if found else None
    begin, end = sorted((_end(operands[0], sql), starts[1])) if len(operands) > 1 else (starts[0], len(sql))
    words = rb"\bis\b(?:\s+not)?\s+distinct|\b(?:not\s+)?in\b"
    met = re.search(pattern, sql[begin:end], re.IGNORECASE) or re.search(words, sql[begin:end], re.IGNORECASE)
    return (begin + met.start(), len(met[0])) if met else (starts[0], 1)


def _between(types: list[str], operands: tuple[Tree, ...], sql: bytes) -> Explanation:
    bad = 1 if not _compare(types[0], types[1]) else 2
    name = ">=" if bad == 1 else "<="
    found = re.search(rb"\bbetween\b", sql[_start(operands[0]) :], re.IGNORECASE)
    at = None if found is None else (_start(operands[0]) + found.start(), len(found[0]))
    return Explanation(f"operator does not exist: {types[0]} {name} {types[bad]}", at, NO_OPERATOR)


def _cast(node: Tree, kind: str, sql: bytes) -> Explanation | None:
    if kind == "unknown":
        return None
    to = written_type(node["type_expr"])
    at = int(node["query_location"])
    length = 2 if sql[at : at + 2] == b"::" else 4
    return Explanation(f"cannot cast type {kind} to {to}", (at, length) if at < _NOWHERE else span(node, sql))


def _mixed(word: str, types: list[str], operands: tuple[Tree, ...], sql: bytes) -> Explanation | None:
    """Types that have none in common, in the order in which PostgreSQL compares them."""
    common = "unknown"
    for kind, node in zip(types, operands, strict=True):
        if kind == "unknown":
            continue
        if common == "unknown":
            common = kind
        elif not _alike(common, kind):
            return Explanation(f"{word} types {common} and {kind} cannot be matched", span(node, sql))
        elif _rank(kind) > _rank(common):
            common = kind
    return None


def _alike(one: str, other: str) -> bool:
    if one == other:
        return True
    if one.endswith("[]") and other.endswith("[]"):
        return False
    return any(one in family and other in family for family in _FAMILIES)


def _rank(kind: str) -> int:
    return next((family[kind] for family in _FAMILIES if kind in family), 0)


def _compare(one: str, other: str) -> bool:
    return "unknown" in (one, other) or _alike(one, other)


def _subquery(
    node: Tree, types: list[str], operands: tuple[Tree, ...], sql: bytes, message: str
) -> Explanation | None:
    """`x op ANY (array)`, and comparisons with the rows of a query."""
    array, counted = compared_array(node), _COLUMNS.search(message)
    if array is not None and len(types) == 2:
        symbol, place = _before_any(operands, sql) or (_COMPARED.get(node["comparison_type"], "="), None)
        if not types[1].endswith("[]") and types[1] != "unknown":
            return Explanation("op ANY/ALL (array) requires array on right side", place)
        said = f"{types[0]} {symbol} {types[1].removesuffix('[]')}"
        return Explanation(f"operator does not exist: {said}", place, NO_OPERATOR)
    if not node.get("child"):
        if counted is None:
            return None
        return Explanation("subquery must return only one column", span(node, sql))
    begin = _end(node["child"], sql)
    found = re.compile(rb"\b(?:not\s+)?in\b|[<>=!]+\s*(?:any|all|some)\b", re.IGNORECASE).search(sql, begin)
    at = None if found is None else (found.start(), len(found[0]))
    if counted is not None:
        many = int(counted[1]) > int(counted[2])
        return Explanation(f"subquery has too {'many' if many else 'few'} columns", at)
    mixed = _IN_QUERY.search(message)
    if mixed is None:
        return None
    symbol = _COMPARED.get(node["comparison_type"], "=")
    said = f"{pg_type(mixed[1])} {symbol} {pg_type(mixed[2])}"
    return Explanation(f"operator does not exist: {said}", at, NO_OPERATOR)


_COLUMNS = re.compile(r"subquery returns (\d+) columns - expected (\d+)", re.IGNORECASE)
_IN_QUERY = re.compile(
    r"compare values of type (.+?) and (?:type )?(.+?) in IN/ANY/ALL clause", re.IGNORECASE
)
_ANY = re.compile(rb"([<>=!]+)\s*(?:any|all|some)\b", re.IGNORECASE)


def _before_any(operands: tuple[Tree, ...], sql: bytes) -> tuple[str, TextRange] | None:
    """The operator before ANY or ALL; DuckDB's parser negates that of ALL."""
    found = _ANY.search(sql, _end(operands[0], sql))
    if found is None:
        return None
    symbol = found[1].decode().replace("!=", "<>")
    return symbol, (found.start(1), len(found[1]))


def _special(node: Tree, types: list[str], operands: tuple[Tree, ...], sql: bytes) -> Explanation | None:
    kind = node["type"]
    if kind in ("ARRAY_EXTRACT", "ARRAY_SLICE"):
        if types[0].endswith("[]") or types[0] in ("jsonb", "json"):
            return Explanation("array subscript must have type integer", span(operands[1], sql))
        said = f"cannot subscript type {types[0]} because it does not support subscripting"
        return Explanation(said, span(operands[0], sql))
    if kind == "OPERATOR_COALESCE":
        return _mixed("COALESCE", types, operands, sql)
    if kind == "ARRAY_CONSTRUCTOR":
        return _mixed("ARRAY", types, operands, sql)
    if kind == MIXED:
        return _mixed(node["word"], types, operands, sql)
    if kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
        other = next((n for n in range(1, len(types)) if not _compare(types[0], types[n])), 1)
        name = "=" if kind == "COMPARE_IN" else "<>"
        found = re.search(rb"\b(?:not\s+)?in\b", sql[_end(operands[0], sql) :], re.IGNORECASE)
        at = None if found is None else (_end(operands[0], sql) + found.start(), len(found[0]))
        return Explanation(f"operator does not exist: {types[0]} {name} {types[other]}", at, NO_OPERATOR)
    return None


# -- places ---------------------------------------------------------------------------------


def _start(node: Tree) -> int:
    """The first byte of an expression that the text has."""
    known = [
        int(n["query_location"]) for n in nodes(node) if int(n.get("query_location", _NOWHERE)) < _NOWHERE
    ]
    return min(known, default=_NOWHERE)


def _end(node: Tree, sql: bytes) -> int:
    """The byte behind the last word of an expression, without brackets that close."""
    known = [
        int(n["query_location"]) for n in nodes(node) if int(n.get("query_location", _NOWHERE)) < _NOWHERE
    ]
    last = max(known, default=0)
    return last + _length_at(sql, last)


def span(node: Tree, sql: bytes) -> TextRange | None:
    """The place of an expression: that of its only word, or its first one."""
    start = _start(node)
    if start >= _NOWHERE:
        return None
    return start, max(_end(node, sql) - start, 1)


_TOKEN = re.compile(rb"""[eE]?'(?:[^']|'')*'|"(?:[^"]|"")*"(?:\."(?:[^"]|"")*"|\.\w+)*|[\w.\x80-\xff]+|\S""")


def _length_at(sql: bytes, start: int) -> int:
    found = _TOKEN.match(sql, start)
    return len(found[0]) if found else 1


def _word_at(sql: bytes, start: int) -> str:
    if start >= _NOWHERE:
        return ""
    found = re.compile(rb'"((?:[^"]|"")*)"|[\w.\x80-\xff]+').match(sql, start)
    return "" if found is None else (found[1] or found[0]).decode(errors="replace")
