"""Joins of two relations; scalar subqueries are bound as joins, too."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.operators.join import Kind
from millpond.operators.per_key import PerKey
from millpond.sql.binding.types import quoted, text_literal
from millpond.sql.bound.expressions import Reference
from millpond.sql.bound.relations import BoundJoin
from millpond.sql.bound.words import EQUALITIES
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.lowering.steps.joins import Pair, joined, keyed
from millpond.sql.refusal import refuse

_KINDS: dict[str, Kind] = {
    "INNER": "inner",
    "LEFT": "left",
    "RIGHT": "right",
    "FULL": "full",
    "SEMI": "semi",
    "ANTI": "anti",
}
MORE_THAN_ONE = "more than one row returned by a subquery used as an expression"


def lower(low: Lowering, node: BoundJoin) -> Relation:
    left, right = low.lower(node.left), low.lower(node.right)
    read = node.sides_read
    left, right = low.narrowed(left, read[0]), low.narrowed(right, read[1])
    if node.kind == "SINGLE" and not node.rest:
        found = _single(low, left, right, node.pairs)
    elif node.kind in _KINDS:
        found = joined(low, left, right, node.pairs, node.rest, _KINDS[node.kind])
    else:
        refuse(f"a join of kind {node.kind.lower()}", "is not supported")
    return found.pick(node.places)


def _single(low: Lowering, left: Relation, right: Relation, pairs: Sequence[Pair]) -> Relation:
    """Join a scalar subquery: at most one row for each outer row; a second one becomes an error row."""
    held, on = keyed(low, right, [(p[1], p[2]) for p in pairs if p[2] in EQUALITIES])
    key = low.builder.shape(held.step).key
    if any(p[2] not in EQUALITIES for p in pairs):
        refuse("this correlated subquery", "is not supported")
    by = {c.name for c in right.columns if c.name in on} | set(on)
    told = {right.columns[p[1].index].name for p in pairs if isinstance(p[1], Reference)} | by
    if key is not None and set(key) <= told:
        return joined(low, left, right, pairs, (), "left")
    names = list(dict.fromkeys(low.builder.shape(held.step).schema.names))
    guard = f"count(*) OVER ({'PARTITION BY ' + ', '.join(quoted(n) for n in on) if on else ''})"
    picked = ", ".join(
        f"CASE WHEN {guard} > 1 THEN error({text_literal(MORE_THAN_ONE)}) ELSE {quoted(n)} END AS {quoted(n)}"
        if n not in on
        else quoted(n)
        for n in names
    )
    only = PerKey(tuple(on), sql=f"select {picked} from input", passes=tuple(on))
    one = low.add(only, (held.step,), "only")
    return joined(low, left, Relation(one, right.columns), pairs, (), "left")
