"""128-bit integers as two numpy arrays, for exact sums of integers and decimals.

A number is (hi, lo): hi * 2**64 + lo with *signed* lo and hi, so that hi is 0
for everything that fits 64 bits, of either sign, and takes no space in a run
(a column of zeros is not stored).  Sums are exact and linear: adding and
retracting in any order leads to the same pair.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Pair = tuple[Ints, Ints]  # hi, lo
Triple = tuple[Ints, Ints, Ints]  # top, hi, lo

_LOW32 = np.int64(0xFFFFFFFF)


def add(a: Pair, b: Pair) -> Pair:
    """
    >>> top = np.array([2**63 - 1])
    >>> zero = np.array([0])
    >>> [int(x[0]) for x in add((zero, top), (zero, np.array([1])))]
    [1, -9223372036854775808]
    """
    with np.errstate(over="ignore"):
        lo = a[1] + b[1]
        # overflow if and only if both have one sign and the sum the other; upwards wraps to negative
        overflows = (a[1] ^ lo) & (b[1] ^ lo)
        carry = np.where(overflows < 0, np.where(a[1] < 0, np.int64(-1), np.int64(1)), np.int64(0))
        return a[0] + b[0] + carry, lo


def negate(a: Pair) -> Pair:
    """
    >>> lowest = np.array([-(2**63)])
    >>> [int(x[0]) for x in negate((np.array([0]), lowest))]
    [1, -9223372036854775808]
    """
    with np.errstate(over="ignore"):
        lo = -a[1]
        return -a[0] + ((a[1] < 0) & (lo < 0)), lo  # the lowest number has no negative of 64 bits


def group_sum(hi: Ints | None, lo: Ints, starts: npt.NDArray[Any]) -> Pair:
    """Sums over groups, defined by the first row of each; exact for up to 2**31 rows per group."""
    if len(lo) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    extreme = max(abs(int(lo.max())), abs(int(lo.min())))
    if extreme and extreme * len(lo) >= 1 << 62:
        high = np.add.reduceat(lo >> 32, starts)
        low = np.add.reduceat(lo & _LOW32, starts)
        with np.errstate(over="ignore"):
            total = add((np.zeros_like(low), low), _shift32(high))
    else:
        total = (np.zeros(len(starts), np.int64), np.add.reduceat(lo, starts))
    if hi is not None and hi.any():
        total = (total[0] + np.add.reduceat(hi, starts), total[1])
    return total


def _shift32(value: Ints) -> Pair:
    """value * 2**32 as a pair."""
    with np.errstate(over="ignore"):
        lo = value << 32
        exact = value >> 32  # floor(value / 2**32): the bits shifted out, with sign
        # value*2**32 = exact*2**64 + unsigned(lo); lo read as signed is 2**64 less when negative
        return exact + (lo < 0).astype(np.int64), lo


def times(value: Ints, weight: Ints) -> Pair:
    """Products of two 64-bit numbers.

    >>> hi, lo = times(np.array([-(2**63)]), np.array([2**62]))
    >>> int(hi[0]) * 2**64 + int(lo[0]) == -(2**125)
    True
    """
    low, high = value & _LOW32, value >> 32
    if len(weight) and int(weight.min()) > -(1 << 31) and int(weight.max()) < 1 << 31:
        return add(_shift32(high * weight), (np.zeros_like(low), low * weight))
    w_low, w_high = weight & _LOW32, weight >> 32
    total = from_unsigned(low.view(np.uint64) * w_low.view(np.uint64))
    total = add(total, _shift32(low * w_high))
    total = add(total, _shift32(high * w_low))
    return total[0] + high * w_high, total[1]


def from_unsigned(values: npt.NDArray[np.uint64]) -> Pair:
    lo = values.view(np.int64)
    return (lo < 0).astype(np.int64), lo


# Three words represent what two cannot: sums of 38-digit decimals.  A number is (top, hi, lo), each signed.


def add3(a: Triple, b: Triple) -> Triple:
    carry, lo = add((np.zeros_like(a[2]), a[2]), (np.zeros_like(b[2]), b[2]))
    top, hi = add((a[0], a[1]), (b[0], b[1]))
    top, hi = add((top, hi), (np.zeros_like(top), carry))
    return top, hi, lo


def negate3(a: Triple) -> Triple:
    carry, lo = negate((np.zeros_like(a[2]), a[2]))
    top, hi = add(negate((a[0], a[1])), (np.zeros_like(carry), carry))
    return top, hi, lo


def times3(value: Pair, weight: Ints) -> Triple:
    """Products of a 128-bit number with a 64-bit one."""
    carry, lo = times(value[1], weight)
    top, hi = add(times(value[0], weight), (np.zeros_like(carry), carry))
    return top, hi, lo


def group_sum3(value: Triple, starts: npt.NDArray[Any]) -> Triple:
    """Sums over groups, defined by the first row of each; exact for up to 2**31 rows per group."""
    carry, lo = group_sum(None, value[2], starts)
    top, hi = add(group_sum(value[0], value[1], starts), (np.zeros_like(carry), carry))
    return top, hi, lo


_DIGITS_TOP, _DIGITS_LOW = divmod(10**38, 1 << 64)


def fits38(value: Triple) -> npt.NDArray[np.bool_]:
    """Whether a number has at most 38 decimal digits."""
    top, hi, lo = value
    hi = hi - (lo < 0)  # as two's complement, with an unsigned lo
    low = lo.view(np.uint64)
    below = (hi < _DIGITS_TOP) | ((hi == _DIGITS_TOP) & (low < np.uint64(_DIGITS_LOW)))
    negative_low = np.uint64((1 << 64) - _DIGITS_LOW)
    above = (hi > -_DIGITS_TOP - 1) | ((hi == -_DIGITS_TOP - 1) & (low > negative_low))
    fits: npt.NDArray[np.bool_] = (top == 0) & below & above
    return fits


def from_decimal(column: pa.Array) -> Pair:
    """The unscaled values of a decimal128 column; NULL counts as 0."""
    words = np.frombuffer(column.buffers()[1], np.int64)[
        2 * column.offset : 2 * (column.offset + len(column))
    ]
    lo, hi = words[0::2].copy(), words[1::2].copy()
    if column.null_count:
        dead = column.is_null().to_numpy(zero_copy_only=False)
        lo[dead] = 0
        hi[dead] = 0
    return hi + (lo < 0), lo


def to_decimal(pair: Pair, kind: pa.DataType, null: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    words = np.empty((len(pair[1]), 2), np.int64)
    words[:, 0] = pair[1]
    words[:, 1] = pair[0] - (pair[1] < 0)
    validity = None
    if null is not None and null.any():
        validity = pa.array(~null).buffers()[1]
    return pa.Array.from_buffers(kind, len(words), [validity, pa.py_buffer(words)])


def to_float(pair: Pair) -> npt.NDArray[np.float64]:
    """The nearest double, or its neighbour: a number that needs both words is rounded twice."""
    return pair[0].astype(np.float64) * 2.0**64 + pair[1].astype(np.float64)


def fits64(pair: Pair) -> npt.NDArray[np.bool_]:
    fits: npt.NDArray[np.bool_] = pair[0] == 0
    return fits
