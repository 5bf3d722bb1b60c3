"""Opens the pond of some options, in the process that plans a query or in a worker of Spark.

Workers serve many tasks, so the open files of a pond are kept between them.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator

from millpond.engine.task.worker import Worker
from millpond.serve.reader import Reader
from millpond.settings import Settings
from millpond.spark_bridge.options import SparkOptions, Use
from millpond.state.store.location import store_options, uri_of
from millpond.state.store.store import open_store


def worker_of(options: SparkOptions, use: Use) -> Worker:
    """The worker of this process for a pond; reading never runs code that is stored in it."""
    given = tuple(sorted(options.store.items()))
    return _worker(os.getpid(), uri_of(options.text("path", use)), given)


@contextlib.contextmanager
def opened(options: SparkOptions, use: Use) -> Iterator[Reader]:
    """A reader of a pond; its pins are removed when the block ends."""
    reader = Reader(worker_of(options, use), reader_ms=options.number("pinMs", Settings().reader_ms))
    try:
        yield reader
    finally:
        reader.close()


@functools.lru_cache(maxsize=16)
def _worker(pid: int, uri: str, given: tuple[tuple[str, str], ...]) -> Worker:
    return Worker(open_store(uri, **store_options(uri, Settings(), dict(given))))
