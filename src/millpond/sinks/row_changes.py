"""Turns a delta into the rows that a sink writes: new rows, upserts and deletes, or a changelog.

Law 3: rows and their order depend only on the delta, which is consolidated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import delta as deltas
from millpond.errors import InvalidError
from millpond.identity import canonical, one_chunk
from millpond.plan.sink_settings import EPOCH, NUMBER, OPERATION
from millpond.state.tables.repeat_by_weight import repeat_by_weight

INSERT, DELETE, BEFORE, AFTER, UPSERT = "insert", "delete", "update_before", "update_after", "upsert"

Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Upserts:
    """The rows to put, and the rows to delete with the values that they had; no key is in both."""

    put: pa.Table
    deleted: pa.Table

    def together(self) -> pa.Table:
        """All rows with their operation, deletes first.

        >>> Upserts(pa.table({"k": [1]}), pa.table({"k": [2]})).together().to_pylist()
        [{'k': 2, '_op': 'delete'}, {'k': 1, '_op': 'upsert'}]
        """
        operations = [DELETE] * self.deleted.num_rows + [UPSERT] * self.put.num_rows
        rows = pa.concat_tables([self.deleted, self.put])
        return rows.append_column(OPERATION, pa.array(operations, pa.string()))


def appended(delta: pa.Table) -> pa.Table:
    """New rows; refused if the delta retracts some.

    >>> appended(pa.table({"k": ["a", "b"], "_w": [2, 1]}))["k"].to_pylist()
    ['a', 'a', 'b']
    """
    taken_back = int((deltas.weights(delta) < 0).sum())
    if taken_back:
        raise InvalidError(
            "an append-only sink cannot retract rows",
            detail=f"{taken_back} of {delta.num_rows} changes are retractions",
            hint="use mode upsert or changelog, or a view that only grows, such as EMIT ON WINDOW CLOSE",
        )
    return repeat_by_weight(delta, _columns(delta))


def upserts(delta: pa.Table, key: Sequence[str]) -> Upserts:
    """
    >>> found = upserts(pa.table({"k": [1, 1, 2], "v": [5, 6, 7], "_w": [-1, 1, -1]}), ["k"])
    >>> found.put.to_pylist(), found.deleted.to_pylist()
    ([{'k': 1, 'v': 6}], [{'k': 2, 'v': 7}])
    """
    weights = deltas.weights(delta)
    groups = _groups(delta, key)
    added = _sums(groups, np.maximum(weights, 0))
    if (added > 1).any():
        row = int(np.flatnonzero((added > 1)[groups] & (weights > 0))[0])
        shown = {name: delta[name][row].as_py() for name in key}
        raise InvalidError(
            "two rows have the same key, so they cannot be upserted",
            detail=f"key {shown}",
            hint="use mode changelog, or a key by which the rows of the view are unique",
        )
    put = delta.filter(pa.array(weights > 0)).select(_columns(delta))
    gone = (weights < 0) & (added == 0)[groups]
    _, first = np.unique(np.where(gone, groups, -1), return_index=True)
    once = np.zeros(len(weights), np.bool_)  # one row for each deleted key
    once[first] = True
    return Upserts(put, delta.filter(pa.array(gone & once)).select(_columns(delta)))


def changelog(delta: pa.Table, epoch: int, key: Sequence[str] = ()) -> pa.Table:
    """Every change with its operation, its epoch and its number in the epoch: deletes, updates, inserts.

    An update is two rows, the old one and the new one; without a key it is a delete and an insert.

    >>> rows = changelog(pa.table({"k": [1, 1, 2], "v": [5, 6, 7], "_w": [-1, 1, 1]}), 9, ["k"])
    >>> [(row["k"], row["v"], row["_op"], row["_n"]) for row in rows.to_pylist()]
    [(1, 5, 'update_before', 0), (1, 6, 'update_after', 1), (2, 7, 'insert', 2)]
    """
    weights = deltas.weights(delta)
    places = np.repeat(np.arange(len(weights)), np.abs(weights))
    adds = weights[places] > 0
    changed = _updates(delta, key, weights)[places] if key else np.zeros(len(places), np.bool_)
    groups = _groups(delta, key)[places] if key else np.zeros(len(places), np.int64)
    kind = np.where(changed, 1, np.where(adds, 2, 0))  # deletes, updates, inserts
    order = np.lexsort((adds, np.where(changed, groups, 0), kind))
    names = np.array([DELETE, INSERT, BEFORE, AFTER])
    operations = names[np.where(changed, 2, 0) + adds][order]
    rows = delta.select(_columns(delta)).take(pa.array(places[order]))
    rows = rows.append_column(OPERATION, pa.array(operations.tolist(), pa.string()))
    rows = rows.append_column(EPOCH, pa.array(np.full(len(order), epoch, np.int64)))
    return rows.append_column(NUMBER, pa.array(np.arange(len(order), dtype=np.int64)))


def _updates(delta: pa.Table, key: Sequence[str], weights: Places) -> Flags:
    """Which rows are one half of an update: their key has one old row and one new row."""
    groups = _groups(delta, key)
    old, new = _sums(groups, np.maximum(-weights, 0)), _sums(groups, np.maximum(weights, 0))
    found: Flags = ((old == 1) & (new == 1))[groups]
    return found


def _groups(delta: pa.Table, key: Sequence[str]) -> Places:
    """The number of each row's key, in the order in which keys come first in the delta."""
    columns = [canonical(one_chunk(delta.column(name))) for name in key]
    order, same = deltas.arrange(columns, delta.num_rows)
    found = np.empty(delta.num_rows, np.int64)
    found[order] = np.cumsum(~same) - 1
    return found


def _sums(groups: Places, values: Places) -> Places:
    sums: Places = np.zeros(int(groups.max()) + 1 if len(groups) else 0, np.int64)
    np.add.at(sums, groups, values)
    return sums


def _columns(delta: pa.Table) -> list[str]:
    return [name for name in delta.column_names if name not in (deltas.WEIGHT, deltas.HASH)]
