"""Operators whose meaning depends on a type that DuckDB has not, or does not treat alike.

    s + 1          =   s + CAST(1 AS INTEGER), of a smallint: the sum is an integer, and does not overflow
    c LIKE 'a'     =   rpad(c, 4, ' ') LIKE 'a', of a char(4): patterns see its spaces
    t - u          =   __pg.time_difference(t, u), of times
    b LIKE '\\x01%' =   __pg.bytea_like(b, …), of bytea

A type is known by what is written, as a cast, or from the columns of the relations that a query reads.
Law: rewriting what was rewritten changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from millpond.sql.dialects.parse_tree import Tree, nodes, parsed, printed
from millpond.sql.dialects.postgres.documents import Names, compare_documents
from millpond.sql.dialects.postgres.tree_parts import become, builtin, called, expression
from millpond.sql.dialects.postgres.unknown_literals import is_text

_PATTERNS = frozenset(
    [
        *("~~", "!~~", "~~*", "!~~*", "like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape"),
        *("~", "~*", "similar_to", "octet_length"),
    ]
)
_LIKES = {"~~": False, "like_escape": False, "!~~": True, "not_like_escape": True}  # is it NOT LIKE?
_GIVE_BYTES = (
    *("bytea_of", "bytea_in", "decode", "convert_to", "set_byte", "set_bit"),
    *("sha224", "sha256", "sha384", "sha512"),
)
_SMALL, _TIMES, _BYTES = ("smallint", "int2"), ("time", "time without time zone"), ("blob", "bytea")
_INT_MAX = 2**31 - 1


@dataclass(frozen=True)
class KnownColumns:
    """The names, in lower case, of columns that a query may read, by their types."""

    documents: Names = frozenset()
    small: Names = frozenset()  # smallint
    times: Names = frozenset()
    binary: Names = frozenset()  # bytea
    widths: tuple[tuple[str, int], ...] = ()  # char(n)

    def __bool__(self) -> bool:
        return bool(self.documents or self.small or self.times or self.binary or self.widths)


def with_known_columns(sql: str, known: KnownColumns) -> str:
    """A translated query, with the operators of these columns."""
    tree = parsed(sql)
    if tree is None:
        return sql
    changed = [compare_documents(tree, known.documents), type_operators(tree, known)]
    return printed(tree) if any(changed) else sql


def type_operators(tree: Tree, known: KnownColumns) -> bool:
    """Change the operators of a tree in place; was there one?"""
    widths = dict(known.widths)
    changed = False
    for node in list(nodes(tree)):
        if node.get("class") == "FUNCTION":
            changed |= _arithmetic(node, known) or _of_bytes(node, known) or _padded(node, widths)
    return changed


def _arithmetic(node: Tree, known: KnownColumns) -> bool:
    name, given = node["function_name"], node["arguments"]
    if len(given) != 2 or name not in ("+", "-", "*"):
        return False
    left, right = (argument["expression"] for argument in given)
    is_time = partial(_is_of, names=known.times, types=_TIMES, calls=("time_in",))
    if name == "-" and is_time(left) and is_time(right):
        become(node, called("time_difference", left, right))
        return True
    is_small = partial(_is_of, names=known.small, types=_SMALL, calls=("int2",))
    for literal, beside, argument in ((left, right, given[0]), (right, left, given[1])):
        value = literal.get("literal") or {}
        if value.get("kind") == "INTEGER" and abs(int(value["text"])) <= _INT_MAX and is_small(beside):
            argument["expression"] = expression(f"CAST({value['text']} AS INTEGER)")
            return True
    return False


def _of_bytes(node: Tree, known: KnownColumns) -> bool:
    name, given = node["qualified_name"]["path"][-1], node["arguments"]
    is_binary = partial(_is_of, names=known.binary, types=_BYTES, calls=_GIVE_BYTES)
    if len(given) not in (2, 3) or not is_binary(given[0]["expression"]):
        return False
    text, other = given[0]["expression"], given[1]["expression"]
    other = called("bytea_in", other) if is_text(other) else other
    if name in _LIKES:
        escapes = [argument["expression"] for argument in given[2:]]
        if escapes and is_text(escapes[0]):
            plain = escapes[0]["literal"]["text"] == "\\"  # a backslash is none that bytea_in reads
            escapes = [] if plain else [called("bytea_in", escapes[0])]
        found = called("bytea_like", text, other, *escapes)
        become(node, {**expression("NOT x"), "children": [found]} if _LIKES[name] else found)
        return True
    if name != "string_agg" or len(given) != 2:
        return False
    become(node, called("bytea_joined", *(_listed(node, one) for one in (text, other))))
    return True


def _listed(node: Tree, argument: Tree) -> Tree:
    """The list of an argument over the rows of an aggregate."""
    made = {**node, "alias": "", "function_name": "list", "qualified_name": {"path": ["list"]}}
    return {**made, "arguments": [{"name": "", "expression": argument}]}


def _padded(node: Tree, widths: dict[str, int]) -> bool:
    if node["qualified_name"]["path"][-1] not in _PATTERNS or not node["arguments"]:
        return False
    argument = node["arguments"][0]
    width = _width(argument["expression"], widths)
    if width is None:
        return False
    argument["expression"] = builtin("system.main.rpad", argument["expression"], width, expression("' '"))
    return True


def _width(node: Tree, widths: dict[str, int]) -> Tree | None:
    if node.get("class") == "COLUMN_REF":
        known = widths.get(node["column_names"][-1].lower())
        return None if known is None else expression(str(known))
    if node.get("class") == "FUNCTION" and node["qualified_name"]["path"][-1] == "bpchar":
        size: Tree = node["arguments"][-1]["expression"]
        return size if len(node["arguments"]) == 2 else None
    return None


def _is_of(node: Tree, names: Names, types: tuple[str, ...], calls: tuple[str, ...]) -> bool:
    """Does an expression have one of these types, as a column, a cast or a call?"""
    kind = node.get("class")
    if kind == "COLUMN_REF":
        return node["column_names"][-1].lower() in names
    if kind == "CAST":
        return str(node["type_expr"].get("type_name", "")).lower() in types
    return kind == "FUNCTION" and node["qualified_name"]["path"][-1].lower() in calls
