"""WITH RECURSIVE: the recursive term becomes the inside of one step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from millpond.operators.iterate import Iterate, Last
from millpond.plan.nodes import Plan
from millpond.sql.binding.types import Json, quoted
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.recursion_rounds import Lifted, inside_of
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.refusal import NotSupported
from millpond.state.tables.stored_schema import stored


def lower(low: Lowering, node: Json) -> Relation:
    try:
        return _lower(low, node)
    except NotSupported as refused:
        if refused.at is None:
            refused.at = low.position_of("RECURSIVE")
        raise


def _lower(low: Lowering, node: Json) -> Relation:
    if node.get("key_targets") or node.get("ref_recurring"):
        raise NotSupported(
            "USING KEY is not supported in a materialized view",
            hint="keep a column that counts the rounds, and take the last row of each key outside",
        )
    distinct = not node["union_all"]
    first = low.lower(node["children"][0])
    named = next(_names(node["children"][1], int(node["table_index"])), first.names)
    first = low.exact(first, fresh_names(named))
    if distinct:
        low.keyed((c.type for c in first.columns), "UNION in WITH RECURSIVE")
    schema = stored(low.shape(first).schema)
    schema = pa.schema([schema.field(name).with_nullable(True) for name in first.names])
    last = low.add(Last(schema, distinct), (), "last")
    low.ctes[int(node["table_index"])] = Relation(last, first.columns)
    more = _like(low, low.exact(low.lower(node["children"][1]), first.names), schema)
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


def _names(node: Json, index: int) -> Iterator[list[str]]:
    """Yield the names of the recursion's columns, as the recursive term uses them."""
    if node["type"] == "LOGICAL_CTE_REF" and int(node["cte_index"]) == index:
        yield node["bound_columns"]
    for child in node.get("children") or ():
        yield from _names(child, index)


def _like(low: Lowering, rows: Relation, schema: pa.Schema) -> Relation:
    """Cast the rows of a later round to the stored types of the first round."""
    given = low.shape(rows).schema
    if all(given.field(name).type == schema.field(name).type for name in schema.names):
        return rows
    wanted = [(c.name, f"CAST({quoted(c.name)} AS {c.type})", c.type) for c in rows.columns]
    return low.compute(rows, wanted, "like")


def _without(plan: Plan, gone: set[str]) -> Plan:
    return replace(plan, nodes={step: node for step, node in plan.nodes.items() if step not in gone})
