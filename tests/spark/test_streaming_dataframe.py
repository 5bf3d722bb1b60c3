"""DataFrames as streams of a pond: a batch one, and a streaming one with restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import millpond
from millpond.sources.streaming_dataframe import StreamingDataFrameSource


def test_a_streaming_dataframe_over_restarts(session: Any, tmp_path: Path) -> None:
    """A stream of files joined with a batch DataFrame; the last batch runs again after each restart."""
    folder, wanted = tmp_path / "in", 0
    folder.mkdir()
    for run in range(2):
        pq.write_table(pa.table({"n": [run, 10 * run, 5]}), folder / f"{run}.parquet")
        wanted += run + 10 * run + 5
        numbers = session.readStream.schema("n long").parquet(str(folder))
        source = StreamingDataFrameSource(numbers)
        with millpond.open(tmp_path / "pond", engine="inline") as pond:
            pond.stream("numbers", source).aggregate(total="sum(n)").view("sums")
            pond.stream("more", session.range(3)).aggregate(rows="count(*)").view("more")
            source.catch_up()
            pond.drain()
            assert pond.read("sums").to_pylist() == [{"total": wanted}]
            assert pond.read("more").to_pylist() == [{"rows": 3}]
        (tmp_path / "pond/staged/numbers/checkpoint/commits" / str(run)).unlink()
        (tmp_path / "pond/staged/numbers/checkpoint/commits" / f".{run}.crc").unlink(missing_ok=True)
