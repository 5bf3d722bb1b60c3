"""CREATE OR REPLACE of a view that others use: they are made anew over it, in the same commit.

The new view and all that is built on it are filled beside the old ones, and take
their names together; no epoch shows one of them empty, or two that do not belong
together (law 2).  Whoever is built on it sees the columns that it knew, so these
must be there, with their types; otherwise it is refused with what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.plan.nodes import Plan
from millpond.plan.objects import SqlObject, dependants, in_order
from millpond.sql.catalog import all_objects
from millpond.sql.known import knowing, known_text, reread
from millpond.sql.parse import statements
from millpond.sql.session import Session
from millpond.sql.statements.objects import all_objects_with_uses, aside, aside_name, without

Make = Callable[[Builder], SqlObject]
REPLACED = ("view", "materialized view")  # kinds of objects whose dependants can be made anew


def make_anew(session: Session, builder: Builder, old: SqlObject, make: Make) -> None:
    """Put what `make` gives in the place of an object, and what is built on it over that."""
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
            continue  # it reads whatever has the name
        builder.plan = _keeping_sinks(builder.plan, aside(builder.plan, one))
        moved.append(aside_name(one.name))
        anew = _anew(session, builder, one, old)
        builder.plan = _with(builder.plan, anew)
    builder.plan = without(builder.plan, moved)


def _with(plan: Plan, made: SqlObject) -> Plan:
    """The plan with an object, in the order in which names can be looked up."""
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
    """A plain view: its text over the columns that it knew."""
    if old.name not in one.uses:
        return one
    objects = all_objects(plan)
    return reread(knowing(one, old, objects[old.name]), objects)


def _keeping_sinks(before: Plan, after: Plan) -> Plan:
    return replace(after, sinks=before.sinks)


def _anew(session: Session, builder: Builder, one: SqlObject, old: SqlObject) -> SqlObject:
    """The steps of a dependant, over what has come."""
    from millpond.sql.statements.create_view import materialize  # which calls back

    objects = all_objects(builder.plan)
    if one.kind == "index":
        over = objects[one.uses[0]]
        held = {c.name.lower(): c.held for c in over.columns}
        step = builder.plan.views[over.name].step
        view = Stream(builder, step).view(one.name, key=[held[k.lower()] for k in one.key])
        return replace(one, columns=over.columns, step=view.step)
    if old.name in one.uses:
        one = knowing(one, old, objects[old.name])
    text = known_text(one, objects)
    catalog = session.catalog_of(builder.plan)
    made = materialize(session, builder, one.name, text, _on_close(one), one.said, catalog)
    if one.kind != "materialized view":
        return replace(one, step=made.step)
    if [(c.name, c.type) for c in made.columns] != [(c.name, c.type) for c in one.columns]:
        _refuse(old, [one], "what is built on it would have other columns", "drop these first")
    return replace(one, step=made.step, columns=made.columns)


def _on_close(one: SqlObject) -> bool:
    piece = statements(one.said, "postgres")[-1]
    return piece.has(len(piece) - 4, "EMIT", "ON", "WINDOW", "CLOSE")
