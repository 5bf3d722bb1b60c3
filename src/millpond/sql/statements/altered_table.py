"""What the actions of ALTER TABLE share: the columns of a table, and who uses them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millpond.errors import InvalidError
from millpond.plan.added_columns import views_reading
from millpond.plan.nodes import Plan, upstream
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.binding.bind import Binder
from millpond.sql.binding.catalog import all_objects
from millpond.sql.lowering.expressions import StepColumn
from millpond.sql.lowering.renamed_columns import TEXT, knowing, known_columns, reread, said_name
from millpond.sql.text.parse import closest_name


def table_of(plan: Plan, name: str) -> SqlObject:
    return all_objects(plan)[name]


def column_of(found: SqlObject, name: str, must: bool = True) -> SqlColumn | None:
    column = next((c for c in found.columns if c.name.lower() == name.lower()), None)
    if column is None and must:
        known = [c.name for c in found.columns]
        raise InvalidError(
            f"table {found.name!r} has no column {name!r}",
            detail=f"columns are {', '.join(known)}",
            hint=closest_name(name, known),
        )
    return column


def own_steps(plan: Plan, found: SqlObject) -> set[str]:
    """Return the steps that store the rows of a table, and its indexes."""
    indexes = [o.name for o in plan.objects.values() if o.kind == "index" and found.name in o.uses]
    ends = [plan.views[n].step for n in (found.name, *indexes)]
    return upstream(plan, [*ends, found.step or ends[0]])


def columns_as_they_are(plan: Plan, step: str) -> tuple[tuple[str, str], ...]:
    return tuple((n, n) for n in plan.shape(step).schema.names)


def unused_name(name: str, taken: Sequence[str]) -> str:
    """Return an unused stored name for a column; names of dropped columns are never reused."""
    lower, held, number = {n.lower() for n in taken}, name, 2
    while held.lower() in lower:
        held, number = f"{name} {number}", number + 1
    return held


def with_columns(plan: Plan, found: SqlObject, columns: tuple[SqlColumn, ...], key: tuple[str, ...]) -> Plan:
    """Change the columns that a table shows; plain views of it show the same as before."""
    names = {c.stored_name: c.name for c in columns}
    made = replace(found, columns=columns, key=key)
    objects = {**plan.objects, found.name: made}
    for one in plan.objects.values():
        if one.kind == "index" and found.name in one.uses:
            held = {c.name: c.stored_name for c in one.columns}
            objects[one.name] = replace(one, columns=columns, key=tuple(names[held[k]] for k in one.key))
        elif one.kind in ("view", "materialized view", "sink") and found.name in one.uses:
            objects[one.name] = reread(knowing(one, found, made), objects)
    rows = plan.shape(plan.views[found.name].step).schema.names
    shown = tuple((c.name, c.stored_name) for c in columns)
    view = replace(plan.views[found.name], columns=() if [(n, n) for n in rows] == list(shown) else shown)
    return replace(plan, objects=objects, views={**plan.views, found.name: view})


# -- who uses a column --------------------------------------------------------------------------


def users_of(plan: Plan, found: SqlObject, column: SqlColumn, indexes: set[str]) -> list[str]:
    """Return the views and sinks that show or read a column of a table."""
    own = own_steps(plan, found)
    users = [n for n in views_reading(plan, own, column.stored_name) if n not in indexes]
    for view in plan.views.values():
        if view.step in own and view.name != found.name and view.name not in indexes:
            users += (
                [view.name]
                if column.stored_name in view.stored_columns(plan.shape(view.step).schema.names)
                else []
            )
    users += [s.name for s in plan.sinks.values() if s.view == found.name]
    objects = all_objects(plan)
    for one in plan.objects.values():
        if one.kind == "view" and found.name in one.uses:
            users += [one.name] if column.stored_name in _read(one, found, objects) else []
    return list(dict.fromkeys(users))


def _read(view: SqlObject, table: SqlObject, objects: Mapping[str, SqlObject]) -> set[str]:
    """Return the stored names of a table's columns that the text of a plain view reads."""
    pairs = known_columns(view, table)
    binder = Binder()
    for name in view.uses:
        if name not in objects:
            continue
        types = {c.stored_name: c.type for c in objects[name].columns}
        known = known_columns(view, objects[name])
        binder.table(said_name(view, name), [StepColumn(n, types[held]) for n, held in known])
    try:
        plan = binder.plan(str(view.options.get(TEXT, view.text)))
    except (
        InvalidError
    ):  # it uses something unknown to this binder, such as a function: it may read all columns
        return {held for _, held in pairs}
    found: set[str] = set()
    said = said_name(view, table.name).lower()
    for node in _nodes(plan):
        data = node.get("function_data")
        if isinstance(data, Mapping) and str(data.get("table", "")).lower() == said:
            places = (int(c["index"]) for c in node["column_indexes"])
            found |= {pairs[n][1] for n in places if n < len(pairs)}
    return found


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(tree, Mapping):
        yield tree
        for value in tree.values():
            yield from _nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _nodes(value)
