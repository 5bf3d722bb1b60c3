"""WITH RECURSIVE: the recursive term becomes the inside of one step."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from millpond.operators.iterate import Iterate, Last
from millpond.plan.nodes import Plan
from millpond.sql.binding.types import quoted
from millpond.sql.bound.relations import BoundCteReference, BoundRecursiveCte, nodes_of
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.recursion_rounds import Lifted, inside_of
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.refusal import NotSupported
from millpond.state.tables.stored_schema import stored


def lower(low: Lowering, node: BoundRecursiveCte) -> Relation:
    try:
        return _lower(low, node)
    except NotSupported as refused:
        if refused.at is None:
            refused.at = low.position_of("RECURSIVE")
        raise


def _lower(low: Lowering, node: BoundRecursiveCte) -> Relation:
    if node.using_key:
        raise NotSupported(
            "USING KEY is not supported in a materialized view",
            hint="keep a column that counts the rounds, and take the last row of each key outside",
        )
    distinct = not node.all
    first = low.lower(node.first)
    named = _names(node) or first.names
    first = low.exact(first, fresh_names(named))
    if distinct:
        low.keyed((c.type for c in first.columns), "UNION in WITH RECURSIVE", normalized=False)
    schema = stored(low.shape(first).schema)
    schema = pa.schema([schema.field(name).with_nullable(True) for name in first.names])
    last = low.add(Last(schema, distinct), (), "last")
    low.ctes[node.index] = Relation(last, first.columns)
    more = _like(low, low.exact(low.lower(node.more), first.names), schema)
    inside = inside_of(low.builder.plan, last)
    lifted = Lifted(low.builder.plan, last, inside, more.step)
    gone = {last, *(n.step for n in inside)}
    low.builder.change(lambda plan: _without(plan, gone))
    limits = low.limits
    operator = Iterate(
        tuple(first.names),
        lifted.round,
        tuple(lifted.steps),
        lifted.result,
        distinct,
        limits.rounds,
        limits.rows,
        limits.copies,
    )
    return Relation(low.add(operator, (first.step, *lifted.outer), "recursion"), first.columns)


def _names(node: BoundRecursiveCte) -> tuple[str, ...]:
    """Return the names of the recursion's columns, as the recursive term uses them; () if it does not."""
    own = (n for n in nodes_of(node.more) if isinstance(n, BoundCteReference) and n.index == node.index)
    return next((reference.names for reference in own), ())


def _like(low: Lowering, rows: Relation, schema: pa.Schema) -> Relation:
    """Cast the rows of a later round to the stored types of the first round."""
    given = low.shape(rows).schema
    if all(given.field(name).type == schema.field(name).type for name in schema.names):
        return rows
    wanted = [(c.name, f"CAST({quoted(c.name)} AS {c.type})", c.type) for c in rows.columns]
    return low.compute(rows, wanted, "like")


def _without(plan: Plan, gone: set[str]) -> Plan:
    return replace(plan, nodes={step: node for step, node in plan.nodes.items() if step not in gone})
