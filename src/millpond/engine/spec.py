"""What a task is told, and what it tells back.

An `EpochSpec` is all a task needs besides storage (law 4): any task can run
anywhere with only this and the store.  A `Report` is what one attempt of one
task did; only what a report brought to the driver exists.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millpond.plan.near import NOWHERE, Near
from millpond.sources.source import Split
from millpond.state.manifest import Manifest, Page, RunId, ref_from_json, ref_to_json
from millpond.state.run_ref import RunRef


@dataclass(frozen=True)
class Past:
    """The epoch that a backfill reads from: its listing.

    With `since` it reads what changed from that epoch on: what `changed` tells, runs of the epochs between.
    """

    pages: tuple[Page, ...]
    recent: tuple[RunRef, ...]
    gone: tuple[RunId, ...]
    since: Past | None = None
    changed: tuple[RunRef, ...] = ()
    # Where time comes to with these rows; None where it stands still, since more of them will come.
    rises: Mapping[str, Any] | None = None
    spans: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # see `engine.over`

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
    parallelism: tuple[int, ...]  # tasks of each level that is run
    # For each task of level 0: (scan step, number of the split among all that the epoch admitted, split).
    splits: tuple[tuple[tuple[str, int, Split], ...], ...]
    pages: tuple[Page, ...]
    recent: tuple[RunRef, ...]
    gone: tuple[RunId, ...]
    watermarks: Mapping[str, Any]  # as of epoch e-1
    roots: Mapping[str, str]
    checks: bool = False
    durable: bool = True
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    # Of a backfill: where tables are read from.  Its rows come in no order of time, so what they tell of
    # watermarks is reported, and acted upon by nobody, but where `Past.rises` says so.
    past: Past | None = None
    whole: bool = False  # no columns are left out that only failures would show
    apart: bool = False  # tasks are parts of the plan (`engine.parts`), not ranges of hashes
    near: Near = NOWHERE
    log_buckets: Mapping[str, int] = field(default_factory=dict)  # by table: where its rows are written


@dataclass(frozen=True)
class Report:
    level: int
    task: int
    attempt: str
    heard: tuple[tuple[int, int, str], ...]  # (level, task, attempt) of every header
    runs: tuple[RunRef, ...]
    drops: tuple[tuple[str, int], ...]
    counts: Mapping[str, int]
    watermarks: Mapping[str, Any]
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
