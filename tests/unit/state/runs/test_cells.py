"""A cell is the value that Arrow has at that row."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millpond.state.runs.cells import ScaledInt, cell_of, cell_reader

COLUMNS: list[tuple[pa.Array, list[Any]]] = [
    (pa.array([True, None, False] * 7), [True, None, False] * 7),
    (pa.array([1, None, -3], pa.int16()), [1, None, -3]),
    (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
    (pa.array([0.5, None], pa.float32()), [0.5, None]),
    (pa.array(["", "é", None, "bc"]), [b"", b"\xc3\xa9", None, b"bc"]),
    (pa.array([None, None], pa.string()), [None, None]),
    (pa.array([b"\0", None]), [b"\0", None]),
    (pa.array([datetime.date(1969, 12, 31)]), [-1]),
    (pa.array([5, None], pa.timestamp("us", "UTC")), [5, None]),
    (pa.array([Decimal("-1.50"), None], pa.decimal128(9, 2)), [ScaledInt(-150, 2), None]),
]


@pytest.mark.parametrize(("column", "wanted"), COLUMNS, ids=lambda v: str(getattr(v, "type", "")))
def test_values(column: pa.Array, wanted: list[Any]) -> None:
    read = cell_reader(column)
    assert [read(row) for row in range(len(column))] == wanted
    sliced = cell_reader(column.slice(1))
    assert [sliced(row) for row in range(len(column) - 1)] == wanted[1:]


def test_types_without_a_quick_way_are_rows() -> None:
    column = pa.array([[1], None, [2, 3]])
    read = cell_reader(column)
    assert [read(row).to_pylist() for row in range(3)] == [[[1]], [None], [[2, 3]]]
    assert cell_reader(pa.array([5], pa.timestamp("ns")))(0).cast(pa.int64()).to_pylist() == [5]


def test_the_cell_of_a_value_is_what_its_column_has() -> None:
    for value, kind in ((7, pa.int8()), ("é", pa.string()), (datetime.date(2024, 1, 2), pa.date32()),
                        (7, pa.decimal128(38, 0)), (None, pa.string())):  # fmt: skip
        assert cell_of(value, kind) == cell_reader(pa.array([value], kind))(0)
