"""The rows of a result: in memory while they are few, else in a file that is mapped.

Law: however large a result is, about `MEMORY_BYTES` of it are in memory of this process; the file is gone
with the last reference to its rows.
"""

from __future__ import annotations

import os
import tempfile
from types import TracebackType

import pyarrow as pa

MEMORY_BYTES = 32 << 20


class SpooledRows:
    """Takes batches one after the other.

    >>> batch = pa.record_batch({"n": pa.array(range(1000))})
    >>> with SpooledRows(batch.schema, memory_bytes=10_000) as rows:
    ...     for _ in range(3):
    ...         rows.add(batch)
    ...     table = rows.table()
    >>> table.num_rows, rows.in_file
    (3000, True)
    """

    def __init__(self, schema: pa.Schema, memory_bytes: int = MEMORY_BYTES) -> None:
        self._schema = schema
        self._memory_bytes = memory_bytes
        self._batches: list[pa.RecordBatch] = []
        self._path: str | None = None
        self._sink: pa.NativeFile | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self.size = 0

    def __enter__(self) -> SpooledRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        if self._path is not None:
            os.unlink(self._path)
            self._path = None

    def _close(self) -> None:
        if self._writer is not None and self._sink is not None:
            self._writer.close()
            self._sink.close()
            self._sink = None

    @property
    def in_file(self) -> bool:
        return self._writer is not None

    def add(self, batch: pa.RecordBatch) -> None:
        self.size += batch.nbytes
        if self._writer is None and self.size <= self._memory_bytes:
            self._batches.append(batch)
            return
        if self._writer is None:
            handle, self._path = tempfile.mkstemp(prefix="millpond-rows-")
            os.close(handle)
            self._sink = pa.OSFile(self._path, "wb")
            self._writer = pa.ipc.new_stream(self._sink, self._schema)
            for kept in self._batches:
                self._writer.write_batch(kept)
            self._batches.clear()
        self._writer.write_batch(batch)

    def table(self) -> pa.Table:
        """All rows; none can be added any more."""
        if self._writer is None or self._path is None:
            return pa.Table.from_batches(self._batches, self._schema)
        self._close()
        return pa.ipc.open_stream(pa.memory_map(self._path)).read_all()
