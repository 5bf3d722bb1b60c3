"""Approximate aggregates over rows that can be retracted: exact ones in their place.

A distinct count becomes `count(distinct x)`.  Where another aggregate needs rows that are only inserted,
the aggregates of a key are computed from its rows whenever it changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.kernels.aggregate_feeds import Agg
from millpond.kernels.duck import quoted
from millpond.kernels.synopses.sketch_accumulators import needs_inserts
from millpond.kernels.synopses.sql_functions import AGGREGATES, called_as, sketch_function


def counted_exactly(aggs: Sequence[Agg]) -> tuple[Agg, ...]:
    """
    >>> counted_exactly([Agg("n", "approx_count_distinct", "x")])[0].distinct
    True
    """
    return tuple(
        replace(a, function="count", distinct=True) if a.function == "approx_count_distinct" else a
        for a in aggs
    )


def query_of_rows(key: Sequence[str], aggs: Sequence[Agg], schema: pa.Schema, step: str) -> str | None:
    """The query that computes these aggregates from the rows of a key, if accumulators cannot."""
    if not any(needs_inserts(a.function) for a in aggs):
        return None
    if not key:
        raise InvalidError("an approximate aggregate of rows that can be retracted needs a key", step=step)
    keys = ", ".join(map(quoted, key))
    texts = [f"{_sql(a, schema, step)} AS {quoted(a.name)}" for a in aggs]
    return f"SELECT {keys}, {', '.join(texts)} FROM input GROUP BY {keys}"


def _sql(agg: Agg, schema: pa.Schema, step: str) -> str:
    name, _, parameter = agg.function.rstrip(")").partition("(")
    x = "*" if agg.argument is None else quoted(agg.argument)
    match name:
        case "approx_quantile":
            return f"CAST(quantile_disc({x}, {parameter}) AS DOUBLE)"
        case "approx_top_k":
            return most_frequent(x, parameter)
        case "approx_sample":
            raise InvalidError(
                "rows that can be retracted cannot be sampled",
                detail=f"aggregate {agg.name!r}",
                hint="sample a stream of rows that are only inserted",
                step=step,
            )
    if name in AGGREGATES:
        sketch_function(name)
        return f"{quoted(called_as(name))}(list(struct_pack(x := CAST({x} AS {AGGREGATES[name][0]}))))"
    word = "DISTINCT " if agg.distinct else ""
    text = f"{name}({word}{x})"
    if name == "sum" and agg.argument and pa.types.is_integer(schema.field(agg.argument).type):
        return f"CAST({text} AS BIGINT)"
    return text


def most_frequent(x: str, k: str, where: str = "") -> str:
    """SQL: the k most frequent values of a group, exactly; of equally frequent ones the least.

    >>> most_frequent("x", "3").startswith("list_transform(list_slice(list_sort(")
    True
    """
    counted = f"map_entries(histogram({x}) {where})"
    ordered = f"list_sort(list_transform({counted}, lambda e: {{'n': -CAST(e.value AS BIGINT), 'v': e.key}}))"
    return f"list_transform(list_slice({ordered}, 1, {k}), lambda e: e.v)"
