"""What a process keeps of the memory that its tasks took.

Law: work that is rare leaves a process about as large as it found it.

Workers keep the memory of their tasks, as the next epoch needs as much again (`daemon.ENVIRONMENT` says so
to the allocator).  A merge of large runs comes once in many epochs and takes many times as much as one of
them; what it took would be held for as long as the worker lives.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pyarrow as pa

MORE_BYTES = 8 << 20  # by which a process may have grown: less is not worth faulting in again
_STATM = "/proc/self/statm"


@contextmanager
def as_large_as_before(more_bytes: int = MORE_BYTES) -> Iterator[None]:
    """Give memory back to the system if the process has grown by more than this.

    Within a process that is large already, as one that catches up, nothing is given back.
    """
    before = held_bytes()
    try:
        yield
    finally:
        if held_bytes() > before + more_bytes:
            give_back()


def held_bytes() -> int:
    """The memory of this process that is not that of a file (Linux; elsewhere unknown, so none)."""
    if not os.path.exists(_STATM):
        return 0
    with open(_STATM) as statm:
        _, resident, shared, *_ = map(int, statm.read().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Return what is free to the system: Arrow's pool has memory of its own where it is not the system's."""
    pa.default_memory_pool().release_unused()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    """glibc's; other C libraries have none, and give back by themselves."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
