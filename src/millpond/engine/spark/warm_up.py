"""Warms up a process before its first epoch: runs kernels once, opens databases, rehearses an exchange.

Law: nothing here is state (law 4).  A process that was not warmed up does the same in its first task: a fork
takes a tenth of a second, a database twenty milliseconds, the first exchange of a JVM two tenths.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond import hashing
from millpond.engine.task.frames import Raw
from millpond.kernels import duck

ENGINE = "millpond.engine.spark.chain"


def warm() -> None:
    """Run the common kernels once on a few rows: their first call builds tables and registries."""
    table = pa.table({"n": [3, 1, 2], "s": ["a", None, "b"], "f": [0.5, 1.5, -0.0]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    back = pa.ipc.open_stream(sink.getvalue()).read_all()
    hashes = hashing.hash_columns([back["n"], back["s"], back["f"]], back.num_rows)
    order = np.argsort(hashes, kind="stable")
    batch = back.combine_chunks().to_batches()[0]
    batch.take(pa.array(order)).filter(pc.greater(batch["n"], 1))
    np.searchsorted(hashes[order], hashes)


class Rehearsal:
    """A level that warms up its worker, then sends every task of the next level its input, or one frame."""

    def __init__(self, targets: int) -> None:
        self.targets = targets

    def __call__(self, task: int, frames: Iterator[Raw]) -> Iterator[tuple[int, Raw]]:
        make_ready()
        received = list(frames) or [task.to_bytes(8, "little")]
        for target in range(self.targets):
            for frame in received:
                yield target, frame


def make_ready() -> None:
    """Warm up a worker completely; it may have been forked by another daemon than ours."""
    importlib.import_module(ENGINE)
    warm()
    rows = pa.table({"n": [1], "s": ["a"]})
    duck.statement(("ready", ENGINE), lambda view: f"select n + 1 as n, s from {view}", rows.schema).run(rows)
