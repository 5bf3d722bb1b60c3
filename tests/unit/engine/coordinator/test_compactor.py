"""Small merges of several tables in one file: each is that of its table and its bucket alone."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa

from millpond.engine.coordinator.compactor import merge_small
from millpond.engine.task.worker import Worker
from millpond.state.runs.compaction import plan_merges
from millpond.state.runs.merge import merge_segments
from millpond.state.runs.packed_writer import PackedWriter
from millpond.state.runs.run_ref import RunRef
from millpond.state.store.store import open_store
from millpond.state.tables.table_spec import TableSpec

SPECS = [
    TableSpec("a", pa.schema([("k", pa.int64()), ("n", pa.int64())]), ("k",)),
    TableSpec("b", pa.schema([("x", pa.int64()), ("y", pa.int64())]), ("x",)),
    TableSpec("w", pa.schema([("k", pa.int64()), ("n", pa.int64())]), ("k",), rule="weights"),
    TableSpec(
        "t", pa.schema([("k", pa.int64()), ("at", pa.int64())]), ("k", "at"), time="at", bucket_width=10
    ),
]


def test_each_table_and_bucket_is_merged_by_itself(tmp_path: Path) -> None:
    chance = random.Random(3)
    worker = Worker(open_store(tmp_path.as_uri(), durable=False))
    runs: list[RunRef] = []
    for epoch in range(7):
        writer = PackedWriter()
        for spec in SPECS:
            for bucket in (None,) if spec.time is None else (0, 1, 2):
                keys = chance.sample(range(20), 8)
                second = [chance.randrange(10) + 10 * (bucket or 0) for _ in keys]
                rows = pa.table([keys, second], schema=spec.schema)
                weights = pa.array([chance.choice([0, 1]) for _ in keys], pa.int64())
                writer.add(spec, rows.append_column("_w", weights), bucket=bucket)
        buffers, infos = writer.finish()
        name = f"runs/{os.urandom(4).hex()}"
        worker.store.put_new(name, buffers)
        runs += [i.ref(name, lo=epoch, hi=epoch, kind="delta") for i in infos]
    by_name = {spec.name: spec for spec in SPECS}
    jobs = [(job, by_name[job.table]) for job in plan_merges(runs)]
    assert len(jobs) == 6
    done = merge_small(jobs, worker, 1, 9)
    assert done[0][0] is jobs[0][0]
    for job, refs in done:
        spec = by_name[job.table]
        assert {(r.table, r.bucket) for r in refs} == {(job.table, job.bucket)}
        wanted = merge_segments(spec, job.refs, worker.open_file, drop_tombstones=job.drop_tombstones)
        assert merge_segments(spec, refs, worker.open_file).equals(wanted)
    files = {ref.file for _, refs in done for ref in refs}
    assert len(files) == 1
    stacked = worker.open_file(files.pop())
    assert [e.table for e in stacked.entries if e.first is not None] == ["a", "b"]
