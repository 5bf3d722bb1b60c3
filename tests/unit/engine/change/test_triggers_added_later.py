"""Windows with triggers that are added to a running pond: all that was read is one epoch for them (law 1).

So a window that has ended has its on-time pane, whether it still takes late rows or not.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond import Pond
from millpond.kernels.triggers import Trigger
from millpond.sources.memory import MemorySource
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest
from millpond.triggers import after_count, after_watermark, repeatedly
from millpond.windows import WindowAssigner, sessions, sliding, tumbling

START = datetime.datetime(2024, 1, 1)
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us"))])
PUSHED = ((1, 2, 12), (14, 13, 3), (31, 22), (24,))  # by epoch: seconds; the watermark ends at 31


def rows(*seconds: int) -> list[dict[str, Any]]:
    return [{"k": "x", "v": s, "at": START + datetime.timedelta(seconds=s)} for s in seconds]


def define(pond: Pond, windows: WindowAssigner, trigger: Trigger, source: MemorySource) -> None:
    keyed = pond.stream("s", source).watermark("at", "20s").key_by("k")
    keyed.window(windows, trigger=trigger, allowed_lateness="1h", panes=True).aggregate(
        n="count(*)", total="sum(v)"
    ).view("panes")


def manifests(pond: Pond) -> list[Manifest]:
    return [history.read_manifest(pond.store, epoch) for epoch in range(pond.head().epoch + 1)]


def shown(pond: Pond) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in pond.read("panes").to_pylist())


@pytest.mark.parametrize("windows", [tumbling("5s"), sliding("6s", "3s"), sessions("2s")], ids=str)
@pytest.mark.parametrize(
    "trigger",
    [
        after_watermark(early=after_count(1), late=after_count(1)),
        after_watermark(early=repeatedly(after_count(2))),
        after_watermark(),
    ],
    ids=str,
)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_was_read_before_is_one_epoch(
    tmp_path: Path, windows: WindowAssigner, trigger: Trigger, parallelism: int
) -> None:
    source = MemorySource(SCHEMA)
    later = tmp_path / "later"
    with millpond.open(later, engine="inline", durable=False) as pond:
        pond.stream("s", source).watermark("at", "20s").view("rows")
        for seconds in PUSHED:
            source.push(rows(*seconds))
            pond.drain()
    with millpond.open(later, engine="inline", durable=False, parallelism=parallelism) as pond:
        pond.stream("s", source).watermark("at", "20s").view("rows")
        define(pond, windows, trigger, source)
        pond.drain()
        found = shown(pond)
    with millpond.open(tmp_path / "at_once", engine="inline", durable=False) as pond:
        again = MemorySource(SCHEMA)
        define(pond, windows, trigger, again)
        again.push(rows(*(s for seconds in PUSHED for s in seconds)))
        pond.drain()
        assert found == shown(pond)
    assert "on_time" in {row[-2] for row in found}


def test_a_backfill_beside_the_epochs_shows_windows_that_have_ended(tmp_path: Path) -> None:
    """Watermarks rise in several steps, after all chunks."""
    with millpond.open(tmp_path / "pond", engine="inline", durable=False, epoch_rows_max=12) as pond:
        pond.sql(
            "CREATE TABLE s (at timestamp, v int, WATERMARK FOR at AS at - INTERVAL '5 minutes') APPEND ONLY"
        )
        given = [{"at": START + datetime.timedelta(minutes=m), "v": m} for m in range(0, 200, 2)]
        pond.insert(
            "s", pa.Table.from_pylist(given, pa.schema([("at", pa.timestamp("us")), ("v", pa.int32())]))
        )
        pond.sql("FLUSH")
        pond.sql("""
            CREATE MATERIALIZED VIEW panes AS SELECT window_start, window_end, sum(v) AS v
            FROM TUMBLE(s, at, INTERVAL '20 minutes') GROUP BY window_start, window_end
            EMIT EARLY EVERY 1000 ROWS LATE EVERY 1 ROW ALLOWED LATENESS INTERVAL '1 day'; FLUSH
        """)
        wanted = [
            (START + datetime.timedelta(minutes=m), sum(range(m, m + 20, 2))) for m in range(0, 180, 20)
        ]
        assert pond.sql("SELECT window_start, v FROM panes ORDER BY 1").fetchall() == wanted
        chunks = [m.metrics["backfill"]["chunks"] for m in manifests(pond) if "backfill" in m.metrics]
        assert max(chunks) > 3
