"""Exact sums of doubles: accumulators that add and retract without rounding, rounded once on output.

Law: an accumulator is a function of the exact sum alone.  Whatever order,
grouping or retractions led to it, the same sum has the same bits, and the
accumulator of no values is the empty list.

An accumulator is a list of (e, m), lowest e first, which represents the sum of
m * 2**(62 e): the digits of the sum in base 2**62, each in [-2**61, 2**61),
without zeros.  Balanced digits are unique and never trail a run of ones
behind a sign.  The base is the widest that leaves an int64 room for one
addition, and bin 0 begins at the binary point: sums of integers are one
digit, sums of everyday decimals two.  NaN and the infinities are counted in
separate bins above all others.  One list of structs is one offsets buffer
and two flat children, which numpy reads without copying; two parallel lists
would store the offsets twice.

Internally, a digit is two halves of 31 bits (`lo` in [0, 2**31), `hi` signed), so
that 2**31 of them can be summed in an int64 before carrying.  A minus zero
counts as zero; a sum beyond the range of doubles is read as an infinity.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import InternalError

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

_ENTRY = pa.struct([pa.field("e", pa.int16()), pa.field("m", pa.int64())])
ACCUMULATOR = pa.list_(_ENTRY)

BIN_BITS = 62
NAN_BIN, POSITIVE_INFINITY_BIN, NEGATIVE_INFINITY_BIN = 100, 101, 102

_HALF_BITS = 31
_LO = 2**_HALF_BITS - 1
# A key is (group, bin) in one number.  Finite bins, including those of products and all carries, stay
# within +-50, half bins within +-100.
_KEY_BITS, _BIAS = 8, 128
_FIRST_SPECIAL = NAN_BIN + _BIAS


# --- accumulators from values -------------------------------------------------


def from_values(
    values: pa.Array, weights: npt.NDArray[Any], group: npt.NDArray[Any], n_groups: int
) -> pa.Array:
    """The sum of weight * value for each group; nulls count as nothing.

    >>> x = pa.array([0.1, 0.2, 1e300, -1e300])
    >>> acc = from_values(x, np.array([3, -1, 1, 1]), np.array([0, 0, 1, 1]), 2)
    >>> to_float(acc).tolist(), len(acc[1])
    ([0.1, 0.0], 0)
    """
    parts: list[_Halves] = []
    for x, w, g in _blocks(values, weights, group):
        parts = _compact(parts)
        mantissa, exponent, special = _parts(x)
        parts += _terms(g, mantissa, exponent, w)
        parts += _specials(x, special, w, g)
    return _accumulators(parts, n_groups)


def from_squares(
    values: pa.Array, weights: npt.NDArray[Any], group: npt.NDArray[Any], n_groups: int
) -> pa.Array:
    """The exact sum of weight * value**2 for each group, for variances.

    >>> to_float(from_squares(pa.array([3.0, 1e200]), np.array([2, 1]), np.array([0, 1]), 2)).tolist()
    [18.0, inf]
    """
    parts: list[_Halves] = []
    for x, w, g in _blocks(values, weights, group):
        parts = _compact(parts)
        mantissa, exponent, special = _parts(x)
        high, low = _square(np.abs(mantissa))
        parts += _terms(g, low, 2 * exponent, w)
        parts += _terms(g, high, 2 * exponent + _SQUARE_LOW_BITS, w)
        parts += _specials(np.abs(x), special, w, g)
    return _accumulators(parts, n_groups)


def add(a: pa.Array, b: pa.Array) -> pa.Array:
    """The sums of two columns of accumulators, row by row; null is zero."""
    if len(a) != len(b):
        raise InternalError("accumulator columns differ in length", detail=f"{len(a)} and {len(b)} rows")
    rows = np.arange(len(a))
    return _accumulators([_halves(a, rows), _halves(b, rows)], len(a))


def negate(acc: pa.Array) -> pa.Array:
    """The negative sums; null is zero.

    >>> total = from_values(pa.array([0.1, 0.2]), np.ones(2), np.zeros(2), 1)
    >>> to_float(negate(total)).tolist() == [-(0.1 + 0.2)], len(add(total, negate(total))[0])
    (True, 0)
    """
    key, lo, hi = _halves(acc, np.arange(len(acc)))
    return _accumulators([(key, -lo, -hi)], len(acc))


def combine(acc: pa.Array, group: npt.NDArray[Any], n_groups: int) -> pa.Array:
    """The sum of the accumulators of each group; null is zero."""
    if len(acc) != len(group):
        raise InternalError("accumulators and groups differ in length", detail=f"{len(acc)} and {len(group)}")
    return _accumulators([_halves(acc, np.asarray(group, np.int64))], n_groups)


# --- results --------------------------------------------------------------------


def to_float(acc: pa.Array) -> Floats:
    """Each sum, rounded once to the nearest double, ties to even; 0.0 for the empty list.

    NaN if the sum contains a NaN or both infinities, else the infinity if it contains one.
    """
    rows, e, m = _digits(acc)
    finite = e < NAN_BIN
    result = _rounded(*_leading(rows[finite], e[finite], m[finite], len(acc))[:3])
    if not finite.all():
        result[rows[e == POSITIVE_INFINITY_BIN]] = np.inf
        result[rows[e == NEGATIVE_INFINITY_BIN]] = -np.inf
        result[_undefined(rows, e, len(acc))] = np.nan
    return result


def variance(n: npt.NDArray[Any], sum_acc: pa.Array, sq_acc: pa.Array, sample: bool) -> Floats:
    """(Q - S**2 / n) / n, or / (n - 1) for a sample, rounded once; n counts the non-null values.

    NaN where it is undefined: for no value (a sample: one value), and with a NaN or an infinity among
    the values.

    >>> x, w, g = pa.array([1e9 + 1, 1e9 + 2, 1e9 + 4]), np.ones(3, np.int64), np.zeros(3, np.int64)
    >>> variance(np.array([3]), from_values(x, w, g, 1), from_squares(x, w, g, 1), sample=True).tolist()
    [2.3333333333333335]
    """
    n = np.asarray(n, np.int64)
    if not len(n) == len(sum_acc) == len(sq_acc):
        raise InternalError(
            "counts, sums and squares differ in length",
            detail=f"{len(n)}, {len(sum_acc)} and {len(sq_acc)} rows",
        )
    result = np.full(len(n), np.nan)
    for at in range(0, len(n), _VARIANCE_ROWS):
        rows = slice(at, at + _VARIANCE_ROWS)
        _variance(n[rows], _digits(sum_acc[rows]), _digits(sq_acc[rows]), sample, result[rows])
    return result


# --- doubles to halves -------------------------------------------------------------

_SQUARE_LOW_BITS = 54
# Blocks fit in the processor's cache, and this many weights of 16 bits add up to at most 2**31.
_BLOCK_ROWS = 2**15
_PARTS_MAX = 256


def _blocks(
    values: pa.Array, weights: npt.NDArray[Any], group: npt.NDArray[Any]
) -> Iterator[tuple[Floats, Ints, Ints]]:
    """The rows that count, as doubles with weight and group, block by block."""
    if not pa.types.is_floating(values.type):
        raise InternalError("exact sums are of floats", detail=f"got {values.type}")
    if not len(values) == len(weights) == len(group):
        raise InternalError(
            "values, weights and groups differ in length",
            detail=f"{len(values)}, {len(weights)} and {len(group)} rows",
        )
    weights, group = np.asarray(weights, np.int64), np.asarray(group, np.int64)
    if values.null_count:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        values, weights, group = values.drop_null(), weights[valid], group[valid]
    x = values.cast(pa.float64()).to_numpy()
    for at in range(0, len(x), _BLOCK_ROWS):
        block = slice(at, at + _BLOCK_ROWS)
        yield x[block], weights[block], group[block]


def _parts(x: Floats) -> tuple[Ints, Ints, Flags]:
    """x = mantissa * 2**exponent with |mantissa| < 2**53; 0 and a flag where x is NaN or infinite."""
    bits = x.view(np.int64)
    exponent = (bits >> 52) & 0x7FF
    special = exponent == 0x7FF
    mantissa = bits & (2**52 - 1)
    mantissa |= (exponent > 0).astype(np.int64) << 52
    np.negative(mantissa, out=mantissa, where=bits < 0)
    np.maximum(exponent, 1, out=exponent)
    exponent -= 1075
    if special.any():
        mantissa[special] = 0
        exponent[special] = 0
    return mantissa, exponent, special


def _square(mantissa: Ints) -> tuple[Ints, Ints]:
    """mantissa**2 = high * 2**54 + low, by the products of its 27-bit halves."""
    a, b = mantissa >> 27, mantissa & (2**27 - 1)
    cross = 2 * a * b
    low = b * b + ((cross & (2**27 - 1)) << 27)
    high = a * a + (cross >> 27) + (low >> _SQUARE_LOW_BITS)
    return high, low & (2**_SQUARE_LOW_BITS - 1)


_Halves: TypeAlias = tuple[Ints, Ints, Ints]  # key, lo, hi: lo * 2**(62 bin) + hi * 2**(62 bin + 31)


def _terms(group: Ints, mantissa: Ints, exponent: Ints, weights: Ints) -> list[_Halves]:
    """The sum of weight * mantissa * 2**exponent, |mantissa| < 2**54, of a block, by group and bin."""
    if weights.min() > -(2**16) and weights.max() < 2**16:
        return [_light_terms(group, mantissa, exponent, weights)]
    parts = []
    for shift in range(0, 64, 16):
        part = weights >> shift if shift == 48 else (weights >> shift) & 0xFFFF
        (at,) = part.nonzero()
        if len(at):
            parts.append(_light_terms(group[at], mantissa[at], exponent[at] + shift, part[at]))
    return parts


def _light_terms(group: Ints, mantissa: Ints, exponent: Ints, weights: Ints) -> _Halves:
    """The same if the weights' magnitudes add up to at most 2**31, so that no sum overflows its int64."""
    half_bin = exponent // _HALF_BITS
    shift = exponent - half_bin * _HALF_BITS
    limbs = [
        (mantissa << shift) & _LO,  # bits shifted out on the left are in the next limbs
        (mantissa >> (_HALF_BITS - shift)) & _LO,
        mantissa >> (BIN_BITS - shift),
    ]
    if not (weights == 1).all():
        for limb in limbs:
            limb *= weights
    key, (low, middle, high) = _totals((group << _KEY_BITS) + (half_bin + _BIAS), limbs)
    middle += low >> _HALF_BITS
    low &= _LO
    high += middle >> _HALF_BITS
    middle &= _LO
    half_bin = (key & (2**_KEY_BITS - 1)) - _BIAS
    odd = (half_bin & 1).astype(np.bool_)
    at = (key >> _KEY_BITS << _KEY_BITS) + ((half_bin >> 1) + _BIAS)
    return _joined(
        [
            (at, np.where(odd, 0, low), np.where(odd, low, middle)),
            (at + 1, np.where(odd, middle, high), np.where(odd, high, 0)),
        ]
    )


def _specials(x: Floats, special: Flags, weights: Ints, group: Ints) -> list[_Halves]:
    (at,) = special.nonzero()
    if not len(at):
        return []
    x, weights = x[at], weights[at]
    bin_of = np.where(np.isnan(x), NAN_BIN, np.where(x > 0, POSITIVE_INFINITY_BIN, NEGATIVE_INFINITY_BIN))
    return [((group[at] << _KEY_BITS) + (bin_of + _BIAS), weights & _LO, weights >> _HALF_BITS)]


def _joined(parts: list[_Halves]) -> _Halves:
    if not parts:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    key, lo, hi = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return key, lo, hi


# --- halves to canonical digits ------------------------------------------------------


def _totals(key: Ints, columns: list[Ints]) -> tuple[Ints, list[Ints]]:
    """The distinct keys in order, and the sum of each column over them."""
    if not len(key):
        return key, columns
    if (key[1:] < key[:-1]).any():
        order = np.argsort(key)
        key, columns = key[order], [column[order] for column in columns]
    starts = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    return key[starts], [np.add.reduceat(column, starts) for column in columns]


def _settled(parts: list[_Halves]) -> tuple[Ints, Ints]:
    """Canonical digits: the keys in order and their digits, none zero."""
    key, lo, hi = _joined(parts)
    key, (lo, hi) = _totals(key, [lo, hi])
    while True:
        hi += lo >> _HALF_BITS
        lo &= _LO
        carry = (hi + 2 ** (_HALF_BITS - 1)) >> _HALF_BITS
        (at,) = (carry != 0).nonzero()
        at = at[(key[at] & (2**_KEY_BITS - 1)) < _FIRST_SPECIAL]  # counts do not carry
        if not len(at):
            break
        carry = carry[at]
        hi[at] -= carry << _HALF_BITS
        above, after = key[at] + 1, at + 1
        there = key[np.minimum(after, len(key) - 1)] == above
        lo[after[there]] += carry[there]
        if not there.all():
            after, above, carry = after[~there], above[~there], carry[~there]
            key, lo, hi = np.insert(key, after, above), np.insert(lo, after, carry), np.insert(hi, after, 0)
    m = (hi << _HALF_BITS) | lo
    is_set = m != 0
    return key[is_set], m[is_set]


def _compact(parts: list[_Halves]) -> list[_Halves]:
    """Combine many parts with the same sums into one: bounds the memory, and the sums still to compute."""
    if len(parts) < _PARTS_MAX:
        return parts
    key, m = _settled(parts)
    return [(key, m & _LO, m >> _HALF_BITS)]


def _accumulators(parts: list[_Halves], n_groups: int) -> pa.Array:
    key, m = _settled(parts)
    group = key >> _KEY_BITS
    if len(group) and not (group[0] >= 0 and group[-1] < n_groups):
        raise InternalError(
            "a group is out of range", detail=f"got {group[0]} to {group[-1]}, expected 0 to {n_groups - 1}"
        )
    offsets = np.zeros(n_groups + 1, np.int32)
    np.cumsum(np.bincount(group, minlength=n_groups), out=offsets[1:])
    e = ((key & (2**_KEY_BITS - 1)) - _BIAS).astype(np.int16)
    entries = pa.StructArray.from_arrays([pa.array(e), pa.array(m)], fields=list(_ENTRY))
    return pa.ListArray.from_arrays(pa.array(offsets), entries, type=ACCUMULATOR)


# --- reading accumulators -------------------------------------------------------------

_Digits: TypeAlias = tuple[Ints, Ints, Ints]  # row, e, m: in order of row, then e


def _digits(acc: pa.Array) -> _Digits:
    if isinstance(acc, pa.ChunkedArray):
        acc = acc.combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(acc), 0).to_numpy()
    entries = acc.flatten()
    rows = np.repeat(np.arange(len(acc)), lengths)
    return rows, entries.field("e").to_numpy().astype(np.int64), entries.field("m").to_numpy()


def _halves(acc: pa.Array, group: Ints) -> _Halves:
    rows, e, m = _digits(acc)
    return (group[rows] << _KEY_BITS) + (e + _BIAS), m & _LO, m >> _HALF_BITS


def _undefined(rows: Ints, e: Ints, n: int) -> Flags:
    """The rows with a NaN or with infinities of both signs."""
    infinities = np.bincount(rows[e > NAN_BIN], minlength=n)
    infinities[rows[e == NAN_BIN]] = 2
    result: Flags = infinities == 2
    return result


_Leading: TypeAlias = tuple[Flags, Ints, Ints, Flags]  # negative, v, exponent, exact


def _leading(rows: Ints, e: Ints, m: Ints, n: int) -> _Leading:
    """Each sum's sign and its magnitude as v * 2**exponent, v of 62 or 63 bits (or 0).

    If v cannot represent the magnitude, it is odd and within 1 of it, and not exact: enough to round
    correctly to any 60 bits or less.
    """
    counts = np.bincount(rows, minlength=n)
    (filled,) = counts.nonzero()
    last = np.cumsum(counts)[filled] - 1
    first = last - counts[filled] + 1
    top, digit = e[last], m[last]
    second = np.maximum(last - 1, first)
    adjacent = e[second] == top - 1
    below = np.where(adjacent, m[second], 0)
    third = last - 1 - adjacent
    rest = np.where(third >= first, np.sign(m[np.maximum(third, first)]), 0)

    negative = digit < 0
    sign = np.where(negative, -1, 1)
    digit, below, rest = digit * sign, below * sign, rest * sign
    borrow = below < 0
    digit -= borrow
    below += borrow.astype(np.int64) << BIN_BITS
    # Now the magnitude is digit * 2**62 + below + a term smaller than 1 with the sign of rest.
    size = _bit_length(digit)
    head = (digit << (BIN_BITS - size)) | (below >> size)
    tail = below & ((np.int64(1) << size) - 1)

    result = (np.zeros(n, np.bool_), np.zeros(n, np.int64), np.zeros(n, np.int64), np.ones(n, np.bool_))
    result[0][filled] = negative
    result[1][filled] = 2 * head + np.where(tail != 0, 1, rest)
    result[2][filled] = BIN_BITS * (top - 1) + size - 1
    result[3][filled] = (tail == 0) & (rest == 0)
    return result


def _bit_length(values: Ints) -> Ints:
    size = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    # The conversion may have rounded up to the next power of two.
    size -= (values >> np.maximum(size - 1, 0) == 0) & (size > 0)
    return size


def _rounded(negative: Flags, v: Ints, exponent: Ints) -> Floats:
    with np.errstate(over="ignore"):
        result = np.ldexp(v.astype(np.float64), exponent)
    # Below the normal doubles ldexp would round a second time; integer division rounds once.
    for i in np.flatnonzero((exponent + 63 < -1021) & (v != 0)).tolist():
        result[i] = int(v[i]) / (1 << -int(exponent[i]))
    np.negative(result, out=result, where=negative)
    return result


# --- variance ----------------------------------------------------------------------------

_VARIANCE_ROWS = 8192  # rows at a time: squaring a sum of k digits takes k * (k + 1) / 2 products
_LOWEST_BIN = -40  # below all finite bins, also of squares


def _variance(n: Ints, sums: _Digits, squares: _Digits, sample: bool, result: Floats) -> None:
    """Write the variances that are defined."""
    divisor = n - 1 if sample else n
    defined = divisor > 0
    for rows, e, _ in (sums, squares):
        defined[rows[e >= NAN_BIN]] = False
    # n * divisor and n * digit must fit their integers; groups with more values use exact arithmetic.
    fast = defined & (n < 2**28)
    numerator = _leading(*_numerator(n, sums, squares, fast), len(n))
    quotient, sure = _divide(numerator, np.where(fast, n * divisor, 1))
    sure &= fast
    result[sure] = quotient[sure]
    for i in np.flatnonzero(defined & ~sure).tolist():
        result[i] = _exact_variance(int(n[i]), int(divisor[i]), _of_row(sums, i), _of_row(squares, i))


def _numerator(n: Ints, sums: _Digits, squares: _Digits, wanted: Flags) -> _Digits:
    """The digits of n * Q - S**2 of the wanted rows; n < 2**28 there."""
    rows, e, m = (column[wanted[squares[0]]] for column in squares)
    key = (rows << _KEY_BITS) + (e + _BIAS)
    parts = [(key, (m & _LO) * n[rows], (m >> _HALF_BITS) * n[rows])]

    rows, e, m = (column[wanted[sums[0]]] for column in sums)
    # All pairs i <= j of digits of the same sum; those with i < j count twice.
    ends = np.cumsum(np.bincount(rows, minlength=len(n)))[rows]
    each = np.arange(len(rows))
    reach = ends - each
    i = np.repeat(each, reach)
    j = i + np.arange(len(i)) - np.repeat(np.cumsum(reach) - reach, reach)
    lo, hi = m & _LO, m >> _HALF_BITS
    low = lo[i] * lo[j]
    middle = lo[i] * hi[j] + hi[i] * lo[j] + (low >> _HALF_BITS)
    high = hi[i] * hi[j] + (middle >> _HALF_BITS)
    times = np.where(i == j, -1, -2)
    key = (rows[i] << _KEY_BITS) + (e[i] + e[j] + _BIAS)
    parts.append((key, (low & _LO) * times, (middle & _LO) * times))
    parts.append((key + 1, (high & _LO) * times, (high >> _HALF_BITS) * times))
    key, m = _settled(parts)
    return key >> _KEY_BITS, (key & (2**_KEY_BITS - 1)) - _BIAS, m


def _divide(numerator: _Leading, divisor: Ints) -> tuple[Floats, Flags]:
    """numerator / divisor rounded once, and where that result is certain; 0 < divisor < 2**56."""
    negative, v, exponent, exact = numerator
    # A double q near v * 2**k / divisor, in [2**52, 2**63): an integer, wrong by a few units in its
    # last place, so that the remainder fits an int64 although its terms do not.
    k = np.maximum(_bit_length(divisor) - 9, 0)
    q = np.rint(np.ldexp(v / divisor, k))
    countable = q < 2.0**62
    whole = np.where(countable, q, 0.0).astype(np.int64)
    remainder = (v.view(np.uint64) << k.view(np.uint64)) - whole.view(np.uint64) * divisor.view(np.uint64)
    fraction = remainder.view(np.int64) / divisor
    # v is known to 2**-61 of itself, the fraction to 2**-102 of q: certain where both ends round alike.
    doubt = q * np.where(exact, 2.0**-96, 2.0**-61)
    upper, lower = q + (fraction + doubt), q + (fraction - doubt)
    with np.errstate(over="ignore"):
        result = np.ldexp(upper, exponent - k)
    np.negative(result, out=result, where=negative)
    normal = exponent - k + 51 >= -1022
    return result, (v == 0) | ((upper == lower) & countable & normal)


def _of_row(digits: _Digits, row: int) -> list[tuple[int, int]]:
    rows, e, m = digits
    at = slice(*np.searchsorted(rows, [row, row + 1]).tolist())
    return list(zip(e[at].tolist(), m[at].tolist(), strict=True))


def _exact_variance(
    n: int, divisor: int, total: list[tuple[int, int]], squares: list[tuple[int, int]]
) -> float:
    """The same in integers of any size: Python divides these with one rounding."""
    s = sum(m << BIN_BITS * (e - _LOWEST_BIN) for e, m in total)
    q = sum(m << BIN_BITS * (e - 2 * _LOWEST_BIN) for e, m in squares)
    numerator = n * q - s * s
    try:
        return numerator / (n * divisor << BIN_BITS * -2 * _LOWEST_BIN)
    except OverflowError:  # beyond the doubles, where rounding gives an infinity
        return float("inf") if numerator > 0 else float("-inf")
