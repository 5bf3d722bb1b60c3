"""Finds the accumulator of an aggregate function: an exact one, or a synopsis."""

from __future__ import annotations

import pyarrow as pa

from millpond.kernels.accumulators import EXTREMES, Accumulator, accumulator
from millpond.kernels.synopses.sketch_accumulators import needs_inserts, synopsis


def aggregate_function(function: str, kind: pa.DataType | None, *, step: str) -> Accumulator:
    """
    >>> type(aggregate_function("sum", pa.int64(), step="s")).__name__
    'IntSum'
    >>> type(aggregate_function("approx_top_k(3)", pa.string(), step="s")).__name__
    'FrequentAccumulator'
    """
    return synopsis(function, kind, step=step) or accumulator(function, kind, step=step)


def is_insert_only(function: str) -> bool:
    """Does its accumulator need rows that are never retracted?"""
    return function in EXTREMES or needs_inserts(function)
