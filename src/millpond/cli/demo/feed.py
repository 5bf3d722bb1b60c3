"""The demo's input: a fixed number of Nexmark auctions and bids that arrive over time.

Both processes of the demo, and the batch query that checks them, generate the same events from the same
numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from millpond.clock import Clock, SystemClock
from millpond.sources.nexmark import NexmarkSource
from millpond.sources.nexmark_events import Kind, NexmarkConfig, generate

STEPS: dict[str, Kind] = {
    "auctions": "auction",
    "bids": "bid",
}  # the names of the streams, and what they bring


@dataclass(frozen=True)
class DemoFeed:
    events: int
    per_second: int
    slices: int = 30  # the minimum number of epochs, however far behind the pipeline is
    seed: int = 1

    @property
    def config(self) -> NexmarkConfig:
        return NexmarkConfig(seed=self.seed, events_per_second=self.per_second)

    @property
    def seconds(self) -> int:
        """How long it takes until all events have arrived."""
        return self.events // self.per_second

    @property
    def slice_events(self) -> int:
        return -(-self.events // self.slices)

    def clock(self, positions: Mapping[str, Any]) -> SliceClock:
        """The clock of the sources; after a restart it continues from the events that were processed."""
        seen_us = [
            int(at["start_us"]) + int(at["next"]) * 1_000_000 // self.per_second
            for step, at in positions.items()
            if step in STEPS
        ]
        return SliceClock(
            SystemClock(), self.slice_events * 1_000_000 // self.per_second, min(seen_us, default=None)
        )

    def source(self, step: str, clock: Clock) -> NexmarkSource:
        return NexmarkSource(STEPS[step], self.events, self.config, self.per_second, clock)

    def done(self, positions: Mapping[str, Any]) -> int:
        """The number of events processed according to a manifest, in all streams."""
        return min(self.taken(positions, step) for step in STEPS)

    def taken(self, positions: Mapping[str, Any], step: str) -> int:
        return int(positions[step]["next"]) if step in positions else 0

    def lag_s(self, positions: Mapping[str, Any], now_us: int) -> float:
        """The age of the oldest event that has arrived and is not processed."""
        if not all(step in positions for step in STEPS):
            return 0.0
        start_us = min(int(positions[step]["start_us"]) for step in STEPS)
        due = min(self.events, (now_us - start_us) * self.per_second // 1_000_000)
        return max(0, due - self.done(positions)) / self.per_second

    def rows(self, step: str, upto: int, columns: list[str]) -> pa.Table:
        """The rows of a stream among the first `upto` events."""
        return generate(STEPS[step], 0, upto, self.config, columns)

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str) -> DemoFeed:
        return DemoFeed(**json.loads(text))


class SliceClock:
    """A clock that advances in slices, however much time there is to catch up.

    So a pipeline that was dead for a while catches up in many epochs rather than in one, and reads its inbox
    between them.

    >>> from millpond.clock import ManualClock
    >>> clock = SliceClock(ManualClock(100), 25, 60)
    >>> [clock.next_slice() for _ in range(3)]
    [85, 100, 100]
    """

    def __init__(self, clock: Clock, slice_us: int, seen_us: int | None) -> None:
        self._clock = clock
        self._slice_us = slice_us
        self._at_us = clock.now_us() if seen_us is None else seen_us

    def next_slice(self) -> int:
        self._at_us = min(self._clock.now_us(), self._at_us + self._slice_us)
        return self._at_us

    def now_us(self) -> int:
        return self._at_us
