"""Nexmark in SQL on Spark: the same answers as a batch (laws 1 and 3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import millpond
from tests.sql import nexmark


def test_all_queries_at_once(session: Any, tmp_path: Path) -> None:
    con = nexmark.batch()
    pond = millpond.open(tmp_path / "pond", spark=session, parallelism=2, clock=nexmark.Ticking())
    nexmark.define(pond, con)
    pond.drain()
    assert nexmark.differences(pond, con) == {}
    assert nexmark.by_the_clock(pond, con) > 0
    pond.close()
