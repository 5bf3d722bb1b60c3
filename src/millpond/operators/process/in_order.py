"""Rows as user code gets them: plain, as often as they count, by key and in order.

The order of a key's rows is that of (event time, origin), whatever the tasks
they came through; without an origin it is that of all their columns (law 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import HASH, ORIGIN, WEIGHT, arrange, weights
from millpond.identity import one_chunk
from millpond.operators.event_time import micros
from millpond.operators.kernel import canonical_rows, visible
from millpond.ordering import stable_argsort

Ints = npt.NDArray[np.int64]


def plain_rows(delta: pa.Table) -> pa.Table:
    """Every row as often as it counts, without weights and encodings."""
    times = weights(delta)
    if (times > 1).any():
        delta = delta.take(pa.array(np.repeat(np.arange(len(times)), times)))
    arrays = {name: delta.column(name) for name in delta.column_names if name != WEIGHT}
    for name, column in arrays.items():
        kind = column.type
        if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            arrays[name] = column.cast(kind.value_type)
    return pa.table(arrays)


def came(rows: pa.Table) -> Ints:
    """A number for each row that grows in the order in which they came."""
    if ORIGIN in rows.column_names:
        found: Ints = one_chunk(rows.column(ORIGIN)).to_numpy()
        return found
    shown = visible(rows.drop_columns([HASH]) if HASH in rows.column_names else rows)
    perm, _ = arrange([one_chunk(c) for c in shown.columns], rows.num_rows)
    rank = np.empty(len(perm), np.int64)
    rank[perm] = np.arange(len(perm))
    return rank


def by_key(rows: pa.Table, key: Ints, time: str | None) -> Ints:
    """The rows by the number of their key, then in order."""
    order = _in_time(came(rows), None if time is None else micros(rows.column(time))[0])
    if order is None:
        return stable_order(key)
    return order[stable_order(key[order])]


def _in_time(arrived: Ints, at: Ints | None) -> Ints | None:
    """The rows by (event time, origin); None if that is how they lie."""
    rising = arrived[1:] >= arrived[:-1]
    if at is not None:
        rising = (at[1:] > at[:-1]) | ((at[1:] == at[:-1]) & rising)
    if rising.all():
        return None
    return np.lexsort([arrived] if at is None else [arrived, at])


def stable_order(numbers: Ints) -> Ints:
    """Of small numbers from 0 on; equal ones stay in order."""
    if len(numbers) and int(numbers.max()) < 2**16:
        return np.argsort(numbers.astype(np.uint16), kind="stable")  # numpy sorts 16 bits by radix
    return stable_argsort(numbers.view(np.uint64))


@dataclass(frozen=True)
class Ordered:
    """Rows by key and in order; a column is put in order when somebody asks for it."""

    rows: pa.Table  # as they came
    order: Ints
    keys: Ints  # the number of each row's key, in order

    @staticmethod
    def of(rows: pa.Table, key: Ints, time: str | None, shown: Sequence[str]) -> Ordered:
        order = by_key(rows, key, time)
        return Ordered(rows.select(list(shown)), order, key[order])

    def columns(self, names: Sequence[str]) -> pa.Table:
        return canonical_rows(self.rows.select(list(names))).take(pa.array(self.order))

    def column(self, name: str, places: Ints) -> pa.Array:
        """One column of the rows at these places."""
        return one_chunk(canonical_rows(self.rows.select([name])).column(0)).take(
            pa.array(self.order[places])
        )

    def some(self, places: Ints) -> pa.Table:
        """All columns of the rows at these places."""
        return canonical_rows(self.rows.take(pa.array(self.order[places])))

    def times(self, column: str) -> list[int]:
        """Event times in microseconds."""
        found: list[int] = micros(self.rows.column(column))[0][self.order].tolist()
        return found
