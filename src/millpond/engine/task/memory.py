"""Returns memory to the system after rare, large work.

Law: rare work leaves a process about as large as before.

Workers keep the memory of their tasks, as the next epoch needs as much again (`daemon.ENVIRONMENT` configures
the allocator for this).  A merge of large runs happens once in many epochs and takes many times as much as an
epoch; without this, the worker would keep that memory for its lifetime.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pyarrow as pa

MORE_BYTES = 8 << 20  # growth of a process that is tolerated: returning less is not worth the page faults
_STATM = "/proc/self/statm"


@contextmanager
def as_large_as_before(more_bytes: int = MORE_BYTES) -> Iterator[None]:
    """Return memory to the system if the process has grown by more than this inside the context.

    A process that was already large, such as one that catches up, does not grow and returns nothing.
    """
    before = anonymous_bytes()
    try:
        yield
    finally:
        if anonymous_bytes() > before + more_bytes:
            give_back()


def anonymous_bytes() -> int:
    """The memory of this process that is not mapped from files (Linux; 0 elsewhere, where it is unknown)."""
    if not os.path.exists(_STATM):
        return 0
    with open(_STATM) as statm:
        _, resident, shared, *_ = map(int, statm.read().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Return free memory to the system, including Arrow's pool where it is not the system allocator."""
    pa.default_memory_pool().release_unused()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    """glibc's malloc_trim; other C libraries have none and return memory without it."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
