"""A query becomes a relation: the one way from a SQL text to steps of a plan.

The text is bound by DuckDB over the relations that the binder knows, lowered
node by node, and ends in a step that has the query's own columns: its names,
in its order, with their logical types.
"""

from __future__ import annotations

from collections.abc import Mapping

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.operators.expressions import picture
from millpond.sql.bind import Binder
from millpond.sql.lowering import Lowering
from millpond.sql.refusal import NotSupported
from millpond.sql.relation import Relation, fresh_names
from millpond.sql.time_windows import as_plain_sql


def lower_query(
    builder: Builder,
    binder: Binder,
    relations: Mapping[str, Relation],
    name: str,
    sql: str,
    emit_on_close: bool = False,
) -> Relation:
    """The steps of a query, called after `name`; its columns stand as the query gives them.

    With `emit_on_close` every aggregate by windows shows each of them once, when the watermark has passed
    its end; a query that has no such aggregate is refused.
    """
    text = as_plain_sql(sql)
    lowering = Lowering(builder, binder, relations, name, emit_on_close)
    try:
        found = lowering.lower(binder.plan(text))
        if emit_on_close and not lowering.closed:
            raise NotSupported(
                "EMIT ON WINDOW CLOSE needs windows that end by a watermark",
                hint="group by window_end of TUMBLE or HOP over a table with WATERMARK FOR its time",
            )
    except NotSupported as error:
        raise InvalidError(
            error.message, detail="in the query\n" + picture(text, error.at), hint=error.hint
        ) from error
    return lowering.exact(found, fresh_names(column for column, _ in binder.describe(text)))
