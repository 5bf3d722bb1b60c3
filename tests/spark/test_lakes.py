"""Delta and Iceberg tables: files prepared by Spark's workers, and read by Spark (law 7)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.engine.coordinator.worker_preparing import WorkerPreparing
from millpond.sinks.delivery import Delivery
from millpond.sinks.delta import DeltaSink
from millpond.sinks.iceberg import IcebergSink
from tests.lakes.delta_reader import live_files
from tests.lakes.iceberg_reader import data_files, metadata_of
from tests.lakes.targets import IcebergTarget

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
ROWS = 5_000


def test_workers_prepare_the_files_and_spark_reads_them(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[int] = []
    some = WorkerPreparing._some

    def counted(self: Any, ask: Any, sink: Any, parts: Any) -> Any:
        jobs.append(len(parts))
        return some(self, ask, sink, parts)

    cut = Delivery.cut
    monkeypatch.setattr(WorkerPreparing, "_some", counted)
    monkeypatch.setattr(WorkerPreparing, "cores", property(lambda self: 4))
    monkeypatch.setattr(Delivery, "cut", lambda self: cut(self, 1_000))
    target = IcebergTarget(tmp_path)
    target.reset()
    with millpond.open(tmp_path / "pond", engine="spark", spark=session, durable=False) as pond:
        table = pond.table("t", {"k": int, "s": str})
        view = table.key_by("k").aggregate(s="max(s)", c="count(*)").view("v")
        view.sink("delta", DeltaSink(tmp_path / "table"))
        pond.insert("t", pa.table({"k": list(range(ROWS)), "s": [f"s{n % 10}" for n in range(ROWS)]}))
        pond.drain()
        with pond.changing():
            view.sink("iceberg", IcebergSink("shop.rows", target.catalog))  # type: ignore[arg-type]
        pond.drain()
    assert sum(jobs) == 10, "each delivery has five parts"
    metadata = metadata_of(target.folder / "catalog.db", "shop.rows")
    assert metadata is not None
    found = {
        "delta": [str(tmp_path / "table" / name) for name in live_files(tmp_path / "table")],
        "iceberg": [file["file_path"] for file in data_files(metadata)],
    }
    expected = Counter((f"s{n % 10}", 1) for n in range(ROWS))
    for lake, files in found.items():
        assert len(files) == 5, lake
        rows = session.read.parquet(*files).select("s", "c").collect()
        assert Counter(tuple(row) for row in rows) == expected, lake
