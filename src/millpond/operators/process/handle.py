"""State in a user's hands: for every key of a batch, at the cost of a dict.

The rows of all keys of a batch are fetched in one vectorised lookup, changed as
Python objects while the user's code runs, and written as one change per table.
A handle looks at one key at a time, `at`.  Lists and maps fetch the first few
elements of every key at once, and more only for a key that asks for more.
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
from millpond.operators.keyed import some_keys
from millpond.operators.operator import Change
from millpond.operators.process.spec import AT, EXPIRES, INSTANT, StateSpec
from millpond.operators.process.values import HOLDS, decode
from millpond.operators.python_values import python_values
from millpond.state.table import KeySet, Table
from millpond.state.table_spec import TableSpec

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NEAR = 32  # elements of a list or map that are fetched for every key at once
PAGE = 4096  # and for one key that asks for more
GONE = object()  # in place of a value that was taken away
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


class Near:
    """The nearest elements of every key, decoded at once."""

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
    """Where lives end, for the sweep."""
    if home.sweep is None or not len(keys):
        return []
    alive = np.ones(len(keys), np.bool_)
    rows = rows_of(home, keys, [*order.values(), ends], (*order, AT), alive)
    return [Change(home.sweep.name, rows)]


def instants(us: Ints) -> pa.Array:
    return pa.array(us).cast(INSTANT)


def micros(rows: pa.Table, column: str) -> list[int]:
    """Ends of lives; rows from before there was a time to live have none."""
    found: list[int] = one_chunk(rows.column(column)).cast(pa.int64()).fill_null(FOREVER).to_numpy().tolist()
    return found
