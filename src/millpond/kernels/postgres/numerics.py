"""Numerics of PostgreSQL beyond what DuckDB's DECIMAL computes: division."""

from __future__ import annotations

import decimal

import pyarrow as pa

from millpond.kernels.duck import RowFailure
from millpond.kernels.native_functions import native

SCALE = 16  # digits after the point of a quotient
_EXACT = decimal.Context(prec=120, rounding=decimal.ROUND_HALF_UP)
_STEP = decimal.Decimal(1).scaleb(-SCALE)
_MOST = decimal.Decimal(10) ** (38 - SCALE)


@native("pg.numeric_divide.1", ("VARCHAR", "VARCHAR"), f"DECIMAL(38,{SCALE})")
def numeric_divide(left: pa.Array, right: pa.Array) -> pa.Array:
    """a / b, rounded half away from zero."""
    found: list[decimal.Decimal | None] = []
    for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True):
        if a is None or b is None:
            found.append(None)
            continue
        divisor = decimal.Decimal(b)
        if not divisor:
            raise RowFailure("division by zero")
        value = _EXACT.divide(decimal.Decimal(a), divisor).quantize(_STEP, context=_EXACT)
        if abs(value) >= _MOST:
            raise RowFailure(
                f"numeric field overflow: a quotient has at most {38 - SCALE} digits before the point"
            )
        found.append(value)
    return pa.array(found, pa.decimal128(38, SCALE))
