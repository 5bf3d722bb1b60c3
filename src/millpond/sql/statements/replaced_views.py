"""CREATE OR REPLACE of a view that others use: its dependants are rebuilt in the same commit.

The new view and its dependants are backfilled beside the old ones and take over their
names together, so no epoch shows one of them empty, or two that do not match (law 2).
A dependant sees the columns that the old view had, so the new view must have these with
the same types; otherwise the statement is refused with a hint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.plan.nodes import Plan
from millpond.plan.objects import SqlObject, dependants, in_order
from millpond.sql.binding.catalog import all_objects
from millpond.sql.binding.types import UTC
from millpond.sql.lowering.renamed_columns import knowing, known_text, reread
from millpond.sql.statements.materialize import TIME_ZONE, materialize
from millpond.sql.statements.objects import all_objects_with_uses, aside, aside_name, without
from millpond.sql.text.emit_clause import take_emission
from millpond.sql.text.parse import statements

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

Make = Callable[[Builder], SqlObject]
REPLACED = ("view", "materialized view")  # kinds of objects whose dependants can be rebuilt


def make_anew(session: SqlSession, builder: Builder, old: SqlObject, make: Make) -> None:
    """Replace an object with the result of `make`, and rebuild its dependants over that."""
    objects = all_objects_with_uses(builder.plan)
    others = [objects[n] for n in dependants(objects, [old.name])]
    if others and old.kind not in REPLACED:
        _refuse(old, others, "others use it", "drop these first")
    foreign = [o for o in others if o.name not in builder.plan.objects]
    if foreign:
        _refuse(old, foreign, "the flow API built on it", "drop these first, and define them again")
    builder.plan = aside(builder.plan, old)
    made = make(builder)
    circle = [n for n in made.uses if n == old.name or n in {o.name for o in others}]
    if circle:
        _refuse(
            old, [objects[n] for n in circle], "it would be built on itself", "name it otherwise, then SWAP"
        )
    if others:
        _check_columns(old, made, others)
    builder.plan = _with(builder.plan, made)
    moved = [aside_name(old.name)]
    for one in others:
        if one.kind == "view":
            builder.plan = _with(builder.plan, _plain(builder.plan, one, old))
            continue
        if one.kind == "sink" and not one.text:
            continue  # it reads whatever object has the name
        builder.plan = _keeping_sinks(builder.plan, aside(builder.plan, one))
        moved.append(aside_name(one.name))
        anew = _anew(session, builder, one, old)
        builder.plan = _with(builder.plan, anew)
    builder.plan = without(builder.plan, moved)


def _with(plan: Plan, made: SqlObject) -> Plan:
    """Return the plan with an object, ordered so that names can be resolved."""
    return replace(plan, objects=in_order(plan.with_object(made).objects))


def _refuse(old: SqlObject, others: Sequence[SqlObject], why: str, hint: str) -> None:
    raise InvalidError(
        f"{old.kind} {old.name!r} cannot be replaced, {why}",
        detail=", ".join(o.name for o in others),
        hint=hint,
    )


def _check_columns(old: SqlObject, made: SqlObject, others: Sequence[SqlObject]) -> None:
    types = {c.name.lower(): c.type for c in made.columns}
    for column in old.columns:
        now = types.get(column.name.lower())
        if now == column.type:
            continue
        what = f"column {column.name!r} is missing" if now is None else f"column {column.name!r} is {now}"
        raise InvalidError(
            f"{old.kind} {old.name!r} cannot be replaced, others use it and {what}",
            detail=f"it was {column.type}; built on it are {', '.join(o.name for o in others)}",
            hint=f"give {column.name!r} as {column.type}, or drop these first (DROP … CASCADE)",
        )


def _plain(plan: Plan, one: SqlObject, old: SqlObject) -> SqlObject:
    """Return a plain view with its text over the columns of the old view."""
    if old.name not in one.uses:
        return one
    objects = all_objects(plan)
    return reread(knowing(one, old, objects[old.name]), objects)


def _keeping_sinks(before: Plan, after: Plan) -> Plan:
    return replace(after, sinks=before.sinks)


def _anew(session: SqlSession, builder: Builder, one: SqlObject, old: SqlObject) -> SqlObject:
    """Rebuild the steps of a dependant over the new view."""

    objects = all_objects(builder.plan)
    if one.kind == "index":
        over = objects[one.uses[0]]
        held = {c.name.lower(): c.stored_name for c in over.columns}
        step = builder.plan.views[over.name].step
        view = Stream(builder, step).view(one.name, key=[held[k.lower()] for k in one.key])
        return replace(one, columns=over.columns, step=view.step)
    if old.name in one.uses:
        one = knowing(one, old, objects[old.name])
    text = known_text(one, objects)
    catalog = session.catalog_of(builder.plan)
    catalog.binder.in_zone(str(one.options.get(TIME_ZONE, UTC)))
    said = statements(one.said, "postgres")[-1]
    if one.kind == "sink":  # its options follow the query
        said = said.part(0, said.find("WITH", "("))
    _, emission = take_emission(said)
    made = materialize(session, builder, one.name, text, emission, one.said, catalog)
    if one.kind != "materialized view":
        return replace(one, step=made.step)
    if [(c.name, c.type) for c in made.columns] != [(c.name, c.type) for c in one.columns]:
        _refuse(old, [one], "what is built on it would have other columns", "drop these first")
    return replace(one, step=made.step, columns=made.columns)
