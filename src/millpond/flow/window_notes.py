"""What users are told about windows that are allowed but may not be what they meant."""

from __future__ import annotations

import logging

from millpond.kernels.window_assigners import Sliding

log = logging.getLogger("millpond.flow")


def note_gaps(windows: object, step: str) -> None:
    """Warn about windows that start at longer intervals than they are long."""
    if isinstance(windows, Sliding) and windows.leaves_gaps:
        log.warning(
            "the slide of the windows of step %r is above their size: rows between two windows are in none,"
            " and are counted",
            step,
        )
