"""One value per key, with or without a time to live."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.identity import equal_rows, one_chunk
from millpond.operators.operator import Change
from millpond.process.cell import Cell, NotItsValue, Shared
from millpond.process.handle import (
    FOREVER,
    Handle,
    Home,
    end_rows,
    instants,
    micros,
    rows_of,
)
from millpond.process.spec import EXPIRES
from millpond.process.values import decode, encode

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class ValueHandle(NotItsValue, Handle):
    """Read and set `value`; `clear()` removes it.  None means no value."""

    __slots__ = ("_default", "_eager", "_make", "_rows", "_touched", "_values", "found")

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        spec = home.spec
        self.found, self._rows = home.table.lookup_one(home.keys)
        self._values = _spread(decode(spec, _some(self._rows, self.found), home.step), self.found)
        self._touched = bytearray(len(home.keys))
        self._eager = spec.mutable
        self._make = _factory(spec.default)
        self._default = None if self._make is not None else spec.default

    @property
    def value(self) -> Any:
        current = self._values[self.at]
        if current is None:
            return self._absent()
        if self._eager:
            self._touched[self.at] = 1
        return current

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

    def _state(self) -> str:
        return self._home.spec.name

    def shared(self, emptied: bool, always: bool) -> Shared | None:
        """A cell that shares this handle's values, or None where a cell would behave differently.

        `emptied`: user code may set None.  `always`: every row sets a value.
        """
        if type(self) is not ValueHandle or self._eager or self._make is not None:
            return None
        if self._home.spec.adds is not None or (emptied and self._default is not None):
            return None
        shown = self._values
        if always and self._default is not None:
            shown = [self._default if value is None else value for value in self._values]
        return Shared(Cell(self._home.spec.name), shown, self._values, self._touched)

    @property
    def shows_default(self) -> bool:
        """Does a missing value read as something other than None?"""
        return self._default is not None

    def add(self, item: Any) -> None:
        """Add one item to a reducing or aggregating state."""
        adds = self._adds()
        value_before = self._values[self.at] if self._home.spec.ttl is None else self._value_now()
        if value_before is None:
            if adds.create is None:
                self.value = item
                return
            value_before = adds.create()
        self.value = adds.add(value_before, item)

    def _adds(self) -> Any:
        adds = self._home.spec.adds
        if adds is None:
            raise TypeError(
                f"state {self._home.spec.name!r} is a ValueState: set .value, or declare a ReducingState"
            )
        return adds

    def _value_now(self) -> Any:
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
        same = equal_rows(arrays, old, len(rows)) & self.found[rows] & there
        write = ~same & (there | self.found[rows])
        if not write.any():
            return []
        if not write.all():
            written = pa.array(np.flatnonzero(write))
            arrays, rows, there = [a.take(written) for a in arrays], rows[write], there[write]
        changes_made = [
            Change(home.table.spec.name, rows_of(home, rows, arrays, home.table.spec.rest, there), True)
        ]
        return changes_made + self._ends(rows, arrays, there)

    def _encoded(self, rows: Ints, values: list[Any], there: Bools) -> list[pa.Array]:
        home = self._home
        if there.all():
            return encode(home.spec, values, home.step, lambda n: home.tell(int(rows[n])))
        indices = np.flatnonzero(there)
        arrays = encode(
            home.spec,
            [values[i] for i in indices.tolist()],
            home.step,
            lambda n: home.tell(int(rows[indices[n]])),
        )
        positions = np.cumsum(there) - 1
        return [a.take(pa.array(positions, mask=~there)) for a in arrays]

    def _ends(self, rows: Ints, arrays: list[pa.Array], there: Bools) -> list[Change]:
        return []


def with_result(kind: type[ValueHandle]) -> type[ValueHandle]:
    """A handle class whose `value` is the result of an aggregation."""

    class Aggregating(kind):  # type: ignore[valid-type, misc]
        __slots__ = ()

        @property
        def value(self) -> Any:
            current = self._value_now()
            if current is None:
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
        self._ends_at = micros(self._rows, EXPIRES)
        self._on_read = home.spec.ttl.reset == "read"

    @property
    def value(self) -> Any:
        if self._value_now() is None:
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

    def _value_now(self) -> Any:
        current = self._values[self.at]
        if current is None:
            return None
        end = self._ends_at[self.at]
        if end == FOREVER:  # written before the state had a time to live, which starts now
            self._ends_at[self.at] = self._until()
            self._touched[self.at] = 1
        elif end <= self._now():  # for this row; a row with an earlier time may follow
            return None
        return current

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
        """Remove the value if it has expired: the bucket of its expiry has passed."""
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
        return [*super()._encoded(rows, values, there), instants(ends)]

    def _ends(self, rows: Ints, arrays: list[pa.Array], there: Bools) -> list[Change]:
        present = np.flatnonzero(there)
        ends = arrays[-1].take(pa.array(present))
        return end_rows(self._home, rows[present], {}, ends)


def _some(rows: pa.Table, is_found: Bools) -> pa.Table:
    return rows if is_found.all() else rows.filter(pa.array(is_found))


def _spread(values: list[Any], is_found: Bools) -> list[Any]:
    """Put the values at the places of the keys that have one, None elsewhere."""
    if len(values) == len(is_found):
        return values
    spread: list[Any] = [None] * len(is_found)
    for index, value in zip(np.flatnonzero(is_found).tolist(), values, strict=True):
        spread[index] = value
    return spread


def _factory(default: Any) -> Callable[[], Any] | None:
    """A function that makes a new default for each key, or None if one immutable default can be shared."""
    if default is None or isinstance(default, bool | int | float | str | bytes | tuple | frozenset):
        return None
    if isinstance(default, Decimal | datetime.date | datetime.time | datetime.timedelta):
        return None
    if callable(default):
        make: Callable[[], Any] = default
        return make
    return lambda: copy.deepcopy(default)
