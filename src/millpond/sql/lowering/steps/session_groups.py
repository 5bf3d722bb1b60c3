"""GROUP BY the windows of SESSION: stores intervals with accumulators, instead of their rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from millpond.kernels.aggregate_feeds import Agg
from millpond.operators.session import SessionWindow
from millpond.operators.session_aggregate import SessionAggregate
from millpond.operators.window import END, START
from millpond.sql.binding.types import quoted
from millpond.sql.bound.expressions import BoundExpression, Reference
from millpond.sql.lowering.expressions import StepColumn
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names

Wanted = tuple[str, str, str]  # name, SQL over the source's columns, type


def lower(
    low: Lowering,
    source: Relation,
    groups: Mapping[str, BoundExpression],
    arguments: Sequence[Wanted],
    aggs: Sequence[Agg],
    read: Collection[int],
) -> Relation | None:
    """Return the groups and their aggregates, if each group is one session.

    `read` are the columns that the arguments of the aggregates read.
    """
    node = low.builder.plan.nodes[source.step]
    session = node.operator
    if not isinstance(session, SessionWindow) or any(a.distinct for a in aggs):
        return None
    if not low.builder.shape(node.inputs[0]).append_only:
        return None
    held = {
        name: source.columns[group.index].name
        for name, group in groups.items()
        if isinstance(group, Reference)
    }
    if len(held) < len(groups):
        return None
    used, window = set(held.values()), {START, END}
    whole = used >= set(session.key) and used <= {*session.key, *window} and used & window
    if not whole or window & {source.columns[n].name for n in read}:
        return None
    names = {column: name for name, column in reversed(held.items())}
    own = [names[k] for k in session.key]
    if window & {*own, *(a.name for a in aggs)}:
        return None
    (time,) = fresh_names(
        [session.time], [*own, *window, *(a.name for a in aggs), *(n for n, _, _ in arguments)]
    )
    kinds = {held[name]: group.type for name, group in groups.items()}
    wanted = [(name, quoted(k), kinds[k]) for name, k in zip(own, session.key, strict=True)]
    wanted.append((time, quoted(session.time), "TIMESTAMP"))
    rows = low.compute(Relation(node.inputs[0], source.columns), [*wanted, *arguments], "arguments")
    operator = SessionAggregate(tuple(own), time, session.gap_us, tuple(aggs))
    step = low.add(operator, (rows.step,), "group")
    shown = [
        StepColumn(column if column in window else names[column], kinds[column]) for column in held.values()
    ]
    return Relation(step, tuple(shown))
