"""Functions of arrays of FLOAT as vectors; one with a NULL element has no result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pyarrow as pa

from millpond.kernels.spark.rows import RefusedValue, by_row

_PAIR = ("FLOAT[]", "FLOAT[]")
Vector = Sequence[float | None]


def _of_two(name: str) -> Callable[[Callable[[list[float], list[float]], float | None]], object]:
    def define(code: Callable[[list[float], list[float]], float | None]) -> object:
        def compute(a: Vector, b: Vector) -> float | None:
            if len(a) != len(b):
                raise RefusedValue(f"the vectors have {len(a)} and {len(b)} elements")
            x, y = [v for v in a if v is not None], [v for v in b if v is not None]
            return None if len(x) < len(a) or len(y) < len(b) else code(x, y)

        return by_row(name, _PAIR, "FLOAT", pa.float32())(compute)

    return define


@_of_two("spark.vector_inner_product.1")
def inner_product(a: list[float], b: list[float]) -> float:
    return _summed([x * y for x, y in zip(a, b, strict=True)])


@_of_two("spark.vector_l2_distance.1")
def l2_distance(a: list[float], b: list[float]) -> float:
    return math.sqrt(_summed([(x - y) * (x - y) for x, y in zip(a, b, strict=True)]))


@_of_two("spark.vector_cosine_similarity.1")
def cosine_similarity(a: list[float], b: list[float]) -> float | None:
    lengths = math.sqrt(_summed([x * x for x in a]) * _summed([y * y for y in b]))
    return _summed([x * y for x, y in zip(a, b, strict=True)]) / lengths if lengths else None


def _summed(values: list[float]) -> float:
    return float(sum(values))


def _norm(vector: list[float], degree: float) -> float:
    if degree == 1:
        return _summed([abs(x) for x in vector])
    if degree == 2:
        return math.sqrt(_summed([x * x for x in vector]))
    if degree == math.inf:
        return max(map(abs, vector), default=0.0)
    raise RefusedValue("the degree of a vector's norm is 1, 2 or infinity")


@by_row("spark.vector_norm.1", ("FLOAT[]", "DOUBLE"), "FLOAT", pa.float32())
def norm(vector: Vector, degree: float) -> float | None:
    known = [x for x in vector if x is not None]
    return _norm(known, degree) if len(known) == len(vector) else None


@by_row("spark.vector_normalize.1", ("FLOAT[]", "DOUBLE"), "FLOAT[]", pa.list_(pa.float32()))
def normalize(vector: Vector, degree: float) -> list[float] | None:
    known = [x for x in vector if x is not None]
    if len(known) < len(vector):
        return None
    length = _norm(known, degree)
    return [x / length for x in known] if length else None


@by_row("spark.vector_sum.1", ("FLOAT[][]", "BOOLEAN"), "FLOAT[]", pa.list_(pa.float32()))
def vector_sum(vectors: Sequence[Vector], averaged: bool) -> list[float] | None:
    """The sum of vectors, or their mean."""
    if len({len(v) for v in vectors}) > 1:
        raise RefusedValue("the vectors have different lengths")
    known = [[x for x in v if x is not None] for v in vectors]
    if any(len(k) < len(v) for k, v in zip(known, vectors, strict=True)):
        raise RefusedValue("a vector has a NULL element")
    sums = [_summed(list(column)) for column in zip(*known, strict=True)]
    return [s / len(known) for s in sums] if averaged else sums
