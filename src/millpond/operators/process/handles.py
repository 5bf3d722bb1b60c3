"""State in a user's hands: for every key of a batch, at the cost of a dict.

The rows of all keys of a batch are fetched in one vectorised lookup, changed as
Python objects while the user's code runs, and written as one change per table.
A handle looks at one key at a time, `at`.  Lists and maps fetch the first few
elements of every key at once, and more only for a key that asks for more.
"""

from __future__ import annotations

import copy
import datetime
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.delta import HASH, WEIGHT
from millpond.errors import InvalidError
from millpond.identity import equal_rows, one_chunk
from millpond.operators.flat_map import python_values
from millpond.operators.keyed import some_keys
from millpond.operators.operator import Change
from millpond.operators.process.spec import AT, ENTRY, EXPIRES, INSTANT, POSITION, StateSpec
from millpond.operators.process.values import HOLDS, decode, encode
from millpond.state.table import KeySet, Table
from millpond.state.table_spec import TableSpec

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NEAR = 32  # elements of a list or map that are fetched for every key at once
PAGE = 4096  # and for one key that asks for more
_GONE = object()
FOREVER = 2**62


class Times:
    """What the clocks show while user code runs, in microseconds; -2**62 where there is no watermark.

    `event` is the watermark, as far as the key has come; `here` the time of the row or timer at hand, from
    which lives by event time count and by which they end.  The watermark is never later than a row that is
    yet to come, so what it has passed nobody sees again.
    """

    __slots__ = ("event", "here", "processing")

    def __init__(self, event: int, processing: int) -> None:
        self.event = event
        self.here = event
        self.processing = processing

    def of(self, clock: str) -> int:
        return self.here if clock == "event" else self.processing


@dataclass(frozen=True)
class Home:
    """Where a handle's rows come from and go to."""

    spec: StateSpec
    step: str
    table: Table
    sweep: TableSpec | None
    keys: KeySet
    times: Times
    tell: Callable[[int], str]  # a key, for an error

    def one(self, at: int) -> KeySet:
        return some_keys(self.keys, np.array([at]), self.keys.columns.column_names)


class Handle(ABC):
    """One state of the step, for the key number `at`."""

    __slots__ = ("_home", "at")

    def __init__(self, home: Home) -> None:
        self._home = home
        self.at = 0

    def saved(self) -> Any:
        """A copy of what this key holds, to go back to when the user's code fails."""
        try:
            return self.save()
        except Exception as error:  # whatever a user's object raises when it is copied
            home = self._home
            raise InvalidError(
                f"state {home.spec.name!r} of {home.tell(self.at)} cannot be stored",
                detail=f"{type(error).__name__}: {' '.join(str(error).split())}",
                hint=HOLDS,
                step=home.step,
            ) from error

    @abstractmethod
    def save(self) -> Any: ...

    @abstractmethod
    def restore(self, saved: Any) -> None: ...

    @abstractmethod
    def changes(self, skip: Bools) -> list[Change]:
        """What is to be written, but for the keys to skip.

        The clocks show the end of the epoch.  What is over by then is not written: the bucket in which its
        end would lie goes with this epoch, and nothing would ever sweep it.
        """

    def _until(self) -> int:
        ttl = self._home.spec.ttl
        assert ttl is not None
        return self._home.times.of(ttl.clock) + ttl.us

    def _now(self) -> int:
        ttl = self._home.spec.ttl
        assert ttl is not None
        return self._home.times.of(ttl.clock)


class ValueHandle(Handle):
    """`value` to read and set, `clear()`; None is no value."""

    __slots__ = ("_default", "_eager", "_found", "_make", "_rows", "_touched", "_values")

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        spec = home.spec
        self._found, self._rows = home.table.lookup_one(home.keys)
        self._values = _spread(decode(spec, _some(self._rows, self._found), home.step), self._found)
        self._touched = bytearray(len(home.keys))
        self._eager = spec.mutable
        self._make = _factory(spec.default)
        self._default = None if self._make is not None else spec.default

    @property
    def value(self) -> Any:
        found = self._values[self.at]
        if found is None:
            return self._absent()
        if self._eager:
            self._touched[self.at] = 1
        return found

    @value.setter
    def value(self, value: Any) -> None:
        self._values[self.at] = value
        self._touched[self.at] = 1

    def get(self) -> Any:
        return self.value

    def set(self, value: Any) -> None:
        self.value = value

    def clear(self) -> None:
        self.value = None

    def _is_no_value(self, *others: Any) -> Any:
        """A handle is always true and equal to nothing: who asks meant its value."""
        name = self._home.spec.name
        raise TypeError(f"{name} is a state, not its value: write {name}.value")

    __bool__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _is_no_value
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _is_no_value
    __len__ = __iter__ = __contains__ = __getitem__ = __setitem__ = __int__ = __float__ = _is_no_value
    __hash__ = object.__hash__

    def add(self, item: Any) -> None:
        """Of a reducing or aggregating state: take one more item in."""
        adds = self._adds()
        held = self._values[self.at] if self._home.spec.ttl is None else self._held()
        if held is None:
            if adds.create is None:
                self.value = item
                return
            held = adds.create()
        self.value = adds.add(held, item)

    def _adds(self) -> Any:
        adds = self._home.spec.adds
        if adds is None:
            raise TypeError(
                f"state {self._home.spec.name!r} is a ValueState: set .value, or declare a ReducingState"
            )
        return adds

    def _held(self) -> Any:
        return self._values[self.at]

    def _absent(self) -> Any:
        if self._make is None:
            return self._default
        made = self._values[self.at] = self._make()
        self._touched[self.at] = 1
        return made

    def save(self) -> Any:
        return copy.deepcopy(self._values[self.at]), self._touched[self.at]

    def restore(self, saved: Any) -> None:
        self._values[self.at], self._touched[self.at] = saved

    def changes(self, skip: Bools) -> list[Change]:
        home = self._home
        rows = np.flatnonzero((np.frombuffer(self._touched, np.uint8) != 0) & ~skip)
        if not len(rows):
            return []
        values = self._values if len(rows) == len(self._values) else [self._values[i] for i in rows.tolist()]
        there = np.array([v is not None for v in values], np.bool_)
        arrays = self._encoded(rows, values, there)
        old = [one_chunk(self._rows.column(n)).take(pa.array(rows)) for n in home.table.spec.rest]
        same = equal_rows(arrays, old, len(rows)) & self._found[rows] & there
        write = ~same & (there | self._found[rows])
        if not write.any():
            return []
        if not write.all():
            kept = pa.array(np.flatnonzero(write))
            arrays, rows, there = [a.take(kept) for a in arrays], rows[write], there[write]
        found = [
            Change(home.table.spec.name, _rows_of(home, rows, arrays, home.table.spec.rest, there), True)
        ]
        return found + self._ends(rows, arrays, there)

    def _encoded(self, rows: Ints, values: list[Any], there: Bools) -> list[pa.Array]:
        home = self._home
        if there.all():
            return encode(home.spec, values, home.step, lambda n: home.tell(int(rows[n])))
        kept = np.flatnonzero(there)
        arrays = encode(
            home.spec, [values[i] for i in kept.tolist()], home.step, lambda n: home.tell(int(rows[kept[n]]))
        )
        place = np.cumsum(there) - 1
        return [a.take(pa.array(place, mask=~there)) for a in arrays]

    def _ends(self, rows: Ints, arrays: list[pa.Array], there: Bools) -> list[Change]:
        return []


def with_result(kind: type[ValueHandle]) -> type[ValueHandle]:
    """Such a handle whose `value` is the result of an aggregation."""

    class Aggregating(kind):  # type: ignore[valid-type, misc]
        __slots__ = ()

        @property
        def value(self) -> Any:
            held = self._held()
            if held is None:
                return self._default
            return self._adds().result(super().value)

        @value.setter
        def value(self, value: Any) -> None:
            kind.value.fset(self, value)  # type: ignore[attr-defined]

    return Aggregating


class LivingValueHandle(ValueHandle):
    """A value with a time to live."""

    __slots__ = ("_ends_at", "_on_read")

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        assert home.spec.ttl is not None
        self._ends_at = _micros(self._rows, EXPIRES)
        self._on_read = home.spec.ttl.reset == "read"

    @property
    def value(self) -> Any:
        if self._held() is None:
            return self._absent()
        if self._on_read:
            self._ends_at[self.at] = self._until()
            self._touched[self.at] = 1
        elif self._eager:
            self._touched[self.at] = 1
        return self._values[self.at]

    @value.setter
    def value(self, value: Any) -> None:
        self._values[self.at] = value
        self._ends_at[self.at] = self._until()
        self._touched[self.at] = 1

    def _held(self) -> Any:
        found = self._values[self.at]
        if found is None:
            return None
        end = self._ends_at[self.at]
        if end == FOREVER:  # there was no time to live yet: it begins now
            self._ends_at[self.at] = self._until()
            self._touched[self.at] = 1
        elif end <= self._now():  # for this row; one of before may still come
            return None
        return found

    def _absent(self) -> Any:
        if self._make is not None:
            self._ends_at[self.at] = self._until()
        return super()._absent()

    def save(self) -> Any:
        return super().save(), self._ends_at[self.at]

    def restore(self, saved: Any) -> None:
        inner, self._ends_at[self.at] = saved
        super().restore(inner)

    def sweep(self, at: int) -> None:
        """The bucket of this key's end has passed: let go of the value if it still ends there."""
        self.at = at
        if self._values[at] is not None and self._ends_at[at] <= self._now():
            self._values[at] = None
            self._touched[at] = 1

    def changes(self, skip: Bools) -> list[Change]:
        now = self._now()
        for at in np.flatnonzero(np.frombuffer(self._touched, np.uint8)).tolist():
            if self._ends_at[at] <= now:
                self._values[at] = None
        return super().changes(skip)

    def _encoded(self, rows: Ints, values: list[Any], there: Bools) -> list[pa.Array]:
        ends = np.array([self._ends_at[i] for i in rows.tolist()], np.int64)
        return [*super()._encoded(rows, values, there), _instants(ends)]

    def _ends(self, rows: Ints, arrays: list[pa.Array], there: Bools) -> list[Change]:
        kept = np.flatnonzero(there)
        ends = arrays[-1].take(pa.array(kept))
        return _end_rows(self._home, rows[kept], {}, ends)


@dataclass
class _List:
    """One key's list: what was fetched of its end, and what was done to it."""

    first: int  # the position of items[0]
    items: list[Any]
    ends: list[int]  # of lives, where there is a time to live
    stored: int  # positions below it are in the table, if not dropped
    whole: bool  # does nothing lie in front of items[0]?
    start: int | None = None  # of a list that is not whole: where it begins, once asked
    start_end: int | None = None  # and when the life of that item ends
    dropped: list[tuple[int, int]] = field(default_factory=list)  # stored positions that are to go


class ListHandle(Handle):
    """`append`, `extend`, iteration, `len`, `list[i]`, `last(n)`, `keep(n)`, `clear()`."""

    __slots__ = ("_cells", "_near")

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self._cells: dict[int, _List] = {}
        self._near: _Near | None = None

    def append(self, item: Any) -> None:
        if item is None:
            raise TypeError(f"list state {self._home.spec.name!r} takes no None")
        cell = self._cell()
        cell.items.append(item)
        if self._home.spec.ttl is not None:  # none outlives the next
            cell.ends.append(max(self._until(), cell.ends[-1]) if cell.ends else self._until())

    def extend(self, items: Iterable[Any]) -> None:
        for item in items:
            self.append(item)

    def __iter__(self) -> Iterator[Any]:
        cell = self._cell()
        if not cell.whole:
            yield from self._before(cell)
        yield from list(cell.items)

    def __len__(self) -> int:
        cell = self._cell()
        return len(cell.items) + (0 if cell.whole else cell.first - self._start(cell))

    def __bool__(self) -> bool:
        return bool(self._cell().items)

    def __getitem__(self, which: int) -> Any:
        length = len(self)
        place = which + length if which < 0 else which
        if not 0 <= place < length:
            raise IndexError(f"list state {self._home.spec.name!r} has {length} items, asked for {which}")
        cell = self._cell()
        before = length - len(cell.items)
        if place >= before:
            return cell.items[place - before]
        at = cell.first - before + place
        return self._fetch(at, at)[0][0]

    def last(self, n: int) -> list[Any]:
        """The newest n items, oldest of them first."""
        cell = self._cell()
        if n > len(cell.items) and not cell.whole:
            self._load(cell, max(self._start(cell), cell.first - (n - len(cell.items))))
        return cell.items[max(0, len(cell.items) - n) :] if n > 0 else []

    def keep(self, n: int) -> None:
        """Drop all but the newest n items."""
        self._drop(len(self) - n)

    def clear(self) -> None:
        self._drop(len(self))

    def _drop(self, count: int) -> None:
        """Drop the oldest items, without reading them."""
        if count <= 0:
            return
        cell = self._cell()
        start = cell.first if cell.whole else self._start(cell)
        end = start + count
        if start < cell.stored:
            cell.dropped.append((start, min(end, cell.stored)))
        cell.start, cell.start_end = end, None
        inside = max(0, end - cell.first)
        if end >= cell.first:
            cell.whole = True
            cell.first = end
            del cell.items[:inside]
            del cell.ends[:inside]

    def _oldest(self, cell: _List) -> int:
        """The position of the oldest item that is still there, in a list that is not fetched whole."""
        if cell.start is None:
            head = self._home.table.head(self._home.one(self.at), 1).table
            cell.start = int(one_chunk(head.column(POSITION))[0].as_py())
            if self._home.spec.ttl is not None:
                (cell.start_end,) = _micros(head, EXPIRES)
        return cell.start

    def _start(self, cell: _List) -> int:
        """The same of the items that live; they lie in the order of their ends, so a few looks find it."""
        start = self._oldest(cell)
        if self._home.spec.ttl is None or start == cell.first:
            return start
        now = self._now()
        if cell.start_end is None:
            cell.start_end = self._fetch(start, start)[1][0]
        if cell.start_end > now:
            return start
        low, high = start + 1, cell.first
        while low < high:
            middle = (low + high) // 2
            if self._fetch(middle, middle)[1][0] <= now:
                low = middle + 1
            else:
                high = middle
        cell.dropped.append((start, low))
        cell.start, cell.start_end = low, None
        return low

    def _before(self, cell: _List) -> Iterator[Any]:
        """The items in front of those fetched, page by page."""
        at, end = self._start(cell), cell.first
        while at < end:
            items, _ = self._fetch(at, min(at + PAGE, end) - 1)
            yield from items
            at += PAGE

    def _load(self, cell: _List, start: int) -> None:
        if start == cell.first:
            return
        items, ends = self._fetch(start, cell.first - 1)
        cell.items[:0] = items
        cell.ends[:0] = ends
        cell.whole = start == self._start(cell)
        cell.first = start

    def _fetch(self, lo: int, hi: int) -> tuple[list[Any], list[int]]:
        home = self._home
        rows = home.table.range(home.one(self.at), pa.array([lo]), pa.array([hi])).table
        ends = _micros(rows, EXPIRES) if home.spec.ttl is not None else []
        return decode(home.spec, rows, home.step), ends

    def _cell(self) -> _List:
        cell = self._cells.get(self.at)
        if cell is None:
            cell = self._cells[self.at] = self._open()
        if cell.ends and cell.ends[0] <= self._now():
            self._expire(cell)
        return cell

    def _expire(self, cell: _List) -> None:
        """Items live equally long, so those whose time is over are the oldest."""
        now = self._now()
        over = next((n for n, end in enumerate(cell.ends) if end > now), len(cell.ends))
        before = 0 if cell.whole else cell.first - self._start(cell)
        ends, cell.ends = cell.ends, []  # no look at the clock inside
        try:
            self._drop(before + over)
        finally:
            cell.ends = ends[over:]

    def _open(self) -> _List:
        home = self._home
        if self._near is None:
            self._near = _Near(home, home.table.head(home.keys, NEAR, reverse=True))
        lo, hi = self._near.span(self.at)
        if lo == hi:
            return _List(0, [], [], 0, whole=True)
        positions = self._near.order[lo:hi]
        ends = self._near.ends[lo:hi] if home.spec.ttl is not None else []
        first = positions[0]
        return _List(first, self._near.values[lo:hi], ends, positions[-1] + 1, whole=hi - lo < NEAR)

    def sweep(self, at: int, positions: Iterable[int]) -> None:
        """The buckets of these positions' ends have passed, the highest first.

        All up to one that is over are: none outlives the next.  A position whose item does not end here
        was given again since, in a list that had become empty.
        """
        self.at = at
        cell = self._cell()
        now = self._now()
        for position in positions:
            start = cell.first if cell.whole else self._start(cell)
            if not start <= position < cell.first + len(cell.items):
                continue
            inside = position - cell.first
            end = cell.ends[inside] if inside >= 0 else self._fetch(position, position)[1][0]
            if end <= now:
                ends, cell.ends = cell.ends, []
                self._drop(position - start + 1)
                cell.ends = ends[max(0, inside + 1) :]
                return

    def save(self) -> Any:
        # Fetched even if nobody asked yet: what was decoded may be changed in place.
        return copy.deepcopy(self._cell())

    def restore(self, saved: Any) -> None:
        self._cells[self.at] = saved

    def changes(self, skip: Bools) -> list[Change]:
        home = self._home
        keys: list[int] = []
        positions: list[int] = []
        values: list[Any] = []
        ends: list[int] = []
        gone_keys: list[Ints] = []
        gone: list[Ints] = []
        for at in sorted(self._cells):
            if skip[at]:
                continue
            self.at = at
            cell = self._cell()
            for lo, hi in cell.dropped:
                gone.append(np.arange(lo, hi))
                gone_keys.append(np.full(hi - lo, at))
            fresh = max(0, cell.stored - cell.first)
            added = cell.items[fresh:]
            keys += [at] * len(added)
            positions += range(cell.first + fresh, cell.first + fresh + len(added))
            values += added
            ends += cell.ends[fresh:]
        found = []
        spec = home.table.spec
        if values:
            at_keys = np.array(keys)
            arrays = encode(home.spec, values, home.step, lambda n: home.tell(keys[n]))
            order = pa.array(positions, pa.int64())
            if home.spec.ttl is not None:
                arrays.append(_instants(np.array(ends, np.int64)))
                found += _end_rows(home, at_keys, {POSITION: order}, arrays[-1])
            rows = _rows_of(
                home, at_keys, [order, *arrays], (POSITION, *spec.rest), np.ones(len(keys), np.bool_)
            )
            found.append(Change(spec.name, rows, True))
        if gone:
            at_keys, where = np.concatenate(gone_keys), np.concatenate(gone)
            nothing = [pa.nulls(len(where), spec.schema.field(n).type) for n in spec.rest]
            dead = np.zeros(len(where), np.bool_)
            rows = _rows_of(home, at_keys, [pa.array(where), *nothing], (POSITION, *spec.rest), dead)
            found.append(Change(spec.name, rows, True))
        return found


@dataclass
class _Map:
    """One key's map: what was fetched, and what was put or removed (then `_GONE`)."""

    held: dict[Any, Any]
    ends: dict[Any, int]
    whole: bool
    changed: dict[Any, Any] = field(default_factory=dict)


class _LikeDict(ABC):
    """What a dict can do besides, by what both kinds of maps can."""

    __slots__ = ()

    @abstractmethod
    def get(self, entry: Any, default: Any = None) -> Any: ...

    @abstractmethod
    def put(self, entry: Any, value: Any) -> None: ...

    @abstractmethod
    def remove(self, entry: Any) -> None: ...

    @abstractmethod
    def keys(self) -> Iterable[Any]: ...

    def pop(self, entry: Any, default: Any = None) -> Any:
        found = self.get(entry, default)
        self.remove(entry)
        return found

    def setdefault(self, entry: Any, default: Any) -> Any:
        if self.get(entry) is None:
            self.put(entry, default)
        return self.get(entry)

    def update(self, other: Mapping[Any, Any]) -> None:
        for entry, value in other.items():
            self.put(entry, value)

    def clear(self) -> None:
        for entry in list(self.keys()):
            self.remove(entry)


class MapHandle(Handle, _LikeDict):
    """Like a dict: `m[k]`, `get`, `put`, `remove`, `in`, `items()`, `keys()`, `values()`, `len`, `clear`."""

    __slots__ = ("_cells", "_near")

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self._cells: dict[int, _Map] = {}
        self._near: _Near | None = None

    def get(self, entry: Any, default: Any = None) -> Any:
        cell = self._cell()
        found = cell.changed.get(entry)
        if found is None:
            found = cell.held.get(entry)
            if found is None and not cell.whole and entry not in cell.held:
                found = self._fetch(cell, entry)
        if found is None or found is _GONE:
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
        self._cell().changed[entry] = _GONE

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
            cell.changed[entry] = _GONE

    def _cell(self) -> _Map:
        cell = self._cells.get(self.at)
        if cell is None:
            cell = self._cells[self.at] = self._open()
        return cell

    def _open(self) -> _Map:
        home = self._home
        if self._near is None:
            self._near = _Near(home, home.table.head(home.keys, NEAR))
        near = self._near
        lo, hi = near.span(self.at)
        entries = near.order[lo:hi]
        ends = dict(zip(entries, near.ends[lo:hi], strict=True)) if home.spec.ttl is not None else {}
        held = dict(zip(entries, near.values[lo:hi], strict=True))
        return _Map(held, ends, whole=hi - lo < NEAR)

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
                    cell.ends[entry] = _micros(rows, EXPIRES)[place]
        return entries

    def sweep(self, at: int, entry: Any) -> None:
        """The bucket of this entry's end has passed."""
        self.at = at
        cell = self._cell()
        if entry not in cell.changed:
            if entry not in cell.held and not cell.whole:
                self._fetch(cell, entry)
            if entry in cell.held and cell.ends[entry] <= self._now():
                cell.changed[entry] = _GONE

    def save(self) -> Any:
        cell = self._cell()  # as for a list
        return _Map(
            copy.deepcopy(cell.held),
            dict(cell.ends),
            cell.whole,
            {e: v if v is _GONE else copy.deepcopy(v) for e, v in cell.changed.items()},
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
                if home.spec.ttl is not None and value is not _GONE and cell.ends[entry] <= self._now():
                    value = _GONE
                if value is _GONE and cell.whole and entry not in cell.held:
                    continue  # came and went within the epoch
                keys.append(at)
                entries.append(entry)
                there.append(value is not _GONE)
                if value is not _GONE:
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
            arrays.append(_instants(np.array(ends, np.int64)))
            found += _end_rows(home, holders, {ENTRY: order.filter(pa.array(alive))}, arrays[-1])
        arrays = [a.take(place) for a in arrays]
        names = (ENTRY, *home.table.spec.rest)
        found.append(Change(home.table.spec.name, _rows_of(home, at_keys, [order, *arrays], names, alive)))
        return found


class BroadcastHandle(_LikeDict):
    """Like a dict, one for all keys; `on_control` alone changes it."""

    __slots__ = ("_changed", "_held", "_open", "_spec", "_step", "_table")

    def __init__(self, spec: StateSpec, step: str, table: Table) -> None:
        self._spec = spec
        self._step = step
        self._table = table  # everywhere
        self._held: dict[Any, Any] | None = None
        self._changed: dict[Any, Any] = {}
        self._open = False  # is the control stream being heard?

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
            self._changed[entry] = _GONE

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
        """This task's share of what changed: every task knows all of it, each writes its own hashes."""
        if not self._changed:
            return []
        entries, values = list(self._changed), list(self._changed.values())
        there = np.array([v is not _GONE for v in values])
        order = pa.array(entries, self._spec.entry)
        arrays = encode(
            self._spec, [v for v in values if v is not _GONE], self._step, lambda n: f"entry {entries[n]!r}"
        )
        place = pa.array(np.cumsum(there) - 1, mask=~there)
        columns = [order, *(a.take(place) for a in arrays), pa.array(there.astype(np.int64))]
        rows = pa.table(columns, names=[ENTRY, *self._table.spec.rest, WEIGHT])
        hashes = hashing.hash_columns([rows.column(ENTRY)], rows.num_rows)
        mine = (hashes >= np.uint64(h_min)) & (hashes <= np.uint64(h_max))
        rows = rows.filter(pa.array(mine))
        return [Change(self._table.spec.name, rows)] if rows.num_rows else []


class _Near:
    """The nearest elements of every key, decoded at once."""

    __slots__ = ("_starts", "ends", "order", "values")

    def __init__(self, home: Home, rows: Any) -> None:
        self._starts = np.searchsorted(rows.key_index, np.arange(len(home.keys) + 1)).tolist()
        name = home.table.spec.order[0].column
        self.order = python_values(rows.table.column(name))
        self.values = decode(home.spec, rows.table, home.step)
        self.ends = _micros(rows.table, EXPIRES) if home.spec.ttl is not None else []

    def span(self, at: int) -> tuple[int, int]:
        return self._starts[at], self._starts[at + 1]


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


def _rows_of(
    home: Home, keys: Ints, arrays: list[pa.Array], names: tuple[str, ...], there: Bools
) -> pa.Table:
    """Rows of a *latest* table: key columns, these columns, hash and weight (0: a tombstone)."""
    key = home.keys.columns.take(pa.array(keys))
    columns = [*key.columns, *arrays, pa.array(home.keys.hashes[keys]), pa.array(there.astype(np.int64))]
    return pa.table(columns, names=[*key.column_names, *names, HASH, WEIGHT])


def _end_rows(home: Home, keys: Ints, order: dict[str, pa.Array], ends: pa.Array) -> list[Change]:
    """Where lives end, for the sweep."""
    if home.sweep is None or not len(keys):
        return []
    alive = np.ones(len(keys), np.bool_)
    rows = _rows_of(home, keys, [*order.values(), ends], (*order, AT), alive)
    return [Change(home.sweep.name, rows)]


def _some(rows: pa.Table, found: Bools) -> pa.Table:
    return rows if found.all() else rows.filter(pa.array(found))


def _spread(values: list[Any], found: Bools) -> list[Any]:
    """The values at their places among all keys; None elsewhere."""
    if len(values) == len(found):
        return values
    spread: list[Any] = [None] * len(found)
    for place, value in zip(np.flatnonzero(found).tolist(), values, strict=True):
        spread[place] = value
    return spread


def _factory(default: Any) -> Callable[[], Any] | None:
    """A function that makes a default that must not be shared, or None for one that may be."""
    if default is None or isinstance(default, bool | int | float | str | bytes | tuple | frozenset):
        return None
    if isinstance(default, Decimal | datetime.date | datetime.time | datetime.timedelta):
        return None
    if callable(default):
        make: Callable[[], Any] = default
        return make
    return lambda: copy.deepcopy(default)


def _instants(us: Ints) -> pa.Array:
    return pa.array(us).cast(INSTANT)


def _micros(rows: pa.Table, column: str) -> list[int]:
    """Ends of lives; rows from before there was a time to live have none."""
    found: list[int] = one_chunk(rows.column(column)).cast(pa.int64()).fill_null(FOREVER).to_numpy().tolist()
    return found
