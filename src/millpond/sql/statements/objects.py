"""Edits of a plan's objects that several statements share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from millpond.errors import InvalidError
from millpond.plan.nodes import Plan, upstream
from millpond.plan.objects import SqlObject, dependants
from millpond.sql.binding.catalog import all_objects


def refuse_dependants(plan: Plan, found: SqlObject, what: str) -> None:
    others = dependants(all_objects_with_uses(plan), [found.name])
    if others:
        raise InvalidError(
            f"{found.kind} {found.name!r} cannot be {what}, others use it",
            detail=", ".join(others),
            hint="drop these first, or say CASCADE" if what == "dropped" else "drop these first",
        )


def all_objects_with_uses(plan: Plan) -> dict[str, SqlObject]:
    """Return all objects; those of the flow API use the objects that their steps read."""
    objects = all_objects(plan)
    found = {}
    for name, one in objects.items():
        uses = set(one.uses)
        if name not in plan.objects and one.step is not None:
            below = upstream(plan, [one.step]) - {one.step, one.scan}
            uses |= {o.name for o in objects.values() if o.name != name and {o.step, o.scan} & below - {None}}
        found[name] = replace(one, uses=tuple(sorted(uses)))
    for sink in plan.sinks.values():
        if sink.name not in found:
            found[sink.name] = SqlObject("sink", sink.name, uses=(sink.view,))
    return found


def without(plan: Plan, names: Iterable[str]) -> Plan:
    """Return the plan without some names and the steps that only they needed."""
    gone = set(names)
    objects = all_objects(plan)
    ends = {s for n in gone if n in objects for s in (objects[n].step, objects[n].scan) if s is not None}
    ends |= {plan.views[n].step for n in gone if n in plan.views}
    views = {n: v for n, v in plan.views.items() if n not in gone}
    kept = {s for o in objects.values() if o.name not in gone for s in (o.step, o.scan)}
    kept |= {v.step for v in views.values()}
    idle = upstream(plan, ends) - upstream(plan, [s for s in kept if s is not None and s in plan.nodes])
    readers = plan.consumers()
    while used := {s for s in idle if any(reader not in idle for reader, _ in readers[s])}:
        idle -= upstream(plan, used)
    return replace(
        plan,
        nodes={s: n for s, n in plan.nodes.items() if s not in idle},
        views=views,
        sinks={n: s for n, s in plan.sinks.items() if n not in gone and s.view in views},
        objects={n: o for n, o in plan.objects.items() if n not in gone},
    )


def aside(plan: Plan, old: SqlObject) -> Plan:
    """Rename an object to an unused name, until it is dropped."""
    name = aside_name(old.name)
    objects = {n: o for n, o in plan.objects.items() if n != old.name}
    objects[name] = replace(old, name=name)
    views = {n: v for n, v in plan.views.items() if n != old.name}
    if old.name in plan.views:
        views[name] = replace(plan.views[old.name], name=name)
    sinks = {n: s for n, s in plan.sinks.items() if n != old.name}
    return replace(plan, objects=objects, views=views, sinks=sinks)


def aside_name(name: str) -> str:
    return f"{name} (replaced)"
