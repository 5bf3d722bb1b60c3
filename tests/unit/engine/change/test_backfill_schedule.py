"""How much a chunk of a fill takes in: as much as an epoch while there is input, far more while there is none."""

from __future__ import annotations

import pytest

from millpond.control.admission import Bounds, Pace, budget_rows
from millpond.engine.change.backfill_schedule import (
    AT_ONCE_ROWS,
    CHUNK_ROWS,
    IDLE_FIRST_MS,
    IDLE_MS,
    BackfillSchedule,
)
from millpond.engine.coordinator.protocol import BackfillChunkDone
from millpond.state.manifest.backfill_progress import BackfillProgress

FILL = BackfillProgress(0, "c", ("s",), ("t",), 1, (("s", 1, 1, 1),), 0, 1, 1)


def turns(rows: int, ms: float) -> BackfillSchedule:
    """Turns that have seen one chunk."""
    found = BackfillSchedule()
    found.on_chunk(BackfillChunkDone(FILL, (), rows, ms))
    return found


def test_the_first_chunk_is_small_since_nothing_is_known() -> None:
    assert (
        BackfillSchedule().rows(Bounds(), idle=True)
        == BackfillSchedule().rows(Bounds(), idle=False)
        == AT_ONCE_ROWS
    )


def test_a_chunk_between_epochs_takes_about_as_long_as_one() -> None:
    assert 8_000 < turns(10_000, 1150).rows(Bounds(target_ms=1000, rows_min=1), idle=False) < 10_000


def test_a_chunk_takes_the_longer_the_longer_nobody_waits_and_no_more_than_fits() -> None:
    found = turns(10_000, 1150)  # ten a millisecond
    bounds = Bounds(target_ms=500, rows_min=1)
    ms = [found.rows(bounds, idle=True) / 10 for _ in range(6)]
    assert ms == pytest.approx([IDLE_FIRST_MS, 2000, 4000, 8000, IDLE_MS, IDLE_MS], rel=0.2)
    assert found.rows(bounds, idle=False) <= 5_000
    assert found.rows(bounds, idle=True) == 10 * ms[0], "there was input a moment ago"
    fast = turns(250_000, 50)
    assert max(fast.rows(Bounds(), idle=True) for _ in range(6)) == CHUNK_ROWS
    assert turns(250_000, 500).rows(Bounds(rows_max=7000), idle=True) == 7000


def test_catching_up_takes_no_less_than_keeping_up() -> None:
    """A target above the time for catching up once made epochs smaller, the further behind the pond was."""
    bounds = Bounds(target_ms=60_000, catch_up_ms=4_000)
    pace = Pace(rows_per_ms=10.0)
    assert budget_rows(bounds, pace, 10**9) == budget_rows(bounds, pace, 0) > 500_000
