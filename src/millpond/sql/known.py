"""What the text of a view knew goes on under its names, whatever tables and columns are called by now.

Law: a view is what it was when it was created, also when it is made anew: a name in
its text is the object that it was then, a column the one that it was, until
somebody puts another view in the object's place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millpond.plan.objects import SqlObject
from millpond.sql.types import quoted

KNEW = "knew"  # in the options of objects: by name of today, the columns of its time and as rows call them
NAMED = "named"  # by name in the text, the name of today where that is another
TEXT = "text"  # a plain view's text as it was written

_WITH_TEXT = ("view", "materialized view", "sink")


def knowing(view: SqlObject, before: SqlObject, after: SqlObject) -> SqlObject:
    """A view that goes on over the columns of a table that it knew, under their names in its text."""
    now = {c.held: c.held for c in after.columns}
    if after.kind != "table":  # another view has taken its place: columns are known by name
        lower = {c.name.lower(): c.held for c in after.columns}
        now = {c.held: lower[c.name.lower()] for c in before.columns if c.name.lower() in lower}
    pairs = [(name, now[held]) for name, held in known_columns(view, before) if held in now]
    return _keeping_text(view, {KNEW: {**view.options.get(KNEW, {}), before.name: pairs}})


def known_columns(view: SqlObject, table: SqlObject) -> list[tuple[str, str]]:
    """The columns of a table as a view's text calls them, and as rows do."""
    found = view.options.get(KNEW, {}).get(table.name)
    pairs = [(c.name, c.held) for c in table.columns] if found is None else found
    return [(name, held) for name, held in pairs]


def said_name(view: SqlObject, name: str) -> str:
    """How the text of a view calls what has this name today."""
    named: Mapping[str, str] = view.options.get(NAMED, {})
    return next((said for said, now in named.items() if now == name), name)


def calling(one: SqlObject, names: Mapping[str, str]) -> SqlObject:
    """An object that goes on over what it used, where names of that have changed."""
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
    """The text of a view, over the names and columns that it knew."""
    text = str(view.options.get(TEXT, view.text))
    tables = []
    for name in dict.fromkeys([*view.options.get(KNEW, {}), *view.options.get(NAMED, {}).values()]):
        now, said = objects[name], said_name(view, name)
        pairs = known_columns(view, now)
        if said != name or pairs != [(c.name, c.held) for c in now.columns]:
            called = {c.held: c.name for c in now.columns}
            listed = ", ".join(f"{quoted(called[held])} as {quoted(n)}" for n, held in pairs)
            tables.append(f"{quoted(said)} as (select {listed} from main.{quoted(name)})")
    return f"with {', '.join(tables)} select * from (\n{text}\n)" if tables else text


def reread(view: SqlObject, objects: Mapping[str, SqlObject]) -> SqlObject:
    """A plain view with the text by which others read it."""
    return replace(view, text=known_text(view, objects)) if view.kind == "view" else view


def _keeping_text(view: SqlObject, options: Mapping[str, object]) -> SqlObject:
    made = {**view.options, **options}
    if view.kind == "view":
        made.setdefault(TEXT, view.text)
    return replace(view, options=made)
