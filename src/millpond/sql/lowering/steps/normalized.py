"""Gives equal intervals of rows the same stored form."""

from __future__ import annotations

from millpond.sql.bound.expressions import Reference
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.passes.normalize_intervals import all_normalized


def normalized(low: Lowering, source: Relation) -> Relation:
    """The relation itself if it has no interval."""
    if all(column.type != "INTERVAL" for column in source.columns):
        return source
    columns = [Reference(n, type=c.type, alias=c.name) for n, c in enumerate(source.columns)]
    return low.project(source, all_normalized(columns), source.names)
