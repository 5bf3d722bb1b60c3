"""Approximate aggregates: a sketch where rows are only inserted, exact where they can be retracted.

DuckDB binds `approx_count_distinct`, `approx_quantile` and `approx_top_k` as its own aggregates, and the
functions of stored sketches as functions of lists (`binding/synopsis_functions.py`).
"""

from __future__ import annotations

from dataclasses import replace

from millpond.kernels.synopses.sketch_accumulators import with_parameter
from millpond.kernels.synopses.sql_functions import AGGREGATES, ITEM_HASH, called_as
from millpond.sql.bound.expressions import AggregateCall, BoundExpression, BoundFunction, Cast, Constant
from millpond.sql.bound.list_aggregates import sketch

_NUMBERS = frozenset(
    [
        *("DECIMAL", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"),
        *("UBIGINT", "DOUBLE", "FLOAT"),
    ]
)


def accumulated(call: AggregateCall) -> str | None:
    """The accumulator of an approximate aggregate with its parameter, or None."""
    if call.distinct:
        return None
    name = sketch(call) or call.name
    if name in AGGREGATES or name == "approx_count_distinct":
        return name
    if name == "approx_quantile":
        quantiles = call.quantiles
        plain = call.arguments[0].type.split("(")[0] in _NUMBERS
        if not plain or len(quantiles) != 1 or call.arguments[1].type.endswith("]"):
            return None
        return with_parameter(name, repr(float(quantiles[0])))
    if name == "approx_top_k":
        k = _constant(call.arguments[1])
        return None if k is None else with_parameter(name, k)
    if name == "arg_min" and len(call.arguments) == 3 and _is_sample(call.arguments[1]):
        k = _constant(call.arguments[2])
        return None if k is None else with_parameter("approx_sample", k)
    return None


def _is_sample(node: BoundExpression) -> bool:
    """Is the value by which rows are ordered the hash of a sample?"""
    named = isinstance(node, BoundFunction) and node.name == called_as(ITEM_HASH)
    return named or any(map(_is_sample, node.children))


def _constant(node: BoundExpression) -> str | None:
    node = _uncast(node)
    return None if not isinstance(node, Constant) or node.value is None else str(node.value)


def _uncast(node: BoundExpression) -> BoundExpression:
    while isinstance(node, Cast):
        node = node.argument
    return node


def exact(call: AggregateCall) -> AggregateCall:
    """The exact aggregate in place of an approximate one, for rows that can be retracted."""
    match call.name:
        case "approx_count_distinct":
            return replace(call, name="count", distinct=True)
        case "approx_quantile" if not call.arguments[1].type.endswith("]"):
            x, q = call.arguments
            return replace(call, name="quantile_disc", arguments=(x, _uncast(q)), quantiles=())
    return call
