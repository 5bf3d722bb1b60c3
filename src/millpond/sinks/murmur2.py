"""The partitions of keys, as Kafka's Java clients compute them: a hash of the key, modulo their number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_M, _SEED = np.uint32(0x5BD1E995), np.uint32(0x9747B28C)
_MATRIX_BYTES = 16 << 20  # of the keys that are hashed at once

Hashes = npt.NDArray[np.uint32]


def partitions_of(keys: Sequence[bytes], partitions: int) -> list[int]:
    """
    >>> partitions_of([b"21", b"foobar", b""], 10)
    [0, 6, 1]
    """
    found: list[int] = ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).tolist()
    return found


def murmur2(keys: Sequence[bytes]) -> Hashes:
    """The hash of each key.

    >>> murmur2([b"21", b"foobar"]).astype("int32").tolist()
    [-973932308, -790332482]
    """
    longest = max(map(len, keys), default=0)
    if len(keys) > 1 and longest * len(keys) > _MATRIX_BYTES:
        half = len(keys) // 2
        return np.concatenate([murmur2(keys[:half]), murmur2(keys[half:])])
    width = (longest // 4 + 1) * 4  # so that there is room for the zeros behind every key
    words = np.frombuffer(b"".join(key.ljust(width, b"\0") for key in keys), "<u4").reshape(
        len(keys), width // 4
    )
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    found: Hashes = _SEED ^ lengths.astype(np.uint32)
    whole = lengths // 4
    for place in range(longest // 4):
        k = words[:, place] * _M
        k = (k ^ k >> np.uint32(24)) * _M
        found = np.where(place < whole, found * _M ^ k, found)
    rest = words[np.arange(len(keys)), whole]
    found = np.where(lengths % 4 > 0, (found ^ rest) * _M, found)
    found = (found ^ found >> np.uint32(13)) * _M
    return found ^ found >> np.uint32(15)
