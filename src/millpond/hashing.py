"""The key hash: a stable 64-bit hash of the canonical value of the key columns.

Law: equal canonical values have equal hashes, whatever their Arrow type, unit, scale, chunking, slicing or
dictionary, in every process and every release with the same `VERSION`.  State files are sorted by this hash,
so changing one bit of any output requires a new `VERSION`; golden vectors in the tests check this.

Canonical values:

* integers of all widths are the same number, and so is an integral decimal;
* other decimals are their mantissa and scale without trailing zeros;
* floats are doubles with one zero and one NaN;
* timestamps, times and durations are microseconds, plus the remaining
  nanoseconds if there are any; dates are days; each is a separate kind, so a
  date never equals a timestamp; a time zone only affects display, not the value;
* strings and binaries are their bytes;
* structs are their children in order, lists their elements in order;
* NULL is a value.

Two different values may collide, so every lookup by hash also compares the key columns.  The top 15 bits of a
hash are its key group.

All arithmetic is on uint64: numpy converts mixed signs through float64, which silently drops bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.buffers import (
    I64,
    U64,
    Bytes,
    Column,
    Ints,
    Mask,
    doubles,
    elements,
    fixed,
    is_bytes,
    is_list,
    limbs,
    nulls,
    plain,
    strings,
)
from millpond.errors import InvalidError

VERSION = 1

KEY_GROUPS = 1 << 15

# Odd 64-bit constants with well mixed bits (splitmix64, xxhash64).
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
WORD_1 = np.uint64(0x9E3779B185EBCA87)
WORD_2 = np.uint64(0xC2B2AE3D27D4EB4F)
COMBINE = np.uint64(0xD6E8FEB86659FD93)
LENGTH = np.uint64(0x9E3779B97F4A7C15)
_S1, _S3, _S7, _S27, _S29, _S30, _S31, _S32, _S63 = map(np.uint64, (1, 3, 7, 27, 29, 30, 31, 32, 63))

# One seed per kind of value, so that kinds do not collide: the first words of the
# fractional part of pi.
INT_SEED = np.uint64(0x243F6A8885A308D3)
_BIG = np.uint64(0x13198A2E03707344)
_BOOL = np.uint64(0xA4093822299F31D0)
DATE_SEED = np.uint64(0x082EFA98EC4E6C89)
_TIMESTAMP = np.uint64(0x452821E638D01377)
_TIME = np.uint64(0xBE5466CF34E90C6C)
_DURATION = np.uint64(0xC0AC29B7C97C50DD)
_DECIMAL = np.uint64(0x3F84D5B5B5470917)
_FLOAT = np.uint64(0x9216D5D98979FB1B)
BYTES_SEED = np.uint64(0xD1310BA698DFB5AC)
_STRUCT = np.uint64(0x2FFD72DBD01ADFB7)
_LIST = np.uint64(0xB8E1AFED6A267E96)

NULL_HASH = 0xBA7C9045F12C7F99
GLOBAL_HASH = 0x24A19947B3916CF7

_BLOCK = 1 << 13  # rows per block: temporaries are reused and stay in the cache
_STRING_BLOCK = 1 << 14
_LONG = 256  # bytes; longer strings are hashed in chunks


def hash_array(column: Column) -> U64:
    """One hash per row of one column.

    >>> bool((hash_array(pa.array([7, None], pa.int8())) == hash_array(pa.array([7, None]))).all())
    True
    """
    if isinstance(column, pa.ChunkedArray):
        out = np.empty(len(column), dtype=np.uint64)
        start = 0
        for chunk in column.chunks:
            out[start : start + len(chunk)] = _hash(chunk)
            start += len(chunk)
        return out
    return _hash(column)


def hash_columns(columns: Sequence[Column], length: int) -> U64:
    """One hash per row of several columns, in their order.

    The hash of one column is its `hash_array`; each further column is combined into the hash of the columns
    before it.  Without columns all rows are one group and have the same constant hash.
    """
    for place, column in enumerate(columns):
        if len(column) != length:
            raise InvalidError(
                "key columns must have the same length",
                detail=f"column {place} has {len(column)} rows, expected {length}",
                hint="pass columns of one table",
            )
    if not columns:
        return np.full(length, GLOBAL_HASH, dtype=np.uint64)
    out = hash_array(columns[0])
    for column in columns[1:]:
        _combine(out, hash_array(column))
    return out


def bounds(parallelism: int) -> U64:
    """The first hash of each task's range; the last range ends at 2**64.

    >>> [hex(b) for b in bounds(2).tolist()]
    ['0x0', '0x8000000000000000']
    """
    _check_parallelism(parallelism)
    groups = np.arange(parallelism, dtype=np.uint64) * np.uint64(KEY_GROUPS) // np.uint64(parallelism)
    return groups << np.uint64(49)


def owners(hashes: U64, parallelism: int) -> I64:
    """The task that owns each hash: the range of `bounds` that contains it."""
    _check_parallelism(parallelism)
    if hashes.dtype != np.uint64:
        raise InvalidError(
            "hashes must be uint64", detail=f"got {hashes.dtype}", hint="pass hash_columns(...)"
        )
    groups: U64 = hashes >> np.uint64(49)
    return _owner_of_group(parallelism).take(groups.view(np.int64))


def _check_parallelism(parallelism: int) -> None:
    if not 1 <= parallelism <= KEY_GROUPS:
        raise InvalidError(
            f"parallelism must be between 1 and {KEY_GROUPS}",
            detail=f"got {parallelism}",
            hint="a task owns at least one key group",
        )


@lru_cache(maxsize=32)
def _owner_of_group(parallelism: int) -> I64:
    first = bounds(parallelism) >> np.uint64(49)
    owner = np.searchsorted(first, np.arange(KEY_GROUPS, dtype=np.uint64), side="right").astype(np.int64) - 1
    owner.flags.writeable = False  # all callers share it
    return owner


# ---------------------------------------------------------------- by type


def _hash(array: pa.Array) -> U64:
    """Hashes of one array; NULLs are overwritten last, because the values under them are undefined."""
    array = plain(array)
    if pa.types.is_null(array.type):
        return np.full(len(array), NULL_HASH, dtype=np.uint64)
    if pa.types.is_dictionary(array.type):
        return _hash_dictionary(array)
    out = _hash_values(array)
    if array.null_count:
        out[nulls(array)] = NULL_HASH
    return out


def _hash_values(array: pa.Array) -> U64:
    kind = array.type
    t = pa.types
    if t.is_uint64(kind):
        return _hash_unsigned(fixed(array, np.uint64))
    if t.is_integer(kind):
        return _mix(fixed(array, kind.to_pandas_dtype()), INT_SEED)
    if t.is_floating(kind):
        return _by_block(_hash_floats, fixed(array, kind.to_pandas_dtype()))
    if t.is_boolean(kind):
        return _mix(fixed(array.cast(pa.uint8()), np.uint8), _BOOL)
    if t.is_date32(kind):
        return _mix(fixed(array, np.int32), DATE_SEED)
    if t.is_date64(kind):
        return _mix(fixed(array, np.int64) // 86_400_000, DATE_SEED)
    if t.is_timestamp(kind):
        return _hash_instants(fixed(array, np.int64), kind.unit, _TIMESTAMP)
    if t.is_time(kind):
        return _hash_instants(fixed(array, np.int32 if t.is_time32(kind) else np.int64), kind.unit, _TIME)
    if t.is_duration(kind):
        return _hash_instants(fixed(array, np.int64), kind.unit, _DURATION)
    if t.is_decimal(kind):
        return _hash_decimals(array)
    if is_bytes(kind):
        return _hash_bytes(*strings(array), BYTES_SEED)
    if is_list(kind):  # hashed as the string of its elements' hashes
        inner, starts, lengths = elements(array)
        return _hash_bytes(_hash(inner).view(np.uint8), starts * 8, lengths * 8, _LIST)
    if t.is_struct(kind):
        return _hash_struct(array)
    raise InvalidError(
        f"a column of type {kind} cannot be a key",
        hint="cast it to a number, a string, a time, or a struct or list of these",
    )


def _hash_unsigned(values: U64) -> U64:
    """Hash unsigned integers: above the int64 range, where the bits look negative, with another seed."""
    out = _mix(values, INT_SEED)
    big = np.flatnonzero(values >> np.uint64(63))
    if big.size:
        out[big] = _mix(values[big], _BIG)
    return out


def _hash_floats(values: npt.NDArray[Any]) -> U64:
    return _mix(doubles(values).view(np.uint64), _FLOAT)


def _hash_instants(values: npt.NDArray[Any], unit: str, seed: np.uint64) -> U64:
    """Hash instants as microseconds modulo 2**64: seconds that do not fit wrap around,
    which is still one hash per instant."""
    if unit == "ns":
        return _by_block(lambda block: _hash_nanoseconds(block, seed), values)
    if unit == "us":
        return _mix(values, seed)
    factor = np.uint64(1_000_000 if unit == "s" else 1000)
    return _mix(values.astype(np.int64).view(np.uint64) * factor, seed)


def _hash_nanoseconds(values: I64, seed: np.uint64) -> U64:
    micros = values // 1000
    out = _mix(micros, seed)
    rest = values - micros * 1000
    odd = np.flatnonzero(rest)
    if odd.size:
        out[odd] = _mix(out[odd] + rest[odd].view(np.uint64), seed)
    return out


def _hash_dictionary(array: pa.DictionaryArray) -> U64:
    if len(array.dictionary) > len(array):  # a slice of a larger buffer
        return _hash(array.dictionary_decode())
    values = _hash(array.dictionary)
    if not array.null_count and not values.size:
        return np.empty(0, dtype=np.uint64)
    if array.indices.null_count:
        values = np.append(values, np.uint64(NULL_HASH))
        places = array.indices.cast(pa.int64()).fill_null(len(values) - 1)
    else:
        places = array.indices
    rows: npt.NDArray[Any] = places.to_numpy(zero_copy_only=False)
    return values.take(rows)


def _hash_struct(array: pa.StructArray) -> U64:
    out = np.full(len(array), _STRUCT, dtype=np.uint64)
    for place in range(array.type.num_fields):
        _combine(out, _hash(array.field(place)))
    return _mix(out, _STRUCT)


# ---------------------------------------------------------------- decimals


def _hash_decimals(array: pa.Array) -> U64:
    """Hash decimals: strip trailing zeros; an integral result hashes as that integer."""
    kind = array.type
    if kind.scale < 0:
        try:
            array = array.cast(pa.decimal256(76, 0))
        except pa.ArrowInvalid as error:
            raise InvalidError(
                "a decimal key is too large", detail=str(error), hint="76 digits is the limit"
            ) from error
        kind = array.type
    words = limbs(array)
    narrow = _fits_int64(words)
    if narrow.all():
        return _by_block(lambda block: _hash_narrow_decimals(block, kind.scale), words[0].view(np.int64))
    out = np.empty(len(array), dtype=np.uint64)
    out[narrow] = _hash_narrow_decimals(words[0][narrow].view(np.int64), kind.scale)
    wide = ~narrow
    out[wide] = _hash_wide_decimals([word[wide] for word in words], kind.scale)
    return out


def _fits_int64(words: Sequence[U64]) -> Mask:
    fits = np.ones(len(words[0]), dtype=np.bool_)
    if len(words) > 1:
        sign = (words[0].view(np.int64) >> 63).view(np.uint64)
        for word in words[1:]:
            fits &= word == sign
    return fits


def _hash_narrow_decimals(values: I64, scale: int) -> U64:
    mantissas = values.copy()
    scales = np.full(len(values), scale, dtype=np.uint64)
    scales[mantissas == 0] = 0
    active = np.flatnonzero(mantissas)
    for _ in range(scale):
        current = mantissas[active]
        tenth = current // 10
        whole = tenth * 10 == current
        active = active[whole]
        if not active.size:
            break
        mantissas[active] = tenth[whole]
        scales[active] -= np.uint64(1)
    out = _mix(mantissas, INT_SEED)
    broken = np.flatnonzero(scales)
    if broken.size:
        out[broken] = _mix(_mix(mantissas[broken], _DECIMAL) + scales[broken], _DECIMAL)
    return out


def _hash_wide_decimals(words: Sequence[U64], scale: int) -> U64:
    """Hash decimals whose stored mantissa does not fit int64: long division by ten on
    32-bit digits of the magnitude, then like the narrow ones if the result fits."""
    negative = words[-1] >> np.uint64(63) != 0
    digits = _magnitude(words, negative)
    scales = np.full(len(negative), scale, dtype=np.uint64)
    active = np.arange(len(negative))
    for _ in range(scale):
        tenth, rest = _divide_by_ten(digits[:, active])
        whole = rest == 0
        active = active[whole]
        if not active.size:
            break
        digits[:, active] = tenth[:, whole]
        scales[active] -= np.uint64(1)
    low = digits[0] | digits[1] << _S32
    # One word of magnitude, within the signed range for its sign.
    short = (digits[2:] == 0).all(axis=0)
    limit = np.where(negative, np.uint64(1 << 63), np.uint64((1 << 63) - 1))
    narrow = short & (low <= limit)
    unsigned = short & ~narrow & ~negative & (scales == 0)
    signed = np.where(negative, np.uint64(0) - low, low)
    whole_hash = _mix(signed, INT_SEED)
    broken_hash = _mix(_mix(signed, _DECIMAL) + scales, _DECIMAL)
    out = np.where(scales == 0, whole_hash, broken_hash)
    out[unsigned] = _mix(low[unsigned], _BIG)
    rest_rows = ~(narrow | unsigned)
    if rest_rows.any():
        state = _mix(scales[rest_rows] + negative[rest_rows].astype(np.uint64) * LENGTH, _DECIMAL)
        for place in range(0, 8, 2):  # always 256 bits, whatever the stored width
            if place < len(digits):
                word = digits[place, rest_rows] | digits[place + 1, rest_rows] << _S32
            else:
                word = np.zeros(int(rest_rows.sum()), dtype=np.uint64)
            _combine(state, _mix(word, _DECIMAL))
        out[rest_rows] = state
    return out


def _magnitude(words: Sequence[U64], negative: Mask) -> U64:
    """|value| as rows of 32-bit digits, lowest first."""
    flip = np.where(negative, ~np.uint64(0), np.uint64(0))
    carry = negative.astype(np.uint64)
    low_half = np.uint64(0xFFFFFFFF)
    digits = []
    for word in words:
        flipped = word ^ flip
        for half in (flipped & low_half, flipped >> _S32):
            total = half + carry
            digits.append(total & low_half)
            carry = total >> _S32
    return np.stack(digits)


def _divide_by_ten(digits: U64) -> tuple[U64, U64]:
    quotient = np.empty_like(digits)
    rest = np.zeros(digits.shape[1], dtype=np.uint64)
    for place in range(len(digits) - 1, -1, -1):
        total = rest << _S32 | digits[place]
        quotient[place] = total // np.uint64(10)
        rest = total - quotient[place] * np.uint64(10)
    return quotient, rest


# ---------------------------------------------------------------- strings


def _hash_bytes(data: Bytes, starts: Ints, lengths: Ints, seed: np.uint64) -> U64:
    """Hashes of byte strings data[start : start + length].

    A string longer than `_LONG` is divided into chunks; it hashes as the string of its chunks' hashes, with
    its own length.  So one long string among short ones costs its bytes, not one vector operation per word.
    """
    long = np.flatnonzero(lengths > _LONG)
    if not long.size:
        return _hash_short(data, starts, lengths, seed)
    sizes = lengths[long].astype(np.int64)
    pieces = -(-sizes // _LONG)
    firsts = np.cumsum(pieces) - pieces
    within = (np.arange(int(pieces.sum()), dtype=np.int64) - np.repeat(firsts, pieces)) * _LONG
    piece_starts = np.repeat(starts[long].astype(np.int64), pieces) + within
    piece_lengths = np.minimum(np.repeat(sizes, pieces) - within, _LONG)
    piece_hashes = _hash_short(data, piece_starts, piece_lengths, seed)
    nested = _hash_bytes(piece_hashes.view(np.uint8), firsts * 8, pieces * 8, seed)

    short = lengths.copy()
    short[long] = 0
    out = _hash_short(data, starts, short, seed)
    out[long] = _mix(nested + sizes.view(np.uint64) * LENGTH, seed)
    return out


def _hash_short(data: Bytes, starts: Ints, lengths: Ints, seed: np.uint64) -> U64:
    """Hash short strings block by block, with the rows of a block ordered by their number
    of words: then the rows that still have a word are always a slice."""
    out = np.empty(len(starts), dtype=np.uint64)
    whole_words = data.size // 8 * 8 if data.ctypes.data % 8 == 0 else 0
    scratch = np.empty((9, min(out.size, _STRING_BLOCK)), dtype=np.uint64)
    for rows in _blocks(out.size, _STRING_BLOCK):
        state, *room = scratch[:, : rows.stop - rows.start]
        start, length = starts[rows], lengths[rows]
        counts = ((length + 7) >> 3).astype(np.uint8)
        fewest, most = int(counts.min()), int(counts.max())
        if fewest < most:
            order = np.argsort(counts, kind="stable")  # a radix sort, because the numbers are small
            start, length = start[order], length[order]
            ends = np.cumsum(np.bincount(counts)).tolist()
        else:
            ends = [0] * most + [counts.size]
        first, last = int(start.min()), int((start + length).max())
        if last <= whole_words:
            first, words = 0, data[:whole_words].view(np.uint64)
        else:  # an unaligned end or address: copy this block's bytes into full words
            words = np.zeros((last - first) // 8 + 2, dtype=np.uint64)
            words.view(np.uint8)[: last - first] = data[first:last]
        np.copyto(state, length, casting="unsafe")
        state *= LENGTH
        state += seed
        if most:
            _absorb(words, start, length, first, state, ends, room)
        if fewest < most:
            out[rows][order] = state
        else:
            out[rows] = state
    return _mix(out, seed, out)


def _absorb(
    words: U64, starts: Ints, lengths: Ints, first: int, state: U64, ends: list[int], room: list[U64]
) -> None:
    """Feed strings into their states, one word at a time.

    Row r has more than n words if r >= ends[n].  Strings start at any byte (counted from `first`), so a word
    is assembled from the two aligned words that contain it; the upper one is the lower one of the next.
    """
    place, shift, unshift, excess, low, high, word, scratch = room
    at = place.view(np.int64)
    np.subtract(starts, first, out=at)
    np.bitwise_and(place, _S7, out=shift)
    np.left_shift(shift, _S3, out=shift)
    np.subtract(_S63, shift, out=unshift)
    np.right_shift(at, 3, out=at)
    # The number of bits by which the last word extends past the string.
    np.negative(lengths, out=excess.view(np.int64))
    np.bitwise_and(excess, _S7, out=excess)
    np.left_shift(excess, _S3, out=excess)
    words.take(at, out=low, mode="clip")
    for done, next_done in pairwise(ends):
        rest, tail = slice(done, None), slice(done, next_done)
        part, spare, upper, at_rest = word[rest], scratch[rest], high[rest], at[rest]
        np.add(at_rest, 1, out=at_rest)
        words.take(at_rest, out=upper, mode="clip")
        np.right_shift(low[rest], shift[rest], out=part)
        np.left_shift(upper, _S1, out=spare)
        np.left_shift(spare, unshift[rest], out=spare)
        np.bitwise_or(part, spare, out=part)
        np.left_shift(word[tail], excess[tail], out=word[tail])
        np.right_shift(word[tail], excess[tail], out=word[tail])
        _absorb_word(state[rest], part, spare)
        low, high = high, low


def _absorb_word(state: U64, word: U64, scratch: U64) -> None:
    """Absorb a word in two rounds: after one, strings that differ only in their last bytes could collide."""
    np.bitwise_xor(state, word, out=state)
    np.right_shift(state, _S32, out=scratch)
    np.bitwise_xor(state, scratch, out=state)
    np.multiply(state, WORD_1, out=state)
    np.right_shift(state, _S29, out=scratch)
    np.bitwise_xor(state, scratch, out=state)
    np.multiply(state, WORD_2, out=state)


# ---------------------------------------------------------------- mixing


def _blocks(length: int, size: int = _BLOCK) -> Iterator[slice]:
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def _by_block(kernel: Callable[[npt.NDArray[Any]], U64], values: npt.NDArray[Any]) -> U64:
    out = np.empty(values.size, dtype=np.uint64)
    for rows in _blocks(values.size):
        out[rows] = kernel(values[rows])
    return out


def _mix(values: npt.NDArray[Any], seed: np.uint64, out: U64 | None = None) -> U64:
    """The finaliser of splitmix64 over value + seed; a bijection for each seed."""
    if values.dtype.kind == "i":
        values = values.astype(np.int64, copy=False).view(np.uint64)
    if out is None:
        out = np.empty(values.size, dtype=np.uint64)
    scratch = np.empty(min(values.size, _BLOCK), dtype=np.uint64)
    for rows in _blocks(values.size):
        state = out[rows]
        shifted = scratch[: state.size]
        np.add(values[rows], seed, out=state)
        np.right_shift(state, _S30, out=shifted)
        np.bitwise_xor(state, shifted, out=state)
        np.multiply(state, MIX_1, out=state)
        np.right_shift(state, _S27, out=shifted)
        np.bitwise_xor(state, shifted, out=state)
        np.multiply(state, MIX_2, out=state)
        np.right_shift(state, _S31, out=shifted)
        np.bitwise_xor(state, shifted, out=state)
    return out


def _combine(state: U64, more: U64) -> None:
    """Combine another column into the state, in place; (a, b) is not (b, a)."""
    scratch = np.empty(min(state.size, _BLOCK), dtype=np.uint64)
    for rows in _blocks(state.size):
        part = state[rows]
        shifted = scratch[: part.size]
        np.right_shift(part, _S32, out=shifted)
        np.bitwise_xor(part, shifted, out=part)
        np.multiply(part, COMBINE, out=part)
        np.add(part, more[rows], out=part)


def is_injective(columns: Sequence[Column]) -> bool:
    """Do different keys always hash differently?  True for one column of integers without NULL.

    The finaliser is a bijection of 64-bit words, so such keys need not be compared.

    >>> is_injective([pa.array([1, 2])]), is_injective([pa.array(["a"])])
    (True, False)
    """
    return len(columns) == 1 and pa.types.is_signed_integer(columns[0].type) and not columns[0].null_count
