"""The passes, in the order in which they rewrite a bound plan.

Law: each pass keeps the rows of a relation, so that any of them could be left out, except those that
recognize marks, and those that make relations for which alone there are rules: `push_filters`,
`order_joins` and `drop_orders`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from millpond.sql.binding.types import UTC
from millpond.sql.bound.relations import BoundRelation
from millpond.sql.passes.bound_ranks import Value, bound_ranks
from millpond.sql.passes.compute_lateral_rows import compute_lateral_rows
from millpond.sql.passes.decide_marks import decide_marks
from millpond.sql.passes.drop_orders import drop_orders
from millpond.sql.passes.factor_conditions import factor_conditions
from millpond.sql.passes.fix_time_zone import add_months_first, fix_time_zone, name_time_zone
from millpond.sql.passes.lift_list_aggregates import lift_list_aggregates
from millpond.sql.passes.normalize_intervals import normalize_intervals
from millpond.sql.passes.order_joins import order_joins
from millpond.sql.passes.prune_columns import prune_columns
from millpond.sql.passes.push_filters import push_filters
from millpond.sql.passes.recognize_as_of_now import recognize_as_of_now
from millpond.sql.passes.recognize_time_windows import recognize_time_windows
from millpond.sql.passes.settle_types import settle_types
from millpond.sql.passes.type_aggregates import type_aggregates

Pass = Callable[[BoundRelation], BoundRelation]


def passes(value: Value, zone: str = UTC) -> tuple[Pass, ...]:
    """Return the passes; `value` computes expressions that read no column, `zone` is the session's."""
    return (
        recognize_time_windows,
        recognize_as_of_now,
        partial(name_time_zone, zone=zone),
        settle_types,
        add_months_first if zone == UTC else partial(fix_time_zone, zone=zone),
        lift_list_aggregates,
        type_aggregates,
        normalize_intervals,
        compute_lateral_rows,
        factor_conditions,
        push_filters,
        partial(bound_ranks, value=value),
        decide_marks,
        order_joins,
        drop_orders,
        prune_columns,
    )


def rewritten(relation: BoundRelation, value: Value, zone: str = UTC) -> BoundRelation:
    for one in passes(value, zone):
        relation = one(relation)
    return relation
