"""What one SELECT may use: memory, disk, time and rows; and Ctrl-C, which ends it.

Law: a read that goes too far ends with an error that names the setting, and leaves nothing behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.settings import Settings, make_settings

T = TypeVar("T")

BATCH_ROWS = 122_880  # rows that are taken over at once
_NO_MEMORY = "Out of Memory Error"
WAIT_S = 0.05  # between two tries to interrupt


@dataclass(frozen=True)
class ReadLimits:
    """0 is no limit of time, or of rows."""

    memory_bytes: int
    spill_bytes: int
    ms: int
    rows: int

    @staticmethod
    def of(settings: Settings, asked: Mapping[str, Any]) -> ReadLimits:
        """Those of a pond, or what was asked for one call."""
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


def taken(found: duckdb.DuckDBPyRelation, limits: ReadLimits) -> pa.Table:
    """The rows of a query, batch by batch."""
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    with found.to_arrow_reader(BATCH_ROWS) as reader:  # a result that stays open keeps the connection
        for batch in _batches(reader):
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if limits.rows and rows > limits.rows:
                raise InvalidError(
                    f"the query gives more than {limits.rows} rows",
                    hint="add LIMIT, or raise select_rows_max",
                )
            if size > limits.memory_bytes:
                raise InvalidError(
                    f"the result of the query is larger than {shown_bytes(limits.memory_bytes)}",
                    detail=f"it was {shown_bytes(size)} after {rows} rows",
                    hint="ask for fewer rows or columns, or raise select_memory_bytes_max",
                )
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Batches of a result.  Arrow hands on the text of DuckDB's errors, but not their kind."""
    try:
        yield from reader
    except (OSError, pa.ArrowException) as error:
        text = str(error)
        kind = duckdb.OutOfMemoryException if text.startswith(_NO_MEMORY) else duckdb.Error
        raise kind(text) from error


def limited(con: duckdb.DuckDBPyConnection, limits: ReadLimits, work: Callable[[], T]) -> T:
    """Do some work with a connection, for no longer than it may take; Ctrl-C ends it.

    It runs in a thread of its own: while DuckDB computes, Python does not hear of signals.
    """
    given: list[T] = []
    failed: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            given.append(work())
        except BaseException as error:  # raised by whoever asked
            failed.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="millpond-select", daemon=True).start()
    try:
        in_time = done.wait(limits.ms / 1000 if limits.ms else None)
    except BaseException:  # Ctrl-C
        _interrupt(con, done)
        raise
    if not in_time:
        _interrupt(con, done)
        if not given:
            raise InvalidError(
                f"the query took longer than {limits.ms / 1000:g} s",
                hint="ask for less, or raise select_ms_max; 0 is no limit",
            )
    if failed:
        raise failed[0]
    return given[0]


def _interrupt(con: duckdb.DuckDBPyConnection, done: threading.Event) -> None:
    while not done.is_set():
        con.interrupt()
        done.wait(WAIT_S)


def out_of_memory(error: duckdb.Error, limits: ReadLimits) -> InvalidError | None:
    """What to do about it, where DuckDB ran out of memory or of disk."""
    if not isinstance(error, duckdb.OutOfMemoryException):
        return None
    if "max_temp_directory_size" in str(error):
        return InvalidError(
            f"the query needs more than {shown_bytes(limits.spill_bytes)} of disk",
            detail=f"it has {shown_bytes(limits.memory_bytes)} of memory, and puts aside what does not fit",
            hint="ask for less, or raise select_spill_bytes_max or select_memory_bytes_max",
        )
    return InvalidError(
        f"the query needs more than {shown_bytes(limits.memory_bytes)} of memory",
        detail="part of it cannot be put aside on disk",
        hint="ask for less, or raise select_memory_bytes_max",
    )


def shown_bytes(size: int) -> str:
    """
    >>> shown_bytes(2 << 30), shown_bytes(1 << 19)
    ('2 GiB', '512 KiB')
    """
    for unit, width in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << width:
            return f"{size / (1 << width):.3g} {unit}"
    return f"{size} bytes"
