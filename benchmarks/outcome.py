"""What one contender reports about one run: the JSON every peer, and Millpond, writes.

Law: two outcomes may be compared only if they agree on `cores`, and on `rows` or else tell both (the
keyed-state benchmark compares rates over prefixes of one input); `run_seconds` covers the whole input given:
it begins after start-up, when the system could take its first row, and ends when the last row is in durable
state (or, for a batch engine, in the result).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.measure import Sample, usage


@dataclass(frozen=True)
class Outcome:
    name: str  # the contender, as the command line calls it
    system: str  # product and version
    rows: int
    cores: int
    startup_seconds: float
    run_seconds: float
    cpu_seconds: float  # of the process tree, during the run
    other_cpu_seconds: float  # of everything else on the machine, during the run: how quiet it was
    load_before: float  # one-minute load average when the process began
    peak_rss_bytes: int  # summed over the process tree; pages shared by two processes count twice
    peak_rss_anon_bytes: int  # the same without files and mapped pages of the page cache
    checkpoints: int | None  # durable commits completed in the run; None for a system that has none
    settings: Mapping[str, str]
    query: str | None = None  # where a benchmark has several
    state_bytes: int | None = None  # durable state at its largest or at the end, as the system counts it

    def __post_init__(self) -> None:
        for name in ("rows", "cores", "run_seconds", "peak_rss_bytes"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{self.name}: {name} must be positive, not {getattr(self, name)}")
        if self.checkpoints is not None and self.checkpoints < 1:
            raise ValueError(f"{self.name}: no checkpoint completed, so nothing was durable")

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.run_seconds

    @property
    def rows_per_cpu_second(self) -> float | None:
        """The rate that other work on the same cores disturbs least; None for a run too short to sample."""
        return self.rows / self.cpu_seconds if self.cpu_seconds > 0 else None

    def as_json(self) -> dict[str, Any]:
        rates = {"rows_per_second": self.rows_per_second, "rows_per_cpu_second": self.rows_per_cpu_second}
        return {**asdict(self), **rates}

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_json(), indent=2) + "\n")


@dataclass(frozen=True)
class Span:
    """Times of the wall clock: the process began, its system could take a row, the last row was in."""

    load_before: float
    began: float
    started: float
    ended: float


def over(
    span: Span,
    samples: Sequence[Sample],
    *,
    name: str,
    system: str,
    rows: int,
    cores: int,
    checkpoints: int | None,
    settings: Mapping[str, str],
    query: str | None = None,
    state_bytes: int | None = None,
) -> Outcome:
    """The outcome of a run, with what its process tree used while it took rows."""
    used = usage(samples, span.started, span.ended)
    return Outcome(
        name=name,
        system=system,
        rows=rows,
        cores=cores,
        startup_seconds=span.started - span.began,
        run_seconds=span.ended - span.started,
        cpu_seconds=used.cpu_seconds,
        other_cpu_seconds=used.other_cpu_seconds,
        load_before=span.load_before,
        peak_rss_bytes=used.peak_rss_bytes,
        peak_rss_anon_bytes=used.peak_rss_anon_bytes,
        checkpoints=checkpoints,
        settings=settings,
        query=query,
        state_bytes=state_bytes,
    )


def read(path: Path) -> Outcome:
    found: dict[str, Any] = json.loads(path.read_text())
    return Outcome(**{field.name: found[field.name] for field in fields(Outcome)})
