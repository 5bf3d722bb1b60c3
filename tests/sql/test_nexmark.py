"""Nexmark in SQL: every view equals the batch query over a bounded input (law 1)."""

from __future__ import annotations

from pathlib import Path

import millpond
from tests.sql import nexmark


def test_all_queries_at_once(tmp_path: Path) -> None:
    con = nexmark.batch()
    pond = millpond.open(
        tmp_path / "pond",
        engine="inline",
        parallelism=2,
        checks=True,
        clock=nexmark.Ticking(),
        epoch_rows_max=2000,
    )
    nexmark.define(pond, con)
    pond.drain()
    assert nexmark.differences(pond, con) == {}
    assert nexmark.by_the_clock(pond, con) > 1
    pond.close()
