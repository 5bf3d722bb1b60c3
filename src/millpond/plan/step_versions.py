"""Versions of a step: a changed definition gets a new id in the plan, and so its own state.

A step's id names its state, so a step with another meaning needs another id.
The user's code keeps the id: the plan has `by_city@2` where the code says `by_city`, and the next change
makes it `by_city@3`.

Law: the version of a step follows from the pond's plan alone: it is the one with the same meaning.
So a pipeline whose view was replaced once can be opened again, in any process, without naming the
replacement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa

from millpond.kernels.aggregate_feeds import Close
from millpond.kernels.bounds import Bound
from millpond.operators.bag import Bag
from millpond.operators.late_rows import LateRows
from millpond.operators.operator import Operator
from millpond.operators.scan import Scan
from millpond.operators.source_traits import ReadsInbox
from millpond.operators.upsert import Upsert
from millpond.plan.added_columns import widens
from millpond.plan.compatibility import same_meaning
from millpond.plan.nodes import Node, Plan, narrowed
from millpond.plan.stored_windows import moved_view, with_stored_windows

MARK = "@"


@dataclass(frozen=True)
class Versioned:
    plan: Plan
    ids: Mapping[str, str]  # the id in the plan, by the id in the user's code

    @property
    def moved(self) -> dict[str, str]:
        return {wrote: found for wrote, found in self.ids.items() if wrote != found}


def versions(steps: Iterable[str], step: str) -> list[str]:
    """The later versions of a step, the newest first.

    >>> versions(["a", "a@2", "a@10", "a@b", "ab@3"], "a")
    ['a@10', 'a@2']
    """
    start = step + MARK
    found = [s for s in steps if s.startswith(start) and s[len(start) :].isdecimal()]
    return sorted(found, key=lambda s: int(s[len(start) :]), reverse=True)


def next_version(steps: Collection[str], step: str) -> str:
    """
    >>> next_version(["a"], "a"), next_version(["a@2"], "a")
    ('a@2', 'a@3')
    """
    newest = versions(steps, step)
    number = int(newest[0][len(step) + 1 :]) if newest else 1
    return f"{step}{MARK}{number + 1}"


def newest(steps: Collection[str], step: str) -> str:
    """The id in a plan of a step with this id in the user's code."""
    if step in steps:
        return step
    return next(iter(versions(steps, step)), step)


def written(step: str) -> str:
    """The id in the user's code of a step with this id in a plan.

    >>> written("by_city@2"), written("me@home")
    ('by_city', 'me@home')
    """
    start, mark, number = step.rpartition(MARK)
    return start if mark and start and number.isdecimal() else step


def versioned(old: Plan, wanted: Plan, replaced: Collection[str] = ()) -> Versioned:
    """A pipeline's plan with the ids that its steps have in the pond's plan.

    Steps of `replaced` whose meaning changed get a new version, and so do all steps that read one.
    Other steps whose meaning changed keep the id of the pond, and `check_compatible` refuses them.
    Sources and tables are never replaced.
    """
    wanted, stored = with_stored_windows(old, wanted, replaced)
    found = _versioned(old, wanted, replaced)
    ids = {wrote: found.ids[step] for wrote, step in stored.items()}
    return replace(found, ids={**found.ids, **ids}) if ids else found


def _versioned(old: Plan, wanted: Plan, replaced: Collection[str]) -> Versioned:
    ids: dict[str, str] = {}
    nodes: dict[str, Node] = {}
    wider: dict[str, tuple[str, ...]] = {}  # steps of tables that gained columns: those the pipeline knows
    for node in wanted.topological():
        inputs = tuple(ids[i] for i in node.inputs)
        if _gained(old, node, wider):
            ids[node.step], nodes[node.step] = node.step, old.nodes[node.step]
            wider[node.step] = tuple(node.binding.shape.schema.names)
            continue
        if any(i in wider for i in node.inputs):
            reads = node.reads or (None,) * len(inputs)
            known_now = tuple(wider.get(i, r) for i, r in zip(node.inputs, reads, strict=True))
            node = replace(node, reads=known_now)
        known = [
            s for s in (node.step, *versions(old.nodes, node.step)) if s == node.step or s not in wanted.nodes
        ]
        chosen = None
        for step in known:
            made = _with_id(node, step, inputs, ids, nodes)
            if step in old.nodes and _is_unchanged(old, nodes, made):
                chosen = made
                break
        if chosen is None:
            chosen = _with_id(node, _id(old, wanted, node, inputs, replaced), inputs, ids, nodes)
        ids[node.step] = chosen.step
        nodes[chosen.step] = chosen
    if all(wrote == found for wrote, found in ids.items()) and not wider:
        return Versioned(wanted, ids)
    views = {name: moved_view(view, ids) for name, view in wanted.views.items()}
    views |= {name: old.views[name] for name, v in views.items() if v.step in wider and name in old.views}
    objects = {
        name: replace(o, step=ids.get(o.step, o.step)) if o.step is not None else o
        for name, o in wanted.objects.items()
    }
    return Versioned(replace(wanted, nodes=nodes, views=views, objects=objects), ids)


def is_table(node: Node) -> bool:
    """Is it the step that reads the rows of a table?"""
    return isinstance(node.operator, Scan) and isinstance(node.operator.source, ReadsInbox)


def _gained(old: Plan, node: Node, wider: Collection[str]) -> bool:
    """Is it a step of a table that gained columns by ALTER TABLE which the pipeline does not know?"""
    before = old.nodes.get(node.step)
    if before is None or type(before.operator) is not type(node.operator):
        return False
    if not is_table(node):
        own = isinstance(node.operator, Bag | Upsert) and node.inputs == before.inputs
        return own and all(i in wider for i in node.inputs)
    held: Any = before.operator
    mine: Any = node.operator
    if not is_table(before) or held.source == mine.source:
        return False
    fill = {name for name, _ in held.source.fill}
    known = pa.schema([f for f in held.source.columns if f.name in mine.source.columns.names])
    rest = set(held.source.columns.names) - set(known.names)
    return bool(known == mine.source.columns) and rest <= fill


def _is_unchanged(old: Plan, nodes: Mapping[str, Node], made: Node) -> bool:
    if same_meaning(made, old.nodes[made.step]):
        return True
    return widens(old, Plan({**nodes, made.step: made}), made.step)


def _id(old: Plan, wanted: Plan, node: Node, inputs: tuple[str, ...], replaced: Collection[str]) -> str:
    """The id for a step of which the pond has no equal version."""
    before = newest(old.nodes, node.step)
    if before not in old.nodes:
        return node.step
    over_new = any(step not in old.nodes for step in inputs)
    kept = isinstance(node.operator, Scan) or any(is_table(wanted.nodes[i]) for i in node.inputs)
    if kept or (node.step not in replaced and not over_new):
        return before if before not in wanted.nodes else node.step
    return next_version({*old.nodes, *wanted.nodes}, node.step)


def _with_id(
    node: Node, step: str, inputs: tuple[str, ...], ids: Mapping[str, str], nodes: Mapping[str, Node]
) -> Node:
    """The same step with another id, over inputs that may have other ids."""
    operator = _with_current_ids(node.operator, ids)
    if step == node.step and inputs == node.inputs and operator is node.operator:
        return node
    reads = node.reads or (None,) * len(inputs)
    shapes = tuple(narrowed(nodes[i].binding.shape, r) for i, r in zip(inputs, reads, strict=True))
    return replace(node, step=step, operator=operator, inputs=inputs, binding=operator.bind(step, shapes))


def _with_current_ids(operator: Operator, ids: Mapping[str, str]) -> Operator:
    """An operator that refers to steps (by the watermark that expires its state), with their current ids."""
    if isinstance(operator, LateRows):
        mark = ids.get(operator.watermark, operator.watermark)
        return operator if mark == operator.watermark else replace(operator, watermark=mark)
    changed = {}
    for field in fields(operator):  # type: ignore[arg-type]
        value = getattr(operator, field.name)
        if isinstance(value, Bound | Close | tuple) and (made := _marked(value, ids)) != value:
            changed[field.name] = made
    same: Any = operator
    return replace(same, **changed) if changed else operator


def _marked(value: Any, ids: Mapping[str, str]) -> Any:
    """A field of an operator; the bounds of a join are in tuples."""
    if type(value) is tuple:
        return tuple(_marked(one, ids) for one in value)
    if not isinstance(value, Bound | Close):
        return value
    marks = tuple((ids.get(step, step), shift) for step, shift in value.marks)
    if isinstance(value, Close):
        return replace(value, marks=marks, watermark=ids.get(value.watermark, value.watermark))
    return replace(value, marks=marks, by=ids.get(value.by, value.by))
