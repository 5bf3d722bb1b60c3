"""Changes of a plan: which steps are added, which are removed, and which views are renamed.

A step that stays must keep its meaning (`plan.compatibility`), since its state was computed with it.
A new step is backfilled from what the pond stores (`plan.backfill`).
A removed step takes its tables with it.
Names exist only in the plan: renaming a view, or swapping two, moves no row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from millpond.errors import InvalidError, nearest
from millpond.plan.compatibility import check_compatible, same_meaning, with_expiry_of
from millpond.plan.nodes import Plan, View, upstream
from millpond.plan.sink_check import shown_schema
from millpond.plan.sink_settings import columns_by_name
from millpond.plan.tables import table_specs
from millpond.state.retention import ERRORS
from millpond.valid_text import require_text


@dataclass(frozen=True)
class PlanChange:
    plan: Plan  # the wanted plan, with what the pond knows about its state
    new: frozenset[str]
    gone: frozenset[str]
    tables_gone: frozenset[str]


def plan_change(old: Plan, wanted: Plan) -> PlanChange:
    """The change from one plan to another; refused where a step that stays has another meaning."""
    check_complete(wanted)
    wanted = with_expiry_of(old, wanted)
    common = within(old, old.nodes.keys() & wanted.nodes.keys())
    gone = frozenset(old.nodes.keys() - wanted.nodes.keys())
    tables = set(table_specs(within(old, gone))) - {ERRORS}
    tables |= {name for name in old.left if name.rpartition("/")[0] in gone}
    return PlanChange(
        check_compatible(common, wanted, set()),
        frozenset(wanted.nodes.keys() - old.nodes.keys()),
        gone,
        frozenset(tables),
    )


def check_complete(plan: Plan) -> None:
    """Refuse a plan in which an input, a view's step or a sink's view is missing."""
    uses = [(f"step {n.step!r}", i) for n in plan.nodes.values() for i in n.inputs if i not in plan.nodes]
    uses += [(f"view {v.name!r}", v.step) for v in plan.views.values() if v.step not in plan.nodes]
    uses += [(f"sink {s.name!r}", s.view) for s in plan.sinks.values() if s.view not in plan.views]
    if uses:
        lacking = uses[0][1]
        raise InvalidError(
            f"{lacking!r} cannot be removed, others use it",
            detail=", ".join(sorted(user for user, what in uses if what == lacking)),
            hint="drop these first, or together with it",
            step=lacking,
        )


def within(plan: Plan, steps: Collection[str]) -> Plan:
    """The plan of only these steps, with their views and sinks; inputs may be outside of it."""
    views = {name: view for name, view in plan.views.items() if view.step in steps}
    return replace(
        plan,
        nodes={step: node for step, node in plan.nodes.items() if step in steps},
        views=views,
        sinks={name: sink for name, sink in plan.sinks.items() if sink.view in views},
    )


def dependants(plan: Plan, names: Iterable[str]) -> tuple[str, ...]:
    """The views and sinks that are built on some views, in order, without these views themselves."""
    asked = set(names)
    roots = {plan.views[name].step for name in asked}
    dependent = []
    for view in plan.views.values():
        below = upstream(plan, [view.step]) - {view.step}
        if view.name not in asked and roots & below:
            dependent.append(view.name)
    dependent += [sink.name for sink in plan.sinks.values() if sink.view in {*asked, *dependent}]
    return tuple(dependent)


def without_views(
    plan: Plan, names: Iterable[str], *, cascade: bool = False, keep: Collection[str] = ()
) -> Plan:
    """The plan without some views, and without the steps that only they needed.

    Refused with the list of dependants when views or sinks are built on them, unless `cascade` removes these
    as well.  Steps in `keep` stay in any case.
    """
    asked = list(dict.fromkeys(names))
    for name in asked:
        require_view(plan, name)
    others = dependants(plan, asked)
    if others and not cascade:
        raise InvalidError(
            f"view {asked[0]!r} cannot be dropped, others use it" if len(asked) == 1 else "others use them",
            detail=", ".join(others),
            hint="drop these first, or all of them at once with cascade",
        )
    leaving = {*asked, *(name for name in others if name in plan.views)}
    views = {name: view for name, view in plan.views.items() if name not in leaving}
    sinks = {name: sink for name, sink in plan.sinks.items() if sink.view in views}
    idle = upstream(plan, [plan.views[name].step for name in leaving])
    idle -= upstream(plan, [*(view.step for view in views.values()), *(s for s in keep if s in plan.nodes)])
    readers = plan.consumers()
    while used := {s for s in idle if any(reader not in idle for reader, _ in readers[s])}:
        idle -= upstream(plan, used)  # a step that has no view reads it
    nodes = {step: node for step, node in plan.nodes.items() if step not in idle}
    return replace(plan, nodes=nodes, views=views, sinks=sinks)


def renamed(plan: Plan, name: str, to: str) -> Plan:
    """The plan with another name for a view; its sinks read the new name."""
    view = require_view(plan, name)
    require_text(to, "the name of a view")
    if to in plan.views:
        raise InvalidError(f"there is a view {to!r} already", hint="swap the two, or drop that one first")
    views = {v.name: v for v in (replace(o, name=to) if o is view else o for o in plan.views.values())}
    sinks = {n: replace(s, view=to) if s.view == name else s for n, s in plan.sinks.items()}
    return replace(plan, views=views, sinks=sinks)


def swapped(plan: Plan, one: str, other: str) -> Plan:
    """The plan in which two views have swapped their names; sinks keep reading the same name."""
    a, b = require_view(plan, one), require_view(plan, other)
    columns, others = shown_schema(plan, one).names, shown_schema(plan, other).names
    for sink in plan.sinks.values():
        if sink.view in (one, other) and columns != others and columns_by_name(sink.sink):
            raise InvalidError(
                f"views {one!r} and {other!r} cannot be swapped, sink {sink.name!r} writes columns by name",
                detail=f"they are {', '.join(columns)} and {', '.join(others)}",
                hint="drop the sink first, or give both views the same columns",
            )
    return replace(plan, views={**plan.views, one: replace(b, name=one), other: replace(a, name=other)})


def restored(then: Plan, now: Plan) -> Plan:
    """The plan of an older epoch, with today's code in every step that still has the same meaning."""
    nodes = {}
    for step, node in then.nodes.items():
        mine = now.nodes.get(step)
        same = mine is not None and mine.inputs == node.inputs and same_meaning(mine, node)
        nodes[step] = mine if mine is not None and same else node
    sinks = {}
    for name, sink in then.sinks.items():
        sink_now = now.sinks.get(name)
        sinks[name] = sink if sink_now is None else replace(sink, sink=sink_now.sink)
    wanted = Plan(nodes, then.views, sinks, objects=then.objects)
    return check_compatible(then, wanted, set())


def same_program(one: Plan, other: Plan) -> bool:
    """Are the plans equal, except for the code in their steps?"""
    return (
        one.nodes.keys() == other.nodes.keys()
        and all(same_meaning(node, other.nodes[step]) for step, node in one.nodes.items())
        and one.views == other.views
        and one.objects == other.objects
        and {n: s.view for n, s in one.sinks.items()} == {n: s.view for n, s in other.sinks.items()}
    )


def require_view(plan: Plan, name: str) -> View:
    view = plan.views.get(name)
    if view is None:
        known = ", ".join(sorted(plan.views)) or "none"
        raise InvalidError(
            f"no view named {name!r}", detail=f"views are {known}", hint=nearest(name, plan.views)
        )
    return view
