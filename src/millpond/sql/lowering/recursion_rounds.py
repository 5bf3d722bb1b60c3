"""Lifting: rewrites the steps of one round of a recursion into steps over all rounds.

Every row inside carries the number of its round.  A linear step passes it on, a keyed
step adds it to its key, and a join of two recursive inputs joins rows of the same round.
An input that does not depend on the recursion is the same in every round, so a join
reads it unchanged.  Where its rows would appear in the result without a partner (in a
union, or on the preserved side of an outer join), they are repeated in every round
that has rows, because the recursion ends with the first round that has none.

State inside a recursion does not expire by watermark: a new row may reach an old one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from millpond.kernels.recursion import LAST, input_name
from millpond.operators.aggregate import Aggregate
from millpond.operators.distinct import Distinct
from millpond.operators.distinct_values import DistinctValues
from millpond.operators.filter import Filter
from millpond.operators.iterate import InnerStep
from millpond.operators.join import Join
from millpond.operators.map import Map
from millpond.operators.operator import Operator
from millpond.operators.per_key import PerKey
from millpond.operators.top_n import TopN
from millpond.operators.union import Union
from millpond.operators.unnest import Unnest
from millpond.plan.nodes import Node, Plan
from millpond.sql.binding.types import quoted
from millpond.sql.lowering.relation import fresh_names
from millpond.sql.refusal import NotSupported


def inside_of(plan: Plan, last: str) -> list[Node]:
    """Return the steps that depend on the last round, inputs first."""
    found: dict[str, Node] = {}
    for node in plan.topological():
        if any(i == last or i in found for i in node.inputs):
            found[node.step] = node
    return list(found.values())


class Lifted:
    """The lifted steps of a recursion; `outer` lists the steps outside that they read."""

    def __init__(self, plan: Plan, last: str, inside: Sequence[Node], result: str) -> None:
        self._plan = plan
        self._last = last
        self._inside: Mapping[str, Node] = {node.step: node for node in inside}
        self._names: dict[str, str] = {}
        self._spread: dict[str, str] = {}  # outer step -> the inner step that repeats its rows in all rounds
        taken = [
            name for node in inside for step in (node.step, *node.inputs) for name in self._columns(step)
        ]
        self.round, self._other = fresh_names(["round", "round"], [*taken, *self._columns(last)])
        self.outer: list[str] = []
        self.steps: list[InnerStep] = []
        for node in inside:
            self._names[node.step] = self._lift(node)
        self.result = self._in_rounds(result)

    def _columns(self, step: str) -> list[str]:
        return list(self._plan.shape(step).schema.names)

    # -- inputs ------------------------------------------------------------------------

    def _has_rounds(self, step: str) -> bool:
        return step == self._last or step in self._inside

    def _source(self, step: str) -> str:
        """Return the inner name of a step, without adding rounds to its rows."""
        if step == self._last:
            return LAST
        if step in self._names:
            return self._names[step]
        if step not in self.outer:
            self.outer.append(step)
        return input_name(self.outer.index(step) + 1)

    def _in_rounds(self, step: str) -> str:
        """Return the inner name of a step whose rows carry a round.

        Rows of a step outside the recursion are repeated in each round that has rows.
        """
        if self._has_rounds(step):
            return self._source(step)
        if step not in self._spread:
            live = self._add(Distinct((self.round,)), (LAST,), "live")
            columns = [(name, 0, name) for name in self._columns(step)]
            pairs = Join((), (), "inner", (*columns, (self.round, 1, self.round)))
            self._spread[step] = self._add(pairs, (self._source(step), live), "spread")
        return self._spread[step]

    def _add(self, operator: Operator, inputs: tuple[str, ...], verb: str) -> str:
        for step in self.steps:
            if step.operator == operator and step.inputs == inputs:
                return step.name
        name = f"{len(self.steps)}-{verb}"
        self.steps.append(InnerStep(name, operator, inputs))
        return name

    # -- steps -------------------------------------------------------------------------

    def _lift(self, node: Node) -> str:
        operator, own = node.operator, self.round
        verb = type(operator).__name__.lower()
        if isinstance(operator, Join):
            return self._join(operator, node.inputs)
        if isinstance(operator, Union):
            names = self._columns(node.step)
            return self._add(operator, tuple(self._aligned(step, names) for step in node.inputs), verb)
        lifted: Operator
        if isinstance(operator, Map):
            lifted = replace(operator, columns=(*operator.columns, (own, quoted(own))))
        elif isinstance(operator, Filter | Unnest):
            lifted = operator
        elif isinstance(operator, Distinct):
            names = self._columns(node.step) if operator.columns is None else list(operator.columns)
            lifted = replace(operator, columns=(*names, own), expires=None)
        elif isinstance(operator, TopN | DistinctValues) or (
            isinstance(operator, Aggregate) and operator.closes is None
        ):
            lifted = replace(operator, key=(*operator.key, own), expires=None)
        elif isinstance(operator, PerKey) and operator.sql is not None and operator.apart is None:
            lifted = replace(operator, key=(*operator.key, own), apart=own, expires=None)
        else:
            raise NotSupported(
                f"the recursive part of WITH RECURSIVE cannot hold {_WORDS.get(verb, verb)}",
                hint="put it around the recursion, or into the part before UNION",
            )
        return self._add(lifted, tuple(self._in_rounds(step) for step in node.inputs), verb)

    def _aligned(self, step: str, names: Sequence[str]) -> str:
        """Return a step with these columns in this order, followed by the round."""
        listed = tuple((name, quoted(name)) for name in (*names, self.round))
        return self._add(Map(listed), (self._in_rounds(step),), "aligned")

    def _join(self, join: Join, inputs: tuple[str, ...]) -> str:
        own = self.round
        whole = {"left": (0,), "semi": (0,), "anti": (0,), "right": (1,), "full": (0, 1)}.get(join.kind, ())
        sides = [self._in_rounds(s) if n in whole else self._source(s) for n, s in enumerate(inputs)]
        rounds = [n for n, s in enumerate(inputs) if n in whole or self._has_rounds(s)]
        shown = 1 if join.kind == "right" else rounds[0]
        lifted = replace(join, columns=(*join.columns, (own, shown, own)), broadcast=None, bounds=())
        if len(rounds) == 2:
            lifted = replace(lifted, left_on=(*join.left_on, own), right_on=(*join.right_on, own))
        if join.kind != "full":
            return self._add(lifted, (sides[0], sides[1]), "join")
        lifted = replace(lifted, columns=(*lifted.columns, (self._other, 1, own)))
        step = self._add(lifted, (sides[0], sides[1]), "join")
        either = f"COALESCE({quoted(own)}, {quoted(self._other)})"
        names = tuple((name, quoted(name)) for name, _, _ in join.columns)
        return self._add(Map((*names, (own, either))), (step,), "round")


_WORDS = {  # how an error names each operator
    "iterate": "another recursion over it",
    "during": "a condition on now()",
    "stamp": "proctime()",
    "window": "a window of time",
    "session": "a session window",
    "aggregate": "windows that close",
    "hold": "windows that close",
}
