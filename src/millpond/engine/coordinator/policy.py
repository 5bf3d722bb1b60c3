"""The limits within which a coordinator decides: sizes of epochs, retention, merging, retries."""

from __future__ import annotations

from dataclasses import dataclass, field

from millpond.control.admission import Bounds
from millpond.errors import InternalError, MillpondError, UnavailableError
from millpond.state.retention import Retention
from millpond.state.runs.compaction import FAN_IN, UNIT_BYTES
from millpond.state.store.store import ReadOnlyError


@dataclass(frozen=True)
class Policy:
    bounds: Bounds = field(default_factory=Bounds)
    retain_epochs: int = 1000
    fan_in: int = FAN_IN
    unit_bytes: int = UNIT_BYTES
    compact: bool = True
    collect: bool = True
    collect_every: int = 50  # epochs
    errors: Retention = field(default_factory=lambda: Retention(100_000, 30 * 86_400_000_000))
    late: Retention = field(default_factory=lambda: Retention(1_000_000, 366 * 86_400_000_000))
    tries: int = 5  # of a run, a change or a merge before giving up; for storage calls see `storage_tries`
    cursor_lag: int = 100  # deliveries after which cursors are committed although more follow
    sink_rest_us: int = 1_000_000  # pause before a failed sink is retried; it doubles with every failure
    sink_rest_us_max: int = 60_000_000

    @property
    def storage_tries(self) -> int:
        """How often a put or a read is tried before the coordinator gives up."""
        return 4 * self.tries


def is_transient(error: MillpondError) -> bool:
    """Is it worth a retry?"""
    return isinstance(error, UnavailableError | InternalError) and not isinstance(error, ReadOnlyError)
