"""The one row of each key, found by hash alone and proved by its key once.

Law: what it gives is what `Table.lookup_one` gives by comparing keys run by run.
Runs are asked from the newest to the oldest for hashes; of all the rows found the
keys are compared at the end, in one go.  Where two keys share a hash it gives
nothing, and whoever asked goes the long way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import hashing
from millpond.identity import equal, fixed_view, take
from millpond.state.merge import OpenFile
from millpond.state.run_ref import RunRef
from millpond.state.table_spec import WEIGHT, TableSpec

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_ZERO = bytes(32)


class Held(Protocol):
    """Rows that can be asked as a `Segment` is, whatever their columns are called; `fill` as there."""

    def take(self, name: str, positions: Ints, fill: pa.Array | None = None) -> pa.Array: ...

    def slice(self, name: str, start: int, stop: int, fill: pa.Array | None = None) -> pa.Array: ...

    def bits(self, name: str, rows: Ints, fill: pa.Array | None = None) -> npt.NDArray[Any] | None: ...

    def all_differ(self, name: str) -> bool: ...


@dataclass(frozen=True)
class Piece:
    """Rows of one run, and the number of the key that each belongs to."""

    segment: Held
    key: Ints
    rows: Ints


def newest(
    spec: TableSpec,
    runs: Sequence[RunRef],
    open_file: OpenFile,
    hashes: Hashes,
    key: dict[str, pa.Array],
    within: tuple[int, int],
) -> list[Piece] | None:
    """Where the newest row of each key lies, for keys in the order of their hashes and runs newest first.

    None where hashes do not tell: several keys of one hash, several time buckets, keys out of the range.
    """
    if not len(hashes):
        return []
    low, high = int(hashes[0]), int(hashes[-1])
    if low < within[0] or high > within[1] or not (hashes[1:] > hashes[:-1]).all():
        return None
    if any(ref.bucket != runs[0].bucket for ref in runs):
        return None
    pieces: list[Piece] = []
    left: Ints | None = None  # the keys that no run had so far; all when None
    for ref in runs:
        if ref.h_max < low or ref.h_min > high:
            continue
        segment = open_file(ref.file).segment(ref.segment)
        found = segment.find_one(hashes if left is None else hashes[left])
        if found is None:
            return None
        which, rows = found
        if not len(which):
            continue
        pieces.append(Piece(segment, which if left is None else left[which], rows))
        if left is None:
            open_keys = np.ones(len(hashes), np.bool_)
            open_keys[which] = False
            left = open_keys.nonzero()[0]
        elif len(which) == len(left):
            break
        else:
            open_keys = np.ones(len(left), np.bool_)
            open_keys[which] = False
            left = left[open_keys]
        if not len(left):
            break
    return pieces if proved(spec, pieces, key) else None


def proved(spec: TableSpec, pieces: Sequence[Piece], key: dict[str, pa.Array]) -> bool:
    """Do the rows really have the keys whose hashes they have?"""
    if not pieces or not key:
        return True
    names = list(key)
    if hashing.is_injective(list(key.values())) and all(p.segment.all_differ(names[0]) for p in pieces):
        return True
    return all(_same(name, key[name], pieces, spec.bits.get(name)) for name in names)


def _same(name: str, wanted: pa.Array, pieces: Sequence[Piece], dtype: np.dtype[Any] | None) -> bool:
    """Do the rows have these values in one column?"""
    if dtype is not None and not wanted.null_count and not pa.types.is_floating(wanted.type):
        raw = fixed_view(wanted)
        held = [piece.segment.bits(name, piece.rows) for piece in pieces]
        if raw is not None and all(bits is not None for bits in held):
            return all(bool((raw[p.key] == bits).all()) for p, bits in zip(pieces, held, strict=True))
    parts = [piece.segment.take(name, piece.rows) for piece in pieces]
    together = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    place = pieces[0].key if len(pieces) == 1 else np.concatenate([piece.key for piece in pieces])
    return bool(equal(take(wanted, place), together).all())


def alive(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces without tombstones."""
    found = []
    for piece in pieces:
        weights = piece.segment.bits(WEIGHT, piece.rows)
        assert weights is not None  # they are never NULL
        lives = weights != 0
        if lives.all():
            found.append(piece)
        elif len(lives) > 1 and lives.any():
            found.append(Piece(piece.segment, piece.key[lives], piece.rows[lives]))
    return found


def column(spec: TableSpec, name: str, pieces: Sequence[Piece], length: int) -> pa.Array:
    """One column for `length` keys: where nothing was found zero for fixed-width types, else NULL."""
    kind = spec.schema.field(name).type
    fill = spec.fill.get(name)
    dtype = spec.bits.get(name)
    if dtype is not None:
        out = np.zeros(length, dtype)
        for piece in pieces:
            bits = piece.segment.bits(name, piece.rows, fill)
            if bits is None:
                break
            out[piece.key] = bits
        else:
            return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(out)], 0)
    zero = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    parts = [piece.segment.take(name, piece.rows, fill) for piece in pieces]
    if zero:
        parts.append(pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(_ZERO)]))
    if not parts:
        return pa.nulls(length, kind)
    values = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    place = np.full(length, len(values) - 1 if zero else -1, np.int64)
    at = 0
    for piece in pieces:
        place[piece.key] = np.arange(at, at + len(piece.key))
        at += len(piece.key)
    missing = None if zero else place < 0
    return pc.take(values, pa.array(place, mask=missing), boundscheck=False)
