"""Lowers a SQL query to a relation; every query becomes steps of a plan this way.

DuckDB binds the text over the relations that the binder knows.  The bound plan is read into typed relations
(`bound/reader.py`), rewritten by passes (`passes/passes.py`) and lowered node by node.  It ends in a step
with the query's columns: their names, order and logical types.

A query is lowered once, and again only if its windows wait for several watermarks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.kernels.recursion import Limits
from millpond.plan.existing_table import without_step
from millpond.plan.expiry import is_view_and_ends, open_window, unending
from millpond.plan.nodes import Plan, upstream
from millpond.sql.binding.bind import Binder
from millpond.sql.binding.types import Json
from millpond.sql.bound.expressions import BoundExpression
from millpond.sql.bound.reader import read_plan
from millpond.sql.bound.relations import BoundGet, BoundRelation, BoundTimeWindow, nodes_of
from millpond.sql.lowering.expressions import render
from millpond.sql.lowering.lowering import LIMITS, Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.rule_table import RULES
from millpond.sql.lowering.steps import final_rows, panes
from millpond.sql.lowering.steps.windows_per_row import check_used
from millpond.sql.lowering.time_bounds import NO_WATERMARK, hold_open_windows
from millpond.sql.passes.passes import rewritten
from millpond.sql.refusal import NotSupported, pointing
from millpond.sql.text.emit_clause import BEFORE_THEY_CLOSE, Emission
from millpond.sql.text.time_windows import as_plain_sql


def lower_query(
    builder: Builder,
    binder: Binder,
    relations: Mapping[str, Relation],
    name: str,
    sql: str,
    emission: Emission = BEFORE_THEY_CLOSE,
    limits: Limits = LIMITS,
    check: Callable[[Json], None] = lambda plan: None,
) -> Relation:
    """Add the steps of a query, named after `name`, and return its relation.

    `emission` says when windows are emitted; if it says anything, a query without windows that end is
    refused. `limits` bound every WITH RECURSIVE. `check` raises an error if it refuses the bound plan.
    """
    text = as_plain_sql(sql)
    before = builder.plan

    def lowered(query: BoundRelation, **known: Any) -> tuple[Lowering, Relation]:
        builder.change(lambda _: before)
        low = Lowering(builder, binder, relations, name, RULES, emission, limits, text, **known)
        found = low.lower(query)
        for column in found.columns:
            if "UNION" in column.type:
                raise NotSupported(
                    "a value of type UNION cannot be stored",
                    hint="cast it to one of its types",
                )
        found = Relation(hold_open_windows(low, found.step), found.columns) if emission.on_close else found
        return low, low.exact(found, fresh_names(column for column, _ in binder.describe(text)))

    try:
        plan = binder.plan(text)
        check(plan)
        query = rewritten(read_plan(plan), partial(_value, binder), binder.zone)
        final = (
            emission.on_close and final_rows.is_final(query) and not _has_windows(builder, relations, query)
        )
        low, found = lowered(query, final_rows=final)
        if emission.trigger is not None:
            panes.check_query(low, found.step)
        if emission.on_close and not low.closed:
            raise NotSupported(NO_WATERMARK, hint="read TUMBLE, HOP or SESSION over rows with WATERMARK FOR")
        if len(low.waited) > 1:  # a window closes when all watermarks have passed it
            low, found = lowered(query, final_rows=final, together=low.waited)
        if emission.mode != "accumulating":
            found = _with_kept_state(low, found, before)
        made = upstream(builder.plan, [found.step]) - before.nodes.keys()
        check_used(low, [builder.plan.nodes[step] for step in made])
    except NotSupported as error:
        raise pointing(error.message, text, error.at, error.hint) from error
    except InvalidError as error:
        if error.step is None:
            raise
        # The step refuses an expression that the user did not write: it is our rendering of the query.
        plain = None if "syntax error" in error.message else error.message
        said = plain or "this query cannot be kept as a materialized view"
        raise pointing(said, text, None, error.hint) from error
    used = {*before.nodes, *upstream(builder.plan, [found.step])}
    builder.change(lambda plan: replace(plan, nodes={s: n for s, n in plan.nodes.items() if s in used}))
    return found


def _value(binder: Binder, node: BoundExpression) -> object:
    """Return the value of an expression that reads no column."""
    return binder.constant(f"select {render(node, ())} as v").column(0)[0].as_py()


def _has_windows(builder: Builder, relations: Mapping[str, Relation], query: BoundRelation) -> bool:
    """Does a query make windows of time, or read rows of windows that are not closed?"""
    read = {relations[node.table].step for node in nodes_of(query) if isinstance(node, BoundGet)}
    makes = any(isinstance(node, BoundTimeWindow) for node in nodes_of(query))
    return makes or any(open_window(builder.shape(step)) is not None for step in read)


def _with_kept_state(low: Lowering, found: Relation, before: Plan) -> Relation:
    """Let the last step keep its state if the view is its table, so that rows do not expire in the view.

    A trigger decides itself how long the panes of a window are kept.
    """
    node = low.builder.plan.nodes[found.step]
    verb = low.verbs.get(node.step)
    if verb is None or not is_view_and_ends(node.operator):
        return found
    if node.step not in before.nodes:
        low.builder.change(lambda plan: without_step(plan, node.step))
    step = low.builder.add(None, unending(node.operator), node.inputs, f"{low.name}.{verb}")
    return Relation(step, found.columns)
