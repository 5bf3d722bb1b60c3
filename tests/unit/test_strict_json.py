"""What is written as JSON can be read by every parser."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond
from millpond.sources.files import FileSource
from millpond.strict_json import dumps, mended


def strict(text: str) -> Any:
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_any_value_is_strict_json(value: Any) -> None:
    assert strict(dumps(value)) == strict(mended(json.dumps(value)))


@given(st.text())
def test_texts_stay_as_they_are(text: str) -> None:
    assert mended(json.dumps([text])) == json.dumps([text])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_error_rows_of_such_keys_are_strict_json(value: float, tmp_path: Path) -> None:
    """The keys of a group that fails, and a row that fails."""
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, k double, s text, n int)")
        pond.sql("CREATE MATERIALIZED VIEW a AS SELECT k, sum(CAST(s AS int)) AS n FROM t GROUP BY k")
        pond.sql("CREATE MATERIALIZED VIEW b AS SELECT k, CAST(s AS int) AS n FROM t")
        pond.sql("CREATE MATERIALIZED VIEW c AS SELECT k, factorial(max(n)) AS f FROM t GROUP BY k")
        pond.sql("INSERT INTO t VALUES (1, ?, 'x', 100)", params=[value])
        pond.drain()
        found = [strict(row["row"]) for row in pond.errors().to_pylist()]
        assert found and all("k" in row for row in found)
        assert {row["k"] for row in found} == {
            {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        }


def test_rejected_rows_of_a_file_are_strict_json(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(
        pa.table({"x": pa.array([None, 1], pa.int64()), "f": [math.nan, 1.0]}), folder / "a.parquet"
    )
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        schema = pa.schema([pa.field("x", pa.int64(), nullable=False), ("f", pa.float64())])
        pond.stream("s", FileSource(str(folder), "parquet", schema)).view("v")
        pond.drain()
        (row,) = pond.errors().to_pylist()
        assert strict(row["row"])["f"] == "NaN"
