"""The output columns of a view: each name must be unique, as in every table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from millpond.sql.binding.catalog import Catalog, tree_of
from millpond.sql.refusal import pointing

_STAR = "name the columns, or leave one out: SELECT * EXCLUDE (column)"


def check_unique(catalog: Catalog, sql: str) -> None:
    """Refuse a query with two columns of the same name, regardless of case."""
    names = [name.lower() for name in catalog.binder.names(sql)]
    second = next((n for n, name in enumerate(names) if name in names[:n]), None)
    if second is None:
        second = next((n for n, name in enumerate(names) if _was_numbered(catalog, sql, name, names)), None)
        if second is None:
            return
        twice = names[second].rpartition("_")[0]
    else:
        twice = names[second]
    at, star = _duplicate_position(tree_of(sql), twice, second)
    hint = _STAR if star else "give one of them another name with AS"
    raise pointing(f"column {twice!r} is there twice", sql, at, hint)


def _was_numbered(catalog: Catalog, sql: str, name: str, names: Sequence[str]) -> bool:
    """Did DuckDB rename a duplicate column of a subquery with a number, as in id and id_1?"""
    base, _, number = name.rpartition("_")
    if (
        not number.isdecimal()
        or base not in names
        or re.search(rf"\b{re.escape(name)}\b", sql, re.IGNORECASE)
    ):
        return False
    read = catalog.expanded(catalog.read_by(sql))
    return not any(column.name.lower() == name for one in read for column in one.columns)


def _duplicate_position(tree: Any, name: str, second: int) -> tuple[tuple[int, int] | None, bool]:
    """Return the position of the duplicate column in the text, and whether a star produces it."""
    node = tree["statements"][0]["node"] if tree.get("statements") else {}
    while node.get("type") == "SET_OPERATION_NODE":
        node = node.get("left") or (node.get("children") or [{}])[0]
    listed = node.get("select_list") or ()
    stars = [item for item in listed if item.get("class") == "STAR"]
    same = [item for item in listed if _called(item) == name] if stars else listed[second : second + 1]
    star = bool(stars) and len(same) < 2
    found = stars[-1] if star else (same[-1] if same else None)
    if found is None or found.get("query_location") is None:
        return None, star
    length = 1 if star else int(found.get("query_location_length") or 1)
    return (int(found["query_location"]), length), star


def _called(item: Any) -> str:
    """Return the name of a SELECT item, as far as its text shows it."""
    return str(item.get("alias") or (item.get("column_names") or [""])[-1]).lower()
