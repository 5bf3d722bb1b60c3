"""Compares, groups and orders documents of type jsonb as PostgreSQL does: by value, not by text.

    a = b                  =   __pg.document(a) = __pg.document(b)
    a < b                  =   __pg.document_order(a) < __pg.document_order(b)
    ORDER BY a             =   ORDER BY __pg.document_order(a)
    GROUP BY a             =   GROUP BY __pg.document(a), which is then shown, too

Both macros return what is no document as it is, so they may stand around anything that may be one: an
expression that gives a jsonb by what is written, or a column of this name in a relation that is read.

Law: two documents are equal if and only if `__pg.document` gives them the same text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.sql.dialects.parse_tree import Tree, nodes
from millpond.sql.dialects.postgres.tree_parts import CATALOG, called
from millpond.sql.dialects.postgres.unknown_literals import is_jsonb, is_text

VALUE, ORDER = "document", "document_order"
_EQUAL = ("COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM")
_IN = ("COMPARE_IN", "COMPARE_NOT_IN")
_SCALARS = ("bool", "int", "float", "double", "numeric", "decimal", "text", "varchar", "real", "date", "time")

Place = tuple[Any, Any]  # a node or a list, and where an expression is in it
Names = frozenset[str]  # of columns that are documents, in lower case


def compare_documents(tree: Tree, names: Names = frozenset()) -> bool:
    """Change a tree in place; does it compare, group or order documents?"""
    may_be = _documents(tree, names)
    changed = False
    for node in list(nodes(tree)):
        if node.get("type") == "SELECT_NODE":
            changed |= _selected(node, may_be)
        elif node.get("type") == "SET_OPERATION_NODE":
            changed |= _combined(node, may_be)
    for node in list(nodes(tree)):  # with what was put in the place of groups
        if "class" in node:
            changed |= _compared(node, may_be)
    return changed


def _documents(tree: Tree, names: Names) -> Callable[[Tree], bool]:
    """What tells whether an expression may be a document: by its form, its column, or its alias."""

    def may_be(node: Tree) -> bool:
        if node.get("class") == "COLUMN_REF":
            return node["column_names"][-1].lower() in known
        return is_jsonb(node)

    known = set(names)
    for node in nodes(tree):
        if node.get("type") == "SELECT_NODE":
            known |= {item["alias"].lower() for item in node["select_list"] if item["alias"] and may_be(item)}
    return may_be


def _compared(node: Tree, may_be: Callable[[Tree], bool]) -> bool:
    kind = node.get("class")
    if kind == "COMPARISON":
        by = VALUE if node["type"] in _EQUAL else ORDER
        return _wrap_all(by, may_be, [(node, "left"), (node, "right")])
    if kind == "BETWEEN":
        return _wrap_all(ORDER, may_be, [(node, "input"), (node, "lower"), (node, "upper")])
    if kind == "OPERATOR" and node["type"] in _IN:
        return _wrap_all(VALUE, may_be, [(node["children"], n) for n in range(len(node["children"]))])
    if kind == "WINDOW":
        changed = [_wrap(VALUE, may_be, node["partitions"], n) for n in range(len(node["partitions"]))]
        changed += [_wrap(ORDER, may_be, order, "expression") for order in node["orders"]]
        return any(changed)
    if kind == "FUNCTION" and node.get("distinct"):
        return any([_wrap(VALUE, may_be, argument, "expression") for argument in node["arguments"]])
    return False


def _selected(select: Tree, may_be: Callable[[Tree], bool]) -> bool:
    listed = select["select_list"]
    distinct = any(
        m["type"] == "DISTINCT_MODIFIER" and not m["distinct_on_targets"] for m in select["modifiers"]
    )
    changed = False
    if distinct:
        changed = any([_wrap(VALUE, may_be, listed, n, named=True) for n in range(len(listed))])
    changed |= _grouped(select, may_be)
    listed = select["select_list"]
    for modifier in select["modifiers"]:
        targets = modifier.get("distinct_on_targets") or []
        changed |= any([_wrap(VALUE, may_be, targets, n) for n in range(len(targets))])
        for order in () if distinct else modifier.get("orders", ()):
            place = _place(order["expression"], listed)
            if place is not None and (may_be(listed[place]) or _is_wrapped(listed[place], VALUE)):
                order["expression"] = called(ORDER, {**listed[place], "alias": ""})
                changed = True
            else:
                changed |= _wrap(ORDER, may_be, order, "expression")
    return changed


def _grouped(select: Tree, may_be: Callable[[Tree], bool]) -> bool:
    """Group by the value of documents, and show that value where the query shows the group."""
    listed, keys = select["select_list"], []
    changed = False
    for n, key in enumerate(select["group_expressions"]):
        place = _place(key, listed)
        if place is not None:
            changed |= _wrap(VALUE, may_be, listed, place, named=True)
        elif may_be(key):
            keys.append(_said(key))
            changed |= _wrap(VALUE, may_be, select["group_expressions"], n)
    if keys:
        select["select_list"] = [_with_values(item, keys) for item in listed]
        for clause in ("having", "qualify"):
            if select[clause] is not None:
                select[clause] = _with_values(select[clause], keys)
        for modifier in select["modifiers"]:
            for order in modifier.get("orders", ()):
                order["expression"] = _with_values(order["expression"], keys)
    return changed


def _with_values(node: Tree, keys: list[str]) -> Tree:
    """The expression with the value of a group in the place of the documents that it was made of."""
    if _said(node) in keys:
        name = node["alias"] or (node["column_names"][-1] if node["class"] == "COLUMN_REF" else "")
        return {**called(VALUE, {**node, "alias": ""}), "alias": name}
    if _is_wrapped(node):
        return node
    return {key: _inside(value, keys) for key, value in node.items()}


def _inside(value: object, keys: list[str]) -> object:
    if isinstance(value, list):
        return [_inside(one, keys) for one in value]
    if not isinstance(value, dict):
        return value
    if "class" in value and value["class"] != "TYPE":
        found = _with_values(value, keys)
        return found | {"alias": value["alias"]} if "alias" in value else found
    return {key: _inside(one, keys) for key, one in value.items() if key != "subquery"} | (
        {"subquery": value["subquery"]} if "subquery" in value else {}
    )


def _combined(node: Tree, may_be: Callable[[Tree], bool]) -> bool:
    """UNION, EXCEPT and INTERSECT without ALL compare whole rows."""
    if node.get("setop_all"):
        return False
    changed = False
    for part in node["children"] or (node["left"], node["right"]):
        if part.get("type") == "SELECT_NODE":
            listed = part["select_list"]
            changed |= any([_wrap(VALUE, may_be, listed, n, named=True) for n in range(len(listed))])
    return changed


def _place(key: Tree, listed: list[Tree]) -> int | None:
    """The column of SELECT that a key names by its number or its alias."""
    literal = key.get("literal") or {}
    if literal.get("kind") == "INTEGER":
        place = int(literal["text"]) - 1
        return place if 0 <= place < len(listed) else None
    names = key["column_names"] if key.get("class") == "COLUMN_REF" else []
    aliases = [item["alias"].lower() for item in listed]
    return aliases.index(names[0].lower()) if len(names) == 1 and names[0].lower() in aliases else None


def _wrap_all(by: str, may_be: Callable[[Tree], bool], places: list[Place]) -> bool:
    """Wrap all operands if one of them may be a document and none is surely something else."""
    operands = [owner[place] for owner, place in places]
    if not any(may_be(one) or _is_wrapped(one, VALUE) for one in operands) or any(map(_is_scalar, operands)):
        return False
    changed = False
    for (owner, place), one in zip(places, operands, strict=True):
        is_query = one.get("class") == "SUBQUERY" and one.get("type") != "SUBQUERY"
        if is_query or _is_wrapped(one, by) or _is_wrapped(one, ORDER):
            continue
        one = called("jsonb_in", one) if is_text(one) else one
        owner[place] = called(by, one)
        changed = True
    return changed


def _wrap(by: str, may_be: Callable[[Tree], bool], owner: Any, place: int | str, named: bool = False) -> bool:
    one: Tree = owner[place]
    shows_group = by == ORDER and _is_wrapped(one, VALUE)
    if not shows_group and (not may_be(one) or _is_wrapped(one)):
        return False
    name = one["alias"]
    if named and not name and one.get("class") == "COLUMN_REF":
        name = one["column_names"][-1]
    owner[place] = {**called(by, {**one, "alias": ""}), "alias": name}
    return True


def _is_wrapped(node: Tree, *by: str) -> bool:
    if node.get("class") != "FUNCTION":
        return False
    path = node["qualified_name"]["path"]
    return path[0] == CATALOG and path[-1] in (by or (VALUE, ORDER))


def _is_scalar(node: Tree) -> bool:
    """Is this surely no document, so that an error should tell about it?"""
    if node.get("class") == "CAST":
        return str(node["type_expr"].get("type_name", "")).lower().startswith(_SCALARS)
    return node.get("class") == "CONSTANT" and (node.get("literal") or {}).get("kind") in (
        "INTEGER",
        "NUMERIC",
    )


def _said(node: Tree) -> str:
    """What an expression says, without its place in the text and its name."""

    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {
                k: plain(v) for k, v in value.items() if not k.startswith("query_location") and k != "alias"
            }
        return [plain(v) for v in value] if isinstance(value, list) else value

    return repr(plain(node))
