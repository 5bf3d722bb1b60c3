"""Results as streams of batches that every client of gRPC accepts.

Law: a batch has at most about `BATCH_BYTES`; clients refuse messages of more than 4 to 16 MiB by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

BATCH_BYTES = 3 << 20


def stream_of(table: pa.Table) -> Any:
    """A table as Flight sends it, batch by batch."""
    batches = (small for batch in table.to_batches() for small in pieces(batch))
    return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(table.schema, batches))


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces that are small enough; a single row is never divided.

    >>> batch = pa.record_batch({"t": ["x" * 1000] * 10_000})
    >>> [piece.num_rows for piece in pieces(batch)]
    [2500, 2500, 2500, 2500]
    """
    if batch.nbytes <= BATCH_BYTES or batch.num_rows <= 1:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from pieces(batch.slice(0, half))
    yield from pieces(batch.slice(half))
