"""A timer wheel in state tables: finds the rows whose time has come without reading the others.

There is one table per bucket width.  A row is written into the narrowest table that
reaches its time.  When time reaches the start of a bucket, the rows that are due are
returned and the others move to a narrower table.  A row far ahead costs a few moves,
and no epoch reads it before (law 5).  The earliest bucket of each table says when there
is work to do.

It is used for rows that wait for the clock (`operators.valid_interval`), for timers and
for the time to live of state (`process`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.identity import one_chunk
from millpond.ordering import Order
from millpond.state.tables.table import Table
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]
OpenTable = Callable[[str, int], Table]  # a table by name, without the buckets from a number on


@dataclass(frozen=True)
class Due:
    """The rows of the buckets that time has reached."""

    rows: pa.Table | None  # rows that are due
    later: pa.Table | None  # the others, to be written again
    drops: tuple[tuple[str, int], ...]  # (table, bucket): the buckets before it were read


@dataclass(frozen=True)
class TimerWheel:
    """The tables `prefix.0`, `prefix.1` and so on, with rows by the column `time`.

    >>> wheel = TimerWheel("remind/due", (1000, 8000), (8000,), "at")
    >>> wheel.is_due({"remind/due.1": 5}, 40_000)
    True
    """

    prefix: str
    widths: tuple[int, ...]  # of a bucket of each table in microseconds, the narrowest first
    reaches: tuple[int, ...]  # a table takes rows nearer than its reach; the last takes all others
    time: str
    # Whether buckets are read only after they have passed completely, not when time reaches their start.
    passed_only: bool = False
    # Rows of the narrowest buckets that are not due stay there.
    keeps_first: bool = False

    def name(self, tier: int) -> str:
        return f"{self.prefix}.{tier}"

    @property
    def names(self) -> Iterator[tuple[str, int]]:
        """Every table with the width of its buckets."""
        return ((self.name(tier), width) for tier, width in enumerate(self.widths))

    def tables(
        self,
        schema: pa.Schema,
        key: tuple[str, ...],
        order: tuple[Order, ...] = (),
        rule: Literal["weights", "latest"] = "latest",
    ) -> tuple[TableSpec, ...]:
        return tuple(
            TableSpec(name, schema, key, order, rule=rule, time=self.time, bucket_width=width)
            for name, width in self.names
        )

    def is_due(self, earliest: Mapping[str, int], bound: int) -> bool:
        """Whether a bucket must be read, by the earliest bucket of each table and the time reached."""
        return any(
            (earliest[name] + self.passed_only) * width <= bound
            for name, width in self.names
            if name in earliest
        )

    def open(self, table: OpenTable, bound: int) -> Due:
        """Read the buckets that time has reached; rows at or before `bound` are due."""
        due, later, drops = [], [], []
        for tier, (name, width) in enumerate(self.names):
            end = bound // width + (not self.passed_only)
            found = table(name, end)
            if not found.runs:
                continue
            rows = found.scan()
            if self.passed_only:
                due.append(rows)
            else:
                come = times(rows, self.time) <= bound
                due.append(rows.filter(pa.array(come)))
                if self.keeps_first and tier == 0:
                    end -= 1
                else:
                    later.append(rows.filter(pa.array(~come)))
            drops.append((name, end))
        return Due(
            pa.concat_tables(due) if due else None,
            pa.concat_tables(later) if later else None,
            tuple(drops),
        )

    def placed(self, rows: pa.Table, now: int) -> Iterator[tuple[str, pa.Table]]:
        """Rows with times after `now`, by the table that reaches them."""
        if not rows.num_rows:
            return
        tiers = np.searchsorted(np.array(self.reaches, np.int64), times(rows, self.time) - now, side="right")
        for tier in np.unique(tiers).tolist():
            yield self.name(tier), rows.filter(pa.array(tiers == tier))


def times(rows: pa.Table, column: str) -> Ints:
    """A column of times in microseconds."""
    found: Ints = one_chunk(rows.column(column)).cast(pa.int64()).to_numpy()
    return found
