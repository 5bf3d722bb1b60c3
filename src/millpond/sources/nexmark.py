"""Nexmark as a source: events of one kind, a given number of them, at full speed or at a given rate.

An event is a function of its number, so a split is a range of numbers, and replay is free.
Only `poll` reads a clock, and only for a live rate: the number of events that are due follows from the start
time in the position, so a pond that was closed for a while catches up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from millpond.clock import Clock, SystemClock
from millpond.errors import DataError, InvalidError
from millpond.operators.source_traits import KeepsHistory
from millpond.sources.nexmark_events import CYCLE, SCHEMAS, Kind, NexmarkConfig, generate
from millpond.sources.source import Advance, Poll, Split
from millpond.state.tables.table_spec import TableSpec

SPLITS_PER_POLL = 8  # so that all tasks get work
_KINDS: dict[str, tuple[int, int]] = {"person": (0, 1), "auction": (1, 3), "bid": (4, 46)}  # in each cycle


@dataclass(frozen=True)
class NexmarkSource(KeepsHistory):
    """The persons, auctions or bids among the first `events` events; without a number it never ends.

    With `events_per_second_live` events arrive in real time, counted over all three kinds.  Sources of the
    three kinds with the same config refer to each other's events.

    >>> source = NexmarkSource("bid", events=1000)
    >>> [s.rows for s in source.poll(None, None, 10**6).splits]
    [113, 117, 113, 117, 113, 117, 113, 117]
    """

    kind: Kind = "bid"
    events: int | None = None
    config: NexmarkConfig = field(default_factory=NexmarkConfig)
    events_per_second_live: int | None = None
    clock: Clock = field(default_factory=SystemClock, compare=False, repr=False, metadata={"durable": False})

    append_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.kind not in SCHEMAS:
            raise InvalidError(f"no nexmark kind named {self.kind!r}", hint=f"one of {', '.join(SCHEMAS)}")
        for name in ("events", "events_per_second_live"):
            value = getattr(self, name)
            if value is not None and not 1 <= value < 2**47:
                raise InvalidError(f"{name} is out of range", detail=f"got {value}", hint="pass 1 or more")

    @property
    def schema(self) -> pa.Schema:
        return SCHEMAS[self.kind]

    def table(self, step: str) -> TableSpec | None:
        return None

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        first = _next(position)
        start_us = None
        end = 2**47 if self.events is None else self.events
        if self.events_per_second_live is not None:
            now_us = self.clock.now_us()
            start_us = now_us if position is None else int(position["start_us"])
            due = (now_us - start_us) * self.events_per_second_live // 1_000_000
            end = min(end, due + 1)  # the first event comes at once and records the start
        if first >= end:
            return Poll(backlog_rows=0)
        count = _KINDS[self.kind][1]
        last = min(end, first + max(SPLITS_PER_POLL, max_rows * CYCLE // count))
        splits = []
        for number in range(SPLITS_PER_POLL):
            lo = first + (last - first) * number // SPLITS_PER_POLL
            hi = first + (last - first) * (number + 1) // SPLITS_PER_POLL
            if lo < hi:
                what = {"first": lo, "last": hi}
                if start_us is not None:
                    what["start_us"] = start_us
                rows = self._rows(lo, hi)
                splits.append(Split(what, rows, rows * getattr(self.config, f"{self.kind}_bytes")))
        backlog = self._rows(last, end) if self.events is not None or start_us is not None else None
        return Poll(tuple(splits), backlog_rows=backlog)

    def advance(
        self, position: Any, admitted: Sequence[Split], rejects: Sequence[tuple[str, str]]
    ) -> Advance:
        if not admitted:
            return Advance(position)
        what: Mapping[str, Any] = admitted[-1].what
        start = {"start_us": what["start_us"]} if "start_us" in what else {}
        return Advance({"next": what["last"], **start})

    def history(self, position: Any, seen: pa.Table | None, rows: int) -> Iterator[Split]:
        end = _next(position)
        step = max(1, rows * CYCLE // _KINDS[self.kind][1])
        for first in range(0, end, step):
            last = min(end, first + step)
            count = self._rows(first, last)
            what = {"first": first, "last": last}
            yield Split(what, count, count * getattr(self.config, f"{self.kind}_bytes"))

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        # The generator needs at least one column; the event number is the cheapest.
        wanted = list(columns) or ["_event"]
        rows = generate(self.kind, split.what["first"], split.what["last"], self.config, wanted)
        yield rows.select(list(columns))

    def _rows(self, first: int, last: int) -> int:
        """The number of rows among these events; approximate if events are out of order."""
        return self._before(last) - self._before(first)

    def _before(self, number: int) -> int:
        start, count = _KINDS[self.kind]
        return number // CYCLE * count + min(max(number % CYCLE - start, 0), count)


def _next(position: Any) -> int:
    if position is None:
        return 0
    if not isinstance(position, dict) or not isinstance(position.get("next"), int):
        raise DataError(
            "the position is not one of a nexmark source",
            detail=f"got {position!r}",
            hint="the step read another kind of source before; give this one another name",
        )
    return int(position["next"])
