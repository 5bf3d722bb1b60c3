"""Handles: the objects by which user code reads and writes the state of the current key.

The rows of all keys of a batch are fetched in one vectorized lookup, changed as
Python objects while user code runs, and written as one change per table.
Access costs as much as that of a dict.  A handle refers to one key at a time,
`at`.  Lists and maps fetch the first few elements of all keys in one lookup, and
more only for a key that reads more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import HASH, WEIGHT
from millpond.errors import InvalidError
from millpond.identity import one_chunk
from millpond.kernels.keyed_rows import some_keys
from millpond.kernels.python_values import python_values
from millpond.operators.operator import Change
from millpond.process.spec import AT, EXPIRES, INSTANT, StateSpec
from millpond.process.values import HOLDS, decode
from millpond.state.tables.table import KeySet, Table
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FETCHED_PER_KEY = 32  # elements of a list or map that are fetched for every key in one lookup
FETCHED_PER_LOOKUP = 4096  # elements per further lookup, for one key that reads more
GONE = object()  # marks a removed value
FOREVER = 2**62


class Times:
    """The clocks while user code runs, in microseconds; -2**62 where there is no watermark.

    `event` is the watermark at this point of the key's rows.  `here` is the time of the current row or
    timer: a time to live by event time starts at it and is compared with it.  The watermark is never later
    than a row that is still to come, so no later row reads what the watermark has passed.
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
    """The table, keys and clocks of a handle."""

    spec: StateSpec
    step: str
    table: Table
    sweep: TableSpec | None
    keys: KeySet
    times: Times
    tell: Callable[[int], str]  # the text of a key, for an error

    def one(self, at: int) -> KeySet:
        return some_keys(self.keys, np.array([at]), self.keys.columns.column_names)


class Handle(ABC):
    """One state of the step; it refers to the key with the number `at`."""

    __slots__ = ("_home", "at")

    def __init__(self, home: Home) -> None:
        self._home = home
        self.at = 0

    def saved(self) -> Any:
        """A copy of this key's state, to be restored if user code fails."""
        try:
            return self.save()
        except Exception as error:  # a user's object may raise anything when it is copied
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
        """The changes to write, except for the keys to skip.

        The clocks show the end of the epoch.  What has expired by then is not written: the bucket for its
        expiry is dropped with this epoch, so nothing would ever sweep it.
        """

    def _until(self) -> int:
        ttl = self._home.spec.ttl
        assert ttl is not None
        return self._home.times.of(ttl.clock) + ttl.us

    def _now(self) -> int:
        ttl = self._home.spec.ttl
        assert ttl is not None
        return self._home.times.of(ttl.clock)


class FirstElements:
    """The first elements of every key, decoded together."""

    __slots__ = ("_starts", "ends", "order", "values")

    def __init__(self, home: Home, rows: Any) -> None:
        self._starts = np.searchsorted(rows.key_index, np.arange(len(home.keys) + 1)).tolist()
        name = home.table.spec.order[0].column
        self.order = python_values(rows.table.column(name))
        self.values = decode(home.spec, rows.table, home.step)
        self.ends = micros(rows.table, EXPIRES) if home.spec.ttl is not None else []

    def span(self, at: int) -> tuple[int, int]:
        return self._starts[at], self._starts[at + 1]


def rows_of(home: Home, keys: Ints, arrays: list[pa.Array], names: tuple[str, ...], there: Bools) -> pa.Table:
    """Rows of a *latest* table: key columns, these columns, hash and weight (0: a tombstone)."""
    key = home.keys.columns.take(pa.array(keys))
    columns = [*key.columns, *arrays, pa.array(home.keys.hashes[keys]), pa.array(there.astype(np.int64))]
    return pa.table(columns, names=[*key.column_names, *names, HASH, WEIGHT])


def end_rows(home: Home, keys: Ints, order: dict[str, pa.Array], ends: pa.Array) -> list[Change]:
    """The expiry rows that the sweep reads."""
    if home.sweep is None or not len(keys):
        return []
    alive = np.ones(len(keys), np.bool_)
    rows = rows_of(home, keys, [*order.values(), ends], (*order, AT), alive)
    return [Change(home.sweep.name, rows)]


def instants(us: Ints) -> pa.Array:
    return pa.array(us).cast(INSTANT)


def micros(rows: pa.Table, column: str) -> list[int]:
    """Expiry times; rows written before the state had a time to live have none."""
    times: list[int] = one_chunk(rows.column(column)).cast(pa.int64()).fill_null(FOREVER).to_numpy().tolist()
    return times
