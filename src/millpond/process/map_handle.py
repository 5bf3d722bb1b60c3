"""A dict per key, one row per entry; in a large dict, entries are fetched one by one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.kernels.python_values import python_values
from millpond.operators.operator import Change
from millpond.process import handle
from millpond.process.dict_methods import LikeDict
from millpond.process.handle import (
    FOREVER,
    GONE,
    FirstElements,
    Handle,
    Home,
    end_rows,
    instants,
    micros,
    rows_of,
)
from millpond.process.spec import ENTRY, EXPIRES
from millpond.process.values import decode, encode

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass
class _Map:
    """One key's map: the fetched entries, and those that were put or removed (marked `GONE`)."""

    loaded: dict[Any, Any]
    ends: dict[Any, int]
    is_complete: bool
    changed: dict[Any, Any] = field(default_factory=dict)


class MapHandle(Handle, LikeDict):
    """Like a dict: `m[k]`, `get`, `put`, `remove`, `in`, `items()`, `keys()`, `values()`, `len`, `clear`."""

    __slots__ = ("_cells", "_first_elements")

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self._cells: dict[int, _Map] = {}
        self._first_elements: FirstElements | None = None

    def get(self, entry: Any, default: Any = None) -> Any:
        cell = self._cell()
        changed = cell.changed.get(entry)
        if changed is None:
            changed = cell.loaded.get(entry)
            if changed is None and not cell.is_complete and entry not in cell.loaded:
                changed = self._fetch(cell, entry)
        if changed is None or changed is GONE:
            return default
        ttl = self._home.spec.ttl
        if ttl is not None:
            if cell.ends[entry] <= self._now():
                return default
            if ttl.reset == "read" or cell.ends[entry] == FOREVER:
                cell.ends[entry] = self._until()
                cell.changed[entry] = changed
        if self._home.spec.mutable:
            cell.changed[entry] = changed
        return changed

    def put(self, entry: Any, value: Any) -> None:
        if entry is None or value is None:
            raise TypeError(f"map state {self._home.spec.name!r} takes no None; use remove()")
        cell = self._cell()
        cell.changed[entry] = value
        if self._home.spec.ttl is not None:
            cell.ends[entry] = self._until()

    def remove(self, entry: Any) -> None:
        self._cell().changed[entry] = GONE

    def __getitem__(self, entry: Any) -> Any:
        value = self.get(entry)
        if value is None:
            raise KeyError(entry)
        return value

    __setitem__ = put
    __delitem__ = remove

    def __contains__(self, entry: Any) -> bool:
        return self.get(entry) is not None

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All entries in the order of the table, new ones last."""
        cell = self._cell()
        if not cell.is_complete:
            self._load(cell)
        for entry in [*cell.loaded, *(e for e in cell.changed if e not in cell.loaded)]:
            found = self.get(entry)
            if found is not None:
                yield entry, found

    def keys(self) -> Iterator[Any]:
        return (entry for entry, _ in self.items())

    def values(self) -> Iterator[Any]:
        return (value for _, value in self.items())

    __iter__ = keys

    def __len__(self) -> int:
        return sum(1 for _ in self.items())

    def __bool__(self) -> bool:
        return next(self.items(), None) is not None

    def clear(self) -> None:
        cell = self._cell()
        if not cell.is_complete:
            self._load(cell)
        for entry in [*cell.loaded, *cell.changed]:
            cell.changed[entry] = GONE

    def _cell(self) -> _Map:
        cell = self._cells.get(self.at)
        if cell is None:
            cell = self._cells[self.at] = self._open()
        return cell

    def _open(self) -> _Map:
        home = self._home
        if self._first_elements is None:
            self._first_elements = FirstElements(home, home.table.head(home.keys, handle.FETCHED_PER_KEY))
        first_elements = self._first_elements
        lo, hi = first_elements.span(self.at)
        entries = first_elements.order[lo:hi]
        ends = (
            dict(zip(entries, first_elements.ends[lo:hi], strict=True)) if home.spec.ttl is not None else {}
        )
        loaded = dict(zip(entries, first_elements.values[lo:hi], strict=True))
        return _Map(loaded, ends, is_complete=hi - lo < handle.FETCHED_PER_KEY)

    def _fetch(self, cell: _Map, entry: Any) -> Any:
        """Fetch one entry of a map that is not fetched completely."""
        home = self._home
        bound = pa.array([entry], home.spec.entry)
        self._take(cell, home.table.range(home.one(self.at), bound, bound).table)
        return cell.loaded.get(entry)

    def _load(self, cell: _Map) -> None:
        home = self._home
        entries = self._take(cell, home.table.lookup(home.one(self.at)).table)
        cell.loaded = {entry: cell.loaded[entry] for entry in entries}  # in the table's order
        cell.is_complete = True

    def _take(self, cell: _Map, rows: pa.Table) -> list[Any]:
        entries = python_values(rows.column(ENTRY))
        for index, (entry, value) in enumerate(
            zip(entries, decode(self._home.spec, rows, self._home.step), strict=True)
        ):
            if entry not in cell.loaded:
                cell.loaded[entry] = value
                if self._home.spec.ttl is not None and entry not in cell.ends:
                    cell.ends[entry] = micros(rows, EXPIRES)[index]
        return entries

    def sweep(self, at: int, entry: Any) -> None:
        """Remove this entry if it has expired: the bucket of its expiry has passed."""
        self.at = at
        cell = self._cell()
        if entry not in cell.changed:
            if entry not in cell.loaded and not cell.is_complete:
                self._fetch(cell, entry)
            if entry in cell.loaded and cell.ends[entry] <= self._now():
                cell.changed[entry] = GONE

    def save(self) -> Any:
        cell = self._cell()  # fetched for the same reason as in `ListHandle.save`
        return _Map(
            copy.deepcopy(cell.loaded),
            dict(cell.ends),
            cell.is_complete,
            {e: v if v is GONE else copy.deepcopy(v) for e, v in cell.changed.items()},
        )

    def restore(self, saved: Any) -> None:
        self._cells[self.at] = saved

    def changes(self, skip: Bools) -> list[Change]:
        home = self._home
        keys: list[int] = []
        entries: list[Any] = []
        values: list[Any] = []
        there: list[bool] = []
        ends: list[int] = []
        for at in sorted(self._cells):
            cell = self._cells[at]
            if skip[at] or not cell.changed:
                continue
            for entry, value in cell.changed.items():
                if home.spec.ttl is not None and value is not GONE and cell.ends[entry] <= self._now():
                    value = GONE
                if value is GONE and cell.is_complete and entry not in cell.loaded:
                    continue  # put and removed within the epoch
                keys.append(at)
                entries.append(entry)
                there.append(value is not GONE)
                if value is not GONE:
                    values.append(value)
                    ends.append(cell.ends.get(entry, 0))
        if not keys:
            return []
        at_keys, alive = np.array(keys), np.array(there)
        order = encode_entries(home, entries, keys)
        holders = at_keys[alive]
        positions = pa.array(np.cumsum(alive) - 1, mask=~alive)
        arrays = encode(home.spec, values, home.step, lambda n: home.tell(int(holders[n])))
        changes_made = []
        if home.spec.ttl is not None:
            arrays.append(instants(np.array(ends, np.int64)))
            changes_made += end_rows(home, holders, {ENTRY: order.filter(pa.array(alive))}, arrays[-1])
        arrays = [a.take(positions) for a in arrays]
        names = (ENTRY, *home.table.spec.rest)
        changes_made.append(
            Change(home.table.spec.name, rows_of(home, at_keys, [order, *arrays], names, alive))
        )
        return changes_made


def encode_entries(home: Home, entries: list[Any], keys: list[int]) -> pa.Array:
    try:
        return pa.array(entries, home.spec.entry)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidError(
            f"an entry of map state {home.spec.name!r} of {home.tell(keys[0])} cannot be stored",
            detail=f"entries are declared as {home.spec.entry}: {error}",
            hint="put entries of one type, or declare MapState with the type they have",
            step=home.step,
        ) from error
