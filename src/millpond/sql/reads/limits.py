"""Limits the memory, disk, time and rows of a SELECT, and lets Ctrl-C end it.

Law: a query that exceeds a limit ends with an error that names the setting, and leaves nothing behind.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from millpond.cancellation import check_cancelled, on_cancel
from millpond.errors import InvalidError
from millpond.settings import Settings, make_settings
from millpond.sql.reads.spooled_rows import MEMORY_BYTES, SpooledRows

T = TypeVar("T")

BATCH_ROWS = 122_880  # rows of a result batch
_NO_MEMORY = "Out of Memory Error"
THREAD = "millpond-select"
IDLE_MAX = 4  # idle threads that wait for the next query
WAIT_S = 0.05  # between two attempts to interrupt


@dataclass(frozen=True)
class ReadLimits:
    """The limits of one query; 0 means no limit of time or rows."""

    memory_bytes: int
    spill_bytes: int
    ms: int
    rows: int
    spools: bool = False  # a large result goes to a file instead of memory

    @staticmethod
    def of(settings: Settings, asked: Mapping[str, Any]) -> ReadLimits:
        """Return the limits of a pond, with those that one call overrides."""
        known = [n for n in vars(settings) if n.startswith("select_")]
        for name in asked:
            if name not in known:
                raise InvalidError(f"sql() has no argument {name!r}", hint=f"limits are {', '.join(known)}")
        set_to = make_settings(**{n: asked.get(n, getattr(settings, n)) for n in known})
        return ReadLimits(
            set_to.select_memory_bytes_max,
            set_to.select_spill_bytes_max,
            set_to.select_ms_max,
            set_to.select_rows_max,
        )

    def set_for(self, con: duckdb.DuckDBPyConnection) -> None:
        con.execute(f"set memory_limit = '{max(1, self.memory_bytes >> 10)}KiB'")
        con.execute(f"set max_temp_directory_size = '{max(1, self.spill_bytes >> 10)}KiB'")


def taken(result: pa.RecordBatchReader, limits: ReadLimits) -> pa.Table:
    """Read the result of a query, and check its size after each batch."""
    rows = 0
    memory = min(MEMORY_BYTES, limits.memory_bytes // 4) if limits.spools else limits.memory_bytes
    limit, setting = limits.memory_bytes, "select_memory_bytes_max"
    if limits.spools:
        limit, setting = limits.spill_bytes, "select_spill_bytes_max"
    with (
        result as reader,  # an open result blocks the connection
        SpooledRows(reader.schema, memory) as kept,
    ):
        for batch in _batches(reader):
            rows, size = rows + batch.num_rows, kept.size + batch.nbytes
            if limits.rows and rows > limits.rows:
                raise InvalidError(
                    f"the query gives more than {limits.rows} rows",
                    hint="add LIMIT, or raise select_rows_max",
                )
            if size > limit:
                raise InvalidError(
                    f"the result of the query is larger than {shown_bytes(limit)}",
                    detail=f"it was {shown_bytes(size)} after {rows} rows",
                    hint=f"ask for fewer rows or columns, or raise {setting}",
                )
            kept.add(batch)
        return kept.table()


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a result.  Arrow passes on the text of DuckDB's errors, but not their type."""
    try:
        yield from reader
    except (OSError, pa.ArrowException) as error:
        text = str(error)
        kind = duckdb.OutOfMemoryException if text.startswith(_NO_MEMORY) else duckdb.Error
        raise kind(text) from error


def limited(con: duckdb.DuckDBPyConnection, limits: ReadLimits, work: Callable[[], T]) -> T:
    """Run `work`, which uses a connection, within the time limit; Ctrl-C and cancelling interrupt it.

    It runs in another thread: while DuckDB computes, Python does not handle signals.
    """
    given: list[T] = []
    failed: list[BaseException] = []
    done = threading.Event()
    woken = threading.Event()  # the work is done, or the statement is cancelled
    claim = threading.Lock()  # taken by the thread that begins the work, or by the caller that cancels it

    def run() -> None:
        if not claim.acquire(blocking=False):
            return
        try:
            given.append(work())
        except BaseException as error:  # raised in the calling thread
            failed.append(error)
        finally:
            done.set()
            woken.set()

    try:
        with on_cancel(woken.set):
            check_cancelled()
            _start(run)  # Ctrl-C may arrive here, when the thread already uses the connection
            woken.wait(limits.ms / 1000 if limits.ms else None)
        in_time = done.is_set()
    except BaseException:  # Ctrl-C
        if not claim.acquire(blocking=False):
            _interrupt(con, done)
        raise
    if not in_time:
        if not claim.acquire(blocking=False):
            _interrupt(con, done)
        if not given:
            check_cancelled()
            raise InvalidError(
                f"the query took longer than {limits.ms / 1000:g} s",
                hint="ask for less, or raise select_ms_max; 0 is no limit",
            )
    if failed:
        raise failed[0]
    return given[0]


Job = Callable[[], None]
_idle: list[queue.SimpleQueue[Job]] = []  # queues of the threads that wait for a job
os.register_at_fork(after_in_child=_idle.clear)  # a child process has none of these threads


def _start(job: Job) -> None:
    """Run a job in an idle thread if there is one: waking a thread is faster than starting one."""
    try:
        jobs = _idle.pop()
    except IndexError:
        jobs = queue.SimpleQueue()
        threading.Thread(target=_work, args=(jobs,), daemon=True).start()
    jobs.put(job)


def _work(jobs: queue.SimpleQueue[Job]) -> None:
    thread = threading.current_thread()
    while True:
        thread.name = f"{THREAD} (idle)"
        job = jobs.get()
        thread.name = THREAD
        job()
        del job  # it references the rows of its query
        if len(_idle) >= IDLE_MAX:
            return
        _idle.append(jobs)


def _interrupt(con: duckdb.DuckDBPyConnection, done: threading.Event) -> None:
    while not done.is_set():
        con.interrupt()
        done.wait(WAIT_S)


def out_of_memory(error: duckdb.Error, limits: ReadLimits) -> InvalidError | None:
    """The error to raise if DuckDB ran out of memory or disk; None for other errors."""
    if not isinstance(error, duckdb.OutOfMemoryException):
        return None
    if "max_temp_directory_size" in str(error):
        return InvalidError(
            f"the query needs more than {shown_bytes(limits.spill_bytes)} of disk",
            detail=f"it has {shown_bytes(limits.memory_bytes)} of memory, and spills the rest to disk",
            hint="ask for less, or raise select_spill_bytes_max or select_memory_bytes_max",
        )
    return InvalidError(
        f"the query needs more than {shown_bytes(limits.memory_bytes)} of memory",
        detail="part of it cannot spill to disk",
        hint="ask for less, or raise select_memory_bytes_max",
    )


def shown_bytes(size: int) -> str:
    """Render a size in the largest unit that fits.

    >>> shown_bytes(2 << 30), shown_bytes(1 << 19)
    ('2 GiB', '512 KiB')
    """
    for unit, width in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << width:
            return f"{size / (1 << width):.3g} {unit}"
    return f"{size} bytes"
