"""The functions that SQL calls for sketches: over the list of a group's rows, and over stored sketches.

They are Python functions like a user's own (`kernels.python_function`), so operators whose SQL calls them
contain them, and every process can run them.  They are made when a text first mentions one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.hashing import hash_array
from millpond.identity import one_chunk
from millpond.kernels.python_function import PythonFunction
from millpond.kernels.synopses import bloom_filter, count_min, hyperloglog, quantile_summary, second_moment
from millpond.kernels.synopses.item_hashes import item_hashes
from millpond.kernels.synopses.sketch_accumulators import synopsis

_DIGEST = "5ce7c4000001"  # marks a function of this module, and the version of its meaning
_TEXT, _SKETCH = "VARCHAR", "BLOB"
ITEM_HASH = "sketch_item"

# Aggregates by name: the type of the argument and of the result.
AGGREGATES: Mapping[str, tuple[str, str]] = {
    "hll_sketch": (_TEXT, _SKETCH),
    "count_min_sketch": (_TEXT, _SKETCH),
    "ams_sketch": (_TEXT, _SKETCH),
    "bloom_sketch": (_TEXT, _SKETCH),
    "kll_sketch": ("DOUBLE", _SKETCH),
    "hll_merge": (_SKETCH, _SKETCH),
    "count_min_merge": (_SKETCH, _SKETCH),
    "ams_merge": (_SKETCH, _SKETCH),
    "bloom_merge": (_SKETCH, _SKETCH),
    "kll_merge": (_SKETCH, _SKETCH),
    "approx_second_moment": (_TEXT, "DOUBLE"),
}
# Scalars by name: the names and types of their parameters, and the type of the result.
SCALARS: Mapping[str, tuple[tuple[tuple[str, str], ...], str]] = {
    ITEM_HASH: ((("x", _TEXT),), "UBIGINT"),
    "hll_estimate": ((("sketch", _SKETCH),), "BIGINT"),
    "count_min_estimate": ((("sketch", _SKETCH), ("x", _TEXT)), "BIGINT"),
    "ams_estimate": ((("sketch", _SKETCH),), "DOUBLE"),
    "bloom_contains": ((("sketch", _SKETCH), ("x", _TEXT)), "BOOLEAN"),
    "kll_quantile": ((("sketch", _SKETCH), ("q", "DOUBLE")), "DOUBLE"),
    "kll_rank": ((("sketch", _SKETCH), ("x", "DOUBLE")), "DOUBLE"),
}


def called_as(name: str) -> str:
    """The unique name of a function for kernels."""
    return f"{name}#{_DIGEST}"


def plain_name(called: str) -> str | None:
    """The name of a function of this module, or None for any other.

    >>> plain_name(called_as("hll_merge")), plain_name("hll_merge")
    ('hll_merge', None)
    """
    name, mark, digest = called.partition("#")
    return name if mark and digest == _DIGEST else None


@cache
def sketch_function(name: str) -> PythonFunction:
    """The function of this name, known to all kernels of this process from now on."""
    if name in AGGREGATES:
        takes, returns = AGGREGATES[name]
        code: Callable[..., Any] = partial(over_lists, name)
        parameters: tuple[tuple[str, str], ...] = (("rows", f"STRUCT(x {takes})[]"),)
    else:
        parameters, returns = SCALARS[name]
        code = _SCALAR_CODE[name]
    return PythonFunction(called_as(name), parameters, returns, vectorised=True, nulls=True, function=code)


def item_hash(argument: str) -> str:
    """SQL: the hash by which stored sketches know a value; values with equal texts are equal."""
    return f'"{sketch_function(ITEM_HASH).name}"(CAST({argument} AS VARCHAR))'


# -- code ----------------------------------------------------------------------------------


def over_lists(name: str, rows: pa.Array) -> pa.Array:
    """An aggregate of each list of rows."""
    lengths = rows.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    values = rows.flatten().field(0)
    if AGGREGATES[name][0] == _TEXT:
        values = hashed(values)
    kind = synopsis(name, values.type, step=name)
    assert kind is not None
    full = np.flatnonzero(lengths)
    starts = (np.cumsum(lengths) - lengths)[full]
    if not len(full):
        return pa.nulls(len(rows), kind.visible)
    fields = kind.partial(one_chunk(values), None, starts, lengths[full])
    fields = kind.add({f: pa.nulls(len(full), t) for f, t in kind.fields.items()}, fields)
    index = np.full(len(rows), -1)
    index[full] = np.arange(len(full))
    return kind.finish(fields, lengths[full]).take(pa.array(index, mask=index < 0))


def hashed(x: pa.Array) -> pa.Array:
    """The hashes of texts; NULL stays NULL."""
    mask = x.is_null().to_numpy(zero_copy_only=False) if x.null_count else None
    return pa.array(hash_array(x), mask=mask)


def hll_estimate(sketch: pa.Array) -> pa.Array:
    return _known(np.rint(hyperloglog.estimates(sketch)).astype(np.int64), sketch)


def count_min_estimate(sketch: pa.Array, x: pa.Array) -> pa.Array:
    return _known(count_min.counts(sketch, item_hashes(pa.array(hash_array(x)), True)), sketch, x)


def ams_estimate(sketch: pa.Array) -> pa.Array:
    return _known(second_moment.estimates(sketch), sketch)


def bloom_contains(sketch: pa.Array, x: pa.Array) -> pa.Array:
    return _known(bloom_filter.contains(sketch, item_hashes(pa.array(hash_array(x)), True)), sketch, x)


def kll_quantile(sketch: pa.Array, q: pa.Array) -> pa.Array:
    return pa.array([_quantile(s, p) for s, p in zip(sketch.to_pylist(), q.to_pylist(), strict=True)])


def _quantile(sketch: bytes | None, q: float | None) -> float | None:
    if q is None:
        return None
    if not 0 <= q <= 1:
        raise InvalidError("a quantile is between 0 and 1", detail=f"got {q}")
    return quantile_summary.quantile(sketch, q)


def kll_rank(sketch: pa.Array, x: pa.Array) -> pa.Array:
    pairs = zip(sketch.to_pylist(), x.to_pylist(), strict=True)
    return pa.array([None if v is None else quantile_summary.rank(s, v) for s, v in pairs], pa.float64())


def _known(values: Any, *arguments: pa.Array) -> pa.Array:
    """The values, NULL where an argument is NULL."""
    dead = np.zeros(len(values), np.bool_)
    for argument in arguments:
        if argument.null_count:
            dead |= argument.is_null().to_numpy(zero_copy_only=False)
    return pa.array(values, mask=dead if dead.any() else None)


_SCALAR_CODE: Mapping[str, Callable[..., Any]] = {
    ITEM_HASH: hashed,
    "hll_estimate": hll_estimate,
    "count_min_estimate": count_min_estimate,
    "ams_estimate": ams_estimate,
    "bloom_contains": bloom_contains,
    "kll_quantile": kll_quantile,
    "kll_rank": kll_rank,
}
