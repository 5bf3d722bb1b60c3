"""The Bytewax job; runs under the Python that has Bytewax, so it imports nothing of ours.

Two workers are two threads of one process, or two processes: then this script starts itself once for each.
Keys must be text in Bytewax; the source makes the pairs itself, which saves a step.
"""

import json
import sqlite3
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

Item = tuple[str, int]
State = tuple[int, int]


class Bids(StatefulSourcePartition[Item, int]):
    """A file, in batches; what it remembers is how many batches it gave."""

    def __init__(self, path: str, batch_rows: int, given: int, marker: Path) -> None:
        self.given = given
        self.marker = marker
        file = pq.ParquetFile(path)
        self.batches = file.iter_batches(batch_size=batch_rows, columns=["auction", "price"])
        for _ in range(given):
            next(self.batches)

    def next_batch(self) -> list[Item]:
        if not self.marker.exists():
            self.marker.write_text(str(time.time()))
        auction, price = next(self.batches).columns  # the end is a StopIteration for Bytewax too
        self.given += 1
        return list(zip(map(str, auction.to_pylist()), price.to_pylist(), strict=True))

    def snapshot(self) -> int:
        return self.given


class Files(FixedPartitionedSource[Item, int]):
    def __init__(self, folder: str, batch_rows: int, marker: Path) -> None:
        self.folder, self.batch_rows, self.marker = folder, batch_rows, marker

    def list_parts(self) -> list[str]:
        return [str(path) for path in sorted(Path(self.folder).glob("*.parquet"))]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Bids:
        return Bids(for_part, self.batch_rows, resume_state or 0, self.marker)


class Nowhere(StatelessSinkPartition[Any]):
    def write_batch(self, items: list[Any]) -> None:
        pass


class Kept(StatelessSinkPartition[Any]):
    """Writes what it was given when the input has ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[tuple[int, int, int]] = []

    def write_batch(self, items: list[Any]) -> None:
        self.rows += [(int(key), n, total) for key, (n, total) in items]

    def close(self) -> None:
        columns = [pa.array((row[i] for row in self.rows), pa.int64()) for i in range(3)]
        pq.write_table(pa.table(columns, names=["auction", "n", "total"]), self.path)


class Out(DynamicSink[Any]):
    def __init__(self, collect: str | None) -> None:
        self.collect = collect

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition[Any]:
        if self.collect is None:
            return Nowhere()
        return Kept(Path(self.collect, f"worker-{worker_index}.parquet"))


def count(state: State | None, price: int) -> tuple[State, State]:
    n, total = state or (0, 0)
    state = (n + 1, total + price)
    return state, state


def flow(task: dict[str, Any], process: int) -> Dataflow:
    made = Dataflow("keyed_state")
    marker = Path(task["work"], f"started-{process}")
    bids = op.input("bids", made, Files(task["input"], task["batch_rows"], marker))
    counted = op.stateful_map("count", bids, count)
    op.output("out", counted, Out(task["collect"]))
    return made


def work(task: dict[str, Any], process: int) -> None:
    cluster_main(
        flow(task, process),
        task["addresses"] if task["processes"] > 1 else [],
        process,
        epoch_interval=timedelta(seconds=task["epoch_seconds"]),
        recovery_config=RecoveryConfig(str(Path(task["work"], "recovery"))),
        worker_count_per_proc=task["workers"] // task["processes"],
    )


def epochs(folder: Path) -> int:
    """Epochs, counted from 1, that every worker has left behind, as the recovery partitions tell."""
    least = []
    for path in folder.glob("*.sqlite3"):
        with sqlite3.connect(path) as connection:
            least += [row[0] for row in connection.execute("SELECT min(worker_frontier) FROM fronts")]
    return min(one for one in least if one is not None) - 1


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text())
    if len(sys.argv) > 2:
        work(task, int(sys.argv[2]))
        return
    recovery = Path(task["work"], "recovery")
    recovery.mkdir()
    init_db_dir(recovery, task["workers"])
    if task["processes"] == 1:
        work(task, 0)
    else:
        started = [
            subprocess.Popen([sys.executable, __file__, sys.argv[1], str(number)])
            for number in range(task["processes"])
        ]
        codes = [process.wait() for process in started]
        if any(codes):
            raise RuntimeError(f"workers ended with codes {codes}")
    ended = time.time()
    first = min(float(path.read_text()) for path in Path(task["work"]).glob("started-*"))
    Path(task["clock"]).write_text(
        json.dumps({"started": first, "ended": ended, "commits": epochs(recovery)})
    )


if __name__ == "__main__":
    main()
