"""How far a pond has come: its event time, and a backfill that runs."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from millpond.engine.change.backfill import Progress


@dataclass(frozen=True)
class PondProgress:
    """`watermarks` is the table of `Pond.watermarks`, at the newest epoch."""

    watermarks: pa.Table  # by step, source and partition
    backfill: Progress | None  # of the change of the program that runs now
