"""GROUP BY the sessions of SESSION: intervals with accumulators, instead of their rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from millpond.operators.aggregate import Agg
from millpond.operators.session import Session
from millpond.operators.session_aggregate import SessionAggregate
from millpond.operators.window import END, START
from millpond.sql.expressions import Column, type_of
from millpond.sql.lowering import Lowering
from millpond.sql.relation import Relation, fresh_names
from millpond.sql.types import Json, quoted

Wanted = tuple[str, str, str]  # name, SQL over the source's columns, type


def lower(
    low: Lowering,
    source: Relation,
    groups: Mapping[str, Json],
    arguments: Sequence[Wanted],
    aggs: Sequence[Agg],
    read: Collection[int],
) -> Relation | None:
    """The groups by name and their aggregates, if each group is a session; `read` by their arguments."""
    node = low.builder.plan.nodes[source.step]
    session = node.operator
    if not isinstance(session, Session) or any(a.distinct for a in aggs):
        return None
    if not low.builder.shape(node.inputs[0]).append_only:
        return None
    if any(group["expression_class"] != "BOUND_REF" for group in groups.values()):
        return None
    held = {name: source.columns[int(group["index"])].name for name, group in groups.items()}
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
    kinds = {held[name]: type_of(group) for name, group in groups.items()}
    wanted = [(name, quoted(k), kinds[k]) for name, k in zip(own, session.key, strict=True)]
    wanted.append((time, quoted(session.time), "TIMESTAMP"))
    rows = low.compute(Relation(node.inputs[0], source.columns), [*wanted, *arguments], "arguments")
    operator = SessionAggregate(tuple(own), time, session.gap_us, tuple(aggs))
    step = low.add(operator, (rows.step,), "group")
    shown = [Column(column if column in window else names[column], kinds[column]) for column in held.values()]
    return Relation(step, tuple(shown))
