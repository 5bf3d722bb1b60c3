"""Gives literals in quotes the type that PostgreSQL gives them: that of what they are combined with.

DuckDB does so for most of them, but not beside `+` and the like; it rounds `'1.254'` to the digits of a
column with two, and does not read `'{1,2}'` as an array.  A macro gets such a literal together with what
stands beside it, of which it reads the type only: `n = '1.254'` is `n = __pg.number_beside('1.254', …, n)`.

Law: a literal that DuckDB reads as PostgreSQL does stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal

from millpond.sql.dialects.parse_tree import Tree, nodes
from millpond.sql.dialects.postgres.casts import DIGITS
from millpond.sql.dialects.postgres.time_casts import may_be_time
from millpond.sql.dialects.postgres.tree_parts import called, expression

_WHOLE = re.compile(r"\s*[+-]?\d{1,18}\s*")
_INTEGER = re.compile(r"\s*[+-]?\d+\s*")
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*")
_ARRAY = re.compile(r"\s*\{.*\}\s*", re.DOTALL)
_DOCUMENT = re.compile(r'\s*[\["]')  # of JSON; those that begin with { may be arrays, too
_TIME_OR_NUMBER = re.compile(r"\s*([-+.\d]|$|(now|today|infinity|epoch|nan)\b)", re.IGNORECASE)
_BYTES = re.compile(r"\\x[0-9a-fA-F]{3}")  # two digits are one byte in DuckDB, too
_ARITHMETIC = {
    "+": "added_to", "-": "number_beside",
    "*": "factor_of", "/": "factor_of", "%": "factor_of", "^": "factor_of",
}  # fmt: skip
_TYPED_ALIKE = ("OPERATOR_COALESCE", "COMPARE_IN", "COMPARE_NOT_IN")
_FUNCTIONS = ("nullif", "greatest", "least")
_GIVE_JSONB = (
    "->",
    "#>",
    "#-",
    "to_jsonb",
    "to_json",
    "row_to_json",
)  # and most whose names begin with jsonb_
_GIVE_OTHERS = (
    "_text",
    "_typeof",
    "_length",
    "_keys",
    "_exists",
    "_exists_tz",
    "_match",
    "_match_tz",
    "_pretty",
)
_ARRAY_OPERATORS = ("||", "@>", "<@", "&&")

Place = tuple[Tree, Callable[[Tree], None]]  # an operand, and what puts another one in its place


def typed_literals(node: Tree) -> bool:
    """Change the literals among the operands of one node, in place; was there one?"""
    if node.get("class") == "FUNCTION" and len(node["qualified_name"]["path"]) != 1:
        return False
    name = node["function_name"].lower() if node.get("class") == "FUNCTION" else ""
    if name == "-" and len(node["arguments"]) == 2:
        left, right = (a["expression"] for a in node["arguments"])
        if is_jsonb(left) or may_be_key(left, right):
            return False
    places = list(_operands(node, name))
    beside = next((one for one, _ in places if not is_text(one) and not is_null(one)), None)
    if beside is None or any(n.get("class") in ("SUBQUERY", "WINDOW") for n in nodes(beside)):
        return False
    changed = False
    for one, put in places:
        if not is_text(one):
            continue
        text = str(one["literal"]["text"])
        made = None
        if name in _ARITHMETIC and len(places) == 2:
            made = called(_ARITHMETIC[name], one, *_number(text), beside)
        elif _ARRAY.fullmatch(text):
            made = called("array_beside", one, beside)
        elif (may_be_time(text) or _BYTES.match(text)) and name not in _ARRAY_OPERATORS:
            made = called("value_beside", one, beside)
        elif node.get("class") == "COMPARISON" and _DOCUMENT.match(text):
            made = called("json_beside", one, beside)
        elif name not in _ARRAY_OPERATORS and _NUMBER.fullmatch(text) and not _WHOLE.fullmatch(text):
            made = called("number_beside", one, *_number(text), beside)
        if made is not None:
            put({**made, "alias": one["alias"]})
            changed = True
    return changed


def literal_beside(one: Tree, beside: Tree) -> Tree:
    """A literal in quotes with the type of an expression beside it, whatever that is."""
    text = str(one["literal"]["text"])
    if _ARRAY.fullmatch(text):
        return called("array_beside", one, beside)
    if _DOCUMENT.match(text):
        return called("json_beside", one, beside)
    return called("number_beside", one, *_number(text), beside)


def is_jsonb(node: Tree) -> bool:
    """Is this a jsonb by what is written: a cast to it, a function that gives one, or one without keys?"""
    if node.get("class") == "CAST":
        return str(node["type_expr"].get("type_name", "")).lower() == "jsonb"
    if node.get("type") == "ARRAY_EXTRACT":
        return is_jsonb(node["children"][0])
    name = str(node.get("function_name", "")).lower()
    if name in _GIVE_JSONB or (name.startswith("jsonb_") and not name.endswith(_GIVE_OTHERS)):
        return True
    if name == "||":
        return any(is_jsonb(argument["expression"]) for argument in node["arguments"])
    if name != "-" or len(node["arguments"]) != 2:
        return False
    left, right = (a["expression"] for a in node["arguments"])
    return is_jsonb(left) or may_be_key(left, right) or is_array(right)


def is_array(node: Tree) -> bool:
    """Is this ARRAY[…]?"""
    return node.get("type") == "ARRAY_CONSTRUCTOR"


def may_be_key(left: Tree, right: Tree) -> bool:
    """May `left - right` be a jsonb without a key: a column, and no number and no time?"""
    if left.get("class") != "COLUMN_REF" or not is_text(right):
        return False
    return _TIME_OR_NUMBER.match(str(right["literal"]["text"])) is None


def _operands(node: Tree, name: str) -> Iterator[Place]:
    """The operands of a node that have one type."""
    kind = node.get("class")
    if kind == "COMPARISON":
        yield from _fields(node, "left", "right")
    elif kind == "BETWEEN":
        yield from _fields(node, "input", "lower", "upper")
    elif kind == "CASE":
        for check in node["case_checks"]:
            yield from _fields(check, "then_expr")
        if node["else_expr"]:
            yield from _fields(node, "else_expr")
    elif kind == "OPERATOR" and node["type"] in _TYPED_ALIKE:
        yield from _listed(node["children"])
    elif name in _FUNCTIONS or name in _ARITHMETIC or name in _ARRAY_OPERATORS:
        for argument in node["arguments"]:
            yield from _fields(argument, "expression")


def _fields(node: Tree, *names: str) -> Iterator[Place]:
    for name in names:
        yield node[name], lambda fresh, name=name: node.update({name: fresh})  # type: ignore[misc]


def _listed(children: list[Tree]) -> Iterator[Place]:
    for place, child in enumerate(children):
        yield child, lambda fresh, place=place: children.__setitem__(place, fresh)  # type: ignore[misc]


def is_text(node: Tree) -> bool:
    return node.get("class") == "CONSTANT" and (node.get("literal") or {}).get("kind") == "STRING"


def is_null(node: Tree) -> bool:
    return node.get("class") == "CONSTANT" and (node.get("literal") or {}).get("kind") == "NULL_LITERAL"


def _number(text: str) -> tuple[Tree, Tree]:
    """A NULL of the numeric with the digits of a literal, and whether it is an integer."""
    whole = expression("true" if _INTEGER.fullmatch(text) else "false")
    if not _NUMBER.fullmatch(text):
        return expression("null::integer"), whole
    before, _, after = f"{Decimal(text.strip()):f}".lstrip("+-").partition(".")
    digits = max(len(before.lstrip("0")) + len(after), 1)
    if digits > DIGITS:
        return expression("null::integer"), whole
    return expression(f"null::decimal({digits}, {len(after)})"), whole
