"""A pond whose run files have version 1 opens, reads, continues and rolls back with today's code."""

from __future__ import annotations

import tarfile
from decimal import Decimal
from pathlib import Path

import millpond
from millpond.clock import ManualClock
from tests.golden.make_first_runs import HERE, START_US

MONDAY = [(1, 2, Decimal("27.25")), (2, 1, Decimal("5.50"))]
NEWEST = [(1, 2, Decimal("54.50")), (2, 1, Decimal("5.50")), (4, 1, Decimal("11.00"))]
TOTALS = "SELECT customer, n, total FROM totals ORDER BY customer"


def test_run_files_of_version_1(tmp_path: Path) -> None:
    with tarfile.open(HERE / "runs-1" / "pond.tar.xz") as archive:
        archive.extractall(tmp_path / "pond", filter="data")
    clock = ManualClock(START_US)
    with millpond.open(tmp_path / "pond", engine="inline", clock=clock, checks=True, durable=False) as pond:
        assert pond.sql(TOTALS).fetchall() == NEWEST
        assert (
            pond.sql("SELECT customer, n, total FROM totals AS OF SAVEPOINT monday ORDER BY 1").fetchall()
            == MONDAY
        )
        assert pond.lookup("orders", 3)["amount"].to_pylist() == [Decimal("14.50")]
        pond.sql("INSERT INTO orders VALUES (5, 2, 'mug', 1); DELETE FROM orders WHERE id = 4; FLUSH")
        assert pond.sql(TOTALS).fetchall() == [NEWEST[0], (2, 2, Decimal("6.50"))]
        pond.compact()
        assert pond.sql("SELECT id FROM best ORDER BY id").fetchall() == [(1,), (3,)]
        pond.rollback("monday")
        assert pond.sql(TOTALS).fetchall() == MONDAY
