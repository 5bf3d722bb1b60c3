"""Columns on the wire come back as they were."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import tuning
from millpond.engine.task import frames, wire

INTS = st.one_of(
    st.integers(-128, 127),
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**31), 2**31),
    st.integers(-(2**63), 2**63 - 1),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.none() | INTS, min_size=1, max_size=30), st.lists(st.none() | st.text(max_size=3), min_size=1)
)
def test_what_is_sent_is_what_is_seen(numbers: list[int | None], words: list[str | None]) -> None:
    rows = 2000
    table = pa.table(
        {
            "n": pa.array([numbers[i % len(numbers)] for i in range(rows)], pa.int64()),
            "w": pa.array([words[i % len(words)] for i in range(rows)], pa.string()),
            "h": pa.array(range(rows), pa.uint64()),
            "empty": pa.nulls(rows, pa.int64()),
            "t": pa.array([numbers[i % len(numbers)] for i in range(rows)], pa.timestamp("ns")),
            "z": pa.array(range(2**40, 2**40 + rows), pa.timestamp("ms", "Asia/Tokyo")),
            "never": pa.nulls(rows, pa.timestamp("us")),
        },
        schema=pa.schema(
            [
                ("n", pa.int64()),
                pa.field("w", pa.string(), metadata={"a": "b"}),
                ("h", pa.uint64()),
                ("empty", pa.int64()),
                ("t", pa.timestamp("ns")),
                pa.field("z", pa.timestamp("ms", "Asia/Tokyo"), nullable=False, metadata={"c": "d"}),
                ("never", pa.timestamp("us")),
            ]
        ),
    )
    seen = pa.concat_tables(frames.decode_table(memoryview(b"".join(p))) for p in frames.encode_table(table))
    assert seen.equals(table)
    assert seen.schema.equals(table.schema, check_metadata=True)


def test_it_is_worth_it() -> None:
    table = pa.table({"n": pa.array([3] * 5000), "w": pa.array(["the same"] * 5000)})
    assert wire.narrow(table).nbytes * 3 < table.nbytes
    times = pa.table({"t": pa.array(range(10**15, 10**15 + 5000), pa.timestamp("us"))})
    assert wire.narrow(times).nbytes < 0.6 * times.nbytes


@pytest.mark.parametrize("rows", [0, 1, tuning.NARROW_ROWS_MIN - 1])
def test_small_tables_go_as_they_are(rows: int) -> None:
    table = pa.table({"n": pa.array([3] * rows, pa.int64())})
    assert wire.narrow(table) is table
