"""The rows that a streaming read of a view delivers, in one of three modes.

| mode | rows |
|---|---|
| `append` | new rows only; an epoch that retracts a row is an error |
| `changelog` | every change, with its epoch in `_epoch` and its weight in `_w` |
| `upsert` | one row per key that changed: `_op` is `upsert` (the new row) or `delete` (the old one) |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import delta as deltas
from millpond.delta import WEIGHT
from millpond.errors import InvalidError, nearest
from millpond.plan.view_changes import ViewTable, view_changes
from millpond.serve.reader import Reader
from millpond.spark_bridge.loaded_view import shown_names
from millpond.spark_bridge.options import SparkOptions
from millpond.state.manifest.pins import Pin
from millpond.state.tables.repeat_by_weight import repeat_by_weight
from millpond.state.tables.table import KeySet

Mode = Literal["append", "changelog", "upsert"]
Bools: TypeAlias = npt.NDArray[np.bool_]
EPOCH, OPERATION = "_epoch", "_op"
UPSERT, DELETE = "upsert", "delete"
_ADDED: dict[Mode, list[pa.Field]] = {
    "append": [],
    "changelog": [pa.field(EPOCH, pa.int64()), pa.field(WEIGHT, pa.int64())],
    "upsert": [pa.field(EPOCH, pa.int64()), pa.field(OPERATION, pa.string())],
}


def mode_of(options: SparkOptions) -> Mode:
    given = options.get("mode") or "append"
    for mode in get_args(Mode):
        if given == mode:
            return mode  # type: ignore[no-any-return]
    raise InvalidError(
        f"no mode named {given!r}",
        detail=f"modes are {', '.join(get_args(Mode))}",
        hint=nearest(given, get_args(Mode)),
    )


def with_feed_columns(schema: pa.Schema, mode: Mode) -> pa.Schema:
    """The columns of a view, and those that the mode adds."""
    return pa.schema([*schema, *_ADDED[mode]])


def without_feed_columns(names: list[str], mode: Mode) -> list[str]:
    """The columns of the view among those that a streaming read delivers."""
    added = {field.name for field in _ADDED[mode]}
    return [name for name in names if name not in added]


def snapshot_rows(rows: pa.Table, epoch: int, mode: Mode) -> pa.Table:
    """Rows of a view with their weights, as a stream that starts with them delivers them."""
    if mode == "changelog":
        return _with_epoch(deltas.with_weights(rows, deltas.weights(rows)), epoch)
    plain = repeat_by_weight(rows, [name for name in rows.column_names if name != WEIGHT])
    return plain if mode == "append" else _with_operation(plain, epoch, UPSERT)


def epoch_rows(rows: pa.Table, epoch: int, mode: Mode, view: str) -> pa.Table:
    """The delta of one epoch, in the mode `append` or `changelog`."""
    if mode == "changelog":
        return _with_epoch(rows, epoch)
    if (deltas.weights(rows) < 0).any():
        raise InvalidError(
            f"view {view!r} retracts rows, and the mode 'append' cannot deliver that",
            detail=f"epoch {epoch} has {int((deltas.weights(rows) < 0).sum())} retractions",
            hint='read all changes with .option("mode", "changelog"), or the newest row of each key with '
            '.option("mode", "upsert")',
            epoch=epoch,
        )
    return repeat_by_weight(rows, [name for name in rows.column_names if name != WEIGHT])


def changes(
    reader: Reader, view: str, first: int, last: int, by: Pin | None
) -> Iterator[tuple[int, pa.Table]]:
    """The delta of each epoch from `first` to `last`, in order; epochs without changes are left out."""
    with reader.pinned_range(max(0, first - 1), last, by=by) as (_, after):
        for epoch in range(first, last + 1):
            rows = view_changes(after.at(epoch), view, reader.plan_of)
            if rows is not None and rows.num_rows:
                yield epoch, rows


def unique_key(table: ViewTable, view: str) -> list[str]:
    """The columns that identify a row of a view, for the mode `upsert`; refused if there are none."""
    names = shown_names(table)
    keyed = table.spec.rule == "latest" and not table.spec.order and table.spec.key
    if not keyed or any(name not in names for name in table.spec.key):
        raise InvalidError(
            f"view {view!r} has no key, so the mode 'upsert' cannot say which row a change replaces",
            hint='read all changes with .option("mode", "changelog")',
        )
    return [names[name] for name in table.spec.key]


def upserts(net: pa.Table, key: list[str], epoch: int) -> pa.Table:
    """The net change of some epochs as one row per key.

    >>> net = pa.table({"k": [1, 1, 2], "n": [5, 6, 7], "_w": [-1, 1, -1]})
    >>> upserts(net, ["k"], 9).select(["k", "n", "_op"]).to_pylist()
    [{'k': 1, 'n': 6, '_op': 'upsert'}, {'k': 2, 'n': 7, '_op': 'delete'}]
    """
    is_new = deltas.weights(net) > 0
    new, old = net.filter(pa.array(is_new)), net.filter(pa.array(~is_new))
    gone = old.filter(pa.array(~_contains(new, old, key)))
    parts = [
        _with_operation(part.drop_columns([WEIGHT]), epoch, operation)
        for part, operation in ((new, UPSERT), (gone, DELETE))
    ]
    return pa.concat_tables(parts)


def _contains(new: pa.Table, old: pa.Table, key: list[str]) -> Bools:
    """For each row of `old`: does `new` have a row with the same key?"""
    keys = KeySet.of(pa.concat_tables([new.select(key), old.select(key)]), key)
    return np.isin(keys.inverse[new.num_rows :], keys.inverse[: new.num_rows])


def _with_epoch(rows: pa.Table, epoch: int) -> pa.Table:
    return rows.append_column(EPOCH, pa.array(np.full(rows.num_rows, epoch, np.int64)))


def _with_operation(rows: pa.Table, epoch: int, operation: str) -> pa.Table:
    return _with_epoch(rows, epoch).append_column(
        OPERATION, pa.array([operation] * rows.num_rows, pa.string())
    )
