"""The input of a task (`EpochSpec`) and its result (`Report`).

An `EpochSpec` is all that a task needs besides storage (law 4): any task can run
anywhere with it and the store.  A `Report` describes what one attempt of one
task did; only files that a report brought to the driver exist.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import xxhash

from millpond.engine.task.optimizer import passes_off
from millpond.plan.local_lookup import NO_LOCAL_LOOKUPS, LocalLookups
from millpond.sources.source import Split
from millpond.state.manifest.manifest import Manifest, Page, RunId, ref_from_json, ref_to_json
from millpond.state.runs.run_ref import RunRef


@dataclass(frozen=True)
class Past:
    """The epoch that a backfill reads from: its listing.

    With `since` it reads what changed after that epoch: `changed` are the runs of the epochs between.
    """

    pages: tuple[Page, ...]
    recent: tuple[RunRef, ...]
    gone: tuple[RunId, ...]
    since: Past | None = None
    changed: tuple[RunRef, ...] = ()
    # The watermarks after these rows, above those of the spec; None while these stay, as more rows follow.
    rises: Mapping[str, Any] | None = None
    spans: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # see `coalesced_buckets`

    @staticmethod
    def of(manifest: Manifest) -> Past:
        return Past(manifest.pages, manifest.recent, manifest.gone)


@dataclass(frozen=True)
class EpochSpec:
    store: str  # uri
    catalog: str  # name of the plan in the store
    epoch: int
    token: int
    now_us: int
    parallelism: tuple[int, ...]  # tasks of each level that runs
    # For each task of level 0: (scan step, number of the split among all splits of the epoch, split).
    splits: tuple[tuple[tuple[str, int, Split], ...], ...]
    pages: tuple[Page, ...]
    recent: tuple[RunRef, ...]
    gone: tuple[RunId, ...]
    watermarks: Mapping[str, Any]  # as of epoch e-1
    roots: Mapping[str, str]
    checks: bool = False
    durable: bool = True
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    # In a backfill: the epoch from which tables are read.  Its rows are in no order of time, so watermarks
    # derived from them are reported but not applied, except where `Past.rises` says so.
    past: Past | None = None
    full_rows: bool = False  # read all columns, also those that only error rows need
    in_parts: bool = False  # tasks run parts of the plan (`engine.task.plan_parts`) instead of hash ranges
    local_lookups: LocalLookups = NO_LOCAL_LOOKUPS
    vectorize_user_code: bool = True  # if false, user code runs row by row and its bytecode is not analyzed
    log_buckets: Mapping[str, int] = field(default_factory=dict)  # by log table: the bucket to write
    arrivals: Mapping[str, Any] = field(default_factory=dict)  # by scan: see `engine.task.watermarks`
    # Disabled passes and choices; the driver reads them from the environment.
    passes_off: frozenset[str] = field(default_factory=passes_off)


ALL = -1


def heard(
    parallelism: Sequence[int], attempts: Mapping[tuple[int, int], str]
) -> tuple[tuple[int, int, str], ...]:
    """The attempts whose headers a task received, by (level, task).

    A thousand tasks that each list a thousand others would be a million entries: where all tasks of a level
    were heard, a digest stands for them.

    >>> heard((2, 2), {(0, 0): "a"})
    ((0, 0, 'a'),)
    >>> heard((2, 2), {(0, 1): "b", (0, 0): "a"}) == ((0, ALL, attempts_digest(["a", "b"])),)
    True
    """
    entries: list[tuple[int, int, str]] = []
    for level in sorted({level for level, _ in attempts}):
        mine = {task: attempt for (of, task), attempt in attempts.items() if of == level}
        if len(mine) == parallelism[level]:
            entries.append((level, ALL, attempts_digest([mine[task] for task in sorted(mine)])))
        else:
            entries += [(level, task, mine[task]) for task in sorted(mine)]
    return tuple(entries)


def attempts_digest(attempts: Sequence[str]) -> str:
    """Stands for the attempts of all tasks of a level, in their order."""
    return xxhash.xxh3_128_hexdigest("/".join(attempts).encode())


@dataclass(frozen=True)
class Report:
    level: int
    task: int
    attempt: str
    # (level, task, attempt) of every header; (level, ALL, digest) if every task of the level sent one
    heard: tuple[tuple[int, int, str], ...]
    runs: tuple[RunRef, ...]
    drops: tuple[tuple[str, int], ...]
    counts: Mapping[str, int]
    watermarks: Mapping[str, Any]  # what was observed; in a backfill, states
    metrics: Mapping[str, Any]

    def encode(self) -> bytes:
        data = {
            "level": self.level,
            "task": self.task,
            "attempt": self.attempt,
            "heard": self.heard,
            "runs": [ref_to_json(r) for r in self.runs],
            "drops": self.drops,
            "counts": dict(self.counts),
            "watermarks": dict(self.watermarks),
            "metrics": dict(self.metrics),
        }
        return json.dumps(data, separators=(",", ":")).encode()

    @staticmethod
    def decode(raw: bytes | memoryview) -> Report:
        data = json.loads(bytes(raw))
        return Report(
            data["level"],
            data["task"],
            data["attempt"],
            tuple((lv, t, a) for lv, t, a in data["heard"]),
            tuple(ref_from_json(r) for r in data["runs"]),
            tuple((t, b) for t, b in data["drops"]),
            data["counts"],
            data["watermarks"],
            data["metrics"],
        )
