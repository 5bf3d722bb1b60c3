"""`||` and subscripts, whose meaning depends on what they get.

A chain of `||` with a text in quotes makes a text: each part becomes the text that PostgreSQL writes.
Of other chains a macro finds the meaning by the types: texts, or arrays and elements.
Elements of arrays have numbers from 1 on; DuckDB counts those below from the end, PostgreSQL has none there.
"""

from __future__ import annotations

from collections.abc import Iterator

from millpond.sql.dialects.parse_tree import Tree
from millpond.sql.dialects.postgres.tree_parts import become, called
from millpond.sql.dialects.postgres.unknown_literals import is_jsonb

_STAYS = "is_part_of_a_chain"


def concatenated(node: Tree) -> bool:
    """Change a `||` or a subscript in place; was it one?"""
    if node.get("class") == "OPERATOR" and node["type"] in ("ARRAY_EXTRACT", "ARRAY_SLICE"):
        return _subscript(node)
    if not _is_chain(node):
        return False
    if node.pop(_STAYS, False):
        return False
    parts = list(_parts(node))
    for inner in _chain(node):
        inner[_STAYS] = True
    node.pop(_STAYS, False)
    texts = [_quoted(part) for part in parts]
    if any(map(is_jsonb, parts)):
        parts = [
            called("jsonb_in", part) if text is not None else part
            for part, text in zip(parts, texts, strict=True)
        ]
        texts = [None]
    if any(text is not None and not text.lstrip().startswith(("{", "[")) for text in texts):
        for inner in _chain(node):
            for place in inner["arguments"]:
                part = place["expression"]
                if part.get("class") != "CONSTANT" and not _is_chain(part):
                    place["expression"] = called("text_part", part)  # itself, for it is rewritten in its turn
        return True
    if len(parts) > 3 or any(_is_null(part) for part in parts):
        return False
    made = parts[0]
    for part in parts[1:]:
        made = called("joined", made, part)
    become(node, made)
    return True


def _is_chain(node: Tree) -> bool:
    return (
        node.get("class") == "FUNCTION"
        and node["qualified_name"]["path"] == ["||"]
        and len(node["arguments"]) == 2
    )


def _chain(node: Tree) -> Iterator[Tree]:
    """The `||` of a chain, from the outermost on."""
    while _is_chain(node):
        yield node
        node = node["arguments"][0]["expression"]


def _parts(node: Tree) -> Iterator[Tree]:
    left, right = (a["expression"] for a in node["arguments"])
    yield from _parts(left) if _is_chain(left) else [left]
    yield right


def _quoted(node: Tree) -> str | None:
    literal = node.get("literal") or {}
    return str(literal["text"]) if literal.get("kind") == "STRING" else None


def _is_null(node: Tree) -> bool:
    return (node.get("literal") or {}).get("kind") == "NULL_LITERAL"


def _subscript(node: Tree) -> bool:
    array, *bounds = node["children"]
    if node["type"] == "ARRAY_EXTRACT" and is_jsonb(array):
        become(node, called("->", array, *bounds))
        return True
    macros = ("element",) if node["type"] == "ARRAY_EXTRACT" else ("slice_start", "slice_end")
    changed = False
    for place, (macro, bound) in enumerate(zip(macros, bounds, strict=False), 1):
        literal = bound.get("literal") or {}
        is_open = bound.get("function_name") == "list_value"  # a[2:] has no end
        is_plain = literal.get("kind") == "INTEGER" and int(literal["text"]) > 0
        if is_open or is_plain or literal.get("kind") == "STRING":
            continue
        node["children"][place] = called(macro, array, bound)
        changed = True
    return changed
