"""A query as DuckDB parses it: a tree of JSON, which dialects rewrite and DuckDB writes back as text.

DuckDB's parser descends from PostgreSQL's and keeps literals as they were written, so a rewritten tree
differs from the text in what was rewritten only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from millpond.sql.text.duckdb_parser import ask

Tree = dict[str, Any]


def parsed(sql: str) -> Tree | None:
    """The tree of a query; None if the text is no query or DuckDB cannot parse it."""
    tree: Tree = json.loads(ask("select json_serialize_sql(?)", [sql]))
    return None if tree["error"] else tree


def printed(tree: Tree) -> str:
    """The text of a tree."""
    return str(ask("select json_deserialize_sql(?::json)", [json.dumps(tree)]))


def nodes(tree: Any) -> Iterator[Tree]:
    """All nodes of a tree, each before those inside it; a node may be changed in place when it comes."""
    if isinstance(tree, dict):
        yield tree
        for value in list(tree.values()):
            yield from nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from nodes(value)


def in_query(tree: Any) -> Iterator[Tree]:
    """The nodes of an expression, without those of queries inside it."""
    if isinstance(tree, dict):
        if "class" in tree:
            yield tree
        for key, value in list(tree.items()):
            if key != "subquery":
                yield from in_query(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from in_query(value)
