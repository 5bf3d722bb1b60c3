"""Lowers a SQL query to a relation; every query becomes steps of a plan this way.

DuckDB binds the text over the relations that the binder knows.  The bound plan is
lowered node by node, and ends in a step with the query's columns: their names, order
and logical types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from millpond.errors import InternalError, InvalidError
from millpond.flow.builder import Builder
from millpond.kernels.recursion import Limits
from millpond.plan.expiry import is_view_and_ends
from millpond.plan.nodes import upstream
from millpond.sql.binding.bind import Binder
from millpond.sql.lowering.lateral import without_joins
from millpond.sql.lowering.lowering import LIMITS, Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.rules import final_rows, panes, time_window
from millpond.sql.lowering.rules.python_aggregate import lift
from millpond.sql.lowering.time_bounds import NO_WATERMARK, hold_open_windows
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
) -> Relation:
    """Add the steps of a query, named after `name`, and return its relation.

    `emission` says when windows are emitted; if it says anything, a query without windows that end is
    refused. `limits` bound every WITH RECURSIVE.
    """
    text = as_plain_sql(sql)
    before = builder.plan
    sessions: dict[str, tuple[str, ...]] = {}

    def lowered(**known: Any) -> tuple[Lowering, Relation]:
        if not known.get("whole"):  # otherwise this lowering reads the earlier steps
            builder.change(lambda _: before)
        low = Lowering(builder, binder, relations, name, emission, limits, text, sessions=sessions, **known)
        found = low.lower(planned)
        for column in found.columns:
            if "UNION" in column.type:
                raise NotSupported(
                    "a value of type UNION cannot be stored",
                    hint="cast it to one of its types",
                )
        found = Relation(hold_open_windows(low, found.step), found.columns) if emission.on_close else found
        return low, low.exact(found, fresh_names(column for column, _ in binder.describe(text)))

    try:
        planned = without_joins(lift(binder.plan(text)))
        low, found = _with_what_is_read(lowered)
        if emission.trigger is not None:
            panes.check_query(low, found.step)
        if emission.on_close and not low.closed and final_rows.is_final(planned):
            lowered = partial(lowered, final_rows=True)
            low, found = _with_what_is_read(lowered)
        read = low.given
        if emission.on_close and not low.closed:
            raise NotSupported(NO_WATERMARK, hint="read TUMBLE, HOP or SESSION over rows with WATERMARK FOR")
        together = low.waited
        if len(together) > 1:  # a window closes when all watermarks have passed it
            low, found = lowered(read=read, together=together)
        if is_view_and_ends(builder.plan.nodes[found.step].operator) and emission.mode != "accumulating":
            kept = [builder.plan.nodes[found.step].operator]
            low, found = lowered(read=read, together=together, kept=kept)
        made = upstream(builder.plan, [found.step]) - before.nodes.keys()
        time_window.check_used(low, [builder.plan.nodes[step] for step in made])
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


def _with_what_is_read(lowered: Callable[..., tuple[Lowering, Relation]]) -> tuple[Lowering, Relation]:
    """Lower the query so that each common table expression computes only the columns that are read.

    Which columns of a CTE are read depends on which columns of its readers are read, never on the columns
    that it computes.  So three lowerings are enough, however deeply CTEs are nested: the first computes
    all columns, the second goes from readers to definitions and records what is read, and the third
    computes only that.
    """
    low, found = lowered()
    if low.read() == low.given:
        return low, found
    reader, _ = lowered(whole=low.ctes)
    low, found = lowered(read=reader.read())
    missing = {index: more for index, read in low.read().items() if (more := read - low.given[index])}
    if missing:
        raise InternalError(
            "a common table of a query does not give what is read of it",
            detail=f"missing {missing} of {low.given}",
        )
    return low, found
