"""Each row once."""

from __future__ import annotations

from millpond.kernels.aggregate_feeds import Agg, feeds_for
from millpond.operators.aggregate import Aggregate
from millpond.operators.distinct import Distinct
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.time_bounds import closing

LIVE = "live"


def distinct_rows(low: Lowering, rows: Relation, verb: str) -> Relation:
    """Return each row once; rows of windows that close become groups of an aggregate with only a count."""
    closes = closing(low, rows.names, rows.step)
    if closes is None:
        return Relation(low.add(Distinct(tuple(rows.names)), (rows.step,), verb), rows.columns)
    counts = (Agg(fresh_names([LIVE], rows.names)[0], "count"),)
    operator = Aggregate(tuple(rows.names), counts, feeds_for(counts, True), closes)
    return Relation(low.add(operator, (rows.step,), verb), rows.columns)
