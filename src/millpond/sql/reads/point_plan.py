"""Plans a query that reads the row of one key: `SELECT columns FROM table WHERE key = $1`.

Law: the plan gives the rows that the query gives.  It exists only for queries in which nothing is computed:
plain columns of one table, and one value for each column of its key.  Every other query is DuckDB's.
"""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.binding.catalog import Catalog, tree_of
from millpond.sql.reads.key_lookup import key_constant, type_bounds
from millpond.state.tables.key_rows import has_key_rows
from millpond.state.tables.table_spec import TableSpec

Json = Mapping[str, Any]
_STORED_AS_SHOWN = re.compile(
    r"BOOLEAN|U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|VARCHAR|BLOB|DATE|UUID|DECIMAL\(.*\)|"
    r"TIMESTAMP( WITH TIME ZONE)?"
)
_PARAMETER = re.compile(r"p([1-9]\d*)")


@dataclass(frozen=True)
class KeyValue:
    """The value of a key column: a constant, or the number of a parameter."""

    type: str
    parameter: int = 0
    constant: Any = None


class NotThisPlanError(Exception):
    """The values are not of the types that the plan was made for; the query must run as it is."""


@dataclass(frozen=True)
class PointPlan:
    """At most one row of a table, by its key."""

    relation: str
    spec: TableSpec
    key: tuple[KeyValue, ...]  # in the order of the table's key
    columns: tuple[str, ...]  # under their stored names
    names: tuple[str, ...]
    types: tuple[str, ...]

    @property
    def parameter_types(self) -> list[str]:
        """The types of the parameters by their numbers."""
        found = {one.parameter: one.type for one in self.key if one.parameter}
        return [found.get(number, "VARCHAR") for number in range(1, max(found, default=0) + 1)]

    def key_of(self, params: Sequence[Any]) -> list[Any] | None:
        """The stored values of the key; None if no row can have them."""
        found = []
        for one in self.key:
            value = params[one.parameter - 1] if one.parameter else one.constant
            if value is None:
                return None
            stored = _stored(value, one.type)
            if stored is None:
                return None
            found.append(stored[0])
        return found


def _stored(value: Any, kind: str) -> tuple[Any] | None:
    """A parameter as the table stores it; None if the type has no such value."""
    if (bounds := type_bounds(kind)) is not None and type(value) is int:
        return (value,) if bounds[0] <= value <= bounds[1] else None
    if kind == "VARCHAR" and type(value) is str:
        return (value,)
    if kind == "DATE" and type(value) is datetime.date:
        return (value,)
    if kind == "UUID" and isinstance(value, uuid.UUID):
        return (str(value),)
    raise NotThisPlanError


def point_plan(catalog: Catalog, sql: str) -> PointPlan | None:
    """The plan of a query in DuckDB's dialect whose parameters are `$p1`, `$p2` …; None if it has none."""
    listed = tree_of(sql).get("statements") or []
    node = listed[0]["node"] if len(listed) == 1 else {}
    if not _is_plain(node):
        return None
    table = node["from_table"]
    found = catalog.find(str(table["table_name"]))
    if found is None or found.kind not in ("table", "materialized view") or table["schema_name"]:
        return None
    spec = catalog.stored(found)
    if spec is None or not has_key_rows(spec):
        return None
    called = str(table["alias"] or table["table_name"]).lower()
    columns = {c.name.lower(): c for c in found.columns}
    shown = _selected(node["select_list"], called, columns, found)
    key = _key(node["where_clause"], called, columns, spec)
    if shown is None or key is None:
        return None
    return PointPlan(
        found.name,
        spec,
        key,
        tuple(c.stored_name for _, c in shown),
        tuple(name for name, _ in shown),
        tuple(c.type for _, c in shown),
    )


def _is_plain(node: Json) -> bool:
    """Is it one SELECT of one table with a condition, and nothing else but a LIMIT of one or more?"""
    table = node.get("from_table") or {}
    if node.get("type") != "SELECT_NODE" or table.get("type") != "BASE_TABLE":
        return False
    more = [node.get(part) for part in ("group_expressions", "group_sets", "having", "sample", "qualify")]
    more += [node["cte_map"]["map"], table["sample"], table["at_clause"], table["column_name_alias"]]
    more.append(table["catalog_name"])
    if any(more) or node.get("aggregate_handling") != "STANDARD_HANDLING" or not node.get("where_clause"):
        return False
    return all(_keeps_a_row(one) for one in node["modifiers"])


def _keeps_a_row(modifier: Json) -> bool:
    limit = (modifier.get("limit") or {}).get("literal") or {}
    return (
        modifier["type"] == "LIMIT_MODIFIER"
        and modifier.get("limit_type") == "ROW_COUNT"
        and modifier.get("offset") is None
        and limit.get("kind") == "INTEGER"
        and int(limit["text"]) >= 1
    )


def _selected(
    listed: Sequence[Json], called: str, columns: Mapping[str, SqlColumn], found: SqlObject
) -> list[tuple[str, SqlColumn]] | None:
    """The names and columns of the result, if all are plain columns that are stored as they are shown."""
    shown: list[tuple[str, SqlColumn]] = []
    for one in listed:
        if one["type"] == "STAR":
            if any(one.get(part) for part in _STAR_OPTIONS) or one["relation_name"].lower() not in (
                "",
                called,
            ):
                return None
            shown += [(c.name, c) for c in found.columns]
        else:
            column = _column(one, called, columns)
            if column is None:
                return None
            shown.append((one["alias"] or column.name, column))
    if any(c.generated is not None or not _STORED_AS_SHOWN.fullmatch(c.type) for _, c in shown):
        return None
    return shown


_STAR_OPTIONS = ("exclude_list", "replace_list", "columns", "expr", "qualified_exclude_list", "rename_list")


def _column(node: Json, called: str, columns: Mapping[str, SqlColumn]) -> SqlColumn | None:
    if node.get("class") != "COLUMN_REF":
        return None
    path = [str(part).lower() for part in node["column_names"]]
    return columns.get(path[-1]) if path[:-1] in ([], [called]) else None


def _key(
    where: Json, called: str, columns: Mapping[str, SqlColumn], spec: TableSpec
) -> tuple[KeyValue, ...] | None:
    """One value for each column of the key, if the condition is exactly that."""
    parts = where["children"] if where["type"] == "CONJUNCTION_AND" else [where]
    values: dict[str, KeyValue] = {}
    for part in parts:
        if part["type"] != "COMPARE_EQUAL":
            return None
        for one, other in ((part["left"], part["right"]), (part["right"], part["left"])):
            column = _column(one, called, columns)
            value = None if column is None else _value(other, column.type)
            if column is not None and value is not None and column.stored_name not in values:
                values[column.stored_name] = value
                break
        else:
            return None
    if set(values) != set(spec.key):
        return None
    return tuple(values[name] for name in spec.key)


def _value(node: Json, kind: str) -> KeyValue | None:
    if kind not in ("VARCHAR", "DATE", "UUID") and type_bounds(kind) is None:
        return None
    if node.get("class") == "PARAMETER":
        number = _PARAMETER.fullmatch(str(node["identifier"]))
        return None if number is None else KeyValue(kind, parameter=int(number[1]))
    constant = key_constant(node, kind)
    return None if constant is None else KeyValue(kind, constant=constant[0])
