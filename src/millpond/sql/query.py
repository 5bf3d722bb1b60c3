"""A query becomes a relation: the one way from a SQL text to steps of a plan.

The text is bound by DuckDB over the relations that the binder knows, lowered
node by node, and ends in a step that has the query's own columns: its names,
in its order, with their logical types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.operators.expressions import picture
from millpond.plan.change import upstream
from millpond.sql.bind import Binder
from millpond.sql.lateral import without_joins
from millpond.sql.lowering import ROUNDS_MAX, Lowering
from millpond.sql.refusal import NotSupported
from millpond.sql.relation import Relation, fresh_names
from millpond.sql.rules.python_aggregate import lift
from millpond.sql.time_bounds import NO_WATERMARK, hold_whole, is_view_and_ends
from millpond.sql.time_windows import as_plain_sql


def lower_query(
    builder: Builder,
    binder: Binder,
    relations: Mapping[str, Relation],
    name: str,
    sql: str,
    emit_on_close: bool = False,
    rounds_max: int = ROUNDS_MAX,
) -> Relation:
    """The steps of a query, called after `name`; its columns stand as the query gives them.

    With `emit_on_close` windows are seen once, when the watermark has passed their end; a query without
    such windows is refused. `rounds_max` bounds every WITH RECURSIVE.
    """
    text = as_plain_sql(sql)
    before = builder.plan

    def lowered(**known: Any) -> tuple[Lowering, Relation]:
        builder.change(lambda _: before)
        low = Lowering(builder, binder, relations, name, emit_on_close, rounds_max, text, **known)
        found = low.lower(without_joins(lift(binder.plan(text))))
        found = Relation(hold_whole(low, found.step), found.columns) if emit_on_close else found
        return low, low.exact(found, fresh_names(column for column, _ in binder.describe(text)))

    try:
        low, found = lowered()
        if emit_on_close and not low.closed:
            raise NotSupported(NO_WATERMARK, hint="read TUMBLE, HOP or SESSION over rows with WATERMARK FOR")
        together = low.waited
        if len(together) > 1:  # a window is over when it is over for all
            low, found = lowered(together=together)
        if is_view_and_ends(builder.plan.nodes[found.step].operator):
            low, found = lowered(together=together, kept=[builder.plan.nodes[found.step].operator])
    except NotSupported as error:
        raise InvalidError(
            error.message, detail="in the query\n" + picture(text, error.at), hint=error.hint
        ) from error
    read = {*before.nodes, *upstream(builder.plan, [found.step])}
    builder.change(lambda plan: replace(plan, nodes={s: n for s, n in plan.nodes.items() if s in read}))
    return found
