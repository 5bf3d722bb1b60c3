"""Timers: at most one of each name per key and clock, fired in the order of their times.

The table `timers` contains the timers that are set, by key.  The tables `due` contain
them by time, in a timer wheel for each clock (`kernels.timer_wheel`).  A row of `due` is
a hint: a timer that was replaced or deleted leaves its row there, and a timer fires only
if `timers` confirms it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import HASH, WEIGHT
from millpond.kernels.keyed_rows import some_keys
from millpond.kernels.python_values import python_values
from millpond.kernels.timer_wheel import TimerWheel, times
from millpond.operators.operator import Change, Context, Wake
from millpond.ordering import Order
from millpond.process.spec import AT, INSTANT, Clock
from millpond.state.tables.table import KeySet, Table
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

TIMER = "timer"
CLOCKS: tuple[Clock, ...] = ("event", "processing")
WIDTHS = tuple(1000 * 64**tier for tier in range(6))  # 1 ms, 64 ms, 4 s, 4.4 min, 4.7 h, 12.4 d
NEVER = -(2**62)


def set_table(step: str, key: pa.Schema) -> TableSpec:
    schema = pa.schema([*key, (TIMER, pa.string()), (AT, INSTANT)])
    return TableSpec(f"{step}/timers", schema, tuple(key.names), (Order(TIMER),))


def wheel(step: str, clock: str) -> TimerWheel:
    """The timer wheel of a clock.

    Processing time has a resolution of milliseconds, so its narrowest buckets are due completely.
    """
    return TimerWheel(f"{step}/due.{clock}", WIDTHS, WIDTHS[1:], AT, keeps_first=clock == "event")


def due_tables(step: str, key: pa.Schema) -> tuple[TableSpec, ...]:
    schema = pa.schema([*key, (TIMER, pa.string()), (AT, INSTANT)])
    order = (Order(TIMER), Order(AT))
    return tuple(t for clock in CLOCKS for t in wheel(step, clock).tables(schema, tuple(key.names), order))


def wakes(step: str) -> tuple[Wake, ...]:
    """Make an epoch due when a bucket of processing time begins, even without input."""
    return tuple(Wake(name, width, 0) for name, width in wheel(step, "processing").names)


@dataclass(frozen=True)
class DueTimers:
    """The due buckets of one clock."""

    due: pa.Table  # key columns, timer, at, _h: candidates to fire now
    moved: tuple[Change, ...]  # the other rows, moved to narrower buckets
    drops: tuple[tuple[str, int], ...]


def open_due(ctx: Context, step: str, clock: Clock, bound: int) -> DueTimers:
    due = wheel(step, clock).open(lambda name, end: ctx.table(name, below_bucket=end), bound)
    nothing = pa.table({})
    moved = _placed(step, clock, nothing if due.later is None else due.later, bound)
    return DueTimers(nothing if due.rows is None else due.rows, tuple(moved), due.drops)


def _placed(step: str, clock: str, rows: pa.Table, bound: int) -> list[Change]:
    """Timers distributed over the tables of the wheel."""
    return [Change(name, some) for name, some in wheel(step, clock).placed(rows, bound)]


class Timers:
    """The timers of the keys of a batch while user code runs."""

    __slots__ = (
        "_before",
        "_changed",
        "_keys",
        "_limits",
        "_step",
        "_table",
        "armed",
        "at",
    )

    def __init__(self, step: str, table: Table, keys: KeySet, limits: Mapping[str, int]) -> None:
        self._step = step
        self._table = table
        self._keys = keys
        self._limits = limits  # clock -> timers up to this time fire in this epoch
        # By key and clock, the timers that may be due in this epoch.
        self.armed: dict[int, dict[str, list[tuple[int, str]]]] = {}
        self._changed: dict[int, dict[str, int | None]] = {}
        self._before: dict[int, dict[str, int]] = {}  # the timers in the table, for keys that were looked up
        self.at = 0

    def load(self, due: pa.Table) -> None:
        """Arm the timers that are due and that the table confirms."""
        if not due.num_rows:
            return
        asked = KeySet.of(due, self._table.spec.key, due.column(HASH).to_numpy())
        numbers = self._numbers(asked)
        stored = self._table.lookup(asked)
        names = python_values(stored.table.column(TIMER))
        for number_of_key, name, at in zip(
            stored.key_index.tolist(), names, _micros(stored.table).tolist(), strict=True
        ):
            self._before.setdefault(int(numbers[number_of_key]), {})[name] = at
        for number in numbers.tolist():
            self._before.setdefault(number, {})
        fired = zip(
            numbers[asked.inverse].tolist(),
            python_values(due.column(TIMER)),
            _micros(due).tolist(),
            strict=True,
        )
        for number, name, at in sorted(set(fired)):
            if self._before[number].get(name) == at:
                self._push(number, name, at)

    def _numbers(self, asked: KeySet) -> Ints:
        """The numbers of these keys among the keys of the batch."""
        both = pa.concat_tables([self._keys.columns, asked.columns]) if asked.columns.num_columns else None
        if both is None:
            return np.zeros(len(asked), np.int64)
        hashes = np.concatenate([self._keys.hashes, asked.hashes])
        all_keys = KeySet.of(both, both.column_names, hashes)
        positions = np.empty(len(all_keys), np.int64)
        positions[all_keys.inverse[: len(self._keys)]] = np.arange(len(self._keys))
        return positions[all_keys.inverse[len(self._keys) :]]

    def _push(self, number: int, name: str, at: int) -> None:
        clock = name.partition(":")[0]
        heap = self.armed.setdefault(number, {}).setdefault(clock, [])
        heapq.heappush(heap, (at, name))

    @property
    def loaded(self) -> Ints:
        """The keys with a timer that may fire."""
        return np.array(sorted(self.armed), np.int64)

    # -- called by user code -------------------------------------------------------

    def set(self, clock: str, name: str, at: int) -> None:
        full = f"{clock}:{name}"
        self._changed.setdefault(self.at, {})[full] = at
        if at <= self._limits[clock]:
            self._push(self.at, full, at)

    def delete(self, clock: str, name: str) -> None:
        self._changed.setdefault(self.at, {})[f"{clock}:{name}"] = None

    def get(self, clock: str, name: str) -> int | None:
        full = f"{clock}:{name}"
        changed = self._changed.get(self.at)
        if changed is not None and full in changed:
            return changed[full]
        before = self._before.get(self.at)
        if before is None:
            keys = some_keys(self._keys, np.array([self.at]), self._keys.columns.column_names)
            rows = self._table.lookup(keys).table
            pairs = zip(python_values(rows.column(TIMER)), _micros(rows).tolist(), strict=True)
            before = self._before[self.at] = dict(pairs)
        return before.get(full)

    # -- called by the batch loop ----------------------------------------------------

    def pop(self, clock: str, upto: int) -> tuple[int, str] | None:
        """Fire the next due timer of this key and clock: return it and unset it."""
        heaps = self.armed.get(self.at)
        if heaps is None:
            return None
        heap = heaps.get(clock)
        while heap and heap[0][0] <= upto:
            at, full = heapq.heappop(heap)
            if self._current(full) == at:
                self._changed.setdefault(self.at, {})[full] = None
                return at, full.partition(":")[2]
        return None

    def _current(self, full: str) -> int | None:
        changed = self._changed.get(self.at)
        if changed is not None and full in changed:
            return changed[full]
        return self._before.get(self.at, {}).get(full)

    def save(self) -> Any:
        heaps = self.armed.get(self.at)
        return (
            None if heaps is None else {clock: list(heap) for clock, heap in heaps.items()},
            dict(self._changed[self.at]) if self.at in self._changed else None,
        )

    def restore(self, saved: Any) -> None:
        for timers, value in ((self.armed, saved[0]), (self._changed, saved[1])):
            if value is None:
                timers.pop(self.at, None)
            else:
                timers[self.at] = value

    def changes(self, skip: Bools) -> list[Change]:
        keys: list[int] = []
        names: list[str] = []
        times: list[int] = []
        there: list[bool] = []
        for number in sorted(self._changed):
            if skip[number]:
                continue
            before = self._before.get(number)
            for name, at in sorted(self._changed[number].items()):
                if at is None and before is not None and name not in before:
                    continue  # set and fired within the epoch
                if at is not None and before is not None and before.get(name) == at:
                    continue  # unchanged
                keys.append(number)
                names.append(name)
                times.append(at or 0)
                there.append(at is not None)
        if not keys:
            return []
        numbers, alive = np.array(keys), np.array(there)
        key = self._keys.columns.take(pa.array(numbers))
        columns = [
            *key.columns,
            pa.array(names, pa.string()),
            pa.array(np.array(times, np.int64)).cast(INSTANT),
            pa.array(self._keys.hashes[numbers]),
            pa.array(alive.astype(np.int64)),
        ]
        rows = pa.table(columns, names=[*key.column_names, TIMER, AT, HASH, WEIGHT])
        changes_made = [Change(self._table.spec.name, rows, True)]
        live = rows.filter(pa.array(alive))
        clocks = np.array([n.partition(":")[0] for n, a in zip(names, there, strict=True) if a])
        for clock in CLOCKS:
            mine = live.filter(pa.array(clocks == clock)) if live.num_rows else live
            changes_made += _placed(self._step, clock, mine, self._limits[clock])
        return changes_made


def _micros(rows: pa.Table) -> Ints:
    return times(rows, AT)
