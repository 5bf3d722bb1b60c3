"""Constants that a query groups by, kept apart from the same constants elsewhere in the query.

`SELECT 1 AS one, sum(n) + 1 FROM t GROUP BY ROLLUP (one)`: where a grouping set leaves `one` out, DuckDB
takes every other 1 for it, too, also those that a function of the library is made of.
`CAST('1' AS INTEGER)` is another expression, and a space before the 1 makes one more for a second column.

Law: only the columns of the query that are constants become NULL.
"""

from __future__ import annotations

from collections import Counter

from millpond.sql.dialects.parse_tree import Tree, in_query
from millpond.sql.dialects.postgres.tree_parts import expression

_INT_MAX = 2**31 - 1


def cast_group_constants(select: Tree) -> bool:
    """Cast the integers that a SELECT with GROUP BY lists, in place; was there one?"""
    if not select["group_expressions"]:
        return False
    places: list[tuple[list[Tree], int]] = [
        (select["select_list"], n) for n, item in enumerate(select["select_list"]) if _is_integer(item)
    ]
    if not places:
        return False
    listed = {select["select_list"][n]["literal"]["text"] for _, n in places}
    for node in in_query([select["select_list"], select["having"], select["modifiers"]]):
        if node.get("type") == "GROUPING_FUNCTION":
            given = node["children"]
            places += [
                (given, n)
                for n, one in enumerate(given)
                if _is_integer(one) and one["literal"]["text"] in listed
            ]
    met: Counter[str] = Counter()
    for items, n in places:
        text = items[n]["literal"]["text"]
        met[text] += items is select["select_list"]
        spaces = " " * (met[text] - 1 if items is select["select_list"] else 0)
        items[n] = expression(f"CAST('{spaces}{text}' AS INTEGER)") | {"alias": items[n]["alias"]}
    return True


def _is_integer(node: Tree) -> bool:
    literal = node.get("literal") or {}
    return (
        node.get("class") == "CONSTANT"
        and literal.get("kind") == "INTEGER"
        and abs(int(literal["text"])) <= _INT_MAX
    )
