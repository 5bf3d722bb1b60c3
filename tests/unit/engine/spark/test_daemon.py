"""A worker of ours ends without a word when Spark has no more tasks for it."""

from __future__ import annotations

import socket
from io import BufferedReader
from typing import BinaryIO

import pytest

from millpond.engine.spark.daemon import ends_quietly


def test_a_worker_that_is_no_longer_needed_ends() -> None:
    spark, worker = socket.socketpair()
    spark.close()

    def work(infile: BufferedReader, outfile: BinaryIO) -> None:
        pytest.fail("there is no task")

    with worker, worker.makefile("rwb") as both, pytest.raises(SystemExit) as ended:
        ends_quietly(work)(both, both)  # type: ignore[arg-type]
    assert ended.value.code == 1, "or the daemon would wait for another task"


def test_a_task_is_read_whole() -> None:
    spark, worker = socket.socketpair()
    read: list[bytes] = []
    with spark, worker, worker.makefile("rb") as infile, worker.makefile("wb") as outfile:
        spark.sendall(b"a task")
        ends_quietly(lambda infile, outfile: read.append(infile.read(6)))(infile, outfile)
    assert read == [b"a task"]
