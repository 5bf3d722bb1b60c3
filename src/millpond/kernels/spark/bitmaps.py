"""Bitmaps of Spark: 4 KiB of bits, for the exact count of distinct numbers in buckets of 32,768."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millpond.kernels.spark.rows import RefusedValue, by_row

_BYTES = 4096


@by_row("spark.bitmap_construct.1", ("BIGINT[]",), "BLOB", pa.binary())
def construct(places: Sequence[int]) -> bytes:
    """The bitmap with these bits."""
    made = bytearray(_BYTES)
    for place in places:
        if not 0 <= place < 8 * _BYTES:
            raise RefusedValue(f"a bitmap has no bit {place}: use bitmap_bit_position")
        made[place // 8] |= 1 << (place % 8)
    return bytes(made)


@by_row("spark.bitmap_or.1", ("BLOB[]",), "BLOB", pa.binary())
def union(bitmaps: Sequence[bytes]) -> bytes:
    made = 0
    for one in bitmaps:
        made |= int.from_bytes(one[:_BYTES], "little")
    return made.to_bytes(_BYTES, "little")


@by_row("spark.bitmap_and.1", ("BLOB[]",), "BLOB", pa.binary())
def intersection(bitmaps: Sequence[bytes]) -> bytes:
    made = (1 << (8 * _BYTES)) - 1
    for one in bitmaps:
        made &= int.from_bytes(one[:_BYTES], "little")
    return made.to_bytes(_BYTES, "little")


@by_row("spark.bitmap_count.1", ("BLOB",), "BIGINT", pa.int64())
def count(bitmap: bytes) -> int:
    return int.from_bytes(bitmap, "little").bit_count()
