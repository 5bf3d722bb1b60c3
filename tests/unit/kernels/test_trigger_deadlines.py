"""Deadlines of triggers: when a step must look at them (law 3: in every task that has some, rows or not)."""

from __future__ import annotations

import pytest

from millpond.kernels.bounds import Bound
from millpond.kernels.trigger_deadlines import is_due, wheel
from millpond.kernels.triggers import WATERMARK, Clock


@pytest.mark.parametrize(
    ("clock", "watermarks", "due"),
    [
        (WATERMARK, {}, False),
        (WATERMARK, {"w": 10**15}, True),
        (0.5, {}, True),  # the watermark of half of the rows may be known before that of all rows
        (0.5, {"w": -(10**15)}, True),
    ],
)
def test_when_deadlines_are_looked_at(clock: Clock, watermarks: dict[str, int], due: bool) -> None:
    earliest = {name: 0 for name, _ in wheel("s", clock).names}
    assert is_due("s", (clock,), Bound("at", (("w", 0),), 1), earliest, watermarks, 0) is due
