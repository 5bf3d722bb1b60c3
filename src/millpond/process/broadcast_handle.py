"""A dict that all keys share; every task applies the same changes and writes those in its hash range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.delta import WEIGHT
from millpond.kernels.python_values import python_values
from millpond.operators.operator import Change
from millpond.process.dict_methods import LikeDict
from millpond.process.handle import (
    GONE,
)
from millpond.process.spec import ENTRY, StateSpec
from millpond.process.values import decode, encode
from millpond.state.tables.table import Table

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class BroadcastHandle(LikeDict):
    """Like a dict, one for all keys; only `on_control` may change it."""

    __slots__ = ("_changed", "_held", "_open", "_spec", "_step", "_table")

    def __init__(self, spec: StateSpec, step: str, table: Table) -> None:
        self._spec = spec
        self._step = step
        self._table = table  # read in full by every task
        self._held: dict[Any, Any] | None = None
        self._changed: dict[Any, Any] = {}
        self._open = False  # is the control stream being processed?

    def _all(self) -> dict[Any, Any]:
        if self._held is None:
            rows = self._table.scan()
            self._held = dict(
                zip(python_values(rows.column(ENTRY)), decode(self._spec, rows, self._step), strict=True)
            )
        return self._held

    def get(self, entry: Any, default: Any = None) -> Any:
        return self._all().get(entry, default)

    def __getitem__(self, entry: Any) -> Any:
        return self._all()[entry]

    def __contains__(self, entry: Any) -> bool:
        return entry in self._all()

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._all()))

    def __len__(self) -> int:
        return len(self._all())

    def keys(self) -> list[Any]:
        return list(self._all())

    def values(self) -> list[Any]:
        return list(self._all().values())

    def items(self) -> list[tuple[Any, Any]]:
        return list(self._all().items())

    def put(self, entry: Any, value: Any) -> None:
        self._may_change()
        if entry is None or value is None:
            raise TypeError(f"broadcast state {self._spec.name!r} takes no None; use remove()")
        self._all()[entry] = self._changed[entry] = value

    def remove(self, entry: Any) -> None:
        self._may_change()
        if self._all().pop(entry, None) is not None:
            self._changed[entry] = GONE

    __setitem__ = put
    __delitem__ = remove

    def _may_change(self) -> None:
        if not self._open:
            raise TypeError(
                f"broadcast state {self._spec.name!r} changes only in on_control: every key must see the same"
            )

    def listen(self, on: bool) -> None:
        self._open = on

    def save(self) -> Any:
        return dict(self._all()), dict(self._changed)

    def restore(self, saved: Any) -> None:
        self._held, self._changed = saved

    def change(self, h_min: int, h_max: int) -> list[Change]:
        """The changes that this task writes: every task knows all changes and writes its own hash range."""
        if not self._changed:
            return []
        entries, values = list(self._changed), list(self._changed.values())
        there = np.array([v is not GONE for v in values])
        order = pa.array(entries, self._spec.entry)
        arrays = encode(
            self._spec, [v for v in values if v is not GONE], self._step, lambda n: f"entry {entries[n]!r}"
        )
        positions = pa.array(np.cumsum(there) - 1, mask=~there)
        columns = [order, *(a.take(positions) for a in arrays), pa.array(there.astype(np.int64))]
        rows = pa.table(columns, names=[ENTRY, *self._table.spec.rest, WEIGHT])
        hashes = hashing.hash_columns([rows.column(ENTRY)], rows.num_rows)
        mine = (hashes >= np.uint64(h_min)) & (hashes <= np.uint64(h_max))
        rows = rows.filter(pa.array(mine))
        return [Change(self._table.spec.name, rows)] if rows.num_rows else []
