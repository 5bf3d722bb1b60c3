"""A query becomes a relation: the one way from a SQL text to steps of a plan.

The text is bound by DuckDB over the relations that the binder knows, lowered
node by node, and ends in a step that has the query's own columns: its names,
in its order, with their logical types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from millpond.errors import InternalError, InvalidError
from millpond.flow.builder import Builder
from millpond.operators.iterate_epoch import Limits
from millpond.plan.change import upstream
from millpond.plan.expiry import is_view_and_ends
from millpond.sql.bind import Binder
from millpond.sql.lateral import without_joins
from millpond.sql.lowering import LIMITS, Lowering
from millpond.sql.refusal import NotSupported, pointing
from millpond.sql.relation import Relation, fresh_names
from millpond.sql.rules.python_aggregate import lift
from millpond.sql.time_bounds import NO_WATERMARK, hold_whole
from millpond.sql.time_windows import as_plain_sql


def lower_query(
    builder: Builder,
    binder: Binder,
    relations: Mapping[str, Relation],
    name: str,
    sql: str,
    emit_on_close: bool = False,
    limits: Limits = LIMITS,
) -> Relation:
    """The steps of a query, called after `name`; its columns stand as the query gives them.

    With `emit_on_close` windows are seen once, when the watermark has passed their end; a query without
    such windows is refused. `limits` bound every WITH RECURSIVE.
    """
    text = as_plain_sql(sql)
    before = builder.plan

    def lowered(**known: Any) -> tuple[Lowering, Relation]:
        if not known.get("whole"):  # else its steps are read
            builder.change(lambda _: before)
        low = Lowering(builder, binder, relations, name, emit_on_close, limits, text, **known)
        found = low.lower(planned)
        for column in found.columns:
            if "UNION" in column.type:
                raise NotSupported(
                    "a value of type UNION cannot be stored",
                    hint="cast it to one of its types",
                )
        found = Relation(hold_whole(low, found.step), found.columns) if emit_on_close else found
        return low, low.exact(found, fresh_names(column for column, _ in binder.describe(text)))

    try:
        planned = without_joins(lift(binder.plan(text)))
        low, found = _with_what_is_read(lowered)
        read = low.given
        if emit_on_close and not low.closed:
            raise NotSupported(NO_WATERMARK, hint="read TUMBLE, HOP or SESSION over rows with WATERMARK FOR")
        together = low.waited
        if len(together) > 1:  # a window is over when it is over for all
            low, found = lowered(read=read, together=together)
        if is_view_and_ends(builder.plan.nodes[found.step].operator):
            kept = [builder.plan.nodes[found.step].operator]
            low, found = lowered(read=read, together=together, kept=kept)
    except NotSupported as error:
        raise pointing(error.message, text, error.at, error.hint) from error
    except InvalidError as error:
        if error.step is None:
            raise
        # A step refuses what the user never wrote: its expression in our words.
        plain = None if "syntax error" in error.message else error.message
        said = plain or "this query cannot be kept as a materialized view"
        raise pointing(said, text, None, error.hint) from error
    used = {*before.nodes, *upstream(builder.plan, [found.step])}
    builder.change(lambda plan: replace(plan, nodes={s: n for s, n in plan.nodes.items() if s in used}))
    return found


def _with_what_is_read(lowered: Callable[..., tuple[Lowering, Relation]]) -> tuple[Lowering, Relation]:
    """The lowering in which each common table expression gives what is read of it.

    What is read of one depends on what is read of those that read it, and never on what it gives.  So one
    lowering gives all of them whole, one goes from who reads to what is read, however many stand on each
    other, and the last gives that.
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
