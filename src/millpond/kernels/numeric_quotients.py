"""Averages as numerics: exact quotients of sums and counts, rounded half away from zero as PostgreSQL does.

Sums that fit 64 bits are divided together, by numpy; a group with a larger one makes its batch go one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa

from millpond.kernels import int128
from millpond.kernels.int128 import Ints

NUMERIC_SCALE = 16  # digits after the point of an average that is a numeric
NUMERIC = pa.decimal128(38, NUMERIC_SCALE)

_EXACT = Context(prec=60)
_HALF = NUMERIC_SCALE // 2
_COUNT_MAX = 2**63 // 10**_HALF - 1  # so that a rest times half of the digits fits 64 bits


def quotients(words: Sequence[Ints], counts: Ints, scale: int) -> pa.Array:
    """Sums divided by counts; NULL where the count is 0.

    A sum has words, from the highest to the lowest, and `scale` digits after the point.

    >>> quotients((np.array([0, 0, 0]), np.array([8, -1, 5])), np.array([3, 8, 0]), 0).to_pylist()
    [Decimal('2.6666666666666667'), Decimal('-0.1250000000000000'), None]
    """
    *high, lo = words
    simple = not any(word.any() for word in high) and 0 <= scale <= NUMERIC_SCALE
    if simple and (not len(lo) or (lo.min() > -(2**63) and counts.max() <= _COUNT_MAX)):
        return _long_division(lo, counts, NUMERIC_SCALE - scale)
    return _one_by_one(words, counts, scale)


def _long_division(totals: Ints, counts: Ints, digits: int) -> pa.Array:
    """Long division by halves of the digits that are still to come."""
    none = counts <= 0
    divisor = np.where(none, 1, counts)
    first = min(digits, _HALF)
    second = digits - first
    whole, rest = np.divmod(np.abs(totals), divisor)
    upper, rest = np.divmod(rest * 10**first, divisor)
    lower, rest = np.divmod(rest * 10**second, divisor)
    fraction = upper * 10**second + lower + (rest >= divisor - rest)
    scaled = int128.times(whole, np.full_like(whole, 10**digits))
    found = int128.add(scaled, (np.zeros_like(fraction), fraction))
    high, low = int128.negate(found)
    below = totals < 0
    return int128.to_decimal((np.where(below, high, found[0]), np.where(below, low, found[1])), NUMERIC, none)


def _one_by_one(words: Sequence[Ints], counts: Ints, scale: int) -> pa.Array:
    found: list[Decimal | None] = []
    for total, count in zip(integers(words), counts.tolist(), strict=True):
        if count <= 0:
            found.append(None)
            continue
        divisor = count * 10**scale
        whole, rest = divmod(abs(total) * 10**NUMERIC_SCALE, divisor)
        whole += 2 * rest >= divisor
        found.append(_EXACT.scaleb(Decimal(whole if total >= 0 else -whole), -NUMERIC_SCALE))
    return pa.array(found, NUMERIC)


def integers(words: Sequence[Ints]) -> list[int]:
    """The numbers that words represent, from the highest word to the lowest.

    >>> integers((np.array([1]), np.array([-1])))
    [18446744073709551615]
    """
    found = [0] * len(words[0])
    for word in words:
        found = [(total << 64) + part for total, part in zip(found, word.tolist(), strict=True)]
    return found
