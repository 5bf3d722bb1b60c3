"""The columns of `*` over joins with USING, in the order of the standard.

Law: the columns that a join merges come first, then the others of its left side, then those of its right
side.  DuckDB leaves a merged column where it is on the left side.

What is not known from the text stays as DuckDB has it: columns of NATURAL joins, and of joins that merge two
pairs of columns of one name.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

from millpond.sql.dialects.parse_tree import Tree, parsed

_ALL_SHOWN = ("INNER", "LEFT", "RIGHT", "FULL")  # joins that show the columns of both sides


@dataclass(frozen=True)
class _ShownRelation:
    """A relation in FROM, and which of its columns are shown as merged ones."""

    name: str
    has: tuple[str, ...] = ()  # merged columns that it has
    may_have: tuple[str, ...] = ()  # it or another relation on the same side has them

    def shown(self) -> str:
        name = _quoted(self.name)
        if self.may_have:
            pattern = "|".join(re.escape(column) for column in (*self.has, *self.may_have))
            text = f"(?i)({pattern})".replace("'", "''")
            return f"{name}.* NOT SIMILAR TO '{text}'"
        return f"{name}.* EXCLUDE ({', '.join(map(_quoted, self.has))})" if self.has else f"{name}.*"


@dataclass(frozen=True)
class _JoinSide:
    """What a part of FROM shows: columns that are merged already, and relations, in order."""

    items: tuple[str | _ShownRelation, ...]

    def without(self, columns: tuple[str, ...]) -> _JoinSide:
        """The rest, when these columns are merged by the join around it."""
        merged = {item.lower() for item in self.items if isinstance(item, str)}
        new = tuple(column for column in columns if column.lower() not in merged)
        gone = {column.lower() for column in columns}
        alone = sum(isinstance(item, _ShownRelation) for item in self.items) == 1
        rest = (item for item in self.items if isinstance(item, _ShownRelation) or item.lower() not in gone)
        return _JoinSide(
            tuple(_merged(item, new, alone) if isinstance(item, _ShownRelation) else item for item in rest)
        )


def _merged(relation: _ShownRelation, columns: tuple[str, ...], is_alone: bool) -> _ShownRelation:
    """A relation on one side of a join that merges columns; alone there, it must have them."""
    if is_alone:
        return replace(relation, has=(*relation.has, *columns))
    return replace(relation, may_have=(*relation.may_have, *columns))


def order_merged_columns(select: Tree) -> bool:
    """Write out the columns of `*` in one SELECT; was there a join that merges columns?"""
    plain = [n for n, item in enumerate(select["select_list"]) if _is_plain_star(item)]
    if not plain or not _merges(select["from_table"]):
        return False
    side = _side(select["from_table"])
    if side is None:
        return False
    names = Counter(item.name.lower() for item in side.items if isinstance(item, _ShownRelation))
    merged = Counter(item.lower() for item in side.items if isinstance(item, str))
    if any(count > 1 for count in (*names.values(), *merged.values())):
        return False
    written = [_quoted(item) if isinstance(item, str) else item.shown() for item in side.items]
    tree = parsed(f"SELECT {', '.join(written)} FROM x")
    assert tree is not None, written
    items = tree["statements"][0]["node"]["select_list"]
    for at in reversed(plain):
        select["select_list"][at : at + 1] = items
    return True


def _is_plain_star(item: Tree) -> bool:
    if item["class"] != "STAR" or item.get("relation_name") or item.get("columns") or item.get("expr"):
        return False
    return not any(item.get(part) for part in ("exclude_list", "replace_list", "rename_list"))


def _merges(table: Tree | None) -> bool:
    if table is None or table["type"] != "JOIN":
        return False
    return bool(table["using_columns"]) or _merges(table["left"]) or _merges(table["right"])


def _side(table: Tree) -> _JoinSide | None:
    """What a part of FROM shows; None if that is not known."""
    if table["type"] != "JOIN":
        name = table.get("alias") or table.get("table_name")
        return _JoinSide((_ShownRelation(name),)) if name else None
    if (
        table.get("alias")
        or table["ref_type"] not in ("REGULAR", "CROSS")
        or table["join_type"] not in _ALL_SHOWN
    ):
        return None
    left, right = _side(table["left"]), _side(table["right"])
    if left is None or right is None:
        return None
    columns = tuple(table["using_columns"])
    return _JoinSide((*columns, *left.without(columns).items, *right.without(columns).items))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
