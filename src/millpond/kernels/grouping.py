"""Groups rows by key, and places values of keys at the positions of their keys.

Law: rows of two keys are never in one group, even if their hashes are equal.  The order of the rows within
a group does not matter to callers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing, tuning
from millpond.delta import first_of_each
from millpond.identity import canonical, one_chunk, same_rows, take
from millpond.kernels.packed_rows import PackedRows, pack
from millpond.ordering import stable_argsort
from millpond.state.tables.table import KeySet

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def few_groups(key: Sequence[pa.ChunkedArray], length: int) -> bool:
    """Whether there seem to be far fewer keys than rows.

    Judged by a sample of all rows: of `n` sampled rows in `g` groups of equal size, n * n / 2g meet another
    row of their group; if some groups are larger, more do.
    """
    if not key or not length:
        return length > 0
    count = tuning.GROUPING_SAMPLE_ROWS
    mixed = hashing.hash_columns([pa.array(np.arange(count))], count)  # the same at every call
    drawn = np.sort(mixed % np.uint64(length))
    places = drawn[first_of_each(drawn)].astype(np.int64)
    sample = [take(one_chunk(column), places) for column in key]
    hashes = np.sort(hashing.hash_columns(sample, len(places)))
    again = np.count_nonzero(hashes[1:] == hashes[:-1])
    return bool(2 * again * length >= tuning.GROUPING_ROWS_PER_GROUP * len(places) * len(places))


def grouped(
    key: Mapping[str, pa.Array], length: int, packed: PackedRows | None
) -> tuple[Ints | None, Ints, dict[str, Any]]:
    """Group rows: (order or None, first row of each group, their keys and hashes)."""
    if packed is None and hashing.is_injective(list(key.values())):
        packed = pack([canonical(column) for column in key.values()])
    if packed is None:
        order, starts, hashes = _group(hashing.hash_columns(list(key.values()), length), key)
        firsts = starts if order is None else order[starts]
        return order, starts, {**{k: take(v, firsts) for k, v in key.items()}, "_h": hashes}
    order = stable_argsort(packed.codes)
    codes = packed.codes[order]
    starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
    columns = packed.columns(codes[starts])
    hashes = hashing.hash_columns(columns, len(starts))
    return order, starts, {**dict(zip(key, map(one_chunk, columns), strict=True)), "_h": hashes}


def grouped_in_order(
    key: Mapping[str, pa.Array], hashes: npt.NDArray[np.uint64]
) -> tuple[Ints | None, Ints, dict[str, Any]]:
    """The same for rows sorted by hash, if each hash belongs to one key only."""
    starts = first_of_each(hashes)
    return None, starts, {**{k: take(v, starts) for k, v in key.items()}, "_h": hashes[starts]}


def _group(hashes: npt.NDArray[np.uint64], key: Mapping[str, pa.Array]) -> tuple[Ints | None, Ints, Any]:
    """Sort rows by hash into groups: (order or None if sorted, first row of each group, its hash)."""
    length = len(hashes)
    if length == 0:
        return None, np.zeros(0, np.int64), hashes
    rising = bool((hashes[1:] >= hashes[:-1]).all())
    # Rows with one hash may be in any order: the result does not depend on it.
    sort = np.argsort if length < tuning.NUMPY_SORT_ROWS_MAX else stable_argsort
    order = None if rising else sort(hashes)
    ordered = hashes if order is None else hashes[order]
    fresh = np.empty(length, np.bool_)
    fresh[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    columns = list(key.values())
    if not hashing.is_injective(columns) and not _one_key_each(columns, order, fresh):
        # Two keys share a hash: group by the key set.
        keys = KeySet.of(pa.table(dict(key)), list(key), hashes)
        order = np.argsort(keys.inverse, kind="stable")
        positions = keys.inverse[order]
        starts = np.flatnonzero(np.concatenate(([True], positions[1:] != positions[:-1])))
        return order, starts, keys.hashes
    starts = np.flatnonzero(fresh)
    return order, starts, ordered[starts]


def _one_key_each(columns: Sequence[pa.Array], order: Ints | None, fresh: Bools) -> bool:
    """Whether rows with the same hash have the same key."""
    again = np.flatnonzero(~fresh)
    before, after = (again - 1, again) if order is None else (order[again - 1], order[again])
    return same_rows(columns, before, after)


def keys_of(live: Sequence[tuple[int, pa.Table]], key: Sequence[str]) -> KeySet:
    parts = [t.select([*key, "_h"]) for _, t in live]
    both = parts[0] if len(parts) == 1 else pa.concat_tables(parts)
    return KeySet.of(both, key, one_chunk(both.column("_h")).to_numpy())


def position_in(keys: KeySet, own: KeySet, batch: pa.Table | None = None) -> Ints:
    """The position in `keys` of each key of `own` (or of each row of the batch it was made from)."""
    names = own.columns.column_names
    if names:
        both = KeySet.of(
            pa.concat_tables([keys.columns, own.columns]), names, np.concatenate([keys.hashes, own.hashes])
        )
        to_keys = np.empty(len(both), np.int64)
        to_keys[both.inverse[: len(keys)]] = np.arange(len(keys))
        positions = to_keys[both.inverse[len(keys) :]]
    else:
        positions = np.zeros(len(own), np.int64)
    return positions if batch is None else positions[own.inverse]


def placed(values: Any, positions: Ints, length: int) -> Any:
    """Values at some positions of a full-length column, zero or NULL elsewhere."""
    if len(positions) == length:
        return values
    if isinstance(values, np.ndarray):
        out = np.zeros(length, values.dtype)
        out[positions] = values
        return out
    index = np.full(length, -1, np.int64)
    index[positions] = np.arange(len(positions))
    return values.take(pa.array(index, mask=index < 0))
