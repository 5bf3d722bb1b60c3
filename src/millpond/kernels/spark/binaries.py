"""Functions of BINARY, and encodings between it and texts."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pyarrow as pa

from millpond.kernels.spark.rows import RefusedValue, by_row

_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_HASHES = {
    "SHA-1": "sha1",
    "SHA-224": "sha224",
    "SHA-256": "sha256",
    "SHA-384": "sha384",
    "SHA-512": "sha512",
}


@by_row("spark.hmac.1", ("BLOB", "BLOB", "VARCHAR"), "BLOB", pa.binary())
def keyed_hash(key: bytes, message: bytes, algorithm: str) -> bytes:
    name = _HASHES.get(algorithm.upper())
    if name is None:
        raise RefusedValue(f"hmac has no algorithm {algorithm!r} here: use one of {', '.join(_HASHES)}")
    return hmac.new(key, message, getattr(hashlib, name)).digest()


@by_row("spark.to_base32.1", ("BLOB",), "VARCHAR", pa.string())
def to_base32(data: bytes) -> str:
    return base64.b32encode(data).decode()


@by_row("spark.from_base32.1", ("VARCHAR",), "BLOB", pa.binary())
def from_base32(text: str) -> bytes:
    """Decode base 32; other characters are skipped, and so are bits that are left over."""
    bits, count = 0, 0
    for sign in text.upper():
        if sign in _BASE32:
            bits, count = bits << 5 | _BASE32.index(sign), count + 5
    return (bits >> count % 8).to_bytes(count // 8, "big")


@by_row("spark.binary_overlay.1", ("BLOB", "BLOB", "INTEGER", "INTEGER"), "BLOB", pa.binary())
def overlay(data: bytes, other: bytes, place: int, length: int) -> bytes:
    rest = len(other) if length < 0 else length
    return part(data, 1, place - 1) + other + part(data, place + rest, 2**31 - 1)


@by_row("spark.binary_part.1", ("BLOB", "INTEGER", "INTEGER"), "BLOB", pa.binary())
def substring(data: bytes, place: int, length: int) -> bytes:
    return part(data, place, length)


def part(data: bytes, place: int, length: int) -> bytes:
    """Bytes from a position, counted from 1, or from the end if it is negative.

    >>> part(b"abcd", 2, 2), part(b"abcd", -3, 2), part(b"abcd", -6, 3)
    (b'bc', b'bc', b'a')
    """
    start = place - 1 if place > 0 else len(data) + place if place < 0 else 0
    end = start + length
    return data[max(start, 0) : end] if end > 0 and length > 0 else b""


@by_row("spark.binary_pad.1", ("BLOB", "INTEGER", "BLOB", "BOOLEAN"), "BLOB", pa.binary())
def pad(data: bytes, length: int, filler: bytes, left: bool) -> bytes:
    missing = max(length, 0) - len(data)
    if missing <= 0 or not filler:
        return data[: max(length, 0)]
    added = (filler * (missing // len(filler) + 1))[:missing]
    return added + data if left else data + added


@by_row("spark.binary_reverse.1", ("BLOB",), "BLOB", pa.binary())
def reverse(data: bytes) -> bytes:
    return data[::-1]


@by_row("spark.valid_text.1", ("BLOB", "VARCHAR"), "VARCHAR", pa.string())
def valid_text(data: bytes, otherwise: str) -> str | None:
    """Decode bytes as UTF-8; invalid bytes are replaced, raise an error, or give NULL."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        if otherwise == "error":
            raise RefusedValue(f"{data!r} is not UTF-8") from None
        return None if otherwise == "null" else data.decode(errors="replace")
