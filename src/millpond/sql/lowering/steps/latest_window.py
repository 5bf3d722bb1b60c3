"""Rows of overlapping windows, assigned only to their latest window where an aggregate can spread them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from millpond.operators.window import END as WINDOW_END
from millpond.operators.window import START as WINDOW_START
from millpond.operators.window import Hop, Spread
from millpond.sql.bound.expressions import BoundExpression, Reference, references
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation


def in_latest(
    low: Lowering, source: Relation, groups: Mapping[str, BoundExpression], read: Collection[int]
) -> tuple[Relation, Spread | None]:
    """Assign rows of overlapping windows only to their latest window, if only these groups read the window.

    `groups` are the group keys by name; `read` are the columns that their aggregates read.
    """
    node = low.builder.plan.nodes[source.step]
    spread = node.operator.spread if isinstance(node.operator, Hop) else None
    if not isinstance(node.operator, Hop) or spread is None:
        return source, None
    window = {n for n, column in enumerate(source.columns) if column.name in (WINDOW_START, WINDOW_END)}
    plain = {name: group.index for name, group in groups.items() if isinstance(group, Reference)}
    computed = {n for name, group in groups.items() if name not in plain for n in references(group)}
    if window & {*read, *computed}:
        return source, None
    columns = tuple(name for name, n in plain.items() if n in window)
    if low.emit_on_close and not columns:  # rows wait for each of their windows to close
        return source, None
    step = low.add(replace(node.operator, latest=True), node.inputs, "hop")
    return Relation(step, source.columns), replace(spread, columns=columns)
