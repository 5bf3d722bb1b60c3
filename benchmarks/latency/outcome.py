"""What one contender reports about one latency run: the JSON that every system writes.

Law: two outcomes may be compared when they agree on `query`, `rate`, `tick_ms` and `cores`. `committed` says
in words what a sight is for this system; where a system shows rows before they are durable, those are
`emitted`, an outcome of their own beside the committed one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.latency.age import Ages, Delays


@dataclass(frozen=True)
class Latency:
    name: str  # the contender, as the command line calls it
    system: str  # product and version
    query: str
    rate: int  # events a second
    seconds: int  # that were measured, after the warm-up
    tick_ms: int
    cores: int
    committed: str  # what counts as committed
    age: Ages
    results: Delays | None  # of windows: None for a query without them
    emitted: Ages | None  # of rows that are out but not durable, where a system has such
    emitted_results: Delays | None
    feed_late_ms: float  # the latest tick of the feed itself
    startup_seconds: float
    cpu_seconds: float  # of the process tree, in the measured seconds
    other_cpu_seconds: float  # of everything else on the machine: how quiet it was
    peak_rss_anon_bytes: int
    wrong: tuple[str, ...]  # what is wrong with the results, in words; empty when they are the batch answer
    settings: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_json(), indent=2) + "\n")


def _maybe(kind: type[Any], found: Mapping[str, Any] | None) -> Any:
    return None if found is None else kind(**found)


def read(path: Path) -> Latency:
    found: dict[str, Any] = json.loads(path.read_text())
    for name, kind in (("age", Ages), ("results", Delays), ("emitted", Ages), ("emitted_results", Delays)):
        found[name] = _maybe(kind, found[name])
    found["wrong"] = tuple(found["wrong"])
    return Latency(**found)
