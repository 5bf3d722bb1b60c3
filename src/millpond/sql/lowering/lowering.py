"""Lowering: translates a bound plan into Millpond steps, node by node.

Each kind of relation has a rule in `rules/`, and a rule lowers the inputs of its relation through
`Lowering.lower` only: rules do not know each other.  Equal sub-plans become one step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from millpond.flow.builder import Builder
from millpond.kernels.recursion import Limits
from millpond.operators.lookup_join import LookupJoin
from millpond.operators.map import Map
from millpond.operators.operator import Operator, Shape
from millpond.operators.stamp import Stamp
from millpond.operators.triggered import Triggered
from millpond.operators.triggered_sessions import TriggeredSessions
from millpond.plan.expiry import TimeDistance
from millpond.sql.binding.bind import Binder
from millpond.sql.binding.types import as_stored, quoted, stored_distinctly
from millpond.sql.bound.expressions import BoundExpression, Reference
from millpond.sql.bound.relations import BoundRelation
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.steps import panes
from millpond.sql.lowering.time_bounds import fitted
from millpond.sql.refusal import NotSupported
from millpond.sql.text.emit_clause import BEFORE_THEY_CLOSE, Emission

LIMITS = Limits()  # default limits of a recursion

Own = TypeVar("Own", Stamp, LookupJoin, Triggered | TriggeredSessions)
Rule = Callable[["Lowering", Any], Relation]  # of the relation that it is for
Rules = Mapping[type[BoundRelation], Rule]


class Lowering:
    """The lowering of one query; the names of its steps begin with `name`."""

    def __init__(
        self,
        builder: Builder,
        binder: Binder,
        relations: Mapping[str, Relation],
        name: str,
        rules: Rules,
        emission: Emission = BEFORE_THEY_CLOSE,
        limits: Limits = LIMITS,
        text: str = "",
        together: Collection[str] = (),
        final_rows: bool = False,
    ) -> None:
        self.builder = builder
        self.binder = binder
        self.relations = relations
        self.name = name
        self.emission = emission
        self.emit_on_close = emission.on_close
        self.released = False  # does the query have windows that are emitted by a trigger?
        self.sessions: dict[str, tuple[str, ...]] = {}  # keys of sessions, by the step that assigns them
        self.final_rows = final_rows  # are rows held back until the watermark has passed them?
        self.limits = limits  # of a recursion
        self.closed = False  # does the query have windows that are emitted when they close?
        self.waited: set[str] = set()  # the watermarks that windows wait for
        self.together = together  # the watermarks that all windows of the query wait for
        self.ctes: dict[int, Relation] = {}
        self.stamps: dict[tuple[str, str], str] = {}  # (step, column) -> the step that adds proctime()
        self.verbs: dict[str, str] = {}  # what each step was added for
        self._rules = rules
        self._text = text

    def lower(self, node: BoundRelation) -> Relation:
        """Add the steps of a relation by the rule for its kind."""
        return self._rules[type(node)](self, node)

    def position_of(self, word: str) -> tuple[int, int] | None:
        """Return the first position of a word in the query, for an error that has no better position."""
        found = re.search(rf"\b{word}\b", self._text, re.IGNORECASE)
        return None if found is None else (len(self._text[: found.start()].encode()), len(word))

    # -- columns that are read -----------------------------------------------------------

    def narrowed(self, source: Relation, wanted: Collection[int] | None) -> Relation:
        """Replace each column that is not in `wanted` with another one, so that no state stores it."""
        width = len(source.columns)
        if wanted is None or not width or all(n in wanted for n in range(width)):
            return source
        places = [n for n in range(width) if n in wanted] or [0]
        held = self.exact(source.pick(places))
        at = {n: held.columns[place] for place, n in enumerate(places)}
        return Relation(held.step, tuple(at.get(n, held.columns[0]) for n in range(width)))

    def keyed(self, kinds: Iterable[str], what: str, normalized: bool = True) -> None:
        """Refuse keys of types whose equal values can have different stored forms.

        `normalized` intervals have one form (`passes/normalize_intervals.py`).
        """
        for kind in kinds:
            if not stored_distinctly(kind) and not (normalized and kind == "INTERVAL"):
                raise NotSupported(
                    f"{what} cannot take values of type {kind} in a materialized view",
                    hint="cast them to text",
                )

    def add(
        self,
        operator: Operator,
        inputs: tuple[str, ...],
        verb: str,
        *,
        spans: Iterable[TimeDistance] = (),
        early: bool = False,
    ) -> str:
        """Add a step.

        `spans` are the time distances of a join; with `early` the step reads windows before they close.
        """
        if self.emission.trigger is not None:
            panes.check(self, operator, inputs)
        operator, inputs = fitted(self, operator, inputs, spans, early)
        step = self.builder.add(None, operator, inputs, f"{self.name}.{verb}")
        self.verbs[step] = verb
        return step

    def own(self, operator: Own, inputs: tuple[str, ...]) -> Own:
        """Make an operator that depends on arrival time distinct from equal operators of other views."""
        held = [n.operator for n in self.builder.plan.nodes.values() if n.inputs == inputs]
        number = 2
        while operator in held:
            operator = replace(operator, owner=f"{self.name}-{number}")
            number += 1
        return operator

    def shape(self, relation: Relation) -> Shape:
        return self.builder.shape(relation.step)

    # -- columns ---------------------------------------------------------------------

    def compute(
        self, source: Relation, wanted: Sequence[tuple[str, str, str]], verb: str = "select"
    ) -> Relation:
        """Compute exactly these columns: (name, SQL over the source's columns, logical type) of each."""
        names = fresh_names(name for name, _, _ in wanted)
        columns = tuple(StepColumn(n, kind) for n, (_, _, kind) in zip(names, wanted, strict=True))
        held = list(self.builder.shape(source.step).schema.names)
        held_as = {quoted(n) for n in held}
        if [sql for _, sql, _ in wanted] == [quoted(n) for n in names] and names == held:
            return Relation(source.step, columns)
        texts = [sql if sql in held_as else _apart(as_stored(sql, kind), held) for _, sql, kind in wanted]
        operator = Map(tuple(zip(names, texts, strict=True)))
        return Relation(self.add(operator, (source.step,), verb), columns)

    def project(
        self, source: Relation, expressions: Sequence[BoundExpression], names: Sequence[str] | None = None
    ) -> Relation:
        """Compute bound expressions over a relation; plain references need no step."""
        if names is None and all(isinstance(e, Reference) for e in expressions):
            return source.pick([e.index for e in expressions if isinstance(e, Reference)])
        called = names or [e.alias or _named(e, source) for e in expressions]
        wanted = [(name, bare(e, source), e.type) for name, e in zip(called, expressions, strict=True)]
        return self.compute(source, wanted)

    def exact(self, source: Relation, names: Sequence[str] | None = None) -> Relation:
        """Return the relation as a step with exactly these columns, in this order."""
        called = names or [c.name for c in source.columns]
        wanted = [(n, quoted(c.name), c.type) for n, c in zip(called, source.columns, strict=True)]
        return self.compute(source, wanted)

    def extended(
        self, source: Relation, expressions: Sequence[BoundExpression], base: str, keep: Sequence[str] = ()
    ) -> tuple[Relation, list[str]]:
        """Add computed columns to the relation; also return the column name of each expression.

        `keep` names columns of the step that the relation does not show, such as keys computed before.
        """
        found: list[str | None] = [
            source.columns[e.index].name if isinstance(e, Reference) else None for e in expressions
        ]
        missing = [n for n, name in enumerate(found) if name is None]
        if not missing:
            return source, [name for name in found if name is not None]
        own = list(dict.fromkeys((*source.names, *keep)))
        kinds = {c.name: c.type for c in source.columns}
        names = fresh_names([f"{base}_{n}" for n in missing], own)
        wanted = [(n, quoted(n), kinds.get(n, "")) for n in own]
        wanted += [
            (name, render(expressions[n], source.columns), expressions[n].type)
            for n, name in zip(missing, names, strict=True)
        ]
        made = self.compute(source, wanted, "with")
        for n, name in zip(missing, names, strict=True):
            found[n] = name
        return Relation(made.step, source.columns), [name for name in found if name is not None]


def _apart(text: str, names: Sequence[str]) -> str:
    """Put a constant such as 1 or true in parentheses if a column has the same name."""
    while text in names:
        text = f"({text})"
    return text


def bare(node: BoundExpression, source: Relation) -> str:
    """Render an expression; a plain reference is not cast."""
    if isinstance(node, Reference):
        return quoted(source.columns[node.index].name)
    return render(node, source.columns)


def _named(node: BoundExpression, source: Relation) -> str:
    if isinstance(node, Reference):
        return source.columns[node.index].name
    return "column"
