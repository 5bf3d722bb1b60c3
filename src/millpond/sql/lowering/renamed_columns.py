"""Keeps a view's text valid after the tables and columns that it uses are renamed.

Law: a view keeps the meaning that it had when it was created, also when it is rebuilt.
A name in its text refers to the same object and column as then, until another view
replaces that object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millpond.plan.objects import SqlObject
from millpond.sql.binding.types import quoted

KNEW = "knew"  # object option: by current table name, (name in the text, stored name) of each column
NAMED = "named"  # by name in the text, the current name where it differs
TEXT = "text"  # the text of a plain view as the user wrote it

_WITH_TEXT = ("view", "materialized view", "sink")


def knowing(view: SqlObject, before: SqlObject, after: SqlObject) -> SqlObject:
    """Return the view with the names that its text uses for the columns of a changed table."""
    now = {c.stored_name: c.stored_name for c in after.columns}
    if after.kind != "table":  # another view has replaced it: columns are matched by name
        lower = {c.name.lower(): c.stored_name for c in after.columns}
        now = {c.stored_name: lower[c.name.lower()] for c in before.columns if c.name.lower() in lower}
    pairs = [(name, now[held]) for name, held in known_columns(view, before) if held in now]
    return _keeping_text(view, {KNEW: {**view.options.get(KNEW, {}), before.name: pairs}})


def known_columns(view: SqlObject, table: SqlObject) -> list[tuple[str, str]]:
    """Return (name in the view's text, stored name) for the columns of a table."""
    found = view.options.get(KNEW, {}).get(table.name)
    pairs = [(c.name, c.stored_name) for c in table.columns] if found is None else found
    return [(name, held) for name, held in pairs]


def said_name(view: SqlObject, name: str) -> str:
    """Return the name that a view's text uses for the object with this current name."""
    named: Mapping[str, str] = view.options.get(NAMED, {})
    return next((said for said, now in named.items() if now == name), name)


def calling(one: SqlObject, names: Mapping[str, str]) -> SqlObject:
    """Return the object with its references updated after other objects were renamed."""
    if not names.keys() & set(one.uses):
        return one
    made = replace(one, uses=tuple(names.get(u, u) for u in one.uses))
    if one.kind not in _WITH_TEXT or not one.text:
        return made
    said = {names.get(u, u): said_name(one, u) for u in one.uses}
    named = {was: now for now, was in said.items() if was != now}
    knew = {names.get(n, n): pairs for n, pairs in one.options.get(KNEW, {}).items()}
    return _keeping_text(made, {NAMED: named, KNEW: knew})


def known_text(view: SqlObject, objects: Mapping[str, SqlObject]) -> str:
    """Return the view's text, with CTEs that define old names in terms of the current ones."""
    text = str(view.options.get(TEXT, view.text))
    tables = []
    for name in dict.fromkeys([*view.options.get(KNEW, {}), *view.options.get(NAMED, {}).values()]):
        now, said = objects[name], said_name(view, name)
        pairs = known_columns(view, now)
        if said != name or pairs != [(c.name, c.stored_name) for c in now.columns]:
            called = {c.stored_name: c.name for c in now.columns}
            listed = ", ".join(f"{quoted(called[held])} as {quoted(n)}" for n, held in pairs)
            tables.append(f"{quoted(said)} as (select {listed} from main.{quoted(name)})")
    return f"with {', '.join(tables)} select * from (\n{text}\n)" if tables else text


def reread(view: SqlObject, objects: Mapping[str, SqlObject]) -> SqlObject:
    """Return a plain view with the text to use when others read it."""
    return replace(view, text=known_text(view, objects)) if view.kind == "view" else view


def _keeping_text(view: SqlObject, options: Mapping[str, object]) -> SqlObject:
    made = {**view.options, **options}
    if view.kind == "view":
        made.setdefault(TEXT, view.text)
    return replace(view, options=made)
