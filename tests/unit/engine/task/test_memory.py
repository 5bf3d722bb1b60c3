"""A merge of large runs leaves a worker about as large as it was, though workers keep the memory of epochs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.engine.spark.daemon import ENVIRONMENT
from millpond.engine.task.memory import anonymous_bytes, as_large_as_before

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what a process holds is asked of Linux")

# As in a worker: the allocator is told before the process starts.
MERGES = """
import pickle, sys
import numpy as np, pyarrow as pa
from millpond.engine.coordinator import compactor
from millpond.engine.task import memory
from millpond.engine.task.worker import worker_for
from millpond.state.runs.compaction import plan_merges
from millpond.state.runs.packed_writer import PackedWriter
from millpond.state.tables.table_spec import TableSpec

spec = TableSpec("late", pa.schema([("k", pa.int64()), ("n", pa.int64())]), ("k", "n"), rule="weights")
worker = worker_for(sys.argv[1], durable=False)
refs = []
for epoch in range(6):
    writer = PackedWriter()
    numbers = np.arange(epoch, 600_000, 6)
    writer.add(spec, pa.table({"k": numbers % 1000, "n": numbers, "_w": np.ones(len(numbers), np.int64)}))
    buffers, (info,) = writer.finish()
    worker.store.put_new(f"runs/0/{epoch}", buffers)
    refs.append(info.ref(f"runs/0/{epoch}", lo=epoch, hi=epoch, kind="delta"))
(job,) = plan_merges(refs)
del writer, buffers
memory.give_back()
(lo, hi), = job.units
unit = pickle.dumps(compactor.Unit(sys.argv[1], {"durable": False}, spec, job, lo, hi, 1, 9, 0))
before = memory.anonymous_bytes()
assert compactor._run_unit(unit)
print((memory.anonymous_bytes() - before) >> 20, job.bytes >> 20)
"""


def test_a_merge_leaves_a_worker_as_large_as_it_was(tmp_path: Path) -> None:
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(
        [sys.executable, "-c", MERGES, tmp_path.as_uri()],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    grown, merged = map(int, done.stdout.split())
    assert merged > 10
    assert grown < 10, "MiB"


def test_little_is_kept_and_much_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr("millpond.engine.task.memory.give_back", lambda: given.append(anonymous_bytes()))
    with as_large_as_before():
        pass
    assert given == []
    with as_large_as_before():
        kept = bytearray(b"x") * (32 << 20)
    assert len(given) == 1
    with pytest.raises(KeyError), as_large_as_before():
        more = bytearray(b"x") * (32 << 20)
        raise KeyError
    assert len(given) == 2
    assert len(kept) == len(more)
