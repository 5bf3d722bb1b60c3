"""The states of a step in the hands of user code: which handle a state has, and how its lives end."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import HASH
from millpond.identity import one_chunk
from millpond.operators.process.handle import Handle, Home
from millpond.operators.process.list_handle import ListHandle
from millpond.operators.process.map_handle import MapHandle
from millpond.operators.process.spec import ENTRY, POSITION, StateSpec
from millpond.operators.process.value_handle import LivingValueHandle, ValueHandle, with_result
from millpond.operators.python_values import python_values
from millpond.state.table import KeySet

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


def sweep(state: StateSpec, handle: Any, over: pa.Table, keys: KeySet) -> None:
    """Let go of what no longer lives; what was renewed since lives on."""
    if not over.num_rows:
        return
    numbers = _numbers(keys, over).tolist()
    if state.kind == "value":
        for number in sorted(set(numbers)):
            handle.sweep(number)
    elif state.kind == "list":
        places: dict[int, set[int]] = {}
        for number, position in zip(numbers, python_values(over.column(POSITION)), strict=True):
            places.setdefault(number, set()).add(position)
        for number, positions in sorted(places.items()):
            handle.sweep(number, sorted(positions, reverse=True))
    else:
        for number, entry in zip(numbers, python_values(over.column(ENTRY)), strict=True):
            handle.sweep(number, entry)


def _numbers(keys: KeySet, rows: pa.Table) -> Ints:
    """The number of each row's key among the keys, which hold all of them."""
    key = keys.columns.column_names
    if not key:
        return np.zeros(rows.num_rows, np.int64)
    both = pa.concat_tables([keys.columns, rows.select(key).cast(keys.columns.schema)])
    hashes = np.concatenate([keys.hashes, one_chunk(rows.column(HASH)).to_numpy()])
    together = KeySet.of(both, key, hashes)
    place = np.empty(len(together), np.int64)
    place[together.inverse[: len(keys)]] = np.arange(len(keys))
    return place[together.inverse[len(keys) :]]
