"""The serving benchmark's own parts: what it prints, and the clients that it needs."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

import millpond
from benchmarks.serving import point_reads, run
from benchmarks.serving.freshness import Freshness
from benchmarks.serving.idle import IdleConnections
from benchmarks.serving.point_reads import PointReads
from benchmarks.serving.scans import ScanRate


def test_one_table_has_every_figure_with_its_aim() -> None:
    found = run.Figures(
        [PointReads("PostgreSQL", "idle", 1, 0.1, 0.2, 9000, None), PointReads("millpond", "idle", 1, 0.4, 1, 2500, 0.3)],
        [run.Epochs(0, 10, 20.0, 10000, 0.5), run.Epochs(16, 10, 21.0, 9999, 0.9)],
        [ScanRate("millpond", "pgwire", 1000, 260000), ScanRate("millpond", "flight", 1000, 4e6)],
        [Freshness("SUBSCRIBE", 12.0, 40.0)],
        IdleConnections(1000, 150.0, 30.0, 1.0),
    )  # fmt: skip
    text = io.StringIO()
    run.show(found, Console(file=text, width=200))
    for wanted in (
        "< 0.30",
        "< 22 ms",
        "250,000",
        "3,000,000",
        "< 50 ms",
        "30 MB more than 150",
        "90% of a core",
    ):
        assert wanted in text.getvalue(), wanted


def test_point_reads_are_read_by_pgbench(tmp_path: Path) -> None:
    if shutil.which("pgbench") is None:
        pytest.skip("pgbench is not installed")
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(run.TABLE)
        pond.sql(run.OURS.format(10) + "; FLUSH")
        with pond.serve(pg_port=0) as server:
            address = server.urls["pg"].replace("//", "//bench@")
            p50, p99, per_s, count = point_reads.measure(address, 10, 2, 1)
    assert 0 < p50 <= p99 and count > 2 and per_s == count
