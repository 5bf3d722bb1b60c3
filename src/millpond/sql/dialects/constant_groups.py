"""Groups by one constant instead of another: `SELECT 1 AS x, sum(a) FROM t GROUP BY 1`.

DuckDB takes every constant of a query that equals one in GROUP BY for the group, also inside of the macros
that a dialect calls, where some have to stay constants.

Law: the groups are the same, for a constant divides no rows.  Grouping sets keep theirs: there a constant is
NULL where it is not grouped by.
"""

from __future__ import annotations

from millpond.sql.dialects.parse_tree import Tree

_OTHER = {"kind": "STRING", "text": "a constant that no function has"}


def replace_constant_groups(select: Tree) -> bool:
    """Change the GROUP BY of one SELECT in place; did it have a constant?"""
    if len(select.get("group_sets") or ()) != 1:
        return False
    changed = False
    for key in select["group_expressions"]:
        literal = key.get("literal") or {}
        if literal.get("kind") != "INTEGER":
            continue
        place = int(literal["text"]) - 1
        listed = select["select_list"]
        if 0 <= place < len(listed) and _is_constant(listed[: place + 1]):
            key["literal"] = dict(_OTHER)
            changed = True
    return changed


def _is_constant(listed: list[Tree]) -> bool:
    """Is the last one a constant, and none before it a `*` that makes several columns?"""
    one = listed[-1]
    while one["class"] == "CAST":
        one = one["child"]
    return one["class"] == "CONSTANT" and all(item["class"] != "STAR" for item in listed)
