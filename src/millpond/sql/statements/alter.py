"""ALTER: changes names and columns.  No rows move, and objects built on the changed one keep running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from millpond.errors import InvalidError
from millpond.plan.change import renamed, swapped
from millpond.plan.nodes import Plan
from millpond.plan.objects import SqlObject, in_order
from millpond.sql.binding.catalog import Catalog, all_objects
from millpond.sql.lowering.renamed_columns import NAMED, calling, reread
from millpond.sql.result import Result
from millpond.sql.statements import added_rules, alter_columns, shed_options
from millpond.sql.text.parse import Words
from millpond.sql.text.schema_names import schema_of, without_schema

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

_KINDS = {
    ("TABLE",): "table",
    ("SOURCE",): "source",
    ("VIEW",): "view",
    ("MATERIALIZED", "VIEW"): "materialized view",
    ("SINK",): "sink",
    ("INDEX",): "index",
}


def run(session: SqlSession, words: Words) -> Result:
    kind = next((k for w, k in _KINDS.items() if words.take(*w)), None)
    if kind is None:
        words.fail("ALTER of what?", f"one of {', '.join(' '.join(w) for w in _KINDS)}")
        raise AssertionError
    exists = words.if_exists()
    name = words.name(f"name of the {kind}")
    if kind == "sink" and any(words.take(verb) for verb in ("ATTACH", "DETACH", "PAUSE", "RESUME")):
        return _switch_sink(session, words, name, exists)
    catalog = session.catalog
    if kind == "source" and words.take("SET"):
        shed_options.alter(session, words, name)
        return Result.said("ALTER_SOURCE")
    if exists and catalog.find(name) is None:
        return Result.said(f"ALTER_{kind.upper().replace(' ', '_')}: not there")
    found = catalog.get(name, kind)
    if words.take("RENAME", "TO"):
        to = words.name("new name")
        words.end()
        _rename(session, catalog, found, to)
    elif words.take("OWNER", "TO"):  # a pond has no owners
        words.name("name of the user")
        words.end()
    elif words.take("SWAP", "WITH"):
        other = catalog.get(words.name("name of the other view"), "materialized view")
        words.end()
        _swap(session, found, other)
    elif kind == "table" and words.fragment.word(words.at) in ("ADD", "DROP", "RENAME", "ALTER"):
        if "connector" in found.options:
            raise InvalidError(
                f"table {found.name!r} is a copy of a table of another system: its columns stay",
                hint="drop it and create it again with other columns",
            )
        added = added_rules.read_added_rule(session, words, found)
        if added is not None:
            added_rules.add_rule(session, found, added)
        else:
            _alter_columns(session, words, found)
    else:
        hints = (
            "RENAME TO, SWAP WITH, for sinks ATTACH, DETACH, PAUSE and RESUME, for sources SET (shed = …), "
            "for tables ADD, DROP and RENAME COLUMN are"
        )
        words.fail(
            "this change is not supported", f"{hints}; for others create a new table and INSERT … SELECT"
        )
    return Result.said(f"ALTER_{kind.upper().replace(' ', '_')}")


def _refuse_renaming_sink(name: str) -> None:
    """A sink is known by its name at its target: under another one it would deliver all rows again."""
    raise InvalidError(
        f"sink {name!r} cannot be renamed, its target knows it by its name",
        detail="the target stores under the name of the sink which epochs it has",
        hint=f"DROP SINK {name}, then CREATE SINK with the new name; with snapshot = 'false' it receives "
        "only later changes",
    )


def _switch_sink(session: SqlSession, words: Words, name: str, exists: bool) -> Result:
    """ALTER SINK name ATTACH [WITH REPLAY] | DETACH | PAUSE | RESUME.

    PAUSE is DETACH under another name, and RESUME is ATTACH WITH REPLAY: no change is missed while the epochs
    are kept.
    """
    verb = words.fragment.word(words.at - 1)
    attach = verb in ("ATTACH", "RESUME")
    replay = verb == "RESUME" or (attach and words.take("WITH", "REPLAY"))
    words.end()
    session.require_epoch()
    known = {sink.lower(): sink for sink in session.plan.sinks}
    name = name if name in session.plan.sinks else known.get(name.lower(), name)
    if exists and name not in session.plan.sinks:
        return Result.said("ALTER_SINK: not there")
    if attach:
        session.host.attach_sink(name, replay=replay)
    else:
        session.host.detach_sink(name, pause=verb == "PAUSE")
    return Result.said("ALTER_SINK")


def _alter_columns(session: SqlSession, words: Words, found: SqlObject) -> None:
    session.commit()  # a backfill from the table's rows uses the columns that those have
    said = words.fragment.sql
    actions = alter_columns.edits(session, words, found.name)

    def edit(plan: Plan) -> Plan:
        for action in actions:
            plan = action(plan)
        made = all_objects(plan)[found.name]
        altered = (*made.options.get(alter_columns.ALTERED, ()), said)
        return plan.with_object(replace(made, options={**made.options, alter_columns.ALTERED: altered}))

    session.edit(edit)


def _rename(session: SqlSession, catalog: Catalog, found: SqlObject, to: str) -> None:
    if to.lower() != found.name.lower():
        catalog.free(to)
    names = {found.name: to}
    old, new = (schema_of(name, catalog.schemas) for name in (found.name, to))
    if old != new:  # what belongs to a table moves to its schema
        mine = [o.name for o in catalog.objects.values() if o.kind == "index" and found.name in o.uses]
        prefix = "" if new is None else f"{new}."
        names |= {name: prefix + without_schema(name, catalog.schemas) for name in mine}
        names |= {
            rule.name: prefix + without_schema(rule.name, catalog.schemas)
            for rule in found.constraints
            if rule.check is not None
        }
    rename_objects(session, names)


def rename_objects(session: SqlSession, names: Mapping[str, str]) -> None:
    """Give objects and constraints other names, which are free."""
    catalog = session.catalog
    for name in names:
        found = catalog.find(name)
        if found is None:
            continue  # a CHECK constraint
        if found.kind == "sink":
            _refuse_renaming_sink(name)
        texts = [o.name for o in catalog.objects.values() if name in o.uses and o.kind == "function"]
        if texts:
            raise InvalidError(
                f"{found.kind} {name!r} cannot be renamed, functions name it in their text",
                detail=", ".join(texts),
                hint="drop these first",
            )

    def edit(plan: Plan) -> Plan:
        for name, to in names.items():
            if name in plan.views:
                plan = renamed(plan, name, to)
        known = {name: catalog.objects[name] for name in names if name in catalog.objects}
        objects = {n: _owning(o, names) for n, o in {**plan.objects, **known}.items()}
        return replace(plan, objects=_called(objects, names))

    session.edit(edit)


def _owning(found: SqlObject, names: Mapping[str, str]) -> SqlObject:
    """A table whose constraints have other names; a sequence keeps its own, its number is stored under it."""
    rules = tuple(replace(r, name=names.get(r.name, r.name)) for r in found.constraints)
    return replace(found, constraints=rules)


def _swap(session: SqlSession, one: SqlObject, other: SqlObject) -> None:
    if one.kind != "materialized view":
        raise InvalidError("only materialized views can be swapped", detail=f"{one.name!r} is a {one.kind}")
    names = {one.name: other.name, other.name: one.name}

    def edit(plan: Plan) -> Plan:
        plan = swapped(plan, one.name, other.name)
        objects = {**plan.objects, one.name: one, other.name: other}
        return replace(plan, objects=_called(objects, names, keeps=("sink",)))

    session.edit(edit)


def _called(
    objects: Mapping[str, SqlObject], names: Mapping[str, str], keeps: Sequence[str] = ()
) -> dict[str, SqlObject]:
    """Rename objects; their readers keep reading the same rows.

    An object without text whose kind is in `keeps` stays with the name that it reads.
    """
    made = {}
    for one in objects.values():
        one = one if one.kind in keeps and not one.text else calling(one, names)
        made[names.get(one.name, one.name)] = replace(one, name=names.get(one.name, one.name))
    return in_order({n: reread(one, made) if NAMED in one.options else one for n, one in made.items()})
