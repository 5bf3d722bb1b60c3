"""Instants in a time zone: the type of an Arrow column says which, its values count from 1970 in UTC.

DuckDB computes the differences from UTC, so that a text of PostgreSQL's protocol is the text that SQL gives.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.kernels.duck import statement

_NAIVE = pa.timestamp("us")


def shown_in(column: pa.ChunkedArray, zone: str) -> pa.ChunkedArray:
    """The same instants, to be shown in another time zone."""
    kind = column.type
    if not pa.types.is_timestamp(kind) or kind.tz is None or kind.tz == zone:
        return column
    return column.cast(pa.timestamp(kind.unit, zone))


def local_times(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Instants as local times of their zone, and the difference of each from UTC as text: +02, -03:30.

    >>> summer = pa.array([1_720_000_000_000_000]).cast(pa.timestamp("us", "Europe/Berlin"))
    >>> [found.to_pylist() for found in local_times(summer)]
    [[datetime.datetime(2024, 7, 3, 11, 46, 40)], ['+02']]
    """
    zone = str(values.type.tz)
    us = pa.Array.from_buffers(_NAIVE, len(values), values.buffers(), offset=values.offset)
    asked = statement(
        ("local times", zone),
        lambda view: f"select timezone('{zone}', timezone('UTC', us)) as local from {view}",
        pa.schema([("us", _NAIVE)]),
    )
    local = asked.run(pa.table({"us": us})).column("local").combine_chunks()
    local = local.chunk(0) if isinstance(local, pa.ChunkedArray) else local
    seconds = pc.divide(pc.subtract(local.view(pa.int64()), us.view(pa.int64())), pa.scalar(1_000_000))
    unique = {s: offset_text(s) for s in pc.unique(seconds).to_pylist() if s is not None}
    return local, pa.array([unique.get(s) for s in seconds.to_pylist()], pa.string())


def offset_text(seconds: int) -> str:
    """A difference from UTC as PostgreSQL writes it.

    >>> offset_text(7200), offset_text(-12600), offset_text(3208)
    ('+02', '-03:30', '+00:53:28')
    """
    minutes, rest = divmod(abs(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{'-' if seconds < 0 else '+'}{hours:02d}"
    text += f":{minutes:02d}" if minutes or rest else ""
    return text + (f":{rest:02d}" if rest else "")
