"""Builds the plan that all streams of a pond share."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from millpond.arguments.names import check_name, safe
from millpond.errors import InvalidError
from millpond.kernels.python_function import carrying
from millpond.operators.operator import Operator, Shape
from millpond.plan.expiry import TimeDistance, expiring, is_view_and_ends, unending
from millpond.plan.nodes import Node, Plan
from millpond.plan.step_versions import next_version
from millpond.valid_text import require_text


class StepHandle(Protocol):
    """A reference to a step that users hold; it follows when the step gets another id."""

    def _follow(self, ids: Mapping[str, str]) -> None: ...


class Builder:
    """The plan that the streams of a pond define together."""

    def __init__(self) -> None:
        self.plan = Plan()
        self.replaced: dict[str, bool] = {}  # views that may differ from the pond: are they backfilled?
        self.replaces_all: bool | None = None  # the same for all views that changed
        self.dropped: set[str] = set()  # views of the pond that this program omits
        self._sealed = False
        self._before: Mapping[str, Node] = {}
        self._handles: weakref.WeakSet[StepHandle] = weakref.WeakSet()

    def add(self, step: str | None, operator: Operator, inputs: tuple[str, ...], default: str) -> str:
        """Add a step; returns its id, which is that of an equal step if there is one."""
        self.change(lambda plan: plan)
        if step is not None:
            check_name("a step", step)
        operator = carrying(operator)
        require_text(default if step is None else step, "the id of a step")
        name = (
            self._default_id(default, operator, inputs)
            if step is None
            else self._free(step, operator, inputs)
        )
        self.plan, added = self.plan.with_node(name, operator, inputs)
        return added

    def ended(
        self, operator: Operator, inputs: tuple[str, ...], spans: Iterable[TimeDistance] = ()
    ) -> Operator:
        """The operator with state that expires by the bounds of its inputs, unless a view keeps it."""
        expiring_operator = expiring(operator, [self.shape(i) for i in inputs], spans)
        is_kept_by_view = is_view_and_ends(expiring_operator) and any(
            n.inputs == inputs and n.operator == operator for n in self.plan.nodes.values()
        )
        return operator if is_kept_by_view else expiring_operator

    def keep(self, step: str) -> None:
        """Let a step that this process defines keep its state, because its table becomes a view."""
        node = self.plan.nodes[step]
        if step in self._before or not is_view_and_ends(node.operator):
            return
        operator = unending(node.operator)
        binding = operator.bind(step, tuple(self.shape(i) for i in node.inputs))
        made = replace(node, operator=operator, binding=binding)
        self.change(lambda plan: replace(plan, nodes={**plan.nodes, step: made}))

    def constant(self, base: str, operator: Operator) -> str:
        """Add a source with constant rows; equal ones share one step, whatever their names."""
        for node in self.plan.nodes.values():
            if not node.inputs and node.operator == operator:
                return node.step
        return self.add(None, operator, (), base)

    def change(self, edit: Callable[[Plan], Plan]) -> None:
        if self._sealed:
            raise InvalidError(
                "the pipeline is already running",
                hint="define all of it before drain(), start() or run(), or inside `with pond.changing():`",
            )
        self.plan = edit(self.plan)

    def seal(self) -> Plan:
        self._sealed = True
        return self.plan

    @property
    def sealed(self) -> bool:
        return self._sealed

    def reopen(self, plan: Plan, running: Plan | None = None) -> None:
        """Accept definitions again, starting from this plan; `running` is the plan that it will replace."""
        self._sealed = False
        self.plan = plan
        self._before = (plan if running is None else running).nodes

    def track(self, handle: StepHandle) -> None:
        """Notify a handle when steps get other ids."""
        self._handles.add(handle)

    def adopt(self, plan: Plan, ids: Mapping[str, str]) -> None:
        """Continue with the ids that a pond has for the steps that were defined."""
        self.plan = plan
        for handle in list(self._handles):
            handle._follow(ids)

    def shape(self, step: str) -> Shape:
        return self.plan.shape(step)

    def _default_id(self, base: str, operator: Operator, inputs: tuple[str, ...]) -> str:
        """A default id that says what the step does and on what; numbered when another step has it.

        A dropped step of the running program keeps its id: the new step is its next version.
        """
        base = safe(base)
        name, number = base, 2
        while name in self.plan.nodes:
            name = f"{base}-{number}"
            number += 1
        return self._free(name, operator, inputs)

    def _free(self, name: str, operator: Operator, inputs: tuple[str, ...]) -> str:
        """The id, or its next version if the running program has another step of that id that was dropped."""
        if name not in self.plan.nodes and self._was_another(name, operator, inputs):
            return next_version({*self.plan.nodes, *self._before}, name)
        return name

    def _was_another(self, name: str, operator: Operator, inputs: tuple[str, ...]) -> bool:
        node = self._before.get(name)
        return node is not None and (node.operator != operator or node.inputs != inputs)
