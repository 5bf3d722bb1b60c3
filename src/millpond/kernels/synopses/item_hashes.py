"""Hashes of the items that sketches count: 64 well-mixed bits, the same in every process and release."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.hashing import hash_array

U64 = npt.NDArray[np.uint64]


def mixed(x: U64, seed: int = 0) -> U64:
    """The finalizer of splitmix64 over x + seed: every bit of x affects every bit of the result.

    >>> hex(int(mixed(np.array([1], np.uint64))[0]))
    '0x5692161d100b05e5'
    """
    with np.errstate(over="ignore"):
        z = x + np.uint64((seed * 0x9E3779B97F4A7C15) & (2**64 - 1))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out: U64 = z ^ (z >> np.uint64(31))
    return out


def item_hashes(values: pa.Array, hashed: bool) -> U64:
    """One hash per value; with `hashed` the values are hashes already."""
    raw: Any = values.to_numpy(zero_copy_only=False) if hashed else hash_array(values)
    return mixed(raw)
