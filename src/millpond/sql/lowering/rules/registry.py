"""Maps each kind of node to its rule."""

from millpond.sql.lowering.lowering import Rule
from millpond.sql.lowering.rules import (
    aggregate,
    asof,
    cte,
    distinct,
    filter,
    get,
    join,
    limit,
    project,
    recursive,
    set_operation,
    unnest,
    values,
    window,
)

RULES: dict[str, Rule] = {
    "LOGICAL_GET": get.lower,
    "LOGICAL_PROJECTION": project.lower,
    "LOGICAL_FILTER": filter.lower,
    "LOGICAL_AGGREGATE_AND_GROUP_BY": aggregate.lower,
    "LOGICAL_COMPARISON_JOIN": join.lower,
    "LOGICAL_ANY_JOIN": join.lower,
    "LOGICAL_ASOF_JOIN": asof.lower,
    "LOGICAL_CROSS_PRODUCT": filter.lower_product,
    "LOGICAL_DISTINCT": distinct.lower,
    "LOGICAL_UNION": set_operation.lower,
    "LOGICAL_EXCEPT": set_operation.lower,
    "LOGICAL_INTERSECT": set_operation.lower,
    "LOGICAL_ORDER_BY": limit.lower_order,
    "LOGICAL_LIMIT": limit.lower,
    "LOGICAL_WINDOW": window.lower,
    "LOGICAL_MATERIALIZED_CTE": cte.lower,
    "LOGICAL_RECURSIVE_CTE": recursive.lower,
    "LOGICAL_CTE_REF": cte.lower_reference,
    "LOGICAL_EXPRESSION_GET": values.lower,
    "LOGICAL_DUMMY_SCAN": values.lower_nothing,
    "LOGICAL_EMPTY_RESULT": values.lower_empty,
    "LOGICAL_UNNEST": unnest.lower,
}
