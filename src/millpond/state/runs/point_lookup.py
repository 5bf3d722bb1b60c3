"""Point lookups: the one live row of each key of a *latest* table without order columns.

`find` is the only entry point.  It tries the strategies in order; one that cannot answer returns None:

- by_hash searches by hash alone, and compares the keys of all rows found once, at the end.  It cannot
  answer if two keys share a hash, or if a table has several time buckets.
- by_key compares keys run by run, and always answers.

Law: both return the same rows.  `tables/batched_lookup.py` does the same for several tables in one call, with
the same verification and the same gathering of columns; it has its own entry point because it takes other
arguments.
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
from millpond.delta import WEIGHT
from millpond.errors import InternalError
from millpond.identity import equal, fixed_view, take
from millpond.state.runs import key_search, read_ahead
from millpond.state.runs.merge import OpenFile
from millpond.state.runs.missing_column import Fill
from millpond.state.runs.run_ref import RunRef
from millpond.state.runs.segment import Segment
from millpond.state.tables.table_spec import TableSpec

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_ZERO = bytes(32)


class RowSource(Protocol):
    """What a lookup needs of a `Segment`; it has the same methods."""

    def take(self, name: str, positions: Ints, fill: Fill | None = None) -> pa.Array: ...

    def slice(self, name: str, start: int, stop: int, fill: Fill | None = None) -> pa.Array: ...

    def bits(self, name: str, rows: Ints, fill: Fill | None = None) -> npt.NDArray[Any] | None: ...

    def all_differ(self, name: str) -> bool: ...


@dataclass(frozen=True)
class FoundRows:
    """Rows of one run, and the number of the key of each."""

    source: RowSource
    key: Ints
    rows: Ints


def find(
    spec: TableSpec,
    runs: Sequence[RunRef],
    open_file: OpenFile,
    hashes: Hashes,
    key: dict[str, pa.Array],
    within: tuple[int, int],
    names: Sequence[str] = (),
) -> list[FoundRows]:
    """The live row of each key; keys are in the order of their hashes, runs newest first.

    `names` are the columns that the caller will read.
    """
    for strategy in STRATEGIES:
        found = strategy(spec, runs, open_file, hashes, key, within, names)
        if found is not None:
            return found
    raise InternalError(f"no lookup strategy answers for table {spec.name!r}")


def by_hash(
    spec: TableSpec,
    runs: Sequence[RunRef],
    open_file: OpenFile,
    hashes: Hashes,
    key: dict[str, pa.Array],
    within: tuple[int, int],
    names: Sequence[str] = (),
) -> list[FoundRows] | None:
    """Search by hash alone; None if hashes do not identify a row."""
    if not len(hashes):
        return []
    low, high = int(hashes[0]), int(hashes[-1])
    if low < within[0] or high > within[1] or not (hashes[1:] > hashes[:-1]).all():
        return None
    if any(ref.bucket != runs[0].bucket for ref in runs):
        return None
    read_ahead.fetch_searched(runs, open_file, hashes, within, lambda s, a, b: s.find_one(hashes[a:b]))
    found: list[FoundRows] = []
    missing: Ints | None = None  # the keys not found yet; None is all
    for ref in runs:
        if ref.h_max < low or ref.h_min > high:
            continue
        segment = open_file(ref.file).segment(ref.segment)
        hits = segment.find_one(hashes if missing is None else hashes[missing])
        if hits is None:
            return None
        which, rows = hits
        if not len(which):
            continue
        found.append(FoundRows(segment, which if missing is None else missing[which], rows))
        if missing is None:
            left = np.ones(len(hashes), np.bool_)
            left[which] = False
            missing = left.nonzero()[0]
        elif len(which) == len(missing):
            break
        else:
            left = np.ones(len(missing), np.bool_)
            left[which] = False
            missing = missing[left]
        if not len(missing):
            break
    _fetch_rows(found, [*key, *names])
    return live(found) if keys_match(spec, found, key) else None


def _fetch_rows(found: Sequence[FoundRows], names: Sequence[str]) -> None:
    read_ahead.fetch_rows(((o.source, o.rows) for o in found if isinstance(o.source, Segment)), names)


def by_key(
    spec: TableSpec,
    runs: Sequence[RunRef],
    open_file: OpenFile,
    hashes: Hashes,
    key: dict[str, pa.Array],
    within: tuple[int, int],
    names: Sequence[str] = (),
) -> list[FoundRows]:
    """Compare keys run by run."""
    ranges = key_search.newest_rows(runs, open_file, hashes, key, within)
    found = [FoundRows(one.segment, one.key, one.lo) for one in ranges]
    _fetch_rows(found, names)
    found = live(found)
    if len(found) > 1:
        rows = sum(len(one.key) for one in found)
        keys = len(np.unique(np.concatenate([one.key for one in found])))
        if rows != keys:
            raise InternalError(
                f"table {spec.name!r} holds a key in two time buckets", detail=f"{rows} rows for {keys} keys"
            )
    return found


STRATEGIES = (by_hash, by_key)


def keys_match(spec: TableSpec, found: Sequence[FoundRows], key: dict[str, pa.Array]) -> bool:
    """Does every row have the key that it was found for?"""
    if not found or not key:
        return True
    names = list(key)
    if hashing.is_injective(list(key.values())) and all(one.source.all_differ(names[0]) for one in found):
        return True
    return all(_column_matches(name, key[name], found, spec.bits.get(name)) for name in names)


def _column_matches(
    name: str, wanted: pa.Array, found: Sequence[FoundRows], dtype: np.dtype[Any] | None
) -> bool:
    """Does every row have its key's value in one column?"""
    if dtype is not None and not wanted.null_count and not pa.types.is_floating(wanted.type):
        raw = fixed_view(wanted)
        stored = [one.source.bits(name, one.rows) for one in found]
        if raw is not None and all(bits is not None for bits in stored):
            return all(bool((raw[one.key] == bits).all()) for one, bits in zip(found, stored, strict=True))
    arrays = [one.source.take(name, one.rows) for one in found]
    values = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    keys = found[0].key if len(found) == 1 else np.concatenate([one.key for one in found])
    return bool(equal(take(wanted, keys), values).all())


def live(found: Sequence[FoundRows]) -> list[FoundRows]:
    """The rows without tombstones."""
    live_rows = []
    for one in found:
        weights = one.source.bits(WEIGHT, one.rows)
        assert weights is not None  # they are never NULL
        alive = weights != 0
        if alive.all():
            live_rows.append(one)
        elif len(alive) > 1 and alive.any():
            live_rows.append(FoundRows(one.source, one.key[alive], one.rows[alive]))
    return live_rows


def gather(spec: TableSpec, name: str, found: Sequence[FoundRows], length: int) -> pa.Array:
    """One column for `length` keys; a key without a row gets zero for fixed-width types, else NULL."""
    kind = spec.schema.field(name).type
    fill = spec.fill.get(name)
    dtype = spec.bits.get(name)
    if dtype is not None:
        out = np.zeros(length, dtype)
        for one in found:
            bits = one.source.bits(name, one.rows, fill)
            if bits is None:
                break
            out[one.key] = bits
        else:
            return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(out)], 0)
    has_zero = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    arrays = [one.source.take(name, one.rows, fill) for one in found]
    if has_zero:
        arrays.append(pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(_ZERO)]))
    if not arrays:
        return pa.nulls(length, kind)
    values = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    position = np.full(length, len(values) - 1 if has_zero else -1, np.int64)
    start = 0
    for one in found:
        position[one.key] = np.arange(start, start + len(one.key))
        start += len(one.key)
    absent = None if has_zero else position < 0
    return pc.take(values, pa.array(position, mask=absent), boundscheck=False)
