"""Chooses keys and windows by their hashes, for load shedding.

Law: samples are nested.  What is kept with a divisor is also kept with every smaller one, so that sources
that are shed by the same key keep the same keys, and a key that the largest divisor keeps was never shed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.kernels.synopses.item_hashes import mixed

Ints = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]


def limits(divisors: Ints | int) -> U64:
    """The largest hash of what is kept."""
    largest: U64 = np.uint64(2**64 - 1) // np.asarray(divisors).astype(np.uint64)
    return largest


def kept_keys(columns: Sequence[pa.Array], divisor: int) -> Bools:
    """
    >>> int(kept_keys([pa.array(range(1_000))], 4).sum())
    271
    """
    arrays: list[Any] = list(columns)
    is_kept: Bools = mixed(hashing.hash_columns(arrays, len(arrays[0])), 91) <= limits(divisor)
    return is_kept


def kept_windows(at: Ints, window: tuple[int, int], fates: Sequence[tuple[int, int]]) -> Bools:
    """The rows of windows that are kept; `fates` are (start of the first window, divisor), in order.

    >>> kept_windows(np.arange(6), (2, 0), [(4, 1_000_000)]).tolist()
    [True, True, True, True, False, False]
    """
    size, offset = window
    start = (at - offset) // size * size + offset
    since = np.array([first for first, _ in fates], np.int64)
    divisors = np.array([1, *(divisor for _, divisor in fates)], np.int64)
    mine = divisors[np.searchsorted(since, start, side="right")]
    is_kept: Bools = mixed(hashing.hash_array(pa.array(start)), 94) <= limits(mine)
    return is_kept
