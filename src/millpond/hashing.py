"""The key hash: a stable 64-bit hash of the canonical value of the key columns.

Law: equal canonical values hash equal, whatever their Arrow type, unit, scale,
chunking, slicing or dictionary, in every process and every release that has
the same `VERSION`.  State files are sorted by this hash, so changing one bit
of any output is a new `VERSION`; golden vectors in the tests hold it still.

Canonical values:

* integers of every width are one number line, and so is an integral decimal;
* other decimals are their mantissa and scale without trailing zeros;
* floats are doubles with one zero and one NaN;
* timestamps, times and durations are microseconds, and the nanoseconds left
  over where there are any; dates are days; each is a kind of its own, so a
  date never equals a timestamp; a zone is a matter of display, not of value;
* strings and binaries are their bytes;
* structs are their children in order, lists their elements in order;
* NULL is a value.

Two different values may collide; whoever looks up by hash compares the key
columns as well.  The top 15 bits of a hash are its key group.

All arithmetic is on uint64: numpy takes mixed signs through float64, which
silently drops bits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import InvalidError

VERSION = 1

KEY_GROUPS = 1 << 15

Column: TypeAlias = pa.Array | pa.ChunkedArray
U64: TypeAlias = npt.NDArray[np.uint64]
I64: TypeAlias = npt.NDArray[np.int64]

if sys.byteorder != "little":  # words of strings are read as little-endian
    raise ImportError("millpond needs a little-endian machine")

# Odd 64-bit constants with well mixed bits (splitmix64, xxhash64).
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_WORD_1 = np.uint64(0x9E3779B185EBCA87)
_WORD_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_COMBINE = np.uint64(0xD6E8FEB86659FD93)
_LENGTH = np.uint64(0x9E3779B97F4A7C15)
_S27, _S29, _S30, _S31, _S32 = (np.uint64(s) for s in (27, 29, 30, 31, 32))

# One seed per kind of value, so that kinds do not meet: the first words of the
# fractional part of pi.
_INT = np.uint64(0x243F6A8885A308D3)
_BIG = np.uint64(0x13198A2E03707344)
_BOOL = np.uint64(0xA4093822299F31D0)
_DATE = np.uint64(0x082EFA98EC4E6C89)
_TIMESTAMP = np.uint64(0x452821E638D01377)
_TIME = np.uint64(0xBE5466CF34E90C6C)
_DURATION = np.uint64(0xC0AC29B7C97C50DD)
_DECIMAL = np.uint64(0x3F84D5B5B5470917)
_FLOAT = np.uint64(0x9216D5D98979FB1B)
_BYTES = np.uint64(0xD1310BA698DFB5AC)
_STRUCT = np.uint64(0x2FFD72DBD01ADFB7)
_LIST = np.uint64(0xB8E1AFED6A267E96)

NULL_HASH = 0xBA7C9045F12C7F99
GLOBAL_HASH = 0x24A19947B3916CF7

_BLOCK = 1 << 14  # rows worked on at a time: temporaries stay in the cache
_LONG = 256  # bytes; longer strings are hashed piece by piece

# TAIL[n] keeps the first n bytes of a word.
TAIL = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)


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

    The hash of one column is `hash_array` of it; each further column is
    combined into what came before.  No columns is the global group: one
    constant for every row.
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
    """The task that owns each hash: the range of `bounds` it falls into."""
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
    owner.flags.writeable = False  # shared by every caller
    return owner


# ---------------------------------------------------------------- by type


def _hash(array: pa.Array) -> U64:
    """Hashes of one array; nulls are overwritten last, whatever lies under them."""
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), NULL_HASH, dtype=np.uint64)
    if isinstance(array, pa.ExtensionArray):
        return _hash(array.storage)
    if pa.types.is_dictionary(kind):
        return _hash_dictionary(array)
    if pa.types.is_run_end_encoded(kind):
        return _hash(pc.run_end_decode(array))
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
        return _mix(fixed(array, kind.to_pandas_dtype()), _INT)
    if t.is_floating(kind):
        return _hash_floats(fixed(array, kind.to_pandas_dtype()))
    if t.is_boolean(kind):
        return _mix(array.cast(pa.uint8()).to_numpy(zero_copy_only=False), _BOOL)
    if t.is_date32(kind):
        return _mix(fixed(array, np.int32), _DATE)
    if t.is_date64(kind):
        return _mix(fixed(array, np.int64) // 86_400_000, _DATE)
    if t.is_timestamp(kind):
        return _hash_instants(fixed(array, np.int64), kind.unit, _TIMESTAMP)
    if t.is_time(kind):
        return _hash_instants(fixed(array, np.int32 if t.is_time32(kind) else np.int64), kind.unit, _TIME)
    if t.is_duration(kind):
        return _hash_instants(fixed(array, np.int64), kind.unit, _DURATION)
    if t.is_decimal(kind):
        return _hash_decimals(array)
    if t.is_struct(kind):
        return _hash_struct(array)
    if is_bytes(kind):
        return _hash_bytes(*strings(array), _BYTES)
    if t.is_list(kind) or t.is_large_list(kind) or t.is_map(kind) or t.is_fixed_size_list(kind):
        return _hash_lists(array)
    if t.is_list_view(kind) or t.is_large_list_view(kind):
        return _hash_lists(array.cast(pa.large_list(kind.value_field)))
    raise InvalidError(
        f"a column of type {kind} cannot be a key",
        hint="cast it to a number, a string, a time or a struct of these",
    )


def nulls(array: pa.Array) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def fixed(array: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The values of a fixed-width array without a copy; anything under a null."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.empty(0, dtype=dtype)
    return np.frombuffer(data, dtype=dtype, count=array.offset + len(array))[array.offset :]


def _hash_unsigned(values: U64) -> U64:
    """Above the int64 range the bits look like a negative int64: another seed."""
    out = _mix(values, _INT)
    big = np.flatnonzero(values >> np.uint64(63))
    if big.size:
        out[big] = _mix(values[big], _BIG)
    return out


def _hash_floats(values: npt.NDArray[Any]) -> U64:
    doubles = values.astype(np.float64)  # always a copy: it is changed below
    doubles += 0.0  # -0.0 + 0.0 is 0.0
    doubles[np.isnan(doubles)] = np.nan  # one NaN, positive and quiet
    return _mix(doubles.view(np.uint64), _FLOAT)


def _hash_instants(values: npt.NDArray[Any], unit: str, seed: np.uint64) -> U64:
    """Microseconds modulo 2**64: seconds too far off to fit wrap round, which
    is still one hash per instant."""
    if unit == "ns":
        micros = values // 1000
        rest = values - micros * 1000
        out = _mix(micros, seed)
        odd = np.flatnonzero(rest)
        if odd.size:
            out[odd] = _mix(out[odd] + rest[odd].view(np.uint64), seed)
        return out
    if unit == "us":
        return _mix(values, seed)
    factor = np.uint64(1_000_000 if unit == "s" else 1000)
    return _mix(values.astype(np.int64).view(np.uint64) * factor, seed)


def _hash_dictionary(array: pa.DictionaryArray) -> U64:
    if len(array.dictionary) > len(array):  # a slice of something larger
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


def _hash_lists(array: pa.Array) -> U64:
    """A list is the string of its elements' hashes."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        first = array.offset * kind.list_size
        elements = _hash(array.values.slice(first, len(array) * kind.list_size))
        starts = np.arange(len(array), dtype=np.int64) * kind.list_size
        lengths = np.full(len(array), kind.list_size, dtype=np.int64)
    else:
        offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        if not offsets.size:
            return np.empty(0, dtype=np.uint64)
        first, last = int(offsets[0]), int(offsets[-1])
        child = (
            pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
            if (pa.types.is_map(kind))
            else array.values
        )
        elements = _hash(child.slice(first, last - first))
        starts = offsets[:-1] - first
        lengths = np.diff(offsets)
        if array.null_count:
            lengths[nulls(array)] = 0  # what lies under a null may be long
    return _hash_bytes(elements.view(np.uint8), starts * 8, lengths * 8, _LIST)


# ---------------------------------------------------------------- decimals


def _hash_decimals(array: pa.Array) -> U64:
    """Strip trailing zeros, then an integer hashes as that integer."""
    kind = array.type
    if kind.scale < 0:
        try:
            array = array.cast(pa.decimal256(76, 0))
        except pa.ArrowInvalid as error:
            raise InvalidError(
                "a decimal key is too large", detail=str(error), hint="76 digits is the limit"
            ) from error
        kind = array.type
    width = kind.byte_width
    words = limbs(array, width)
    narrow = _fits_int64(words)
    if narrow.all():
        return _hash_narrow_decimals(words[0].view(np.int64), kind.scale)
    out = np.empty(len(array), dtype=np.uint64)
    out[narrow] = _hash_narrow_decimals(words[0][narrow].view(np.int64), kind.scale)
    wide = ~narrow
    out[wide] = _hash_wide_decimals([word[wide] for word in words], kind.scale)
    return out


def limbs(array: pa.Array, width: int) -> list[U64]:
    """The 64-bit words of decimals in two's complement, lowest first."""
    if width == 4:
        return [fixed(array, np.int32).astype(np.int64).view(np.uint64)]
    count = width // 8
    data = array.buffers()[1]
    if data is None or not len(array):
        return [np.empty(0, dtype=np.uint64) for _ in range(count)]
    flat = np.frombuffer(data, dtype=np.uint64, count=(array.offset + len(array)) * count)
    return [np.ascontiguousarray(flat[array.offset * count + place :: count]) for place in range(count)]


def _fits_int64(words: Sequence[U64]) -> npt.NDArray[np.bool_]:
    sign = (words[0].view(np.int64) >> 63).view(np.uint64)
    fits = np.ones(len(sign), dtype=np.bool_)
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
    out = _mix(mantissas, _INT)
    broken = np.flatnonzero(scales)
    if broken.size:
        out[broken] = _mix(_mix(mantissas[broken], _DECIMAL) + scales[broken], _DECIMAL)
    return out


def _hash_wide_decimals(words: Sequence[U64], scale: int) -> U64:
    """Decimals whose mantissa does not fit int64 as stored: long division by
    ten on 32-bit digits of the magnitude, then as the narrow ones if it fits now."""
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
    # One word of magnitude, within the signed range on its side of zero.
    short = (digits[2:] == 0).all(axis=0)
    limit = np.where(negative, np.uint64(1 << 63), np.uint64((1 << 63) - 1))
    narrow = short & (low <= limit)
    unsigned = short & ~narrow & ~negative & (scales == 0)
    signed = np.where(negative, np.uint64(0) - low, low)
    whole_hash = _mix(signed, _INT)
    broken_hash = _mix(_mix(signed, _DECIMAL) + scales, _DECIMAL)
    out = np.where(scales == 0, whole_hash, broken_hash)
    out[unsigned] = _mix(low[unsigned], _BIG)
    rest_rows = ~(narrow | unsigned)
    if rest_rows.any():
        state = _mix(scales[rest_rows] + negative[rest_rows].astype(np.uint64) * _LENGTH, _DECIMAL)
        for place in range(0, 8, 2):  # always 256 bits, whatever the stored width
            if place < len(digits):
                word = digits[place, rest_rows] | digits[place + 1, rest_rows] << _S32
            else:
                word = np.zeros(int(rest_rows.sum()), dtype=np.uint64)
            _combine(state, _mix(word, _DECIMAL))
        out[rest_rows] = state
    return out


def _magnitude(words: Sequence[U64], negative: npt.NDArray[np.bool_]) -> U64:
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


def is_bytes(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_string(kind)
        or t.is_large_string(kind)
        or t.is_string_view(kind)
        or t.is_binary(kind)
        or t.is_large_binary(kind)
        or t.is_binary_view(kind)
        or t.is_fixed_size_binary(kind)
    )


def strings(array: pa.Array) -> tuple[npt.NDArray[np.uint8], I64, I64]:
    """Data, starts and lengths of an array of strings or binaries; nulls are empty."""
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    if not len(array):
        return _bytes_of(None), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    if pa.types.is_fixed_size_binary(kind):
        starts = np.arange(array.offset, array.offset + len(array), dtype=np.int64) * kind.byte_width
        lengths = np.full(len(array), kind.byte_width, dtype=np.int64)
        data = array.buffers()[1]
    else:
        wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        _, packed, data = array.buffers()
        offsets = np.frombuffer(
            packed, dtype=np.int64 if wide else np.int32, count=array.offset + len(array) + 1
        )
        offsets = offsets[array.offset :].astype(np.int64)
        starts, lengths = offsets[:-1], np.diff(offsets)
    if array.null_count:
        lengths[nulls(array)] = 0  # what lies under a null may be long
    return _bytes_of(data), starts, lengths


def _bytes_of(data: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    return np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)


def _hash_bytes(data: npt.NDArray[np.uint8], starts: I64, lengths: I64, seed: np.uint64) -> U64:
    """Hashes of byte strings data[start : start + length].

    A string longer than `_LONG` is cut into pieces; it hashes as the string of
    its pieces' hashes, with its own length.  So one long string among short
    ones costs its bytes, not one vector operation per word.
    """
    long = np.flatnonzero(lengths > _LONG)
    if not long.size:
        return _hash_words(data, starts, lengths, lengths, seed)
    pieces = -(-lengths[long] // _LONG)
    ends = np.cumsum(pieces)
    within = np.arange(int(ends[-1]), dtype=np.int64) - np.repeat(ends - pieces, pieces)
    piece_starts = np.repeat(starts[long], pieces) + within * _LONG
    piece_lengths = np.minimum(np.repeat(lengths[long], pieces) - within * _LONG, _LONG)
    piece_hashes = _hash_words(data, piece_starts, piece_lengths, piece_lengths, seed)
    short = lengths.copy()
    short[long] = 0
    out = _hash_words(data, starts, short, lengths, seed)
    nested = _hash_bytes(piece_hashes.view(np.uint8), (ends - pieces) * 8, pieces * 8, seed)
    out[long] = _mix(nested + lengths[long].view(np.uint64) * _LENGTH, seed)
    return out


def _hash_words(data: npt.NDArray[np.uint8], starts: I64, lengths: I64, totals: I64, seed: np.uint64) -> U64:
    out = totals.view(np.uint64) * _LENGTH
    out += seed
    if out.size:
        words = words_at_bytes(data, int((starts + lengths).max()))
        for rows in _blocks(out.size):
            _absorb(words, starts[rows], lengths[rows], out[rows])
    return _mix(out, seed)


def words_at_bytes(data: npt.NDArray[np.uint8], end: int) -> U64:
    """Every 8-byte word of the data at any byte: words[i] starts at byte i."""
    if end + 8 > data.size:  # the last string is read past its end, then masked
        data = np.concatenate([data[:end], np.zeros(8, dtype=np.uint8)])
    return np.ndarray((data.size - 7,), dtype=np.uint64, buffer=data.data, strides=(1,))


def _absorb(words: U64, starts: I64, lengths: I64, state: U64) -> None:
    """Feed every string of a block into its state, one word at a time."""
    shortest, longest = int(lengths.min()), int(lengths.max())
    scratch = np.empty_like(state)
    for at in range(0, longest, 8):
        if shortest > at:  # every row has a word here
            word = words[starts + at]
            if shortest < at + 8:
                word &= TAIL[np.minimum(lengths - at, 8)]
            _absorb_word(state, word, scratch)
        else:
            rows = np.flatnonzero(lengths > at)
            word = words[starts[rows] + at]
            word &= TAIL[np.minimum(lengths[rows] - at, 8)]
            part = state[rows]
            _absorb_word(part, word, scratch[: rows.size])
            state[rows] = part


def _absorb_word(state: U64, word: U64, scratch: U64) -> None:
    """Two rounds: after one, strings that differ in last bytes only could meet."""
    np.bitwise_xor(state, word, out=state)
    np.right_shift(state, _S32, out=scratch)
    np.bitwise_xor(state, scratch, out=state)
    np.multiply(state, _WORD_1, out=state)
    np.right_shift(state, _S29, out=scratch)
    np.bitwise_xor(state, scratch, out=state)
    np.multiply(state, _WORD_2, out=state)


# ---------------------------------------------------------------- mixing


def _blocks(length: int) -> Iterator[slice]:
    for start in range(0, length, _BLOCK):
        yield slice(start, min(start + _BLOCK, length))


def _mix(values: npt.NDArray[Any], seed: np.uint64) -> U64:
    """The finaliser of splitmix64 over value + seed; a bijection for each seed."""
    if values.dtype.kind == "i":
        values = values.astype(np.int64, copy=False).view(np.uint64)
    out = np.empty(values.size, dtype=np.uint64)
    scratch = np.empty(min(values.size, _BLOCK), dtype=np.uint64)
    for rows in _blocks(values.size):
        state = out[rows]
        shifted = scratch[: state.size]
        np.add(values[rows], seed, out=state)
        np.right_shift(state, _S30, out=shifted)
        np.bitwise_xor(state, shifted, out=state)
        np.multiply(state, _MIX_1, out=state)
        np.right_shift(state, _S27, out=shifted)
        np.bitwise_xor(state, shifted, out=state)
        np.multiply(state, _MIX_2, out=state)
        np.right_shift(state, _S31, out=shifted)
        np.bitwise_xor(state, shifted, out=state)
    return out


def _combine(state: U64, more: U64) -> None:
    """Take a further column into the state, in place; (a, b) is not (b, a)."""
    scratch = np.empty(min(state.size, _BLOCK), dtype=np.uint64)
    for rows in _blocks(state.size):
        part = state[rows]
        shifted = scratch[: part.size]
        np.right_shift(part, _S32, out=shifted)
        np.bitwise_xor(part, shifted, out=part)
        np.multiply(part, _COMBINE, out=part)
        np.add(part, more[rows], out=part)
