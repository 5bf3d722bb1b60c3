"""Parts of a parse tree that rewriting needs: calls and lists, made of DuckDB's own parse of a small text."""

from __future__ import annotations

import copy
from functools import cache

from millpond.sql.dialects.parse_tree import Tree, parsed

CATALOG = "__pg"


def called(name: str, *arguments: Tree) -> Tree:
    """A call of a function of the dialect's library."""
    return builtin(f'{CATALOG}.main."{name}"', *arguments)


def builtin(name: str, *arguments: Tree) -> Tree:
    """A call of a function by the name that DuckDB finds it under."""
    marks = ", ".join(f"a{n}" for n in range(len(arguments)))
    node = expression(f"{name}({marks})")
    for given, argument in zip(node["arguments"], arguments, strict=True):
        given["expression"] = argument
    return node


def texts(parts: list[Tree]) -> Tree:
    """A list of texts."""
    made = expression("CAST([x] AS VARCHAR[])")
    given = made["child"]["arguments"][0]
    made["child"]["arguments"] = [{**given, "expression": part} for part in parts]
    return made


def expression(text: str) -> Tree:
    """The tree of an expression."""
    return copy.deepcopy(_expression(text))


@cache
def _expression(text: str) -> Tree:
    tree = parsed(f"SELECT {text}")
    assert tree is not None, text
    found: Tree = tree["statements"][0]["node"]["select_list"][0]
    return found


def become(node: Tree, other: Tree) -> None:
    """Put another node in the place of one; a name that it has stays, and so does its place in the text."""
    kept: Tree = {
        key: node[key] for key in ("alias", "query_location", "query_location_length") if key in node
    }
    node.clear()
    node.update(other)
    node.update(kept)
