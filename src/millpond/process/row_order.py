"""Prepares rows for user code: weights expanded into plain rows, sorted by key and in order.

The rows of a key are in the order of (event time, origin), whichever tasks sent
them; without an origin, in the order of all their columns (law 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import HASH, ORIGIN, WEIGHT, arrange, weights
from millpond.identity import one_chunk
from millpond.kernels.event_time import micros
from millpond.kernels.expression_kernel import canonical_rows, visible
from millpond.ordering import stable_argsort

Ints = npt.NDArray[np.int64]


def plain_rows(delta: pa.Table) -> pa.Table:
    """Repeat every row as often as its weight says, without weights and dictionary encodings."""
    times = weights(delta)
    if (times > 1).any():
        delta = delta.take(pa.array(np.repeat(np.arange(len(times)), times)))
    arrays = {name: delta.column(name) for name in delta.column_names if name != WEIGHT}
    for name, column in arrays.items():
        kind = column.type
        if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            arrays[name] = column.cast(kind.value_type)
    return pa.table(arrays)


def arrival_order(rows: pa.Table) -> Ints:
    """A number for each row that rises in the order of arrival; of all columns, where there is no origin."""
    if ORIGIN in rows.column_names:
        origins: Ints = one_chunk(rows.column(ORIGIN)).to_numpy()
        return origins
    shown = visible(rows.drop_columns([HASH]) if HASH in rows.column_names else rows)
    perm, _ = arrange([one_chunk(c) for c in shown.columns], rows.num_rows)
    rank = np.empty(len(perm), np.int64)
    rank[perm] = np.arange(len(perm))
    return rank


def by_key(rows: pa.Table, key: Ints, time: str | None) -> Ints:
    """The rows by the number of their key, then in order."""
    order = _in_time(arrival_order(rows), None if time is None else micros(rows.column(time))[0])
    if order is None:
        return stable_order(key)
    return order[stable_order(key[order])]


def _in_time(arrived: Ints, at: Ints | None) -> Ints | None:
    """The order of rows by (event time, origin); None if they are in that order already."""
    rising = arrived[1:] >= arrived[:-1]
    if at is not None:
        rising = (at[1:] > at[:-1]) | ((at[1:] == at[:-1]) & rising)
    if rising.all():
        return None
    return np.lexsort([arrived] if at is None else [arrived, at])


def stable_order(numbers: Ints) -> Ints:
    """A stable sort order for small numbers from 0 on."""
    if len(numbers) and int(numbers.max()) < 2**16:
        return np.argsort(numbers.astype(np.uint16), kind="stable")  # numpy sorts 16-bit numbers by radix
    return stable_argsort(numbers.view(np.uint64))


@dataclass(frozen=True)
class Ordered:
    """Rows by key and in order; a column is sorted when it is first read."""

    rows: pa.Table  # in the order of arrival
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
        """Event times of the rows in microseconds."""
        micros_of_rows: list[int] = micros(self.rows.column(column))[0][self.order].tolist()
        return micros_of_rows
