"""The input of the recovery benchmark: every key once, then a trickle of changed keys, a file at a time.

Law: the files are a function of the numbers in `Staged`. `number` of a row is that of its file, so that a
result tells how far its input went: `max(number)` of the newest rows.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data

SCHEMA = pa.schema([("auction", pa.int64()), ("price", pa.int64()), ("number", pa.int64())])
_FORMAT = 1  # part of the folder name: raise it when the files made from the same numbers change
_FIRST_MTIME_S = 1_500_000_000


@dataclass(frozen=True)
class Staged:
    keys: int
    changes: int = 10_000  # keys that a file of the trickle changes
    keys_per_file: int = 1_000_000
    seed: int = 1

    @property
    def name(self) -> str:
        return f"recovery-{self.keys}-{self.changes}-{self.keys_per_file}-{self.seed}-v{_FORMAT}"

    @property
    def load(self) -> int:
        """Files that hold every key once."""
        return -(-self.keys // self.keys_per_file)


def loading(wanted: Staged, number: int) -> pa.Table:
    first = number * wanted.keys_per_file
    keys = np.arange(first, min(wanted.keys, first + wanted.keys_per_file), dtype=np.int64)
    return pa.table([keys, keys * 7919 % 100_003, np.full(len(keys), number)], schema=SCHEMA)


def change(wanted: Staged, number: int) -> pa.Table:
    random = np.random.default_rng([wanted.seed, number])
    keys = random.integers(0, wanted.keys, wanted.changes, dtype=np.int64)
    prices = random.integers(0, 100_003, wanted.changes, dtype=np.int64)
    return pa.table([keys, prices, np.full(wanted.changes, number)], schema=SCHEMA)


def file_name(number: int) -> str:
    return f"part-{number:06d}.parquet"


def _write(rows: pa.Table, path: Path, number: int) -> None:
    making = path.with_name(f".{path.name}.tmp")
    pq.write_table(rows, making, compression="snappy")
    os.utime(making, (_FIRST_MTIME_S + number, _FIRST_MTIME_S + number))
    making.rename(path)


def ensure(wanted: Staged) -> Path:
    """The folder with the loading files, made now if it is not there."""
    folder = data.scratch() / "data" / wanted.name
    if folder.exists():
        return folder
    making = folder.with_name(f".{folder.name}.{os.getpid()}")
    making.mkdir(parents=True)
    try:
        for number in range(wanted.load):
            _write(loading(wanted, number), making / file_name(number), number)
        making.rename(folder)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return folder


class Trickle:
    """Publishes a file of changes at a fixed interval until it is stopped."""

    def __init__(self, wanted: Staged, into: Path, interval_s: float) -> None:
        self.published: dict[int, float] = {}  # when each file appeared, by its number
        self._wanted, self._into, self._interval_s = wanted, into, interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trickle", daemon=True)

    def _run(self) -> None:
        number, at = self._wanted.load, time.time()
        while not self._stop.is_set():
            _write(change(self._wanted, number), self._into / file_name(number), number)
            self.published[number] = time.time()
            number, at = number + 1, max(time.time(), at + self._interval_s)
            self._stop.wait(max(0.0, at - time.time()))

    @property
    def newest(self) -> int:
        return max(self.published)

    def __enter__(self) -> Trickle:
        self._thread.start()
        while not self.published:
            time.sleep(0.01)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
