"""A dict per key: one row an entry, fetched by itself where there are many."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.operators.operator import Change
from millpond.operators.process import handle
from millpond.operators.process.handle import (
    FOREVER,
    GONE,
    Handle,
    Home,
    Near,
    end_rows,
    instants,
    micros,
    rows_of,
)
from millpond.operators.process.like_dict import LikeDict
from millpond.operators.process.spec import ENTRY, EXPIRES
from millpond.operators.process.values import decode, encode
from millpond.operators.python_values import python_values

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass
class _Map:
    """One key's map: what was fetched, and what was put or removed (then `GONE`)."""

    held: dict[Any, Any]
    ends: dict[Any, int]
    whole: bool
    changed: dict[Any, Any] = field(default_factory=dict)


class MapHandle(Handle, LikeDict):
    """Like a dict: `m[k]`, `get`, `put`, `remove`, `in`, `items()`, `keys()`, `values()`, `len`, `clear`."""

    __slots__ = ("_cells", "_near")

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self._cells: dict[int, _Map] = {}
        self._near: Near | None = None

    def get(self, entry: Any, default: Any = None) -> Any:
        cell = self._cell()
        found = cell.changed.get(entry)
        if found is None:
            found = cell.held.get(entry)
            if found is None and not cell.whole and entry not in cell.held:
                found = self._fetch(cell, entry)
        if found is None or found is GONE:
            return default
        ttl = self._home.spec.ttl
        if ttl is not None:
            if cell.ends[entry] <= self._now():
                return default
            if ttl.reset == "read" or cell.ends[entry] == FOREVER:
                cell.ends[entry] = self._until()
                cell.changed[entry] = found
        if self._home.spec.mutable:
            cell.changed[entry] = found
        return found

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
        found = self.get(entry)
        if found is None:
            raise KeyError(entry)
        return found

    __setitem__ = put
    __delitem__ = remove

    def __contains__(self, entry: Any) -> bool:
        return self.get(entry) is not None

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All entries in the order of their keys in the table, new ones last."""
        cell = self._cell()
        if not cell.whole:
            self._load(cell)
        for entry in [*cell.held, *(e for e in cell.changed if e not in cell.held)]:
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
        if not cell.whole:
            self._load(cell)
        for entry in [*cell.held, *cell.changed]:
            cell.changed[entry] = GONE

    def _cell(self) -> _Map:
        cell = self._cells.get(self.at)
        if cell is None:
            cell = self._cells[self.at] = self._open()
        return cell

    def _open(self) -> _Map:
        home = self._home
        if self._near is None:
            self._near = Near(home, home.table.head(home.keys, handle.NEAR))
        near = self._near
        lo, hi = near.span(self.at)
        entries = near.order[lo:hi]
        ends = dict(zip(entries, near.ends[lo:hi], strict=True)) if home.spec.ttl is not None else {}
        held = dict(zip(entries, near.values[lo:hi], strict=True))
        return _Map(held, ends, whole=hi - lo < handle.NEAR)

    def _fetch(self, cell: _Map, entry: Any) -> Any:
        """One entry of a map that is not fetched whole."""
        home = self._home
        bound = pa.array([entry], home.spec.entry)
        self._take(cell, home.table.range(home.one(self.at), bound, bound).table)
        return cell.held.get(entry)

    def _load(self, cell: _Map) -> None:
        home = self._home
        entries = self._take(cell, home.table.lookup(home.one(self.at)).table)
        cell.held = {entry: cell.held[entry] for entry in entries}  # in the table's order
        cell.whole = True

    def _take(self, cell: _Map, rows: pa.Table) -> list[Any]:
        entries = python_values(rows.column(ENTRY))
        for place, (entry, value) in enumerate(
            zip(entries, decode(self._home.spec, rows, self._home.step), strict=True)
        ):
            if entry not in cell.held:
                cell.held[entry] = value
                if self._home.spec.ttl is not None and entry not in cell.ends:
                    cell.ends[entry] = micros(rows, EXPIRES)[place]
        return entries

    def sweep(self, at: int, entry: Any) -> None:
        """The bucket of this entry's end has passed."""
        self.at = at
        cell = self._cell()
        if entry not in cell.changed:
            if entry not in cell.held and not cell.whole:
                self._fetch(cell, entry)
            if entry in cell.held and cell.ends[entry] <= self._now():
                cell.changed[entry] = GONE

    def save(self) -> Any:
        cell = self._cell()  # as for a list
        return _Map(
            copy.deepcopy(cell.held),
            dict(cell.ends),
            cell.whole,
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
                if value is GONE and cell.whole and entry not in cell.held:
                    continue  # came and went within the epoch
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
        place = pa.array(np.cumsum(alive) - 1, mask=~alive)
        arrays = encode(home.spec, values, home.step, lambda n: home.tell(int(holders[n])))
        found = []
        if home.spec.ttl is not None:
            arrays.append(instants(np.array(ends, np.int64)))
            found += end_rows(home, holders, {ENTRY: order.filter(pa.array(alive))}, arrays[-1])
        arrays = [a.take(place) for a in arrays]
        names = (ENTRY, *home.table.spec.rest)
        found.append(Change(home.table.spec.name, rows_of(home, at_keys, [order, *arrays], names, alive)))
        return found


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
