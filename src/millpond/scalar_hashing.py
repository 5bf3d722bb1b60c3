"""The key hash of one key, without arrays.

Law: it is what `hashing.hash_columns` gives for the same values.  A vector operation on one value costs a
microsecond, and a hash takes a dozen of them; whole numbers and short texts are hashed in plain Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millpond import hashing

_ALL = (1 << 64) - 1
_MIX_1, _MIX_2 = int(hashing.MIX_1), int(hashing.MIX_2)
_WORD_1, _WORD_2 = int(hashing.WORD_1), int(hashing.WORD_2)
_LENGTH, _COMBINE = int(hashing.LENGTH), int(hashing.COMBINE)
_INT, _DATE, _BYTES = int(hashing.INT_SEED), int(hashing.DATE_SEED), int(hashing.BYTES_SEED)
_SHORT = 64  # bytes; longer texts are hashed as arrays
_WORDS = [struct.Struct(f"<{count}Q").unpack for count in range(_SHORT // 8 + 1)]
HashOne = Callable[[Any], "int | None"]


def key_hasher(kinds: Sequence[pa.DataType]) -> Callable[[Sequence[Any]], int]:
    """A function from the values of a key, none of them NULL, to its hash.

    >>> key_hasher([pa.int64()])([7]) == int(hashing.hash_array(pa.array([7]))[0])
    True
    """
    hashers = [_hasher(kind) for kind in kinds]

    def by_arrays(key: Sequence[Any]) -> int:
        values = [pa.array([value], kind) for value, kind in zip(key, kinds, strict=True)]
        return int(hashing.hash_columns(values, 1)[0])

    if not hashers or None in hashers:
        return by_arrays

    def by_value(key: Sequence[Any]) -> int:
        state: int | None = None
        for value, one in zip(key, hashers, strict=True):
            assert one is not None
            found = one(value)
            if found is None:
                return by_arrays(key)
            state = found if state is None else ((state ^ state >> 32) * _COMBINE + found) & _ALL
        assert state is not None
        return state

    return by_value


def _hasher(kind: pa.DataType) -> HashOne | None:
    if pa.types.is_signed_integer(kind) or kind in (pa.uint8(), pa.uint16(), pa.uint32()):
        return lambda value: _mix(value + _INT)
    if pa.types.is_string(kind):
        return _hash_text
    if pa.types.is_date32(kind):
        return lambda value: _mix((value - _DAY_ZERO).days + _DATE)
    return None


_DAY_ZERO = np.datetime64(0, "D").astype(object)


def _hash_text(value: str) -> int | None:
    data = value.encode()
    length = len(data)
    if length > _SHORT:
        return None
    state = length * _LENGTH + _BYTES & _ALL
    count = length + 7 >> 3
    for word in _WORDS[count](data.ljust(count * 8, b"\0")):
        state ^= word
        state = (state ^ state >> 32) * _WORD_1 & _ALL
        state = (state ^ state >> 29) * _WORD_2 & _ALL
    return _mix(state + _BYTES)


def _mix(state: int) -> int:
    """The finaliser of splitmix64, as `hashing` has it."""
    state &= _ALL
    state = (state ^ state >> 30) * _MIX_1 & _ALL
    state = (state ^ state >> 27) * _MIX_2 & _ALL
    return state ^ state >> 31
