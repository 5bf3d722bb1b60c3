"""Approximate aggregates: a sketch where rows are only inserted, exact where they can be retracted.

DuckDB binds `approx_count_distinct`, `approx_quantile` and `approx_top_k` as its own aggregates, and the
functions of stored sketches as functions of lists (`binding/synopsis_functions.py`).
"""

from __future__ import annotations

from millpond.kernels.synopses.sketch_accumulators import with_parameter
from millpond.kernels.synopses.sql_functions import AGGREGATES, ITEM_HASH, called_as, plain_name
from millpond.sql.binding.types import Json
from millpond.sql.lowering.expressions import children, is_cast, type_of

_NUMBERS = frozenset(
    [
        *("DECIMAL", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"),
        *("UBIGINT", "DOUBLE", "FLOAT"),
    ]
)


def _name(call: Json) -> str:
    return str(((call.get("qname") or {}).get("path") or [""])[-1])


def list_function(call: Json) -> str | None:
    """The sketch aggregate that a call is, as a function of a list."""
    name = plain_name(_name(call))
    return name if name in AGGREGATES else None


def accumulated(call: Json) -> str | None:
    """The accumulator of an approximate aggregate with its parameter, or None."""
    if call.get("aggregate_type") == "DISTINCT":
        return None
    name = list_function(call) or _name(call)
    if name in AGGREGATES or name == "approx_count_distinct":
        return name
    if name == "approx_quantile":
        quantiles = (call.get("function_data") or {}).get("quantiles") or []
        plain = type_of(call["children"][0]).split("(")[0] in _NUMBERS
        if not plain or len(quantiles) != 1 or type_of(call["children"][1]).endswith("]"):
            return None
        return with_parameter(name, repr(float(quantiles[0])))
    if name == "approx_top_k":
        k = _constant(call["children"][1])
        return None if k is None else with_parameter(name, k)
    if name == "arg_min" and len(call["children"]) == 3 and _is_sample(call["children"][1]):
        k = _constant(call["children"][2])
        return None if k is None else with_parameter("approx_sample", k)
    return None


def _is_sample(node: Json) -> bool:
    """Is the value by which rows are ordered the hash of a sample?"""
    return _name(node) == called_as(ITEM_HASH) or any(map(_is_sample, children(node)))


def _constant(node: Json) -> str | None:
    while node["expression_class"] == "BOUND_FUNCTION" and is_cast(node):
        node = node["children"][0]
    if node["expression_class"] != "BOUND_CONSTANT" or node["value"]["is_null"]:
        return None
    return str(node["value"]["value"])


def exact(call: Json) -> Json:
    """The exact aggregate in place of an approximate one, for rows that can be retracted."""
    match _name(call):
        case "approx_count_distinct":
            return {**call, "qname": {"path": ["count"]}, "aggregate_type": "DISTINCT"}
        case "approx_quantile" if not type_of(call["children"][1]).endswith("]"):
            x, q = call["children"]
            while q["expression_class"] == "BOUND_FUNCTION" and is_cast(q):
                q = q["children"][0]
            return {**call, "qname": {"path": ["quantile_disc"]}, "children": [x, q], "function_data": None}
    return call
