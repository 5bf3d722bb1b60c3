"""Arrow tables as data frames: types survive, and a missing library is named."""

from __future__ import annotations

import datetime
import decimal
import sys

import pyarrow as pa
import pytest

from millpond.errors import UnavailableError
from millpond.sinks import dataframes

AT = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
TABLE = pa.table(
    {
        "n": pa.array([2**53 + 1, None], pa.int64()),
        "price": pa.array([decimal.Decimal("1.10"), None], pa.decimal128(38, 9)),
        "at": pa.array([AT, None], pa.timestamp("us", "UTC")),
        "local": pa.array([AT.replace(tzinfo=None), None], pa.timestamp("us")),
        "tags": pa.array([["a", None], None], pa.list_(pa.string())),
        "where": pa.array([{"x": 1, "y": "z"}, None], pa.struct([("x", pa.int64()), ("y", pa.string())])),
    }
)


def test_pandas_keeps_arrow_types_and_values() -> None:
    pandas = pytest.importorskip("pandas")
    frame = dataframes.to_pandas(TABLE)
    assert [frame[name].dtype for name in TABLE.column_names] == [
        pandas.ArrowDtype(field.type) for field in TABLE.schema
    ]
    assert pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None).equals(TABLE)


def test_pandas_with_numpy_types() -> None:
    pytest.importorskip("pandas")
    frame = dataframes.to_pandas(TABLE, types_mapper=None)
    assert str(frame["n"].dtype) == "float64"


def test_polars_keeps_types_and_values() -> None:
    polars = pytest.importorskip("polars")
    frame = dataframes.to_polars(TABLE)
    assert frame.schema == {
        "n": polars.Int64(),
        "price": polars.Decimal(38, 9),
        "at": polars.Datetime("us", "UTC"),
        "local": polars.Datetime("us"),
        "tags": polars.List(polars.String()),
        "where": polars.Struct({"x": polars.Int64(), "y": polars.String()}),
    }
    assert frame.to_dicts() == TABLE.to_pylist()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_is_named_with_its_command(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UnavailableError, match=f"{library} is not installed") as caught:
        getattr(dataframes, f"to_{library}")(TABLE)
    assert caught.value.hint == f"pip install {library}"
