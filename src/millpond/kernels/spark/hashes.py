"""`hash` (Murmur3) and `xxhash64` of Spark: the hash of each value is the seed of the next.

A value comes as text with a letter for its kind: `i` (up to 32 bits, dates, booleans), `l` (64 bits, times,
short decimals), `n` (long decimals), `f`, `d`, `s` (text), `b` (bytes in hexadecimal).
"""

from __future__ import annotations

import struct

import pyarrow as pa

from millpond.kernels.spark.rows import by_row

_32, _64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def _packed(value: str) -> bytes:
    """The bytes of a value in little-endian order."""
    kind, text = value[0], value[2:]
    match kind:
        case "i":
            return (int(text) & _32).to_bytes(4, "little")
        case "l":
            return (int(text) & _64).to_bytes(8, "little")
        case "f":
            number = float(text)
            return b"\x00\x00\xc0\x7f" if number != number else struct.pack("<f", number or 0.0)
        case "d":
            number = float(text)
            return b"\0\0\0\0\0\0\xf8\x7f" if number != number else struct.pack("<d", number or 0.0)
        case "b":
            return bytes.fromhex(text)
        case "n":  # as Java's BigInteger: as few bytes as hold it, first the highest
            number = int(text)
            return number.to_bytes(
                ((number if number >= 0 else ~number).bit_length() // 8) + 1, "big", signed=True
            )
    return text.encode()


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


# -- Murmur3, 32 bits -----------------------------------------------------------------------------


def _left(x: int, n: int, bits: int) -> int:
    return ((x << n) | (x >> (bits - n))) & ((1 << bits) - 1)


def _mixed(h: int, word: int) -> int:
    k = _left(word * 0xCC9E2D51 & _32, 15, 32) * 0x1B873593 & _32
    return (_left(h ^ k, 13, 32) * 5 + 0xE6546B64) & _32


def _finished(h: int, length: int) -> int:
    h ^= length
    h = (h ^ (h >> 16)) * 0x85EBCA6B & _32
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & _32
    return h ^ (h >> 16)


def murmur3(data: bytes, seed: int) -> int:
    """Spark's variant: bytes behind the last whole word are mixed in one by one, with their sign."""
    h, whole = seed, len(data) // 4 * 4
    for at in range(0, whole, 4):
        h = _mixed(h, int.from_bytes(data[at : at + 4], "little"))
    for byte in data[whole:]:
        h = _mixed(h, _signed(byte, 8) & _32)
    return _finished(h, len(data))


@by_row("spark.hash.1", ("VARCHAR[]",), "INTEGER", pa.int32())
def hash_of(values: tuple[str | None, ...]) -> int:
    found = 42
    for value in values:
        if value is not None:
            found = murmur3(_packed(value), found)
    return _signed(found, 32)


# -- xxHash, 64 bits ------------------------------------------------------------------------------

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _round(acc: int, word: int) -> int:
    return _left((acc + word * _P2) & _64, 31, 64) * _P1 & _64


def xxhash(data: bytes, seed: int) -> int:
    """The standard xxHash of 64 bits."""
    at, length = 0, len(data)
    if length >= 32:
        lanes = [(seed + _P1 + _P2) & _64, (seed + _P2) & _64, seed, (seed - _P1) & _64]
        while at + 32 <= length:
            for n in range(4):
                lanes[n] = _round(lanes[n], int.from_bytes(data[at : at + 8], "little"))
                at += 8
        h = sum(_left(lane, n, 64) for lane, n in zip(lanes, (1, 7, 12, 18), strict=True)) & _64
        for lane in lanes:
            h = ((h ^ _round(0, lane)) * _P1 + _P4) & _64
    else:
        h = (seed + _P5) & _64
    h = (h + length) & _64
    while at + 8 <= length:
        h = (_left(h ^ _round(0, int.from_bytes(data[at : at + 8], "little")), 27, 64) * _P1 + _P4) & _64
        at += 8
    if at + 4 <= length:
        word = int.from_bytes(data[at : at + 4], "little")
        h = (_left(h ^ (word * _P1 & _64), 23, 64) * _P2 + _P3) & _64
        at += 4
    for byte in data[at:]:
        h = _left(h ^ (byte * _P5 & _64), 11, 64) * _P1 & _64
    h = (h ^ (h >> 33)) * _P2 & _64
    h = (h ^ (h >> 29)) * _P3 & _64
    return h ^ (h >> 32)


@by_row("spark.xxhash64.1", ("VARCHAR[]",), "BIGINT", pa.int64())
def xxhash64_of(values: tuple[str | None, ...]) -> int:
    found = 42
    for value in values:
        if value is not None:
            found = xxhash(_packed(value), found)
    return _signed(found, 64)
