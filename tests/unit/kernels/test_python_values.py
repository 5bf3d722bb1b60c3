"""Columns as Python values: through numpy or not, what `to_pylist` gives."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.kernels.python_values import python_values

NEAR = [0, 1, -1, None, 1_709_251_200, -62_135_596_800]  # 1 January of year 1
KINDS = [
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us") for zone in (None, "UTC", "Europe/Oslo")),
    pa.date32(),
    pa.int8(),
    pa.uint64(),
    pa.float32(),
]


def values_of(kind: pa.DataType) -> list[Any]:
    if pa.types.is_timestamp(kind):
        per = {"s": 1, "ms": 1_000, "us": 1_000_000}[kind.unit]
        near = NEAR if kind.tz != "Europe/Oslo" else NEAR[:-1]
        return [None if n is None else n * per + (7 if per > 1 else 0) for n in near]
    return [0, 1, None, 719_000 if pa.types.is_date(kind) else 7]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("cut", [slice(None), slice(2, 4), slice(0, 0)], ids=["all", "some", "none"])
def test_values_are_those_of_arrow(kind: pa.DataType, cut: slice) -> None:
    width = pa.int64() if pa.types.is_timestamp(kind) else pa.int32() if pa.types.is_date(kind) else kind
    array = pa.array(values_of(kind), width).cast(kind)[cut]
    found, expected = python_values(pa.chunked_array([array])), array.to_pylist()
    assert found == expected
    assert [type(v) for v in found] == [type(v) for v in expected]
    zones = [v.tzinfo for v in expected if isinstance(v, datetime.datetime)]
    assert [v.tzinfo for v in found if isinstance(v, datetime.datetime)] == zones


def test_what_lies_under_a_null_is_not_looked_at() -> None:
    times = pa.array([2**62, 5], mask=np.array([True, False])).cast(pa.timestamp("us", "UTC"))
    assert python_values(pa.chunked_array([times]))[0] is None


@pytest.mark.parametrize("kind", [pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.date32()], ids=str)
def test_a_year_that_python_does_not_know_is_told_as_by_arrow(kind: pa.DataType) -> None:
    far = pa.array(
        [2**30 if pa.types.is_date(kind) else 2**58], pa.int32() if pa.types.is_date(kind) else None
    )
    array = far.cast(kind)
    with pytest.raises((ValueError, OverflowError)):
        array.to_pylist()
    with pytest.raises((ValueError, OverflowError)):
        python_values(pa.chunked_array([array]))


def test_decimals_and_maps() -> None:
    decimals = pa.array([Decimal("1.5"), None])
    assert python_values(pa.chunked_array([decimals])) == [Decimal("1.5"), None]
    maps = pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64()))
    assert python_values(pa.chunked_array([maps])) == [{"a": 1}, None]
