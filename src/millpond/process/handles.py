"""Chooses the handle of a state, and removes expired state."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import HASH
from millpond.identity import one_chunk
from millpond.kernels.python_values import python_values
from millpond.process.handle import Handle, Home
from millpond.process.list_handle import ListHandle
from millpond.process.map_handle import MapHandle
from millpond.process.spec import ENTRY, POSITION, StateSpec
from millpond.process.value_handle import LivingValueHandle, ValueHandle, with_result
from millpond.state.tables.table import KeySet

Ints = npt.NDArray[np.int64]


def handle_of(home: Home) -> Handle:
    state = home.spec
    if state.kind == "list":
        return ListHandle(home)
    if state.kind == "map":
        return MapHandle(home)
    kind = ValueHandle if state.ttl is None else LivingValueHandle
    results = state.adds is not None and state.adds.result is not None
    return (with_result(kind) if results else kind)(home)


def sweep(state: StateSpec, handle: Any, expired: pa.Table, keys: KeySet) -> None:
    """Remove what has expired; values that were renewed since stay."""
    if not expired.num_rows:
        return
    numbers = _numbers(keys, expired).tolist()
    if state.kind == "value":
        for number in sorted(set(numbers)):
            handle.sweep(number)
    elif state.kind == "list":
        places: dict[int, set[int]] = {}
        for number, position in zip(numbers, python_values(expired.column(POSITION)), strict=True):
            places.setdefault(number, set()).add(position)
        for number, positions in sorted(places.items()):
            handle.sweep(number, sorted(positions, reverse=True))
    else:
        for number, entry in zip(numbers, python_values(expired.column(ENTRY)), strict=True):
            handle.sweep(number, entry)


def _numbers(keys: KeySet, rows: pa.Table) -> Ints:
    """The number of each row's key among `keys`, which contain all of them."""
    key = keys.columns.column_names
    if not key:
        return np.zeros(rows.num_rows, np.int64)
    both = pa.concat_tables([keys.columns, rows.select(key).cast(keys.columns.schema)])
    hashes = np.concatenate([keys.hashes, one_chunk(rows.column(HASH)).to_numpy()])
    all_keys = KeySet.of(both, key, hashes)
    positions = np.empty(len(all_keys), np.int64)
    positions[all_keys.inverse[: len(keys)]] = np.arange(len(keys))
    return positions[all_keys.inverse[len(keys) :]]
