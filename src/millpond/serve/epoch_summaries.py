"""Summarises an epoch from its manifest alone."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass

from millpond.serve.epoch_view import utc
from millpond.serve.reader import Reader
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest, is_retained


@dataclass(frozen=True)
class EpochSummary:
    epoch: int
    kind: str  # epoch, create, takeover, rollback, fork
    when: datetime.datetime  # the epoch's time, in UTC
    rows: int | None  # admitted rows; None if no level was run
    ms: float | None
    parallelism: int
    tasks: tuple[int, ...]  # the number of tasks of each level that was run
    watermarks: Mapping[str, datetime.datetime]  # by step
    changed: Mapping[str, int]  # by table: rows that the epoch wrote
    bytes: int  # bytes of new state
    note: str | None  # savepoints, commands, merges


def summary(manifest: Manifest, savepoints: Mapping[str, int]) -> EpochSummary:
    fresh = [r for r in manifest.added if r.kind == "delta" and manifest.restores is None]
    changed: dict[str, int] = {}
    for ref in fresh:
        changed[ref.table] = changed.get(ref.table, 0) + ref.rows
    return EpochSummary(
        manifest.epoch,
        manifest.kind,
        utc(manifest.now_us),
        manifest.metrics.get("rows"),
        manifest.metrics.get("ms"),
        manifest.parallelism,
        tuple(manifest.metrics.get("tasks", ())),
        bounds(manifest),
        changed,
        sum(r.bytes for r in fresh),
        note(manifest, savepoints),
    )


def summaries(reader: Reader, last: int | None) -> tuple[list[EpochSummary], int]:
    """The newest readable epochs, newest last, and the total number."""
    head = reader.head()
    retained = [e for e in history.epochs(reader.store) if is_retained(head, e)]
    shown = retained if last is None else retained[max(0, len(retained) - last) :]
    manifests = [history.find_manifest(reader.store, e) for e in shown]  # one may be collected meanwhile
    return [summary(m, head.savepoints) for m in manifests if m is not None], len(retained)


def bounds(manifest: Manifest) -> dict[str, datetime.datetime]:
    """The watermarks as times, of the steps that have one."""
    found = {}
    for step, mark in manifest.watermarks.items():
        bound = mark.get("bound") if isinstance(mark, Mapping) else None
        if bound is not None:
            found[step] = utc(int(bound))
    return found


def note(manifest: Manifest, savepoints: Mapping[str, int]) -> str | None:
    """What was special about the epoch, in a few words."""
    parts = [f"savepoint {name}" for name, e in savepoints.items() if e == manifest.epoch]
    if manifest.restores is not None:
        parts.append(f"back to epoch {manifest.restores}")
    if manifest.kind == "takeover":
        parts.append(f"taken over, token {manifest.token}")
    if manifest.kind == "fork":
        parts.append(f"forked from epoch {manifest.metrics.get('parent_epoch')}")
    if manifest.kind == "change":
        came = ", ".join(manifest.metrics.get("came", ())) or "nothing"
        went = ", ".join(manifest.metrics.get("went", ())) or "nothing"
        parts.append(f"the program changed: {came} came, {went} went")
    if "refused" in manifest.metrics:
        parts.append(str(manifest.metrics["refused"]))
    merges = sum(r.kind == "merge" for r in manifest.added)
    if merges and manifest.restores is None:
        parts.append(f"{merges} merged runs")
    return ", ".join(parts) or None
