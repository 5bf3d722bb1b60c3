"""Stages a streaming Spark DataFrame: each batch of the query is written to the pond once.

The rows of any `readStream` source become files in a folder of the pond, which the pipeline reads like other
files, so they can be replayed.
Law: a batch appears under its number by one rename, complete; a batch that Spark runs again after a crash is
already there and is not written again.  So nothing is lost or doubled.

The query runs in the process that runs the pond: it starts with the first poll, and it is stopped when the
pond is closed.  A query that failed is an error of the source, and is started again from its checkpoint.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from millpond.errors import InvalidError, UnavailableError
from millpond.sources.dataframe import FOLDER, is_staged, stage_files
from millpond.sources.files import FileSource
from millpond.sources.source import Poll
from millpond.state.store.local_store import make_private

BATCHES, CHECKPOINT = "batches", "checkpoint"


class StreamingDataFrameSource:
    """The rows of a streaming DataFrame.

    `name` identifies the query in the pond; by default it is the name of the stream.  `trigger` are the
    arguments of Spark's `trigger`, for example ``{"processingTime": "1 second"}``.
    """

    def __init__(self, df: Any, name: str | None = None, trigger: dict[str, Any] | None = None) -> None:
        if not getattr(df, "isStreaming", False):
            raise InvalidError("this DataFrame is not streaming", hint="pass it to DataFrameSource")
        self.df = df
        self.name = name
        self.trigger = trigger
        self._place: str | None = None

    def staged(self, folder: str | os.PathLike[str], step: str) -> StagedBatches:
        """The source that a pipeline reads; `folder` is the pond's, and every executor needs access to it."""
        from pyspark.sql.pandas.types import to_arrow_schema

        place = Path(folder).absolute() / FOLDER / quote(self.name or step, safe="")
        batches = place / BATCHES
        make_private(Path(folder))
        batches.mkdir(parents=True, exist_ok=True)
        self._place = str(batches)
        with _lock:
            _frames[self._place] = self
        fields = to_arrow_schema(self.df.schema, timezone="UTC")
        return StagedBatches(self._place, schema=pa.schema([pa.field(f.name, f.type) for f in fields]))

    def catch_up(self) -> None:
        """Wait until the query has staged all rows that its source has now; starts the query if necessary."""
        if self._place is None:
            raise InvalidError("this source belongs to no stream yet", hint="pond.stream(name, source)")
        keep_staging(self._place).processAllAvailable()

    def start(self, batches: str) -> Any:
        """Start the query, or continue it from its checkpoint."""
        place = Path(batches)

        def stage_batch(rows: Any, number: int) -> None:
            final = place / f"{number:016d}.parquet"
            if not is_staged(final):
                stage_files(rows, final)

        writer = self.df.writeStream.foreachBatch(stage_batch)
        writer = writer.option("checkpointLocation", str(place.parent / CHECKPOINT))
        return (writer.trigger(**self.trigger) if self.trigger else writer).start()


@dataclass(frozen=True)
class StagedBatches(FileSource):
    """The staged batches of a streaming DataFrame; a poll keeps the query running, if this process has it."""

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        with _lock:
            is_ours = str(self.path) in _frames
        if is_ours:
            keep_staging(str(self.path))
        return super().poll(position, seen, max_rows)


_lock = threading.Lock()
_frames: dict[str, StreamingDataFrameSource] = {}  # by the folder of the batches, in this process
_queries: dict[str, Any] = {}


def keep_staging(batches: str) -> Any:
    """The query of a folder, started if necessary; raises an error if it has ended."""
    with _lock:
        query = _queries.get(batches)
        if query is None:
            query = _queries[batches] = _frames[batches].start(batches)
        if query.isActive:
            return query
        del _queries[batches]  # the next poll starts it again
    why = query.exception()
    raise UnavailableError(
        "a streaming query that a stream reads has ended",
        detail=f"{str(why)[:1000]}" if why is not None else "somebody stopped it",
        hint="it is started again from its checkpoint",
    )


def stop_queries(pond_folder: str | os.PathLike[str]) -> None:
    """Stop the queries of a pond that run in this process."""
    root = str(Path(pond_folder).absolute() / FOLDER) + os.sep
    with _lock:
        ended = [_queries.pop(place) for place in [p for p in _queries if p.startswith(root)]]
        for place in [p for p in _frames if p.startswith(root)]:
            del _frames[place]
    for query in ended:
        query.stop()
