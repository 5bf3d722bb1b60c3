"""Runs a merge: reads the runs of one table and writes them as one.

Small merges run in the coordinator's process; large ones run on the engine's
workers beside the chain, in units of bounded size.  A unit leaves its worker about
as large as before: epochs need far less memory, and have priority.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millpond.engine.engine import Engine
from millpond.engine.task.memory import as_large_as_before
from millpond.engine.task.worker import Worker, worker_for
from millpond.state.manifest.manifest import ref_from_json, ref_to_json
from millpond.state.runs import run_names
from millpond.state.runs.compaction import MergeJob
from millpond.state.runs.merge import merge_segments
from millpond.state.runs.packed_writer import PackedWriter, SegmentInfo
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables import batched_merge
from millpond.state.tables.stacked_rows import stack_shape
from millpond.state.tables.table_spec import TableSpec

IN_DRIVER_BYTES = 8 << 20


@dataclass(frozen=True)
class Unit:
    store: str
    options: dict[str, Any] = field(repr=False)
    spec: TableSpec
    job: MergeJob
    h_min: int
    h_max: int
    token: int
    epoch: int
    number: int


def compact(
    job: MergeJob,
    spec: TableSpec,
    worker: Worker,
    engine: Engine,
    token: int,
    epoch: int,
    options: Mapping[str, Any],
) -> tuple[RunRef, ...]:
    """Run a merge; returns the runs that replace the job's inputs, none if no rows are left.

    `options` are what the engine's workers need to open the store.
    """
    units = [
        Unit(worker.store.uri, dict(options), spec, job, lo, hi, token, epoch, n)
        for n, (lo, hi) in enumerate(job.units)
    ]
    if job.bytes <= IN_DRIVER_BYTES:
        merged = [merge_unit(unit, worker) for unit in units]
    else:
        raw = engine.map(_run_unit, [pickle.dumps(u) for u in units])
        merged = [None if r == b"" else ref_from_json(json.loads(r)) for r in raw]
    return tuple(r for r in merged if r is not None)


def merge_small(
    jobs: Sequence[tuple[MergeJob, TableSpec]], worker: Worker, token: int, epoch: int
) -> list[tuple[MergeJob, tuple[RunRef, ...]]]:
    """Run small merges of several tables in the coordinator's process, into one file."""
    writer = PackedWriter()
    with_segments: list[tuple[MergeJob, SegmentInfo | None]] = []
    for group in _groups(jobs):
        merged = None
        if len(group) > 1:
            merged = batched_merge.merge(
                [spec for _, spec in group],
                [job.refs for job, _ in group],
                [job.drop_tombstones for job, _ in group],
                worker.open_file,
            )
        if merged is not None:
            sizes, columns = merged
            infos = writer.add_stack([(s, size) for (_, s), size in zip(group, sizes, strict=True)], columns)
            with_segments += [(job, info) for (job, _), info in zip(group, infos, strict=True)]
            continue
        for job, spec in group:
            rows = merge_segments(spec, job.refs, worker.open_file, drop_tombstones=job.drop_tombstones)
            with_segments.append((job, writer.add(spec, rows, bucket=job.bucket, presorted=True)))
    buffers, written = writer.finish()
    name = run_names.new_name(token, epoch, run_names.MERGE)
    if written:
        run_names.put_run(worker.store, name, buffers)
    return [
        (job, () if info is None else (info.ref(name, lo=job.lo, hi=job.hi, kind="merge"),))
        for job, info in with_segments
    ]


def _groups(jobs: Sequence[tuple[MergeJob, TableSpec]]) -> list[list[tuple[MergeJob, TableSpec]]]:
    """Group merges of tables with the same shape, with the first job in the first group."""
    groups: dict[Any, list[tuple[MergeJob, TableSpec]]] = {}
    for job, spec in jobs:
        shape = stack_shape(spec) if job.bucket is None else None
        groups.setdefault(shape or (job.table, job.bucket), []).append((job, spec))
    return list(groups.values())


def merge_unit(unit: Unit, worker: Worker) -> RunRef | None:
    rows = merge_segments(
        unit.spec, unit.job.refs, worker.open_file, unit.h_min, unit.h_max, unit.job.drop_tombstones
    )
    if rows.num_rows == 0:
        return None
    writer = PackedWriter()
    writer.add(unit.spec, rows, bucket=unit.job.bucket, presorted=True)
    buffers, infos = writer.finish()
    name = run_names.new_name(unit.token, unit.epoch, run_names.MERGE, unit.number)
    run_names.put_run(worker.store, name, buffers)
    return infos[0].ref(name, lo=unit.job.lo, hi=unit.job.hi, kind="merge")


def _run_unit(raw: bytes) -> bytes:
    unit: Unit = pickle.loads(raw)
    with as_large_as_before():
        ref = merge_unit(unit, worker_for(unit.store, **unit.options))
    return b"" if ref is None else json.dumps(ref_to_json(ref)).encode()
