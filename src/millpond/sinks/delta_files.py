"""The data files of Delta Lake: Parquet without the partition columns, which are in the log.

Law: statistics in the log never exclude a row that a file has; in doubt there are none.
"""

from __future__ import annotations

import datetime
import importlib
import io
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millpond.state.store.store import Store

_TEXT_MAX = 64  # characters of a text in the statistics


def partitions(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[Mapping[str, str | None], pa.Table]]:
    """The rows of each combination of partition values, in the order in which the combinations come first.

    >>> found = partitions(pa.table({"c": ["a", None, "a"], "n": [1, 2, 3]}), ["c"])
    >>> [(values, rows["n"].to_pylist()) for values, rows in found]
    [({'c': 'a'}, [1, 3]), ({'c': None}, [2])]
    """
    if not names:
        if rows.num_rows:
            yield {}, rows
        return
    columns = [_texts(rows.column(name)) for name in names]
    places: dict[tuple[str | None, ...], list[int]] = {}
    for place, values in enumerate(zip(*columns, strict=True)):
        places.setdefault(values, []).append(place)
    for values, some in places.items():
        yield dict(zip(names, values, strict=True)), rows.take(pa.array(some, pa.int64()))


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """Values as the log has them."""
    texts: list[str | None] = column.cast(pa.string()).to_pylist()
    return texts


def write_data_file(
    store: Store, name: str, values: Mapping[str, str | None], rows: pa.Table
) -> dict[str, Any]:
    """Write rows under a name that no commit knows yet; returns what the log will say about the file."""
    rows = rows.drop_columns([n for n in values])
    body = io.BytesIO()
    pq.write_table(rows, body, compression="snappy", coerce_timestamps="us")
    data = body.getbuffer()
    store.put_new(name, data)
    return {
        "path": name,
        "size": data.nbytes,
        "partition_values": dict(values),
        "modification_time": time.time_ns() // 1_000_000,
        "stats": statistics(rows),
    }


def add_action(file: Mapping[str, Any]) -> Any:
    """The action of the log that adds a file."""
    transaction = importlib.import_module("deltalake.transaction")
    return transaction.AddAction(data_change=True, **file)


def statistics(rows: pa.Table) -> str:
    """What the log says about the rows of a file, so that readers can skip it.

    Bounds are given for all columns or for none: the dataset of deltalake 1.6 takes a bound that is missing
    beside others for NULL, and then skips the file.

    >>> statistics(pa.table({"n": [3, 1, None]}))
    '{"numRecords": 3, "minValues": {"n": 1}, "maxValues": {"n": 3}, "nullCount": {"n": 1}}'
    >>> statistics(pa.table({"n": [3, 1], "x": [0.5, float("nan")]}))
    '{"numRecords": 2}'
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for field in rows.schema:
        column = rows.column(field.name)
        if not _has_bounds(field.type):
            continue
        nulls[field.name] = column.null_count
        if column.null_count == len(column):
            continue
        low, high = _bounds(column)
        if low is None or high is None:
            return json.dumps({"numRecords": rows.num_rows})
        least[field.name], most[field.name] = low, high
    found = {"numRecords": rows.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    return json.dumps(found)


def _has_bounds(kind: pa.DataType) -> bool:
    t = pa.types
    number = t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind)
    return bool(number or t.is_string(kind) or t.is_date(kind) or t.is_timestamp(kind))


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """The least and the greatest value as the log has them; None if it has no exact one."""
    if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
        return None, None
    found = pc.min_max(column)
    try:
        return _logged(found["min"].as_py()), _logged(found["max"].as_py())
    except (ValueError, OverflowError):  # a year that Python does not have
        return None, None


def _logged(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _TEXT_MAX else None
    if isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text if value.tzinfo is None else f"{text}Z"
    return value.isoformat() if isinstance(value, datetime.date) else value
