"""Replaces views: compares a pipeline whose definitions changed with the plan that the pond has.

Law: a view changes only if the user asks for it, and then in one commit with all views that are built on it.
Their new steps are backfilled from what the pond stores, and the old steps are removed.
Any other difference is refused with the call that would allow it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.operators.scan import Scan
from millpond.plan.added_columns import SEQUENCE, widens
from millpond.plan.change import PlanChange, plan_change
from millpond.plan.compatibility import difference, same_meaning
from millpond.plan.nodes import Node, Plan, upstream
from millpond.plan.step_versions import is_table, newest, written


@dataclass(frozen=True)
class ReplaceRequest:
    replaced: frozenset[str]  # views that may differ from those in the pond
    dropped: frozenset[str]  # views of the pond that may be removed
    from_now: bool = False  # the new ones start with the next rows


def steps_to_replace(wanted: Plan, asked: ReplaceRequest) -> set[str]:
    """The steps of a pipeline that may differ from those in the pond."""
    return upstream(wanted, [wanted.views[name].step for name in asked.replaced if name in wanted.views])


def with_sql(old: Plan, wanted: Plan) -> Plan:
    """Add the objects that SQL created in the pond to a pipeline, which does not repeat these statements."""
    lacking = [name for name in old.objects if name not in wanted.objects]
    names = [name for name in lacking if not _is_defined(wanted, name)]
    nodes, views, objects = dict(wanted.nodes), dict(wanted.views), dict(wanted.objects)
    sinks = dict(wanted.sinks)
    for name in names:
        made = old.objects[name]
        steps = upstream(old, [s for s in (made.step, made.scan) if s is not None])
        for step in old.nodes:
            if step not in steps or step in nodes:
                continue
            if newest(wanted.nodes, written(step)) in wanted.nodes:
                raise InvalidError(
                    f"{made.kind} {name!r} is built on what this program defines differently",
                    detail=f"it was made by SQL over step {written(step)!r}",
                    hint=f"drop it with pond.sql('DROP {made.kind.upper()} {name}'), then create it again",
                    step=step,
                )
            nodes[step] = old.nodes[step]
        objects[name] = made
        if name in old.views:
            views[name] = old.views[name]
        if made.kind == "sink" and name in old.sinks:
            sinks[name] = old.sinks[name]
    if not lacking:
        return wanted
    objects |= {
        name: old.objects[name]
        for name in lacking
        if name not in objects and old.views.get(name) == wanted.views.get(name) is not None
    }
    order = {step: nodes[step] for step in [*(s for s in old.nodes if s in nodes), *nodes]}
    return replace(wanted, nodes=order, views=views, objects=objects, sinks=sinks)


def _is_defined(wanted: Plan, name: str) -> bool:
    return name in wanted.views or name in wanted.nodes or name in wanted.sinks


def replacing_change(old: Plan, wanted: Plan, asked: ReplaceRequest) -> PlanChange:
    """The change from the pond's plan to a pipeline; InvalidError says why it is not allowed."""
    _check_steps(old, wanted)
    _check_shared(old, wanted, asked)
    _check_gone(old, wanted, asked)
    return plan_change(old, wanted)


def _check_steps(old: Plan, wanted: Plan) -> None:
    """Check that a step with an id of the pond has the same meaning there."""
    for step, node in wanted.nodes.items():
        before = old.nodes.get(step)
        if before is None or same_meaning(node, before) or widens(old, wanted, step):
            continue
        table = next((s for s in (step, *node.inputs) if is_table(wanted.nodes[s])), None)
        if isinstance(node.operator, Scan) or table is not None:
            raise InvalidError(
                f"{'table' if table else 'stream'} {table or step!r} is defined differently in the pond",
                detail=_difference_of_source(before, node),
                hint="restore the old definition, or read the source under another name"
                if table is None
                else f'restore the old definition; add columns with pond.sql("ALTER TABLE {table} ADD COLUMN '
                '..."), or use another name for another table',
                step=step,
            )
        views = _views_over(wanted, step)
        raise InvalidError(
            f"step {written(step)!r} is defined differently in the pond",
            detail=f"{difference(before, node)}; views built on it: {', '.join(views) or 'none'}",
            hint=_hint(views),
            step=step,
        )


def _difference_of_source(before: Node, node: Node) -> str:
    was, now = before.binding.shape.schema, node.binding.shape.schema
    if was != now:
        return f"its columns are ({_columns(was)}) in the pond, and ({_columns(now)}) in this program"
    return difference(before, node)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema if f.name != SEQUENCE)


def _hint(views: list[str]) -> str:
    if not views:
        return "restore the old definition, or give the step another id"
    names = ", ".join(repr(name) for name in views)
    return (
        f"to rebuild {'it' if len(views) == 1 else 'them'} from what the pond holds, call "
        f"pond.replace({names}) before drain(), start() or run(), or pass "
        f"{' '.join(f'--replace {name}' for name in views)} to `millpond run`; or restore the old definition"
    )


def _views_over(plan: Plan, step: str) -> list[str]:
    """The views that change with a step, without those that are built on another of them."""
    views = [v for v in plan.views.values() if step in upstream(plan, [v.step])]
    steps = {v.step for v in views}
    return [v.name for v in views if not steps & (upstream(plan, [v.step]) - {v.step})]


def _check_shared(old: Plan, wanted: Plan, asked: ReplaceRequest) -> None:
    """Check that a view which was not named changes only because of a view that it is built on."""
    roots = {wanted.views[n].step for n in asked.replaced if n in wanted.views}
    for view in wanted.views.values():
        before = old.views.get(view.name)
        if before is None or view.name in asked.replaced or before.step == view.step:
            continue
        if view.step in old.nodes or roots & upstream(wanted, [view.step]):
            continue  # the name moved to an existing step, or the view is built on a replaced one
        names = ", ".join(repr(n) for n in sorted({*asked.replaced, view.name}))
        raise InvalidError(
            f"view {view.name!r} changes as well",
            detail="it is built on a step that is defined differently in the pond",
            hint=f"replace all of them: pond.replace({names})",
            step=view.step,
        )


def _check_gone(old: Plan, wanted: Plan, asked: ReplaceRequest) -> None:
    """Check that steps are removed only together with their views."""
    moved = [v.step for v in old.views.values() if _moved(wanted, v.name, v.step)]
    going = {name for name in old.views if name in asked.dropped}
    may_go = upstream(old, [*moved, *(old.views[name].step for name in going)])
    for view in old.views.values():
        if view.name in wanted.views or view.name in going:
            continue
        raise InvalidError(
            f"view {view.name!r} is in the pond but not in this pipeline",
            detail=f"the pond's views are {', '.join(old.views)}",
            hint=f"define it as before, or drop it: call pond.drop_view({view.name!r}) "
            "before drain(), start() or run()",
            step=view.step,
        )
    for step in old.nodes:
        if step in wanted.nodes or step in may_go:
            continue
        if newest(wanted.nodes, written(step)) in wanted.nodes:
            continue  # replaced by another version
        raise InvalidError(
            f"step {step!r} is in the pond but not in this pipeline",
            detail=f"the pond's steps are {', '.join(old.nodes)}",
            hint="define the step as before; it has no view that could be replaced or dropped",
            step=step,
        )


def _moved(wanted: Plan, name: str, step: str) -> bool:
    return name in wanted.views and wanted.views[name].step != step
