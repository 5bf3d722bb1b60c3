"""Names that come and go, for all statements that define something."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.names import check_name
from millpond.plan.change import upstream
from millpond.plan.nodes import Plan
from millpond.plan.objects import SqlObject, dependants
from millpond.sql import growth
from millpond.sql.catalog import all_objects
from millpond.sql.result import Result
from millpond.sql.session import Session

Edit = Callable[[Builder], SqlObject]


def create(session: Session, name: str, kind: str, *, exists: bool, replaces: bool, make: Edit) -> Result:
    """Define a name: `exists` says IF NOT EXISTS, `replaces` OR REPLACE."""
    catalog = session.catalog
    old = catalog.find(name)
    word = kind.upper().replace(" ", "_")
    if old is not None and exists:
        return Result.said(f"CREATE_{word} {name}: there already")
    if old is None:
        check_name(f"a {kind}", name)
    if old is not None and not replaces:
        catalog.free(name)
    if old is not None and old.kind != kind:
        raise InvalidError(f"{old.name!r} is a {old.kind}, and is not replaced by a {kind}")

    told: list[str] = []

    def edit(builder: Builder) -> None:
        before = builder.plan.nodes.keys()
        if old is None:
            made = make(builder)
            builder.plan = builder.plan.with_object(made)
        else:
            from millpond.sql.statements.replacing import make_anew  # which calls back

            make_anew(session, builder, old, make)
        told[:] = growth.warnings(builder.plan, [s for s in builder.plan.nodes if s not in before])

    session.define(edit)
    result = Result.said(f"CREATE_{word}")
    result.warnings = told
    return result


def refuse_dependants(plan: Plan, found: SqlObject, what: str) -> None:
    others = dependants(all_objects_with_uses(plan), [found.name])
    if others:
        raise InvalidError(
            f"{found.kind} {found.name!r} cannot be {what}, others use it",
            detail=", ".join(others),
            hint="drop these first, or say CASCADE" if what == "dropped" else "drop these first",
        )


def all_objects_with_uses(plan: Plan) -> dict[str, SqlObject]:
    """All objects; what the flow API made uses what its steps are computed from."""
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
    """The plan without some names and the steps that only they needed."""
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
    """The plan with an object under a name that nobody uses, until it is dropped."""
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
