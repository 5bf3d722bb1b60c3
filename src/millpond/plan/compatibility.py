"""Checks whether a pond can continue with another plan: every old step must keep its meaning.

A new step over a source that was already read would miss rows, so it is refused (law 1), unless the caller
backfills it (`plan.change`).
A step whose operator has a `meaning()` may change its state as `plan.evolution` describes.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import fields, is_dataclass, replace
from typing import Any

from millpond.errors import InvalidError
from millpond.operators.aggregate import Aggregate
from millpond.operators.scan import Scan
from millpond.operators.source_traits import ReadsInbox
from millpond.plan import codec
from millpond.plan.added_columns import widens
from millpond.plan.backfill import is_constant
from millpond.plan.evolution import carried, check_state, evolves
from millpond.plan.expiry import ending_as
from millpond.plan.nodes import Node, Plan


def check_compatible(
    old: Plan, new: Plan, positions: set[str], *, rewritten: Container[str] = frozenset()
) -> Plan:
    """The new plan, with what the pond knows about its state; InvalidError if it does not fit the pond.

    `rewritten` are tables that are rewritten in the same commit.
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
                f"step {step!r} has another definition than in the pond",
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
            hint="leave it out here and define it in the next run, which backfills it",
            step=step,
        )
    return carried(old, new, rewritten)


def with_expiry_of(old: Plan, new: Plan) -> Plan:
    """The new plan with the expiry of the old one: tables keep the buckets that they have.

    If a step has become a view, but its table has already expired rows, the view keeps its own table.
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
        old_view, table = old.views.get(name), nodes[view.step].binding.view
        if table != view.table and old_view is not None and old.nodes[old_view.step].inputs == (view.step,):
            nodes.setdefault(old_view.step, old.nodes[old_view.step])
            view = old_view
        views[name] = view
    return replace(new, nodes=nodes, views=views)


def fed_by_what_was_read(old: Plan, new: Plan, positions: Collection[str]) -> dict[str, str]:
    """The new steps over a source that was already read, each with such a source."""
    fed = {}
    scans: dict[str, frozenset[str]] = {}
    for step, node in new.nodes.items():
        if step in old.nodes or isinstance(node.operator, Scan):
            continue
        below = _scans(new, step, scans)
        read = sorted(s for s in below if s in old.nodes and _position(new.nodes[s]) in positions)
        if read:
            fed[step] = read[0]
    return fed


def fed_by_new_constants(old: Plan, new: Plan) -> bool:
    """Does a new step have rows before any input comes?  Then the epoch that adds it needs them (law 1)."""
    fresh = {step for step, node in new.nodes.items() if step not in old.nodes}
    constants = {step for step in fresh if is_constant(new.nodes[step])}
    return any(constants & {*new.nodes[step].inputs} for step in fresh)


def same_meaning(one: Node, other: Node) -> bool:
    """Do two definitions give the state of a step the same meaning?"""
    return one is other or bool(_meaning(one) == _meaning(other))


def _meaning(node: Node) -> Any:
    if evolves(node):
        operator: Any = node.operator
        return [type(operator).__qualname__, _mask(codec.encode(operator.meaning())), list(node.inputs)]
    operator, inputs = node.operator, list(node.inputs)
    if isinstance(operator, Aggregate) and operator.always:
        # Ponds of older versions lack this input: they gain the row of an empty aggregate.
        operator, inputs = replace(operator, feeds=operator.feeds[:-1]), inputs[:-1]
    return [_definition(operator), inputs, _mask(codec.encode(node.binding.tables))]


def _definition(operator: Any) -> Any:
    """An operator as it is stored, without fields that do not affect its result."""
    encoded = codec.encode(operator)
    if is_dataclass(operator) and "fields" in encoded:
        how = {f.name for f in fields(operator) if not f.metadata.get("meaning", True)}
        encoded = {**encoded, "fields": {k: v for k, v in encoded["fields"].items() if k not in how}}
    return _mask(encoded)


def difference(old: Node, new: Node) -> str:
    """Describe how two definitions of a step differ."""
    was: Any = old.operator
    now: Any = new.operator
    if type(was) is not type(now):
        return f"it was {type(was).__name__}, and is {type(now).__name__} now"
    if old.inputs != new.inputs:
        return f"it read {', '.join(old.inputs)}, and reads {', '.join(new.inputs)} now"
    if evolves(old):
        return f"its meaning was {was.meaning()!r}, and is {now.meaning()!r} now"
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
    """Hide the code of functions, which may change; everything else must stay equal."""
    if isinstance(value, list):
        return [_mask(v) for v in value]
    if isinstance(value, dict):
        return {"$pickle": ""} if "$pickle" in value else {k: _mask(v) for k, v in value.items()}
    return value


def _position(node: Node) -> str:
    """The name of a source's position in the manifest; all tables share that of the inbox."""
    source = node.operator.source if isinstance(node.operator, Scan) else None
    return "inbox" if isinstance(source, ReadsInbox) else node.step


def _scans(plan: Plan, step: str, known: dict[str, frozenset[str]]) -> frozenset[str]:
    """The scans that a step reads, directly or not; `known` avoids repeated visits."""
    if step not in known:
        node = plan.nodes[step]
        below = (_scans(plan, i, known) for i in node.inputs)
        known[step] = frozenset([step]) if isinstance(node.operator, Scan) else frozenset().union(*below)
    return known[step]
