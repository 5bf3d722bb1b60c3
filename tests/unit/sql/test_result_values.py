"""The values of a result in Python: nested in maps as everywhere else; what Python cannot hold is a clear error."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pytest

from millpond.errors import InvalidError
from millpond.sql.result import converter, rows_of


def values(column: pa.Array, kind: str) -> list[object]:
    return [value for (value,) in rows_of(pa.table({"a": column}), [converter(kind)])]


def test_values_of_a_map_are_converted() -> None:
    months = pa.array([[("a", (0, 1, 0)), ("b", None)]], pa.map_(pa.string(), pa.month_day_nano_interval()))
    assert values(months, "MAP(VARCHAR, INTERVAL)") == [{"a": datetime.timedelta(days=1), "b": None}]
    wide = pa.array([[(decimal.Decimal(7), [1])]], pa.map_(pa.decimal128(38), pa.list_(pa.int64())))
    assert values(wide, "MAP(HUGEINT, BIGINT[])") == [{7: [1]}]


def test_keys_that_are_lists_or_structs_are_tuples() -> None:
    kind = pa.map_(pa.list_(pa.int64()), pa.int64())
    lists = pa.array([[([1, 2], 3)], None], kind)
    assert values(lists, "MAP(BIGINT[], BIGINT)") == [{(1, 2): 3}, None]
    inside = pa.array([[{"m": [([1], 2)]}]], pa.list_(pa.struct([("m", kind)])))
    assert values(inside, "STRUCT(m MAP(BIGINT[], BIGINT))[]") == [[{"m": {(1,): 2}}]]


def test_a_date_that_python_does_not_have_is_a_clear_error() -> None:
    far = pa.array([10_000_000], pa.int32()).cast(pa.date32())
    with pytest.raises(InvalidError, match="outside of what Python's types can hold"):
        values(far, "DATE")
