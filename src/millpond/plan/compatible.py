"""May a pond go on with another plan?  Only if every old step still means the same.

A new step over a source that was already read would miss its rows, so that is
refused rather than answered wrongly (law 1), unless the caller fills it from what
the pond holds (`plan.change`).  A step whose operator has a `meaning()` may
change its state as `plan.evolution` says.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import fields, is_dataclass, replace
from typing import Any

from millpond.errors import InvalidError
from millpond.operators.aggregate import Aggregate
from millpond.operators.scan import Scan
from millpond.plan import codec
from millpond.plan.backfill import is_constant
from millpond.plan.evolution import carried, check_state, evolves
from millpond.plan.expiry import ending_as
from millpond.plan.nodes import Node, Plan
from millpond.plan.widened import widens


def check_compatible(
    old: Plan, new: Plan, positions: set[str], *, rewritten: Container[str] = frozenset()
) -> Plan:
    """The plan to go on with: the new one, and what the pond remembers of its state; or why it may not.

    `rewritten` are tables that are written anew in the same commit.
    """
    new = with_expiry_of(old, new)
    for step, node in old.nodes.items():
        mine = new.nodes.get(step)
        if mine is None:
            raise InvalidError(
                f"step {step!r} is in the pond but not in this pipeline",
                detail=f"the pond's steps are {', '.join(old.nodes)}",
                hint="define the step as before, or drop its view with pond.drop_view(name)",
                step=step,
            )
        if not same_meaning(mine, node) and not widens(old, new, step):
            raise InvalidError(
                f"step {step!r} means something else than when the pond was made",
                detail=difference(node, mine),
                hint="restore the old definition, give the step another id, or replace its view: with "
                "pond.replace(view) before the pond runs, or in `with pond.changing():` by dropping the view "
                "and defining it again",
                step=step,
            )
        if evolves(node):
            check_state(old, new, step, rewritten)
    for step, source in fed_by_what_was_read(old, new, positions).items():
        raise InvalidError(
            f"step {step!r} is new, but source {source!r} was already read",
            detail="the new step would miss the rows that came before it",
            hint="leave it out here and define it in the next run, which fills it from what the pond holds",
            step=step,
        )
    return carried(old, new, rewritten)


def with_expiry_of(old: Plan, new: Plan) -> Plan:
    """The new plan, in which state ends where it did before: tables keep the buckets that they have.

    A step may have become a view since, whose table has already lost rows: the view is then the one over it.
    """
    nodes = dict(new.nodes)
    for step, node in old.nodes.items():
        mine = new.nodes.get(step)
        if mine is None or mine is node or mine.inputs != node.inputs or mine.operator == node.operator:
            continue
        operator = ending_as(mine.operator, node.operator)
        if operator == mine.operator or _definition(operator) != _definition(node.operator):
            continue
        binding = operator.bind(step, tuple(new.shape(i) for i in node.inputs))
        nodes[step] = replace(mine, operator=operator, binding=binding)
    if nodes == new.nodes:
        return new
    views = {}
    for name, view in new.views.items():
        over, held = old.views.get(name), nodes[view.step].binding.view
        if held != view.table and over is not None and old.nodes[over.step].inputs == (view.step,):
            nodes.setdefault(over.step, old.nodes[over.step])
            view = over
        views[name] = view
    return replace(new, nodes=nodes, views=views)


def fed_by_what_was_read(old: Plan, new: Plan, positions: Collection[str]) -> dict[str, str]:
    """The steps that are new over a source that was already read, each with such a source."""
    found = {}
    scans: dict[str, frozenset[str]] = {}
    for step, node in new.nodes.items():
        if step in old.nodes or isinstance(node.operator, Scan):
            continue
        below = _scans(new, step, scans)
        read = sorted(s for s in below if s in old.nodes and _position(new.nodes[s]) in positions)
        if read:
            found[step] = read[0]
    return found


def fed_by_new_constants(old: Plan, new: Plan) -> bool:
    """Has a new step rows before any input comes?  Then they must be in the epoch that brings it (law 1)."""
    fresh = {step for step, node in new.nodes.items() if step not in old.nodes}
    constants = {step for step in fresh if is_constant(new.nodes[step])}
    return any(constants & {*new.nodes[step].inputs} for step in fresh)


def same_meaning(one: Node, other: Node) -> bool:
    """Can either go on with the state of the other, as far as its definition says?"""
    return one is other or bool(_meaning(one) == _meaning(other))


def _meaning(node: Node) -> Any:
    if evolves(node):
        operator: Any = node.operator
        return [type(operator).__qualname__, _mask(codec.encode(operator.meaning())), list(node.inputs)]
    operator, inputs = node.operator, list(node.inputs)
    if isinstance(operator, Aggregate) and operator.always:
        # Ponds of older versions have none of it: they gain the row of an empty input.
        operator, inputs = replace(operator, feeds=operator.feeds[:-1]), inputs[:-1]
    return [_definition(operator), inputs, _mask(codec.encode(node.binding.tables))]


def _definition(operator: Any) -> Any:
    """An operator as it is stored, without fields that only say how it computes the same."""
    found = codec.encode(operator)
    if is_dataclass(operator) and "fields" in found:
        how = {f.name for f in fields(operator) if not f.metadata.get("meaning", True)}
        found = {**found, "fields": {k: v for k, v in found["fields"].items() if k not in how}}
    return _mask(found)


def difference(old: Node, new: Node) -> str:
    """How two definitions of a step differ, for people."""
    was: Any = old.operator
    now: Any = new.operator
    if type(was) is not type(now):
        return f"it was {type(was).__name__}, and is {type(now).__name__} now"
    if old.inputs != new.inputs:
        return f"it read {', '.join(old.inputs)}, and reads {', '.join(new.inputs)} now"
    if evolves(old):
        return f"what must stay was {was.meaning()!r}, and is {now.meaning()!r} now"
    for field in fields(was):
        before, after = getattr(was, field.name), getattr(now, field.name)
        if _mask(codec.encode(before)) != _mask(codec.encode(after)):
            return f"it had {field.name} {_shown(before)}, and has {_shown(after)} now"
    return "its state was computed in another way"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    return str(value)


def _mask(value: Any) -> Any:
    """Functions may change their code; everything else must stay."""
    if isinstance(value, list):
        return [_mask(v) for v in value]
    if isinstance(value, dict):
        return {"$pickle": ""} if "$pickle" in value else {k: _mask(v) for k, v in value.items()}
    return value


def _position(node: Node) -> str:
    """The name under which a source's position is kept: one for all tables, they share the inbox."""
    return "inbox" if getattr(getattr(node.operator, "source", None), "inbox", False) else node.step


def _scans(plan: Plan, step: str, known: dict[str, frozenset[str]]) -> frozenset[str]:
    """The scans below a step; a step that many read is looked at once."""
    if step not in known:
        node = plan.nodes[step]
        below = (_scans(plan, i, known) for i in node.inputs)
        known[step] = frozenset([step]) if isinstance(node.operator, Scan) else frozenset().union(*below)
    return known[step]
