"""ALTER: names and columns that change.  Rows do not move, whatever is built on them goes on."""

from __future__ import annotations

from dataclasses import replace

from millpond.errors import InvalidError
from millpond.plan.change import renamed, swapped
from millpond.plan.nodes import Plan
from millpond.plan.objects import SqlObject
from millpond.sql.catalog import Catalog, all_objects
from millpond.sql.parse import Words
from millpond.sql.result import Result
from millpond.sql.session import Session
from millpond.sql.statements import alter_columns

_KINDS = {
    ("TABLE",): "table",
    ("SOURCE",): "source",
    ("VIEW",): "view",
    ("MATERIALIZED", "VIEW"): "materialized view",
    ("SINK",): "sink",
    ("INDEX",): "index",
}


def run(session: Session, words: Words) -> Result:
    kind = next((k for w, k in _KINDS.items() if words.take(*w)), None)
    if kind is None:
        words.fail("ALTER of what?", f"one of {', '.join(' '.join(w) for w in _KINDS)}")
        raise AssertionError
    exists = words.if_exists()
    name = words.name(f"name of the {kind}")
    catalog = session.catalog
    if exists and catalog.find(name) is None:
        return Result.said(f"ALTER_{kind.upper().replace(' ', '_')}: not there")
    found = catalog.get(name, kind)
    if words.take("RENAME", "TO"):
        to = words.name("new name")
        words.end()
        _rename(session, catalog, found, to)
    elif words.take("SWAP", "WITH"):
        other = catalog.get(words.name("name of the other view"), "materialized view")
        words.end()
        _swap(session, found, other)
    elif kind == "table" and words.piece.word(words.at) in ("ADD", "DROP", "RENAME"):
        _alter_columns(session, words, found)
    else:
        hints = "RENAME TO, SWAP WITH and, for tables, ADD, DROP and RENAME COLUMN are"
        words.fail(
            "this change is not supported", f"{hints}; for others create a new table and INSERT … SELECT"
        )
    return Result.said(f"ALTER_{kind.upper().replace(' ', '_')}")


def _alter_columns(session: Session, words: Words, found: SqlObject) -> None:
    said = words.piece.sql
    actions = alter_columns.edits(session, words, found.name)

    def edit(plan: Plan) -> Plan:
        for action in actions:
            plan = action(plan)
        made = all_objects(plan)[found.name]
        altered = (*made.options.get(alter_columns.ALTERED, ()), said)
        return plan.with_object(replace(made, options={**made.options, alter_columns.ALTERED: altered}))

    session.edit(edit)


def _rename(session: Session, catalog: Catalog, found: SqlObject, to: str) -> None:
    if to.lower() != found.name.lower():
        catalog.free(to)
    named = [o for o in catalog.objects.values() if found.name in o.uses]
    texts = [o.name for o in named if o.kind in ("view", "function")]
    if texts:
        raise InvalidError(
            f"{found.kind} {found.name!r} cannot be renamed, others name it in their text",
            detail=", ".join(texts),
            hint="drop these first",
        )

    def edit(plan: Plan) -> Plan:
        if found.name in plan.views:
            plan = renamed(plan, found.name, to)
        sinks = {
            (to if n == found.name and found.kind == "sink" else n): (
                replace(s, name=to) if n == found.name and found.kind == "sink" else s
            )
            for n, s in plan.sinks.items()
        }
        objects = {}
        for o in {**plan.objects, found.name: found}.values():
            uses = tuple(to if u == found.name else u for u in o.uses)
            objects[to if o.name == found.name else o.name] = replace(
                o, uses=uses, name=to if o.name == found.name else o.name
            )
        return replace(plan, sinks=sinks, objects=objects)

    session.edit(edit)


def _swap(session: Session, one: SqlObject, other: SqlObject) -> None:
    if one.kind != "materialized view":
        raise InvalidError("only materialized views can be swapped", detail=f"{one.name!r} is a {one.kind}")
    names = {one.name: other.name, other.name: one.name}

    def edit(plan: Plan) -> Plan:
        plan = swapped(plan, one.name, other.name)
        objects = {}
        for o in {**plan.objects, one.name: one, other.name: other}.values():
            if o.kind != "sink":  # a sink stays with the name it reads; others with the rows they read
                o = replace(o, uses=tuple(names.get(u, u) for u in o.uses))
            objects[names.get(o.name, o.name)] = replace(o, name=names.get(o.name, o.name))
        return replace(plan, objects=objects)

    session.edit(edit)
