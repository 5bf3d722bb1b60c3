"""When windows must be asked without rows: a timer wheel for each clock of their trigger.

A row of a wheel is a hint: a window whose deadline moved leaves its old hint there, and is asked in vain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.delta import with_weights
from millpond.kernels.bounds import Bound
from millpond.kernels.open_windows import CELLS, COUNTERS
from millpond.kernels.timer_wheel import OpenTable, TimerWheel
from millpond.kernels.triggers import NEVER, PROCESSING, WATERMARK, Clock, Ints, Trigger
from millpond.ordering import Order
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

WIDTHS = tuple(1000 * 64**tier for tier in range(6))  # 1 ms, 64 ms, 4 s, 4.4 min, 4.7 h, 12.4 d
AT = "_at"


def clock_name(clock: Clock) -> str:
    return "processing" if clock == PROCESSING else f"event{clock:g}"


def wheel(step: str, clock: Clock) -> TimerWheel:
    return TimerWheel(
        f"{step}/due.{clock_name(clock)}", WIDTHS, WIDTHS[1:], AT, keeps_first=clock != PROCESSING
    )


def wheel_clocks(trigger: Trigger, until: Bound | None) -> tuple[Clock, ...]:
    """The clocks that need a timer wheel: those of the trigger, and the watermark if windows expire."""
    found = trigger.clocks | ({WATERMARK} if until is not None else set())
    return tuple(sorted(found, key=str))


def wheel_tables(
    step: str, clocks: tuple[Clock, ...], own: list[pa.Field], key: tuple[str, ...], start: str
) -> list[TableSpec]:
    """The tables of all wheels; hints have the columns of their window, which begins at `start`."""
    schema = pa.schema([*own, pa.field(AT, pa.timestamp("us"))])
    order = (Order(start), Order(AT))
    return [table for clock in clocks for table in wheel(step, clock).tables(schema, key, order)]


def due_column(clock: Clock) -> str:
    return f"_due_{clock_name(clock)}"


def state_fields(trigger: Trigger, clocks: tuple[Clock, ...]) -> list[pa.Field]:
    """The columns of a window's state: panes, the cells of its trigger, and its deadlines."""
    names = [*COUNTERS, *(cell.name for cell in trigger.cells(CELLS)), *(due_column(c) for c in clocks)]
    return [pa.field(name, pa.int64()) for name in names]


def is_due(
    step: str,
    clocks: tuple[Clock, ...],
    watermark: Bound | None,
    earliest: Mapping[str, int],
    watermarks: Mapping[str, int],
    now_us: int,
) -> bool:
    """Whether a deadline has passed on some clock."""
    for clock in clocks:
        bound: int | None
        if clock == PROCESSING:
            bound = now_us
        elif clock == WATERMARK:
            bound = None if watermark is None else watermark.limit(watermarks.get)
        else:  # that of a share of the rows is ahead, or known first: look whenever there is an epoch
            bound = NEVER
        if bound is not None and wheel(step, clock).is_due(earliest, bound):
            return True
    return False


@dataclass(frozen=True)
class DueHints:
    """The windows whose deadline may have passed."""

    tables: tuple[pa.Table, ...]
    moved: tuple[
        tuple[str, pa.Table], ...
    ]  # (table, rows): hints that are written again, nearer to their time
    drops: tuple[tuple[str, int], ...]

    @staticmethod
    def open(
        step: str, table: OpenTable, reached: Mapping[Clock, int | None], window: Sequence[str]
    ) -> DueHints:
        """Open the buckets up to the time that each clock has reached; `window` names its columns."""
        tables: list[pa.Table] = []
        moved: list[tuple[str, pa.Table]] = []
        drops: list[tuple[str, int]] = []
        for clock, bound in reached.items():
            if bound is None:
                continue
            found = wheel(step, clock).open(table, bound)
            if found.rows is not None and found.rows.num_rows:
                tables.append(found.rows)
            if found.later is not None and found.later.num_rows:
                # A deadline that was set, removed and set again may have a hint in several tiers.
                moved += wheel(step, clock).placed(_once(found.later, window), bound)
            drops += found.drops
        return DueHints(tuple(tables), tuple(moved), tuple(drops))


def placed_hints(
    step: str, clock: Clock, windows: pa.Table, which: Ints, due: Ints, reached: int | None
) -> Iterator[tuple[str, pa.Table]]:
    """(table, rows) of the timer wheel for windows (their columns and `_h`) whose deadline is new."""
    which = which[due[which] < NEVER]
    if not len(which):
        return
    hints = windows.take(pa.array(which)).append_column(AT, pa.array(due[which]).cast(pa.timestamp("us")))
    hints = with_weights(hints, np.ones(len(which), np.int64))
    # Without a watermark yet, everything is far ahead: the widest buckets take it.
    bound = int(due[which].min()) - WIDTHS[-1] * 64 if reached is None else reached
    yield from wheel(step, clock).placed(hints, bound)


def written_hints(
    parts: Iterable[tuple[str, pa.Table]], window: Sequence[str]
) -> Iterator[tuple[str, pa.Table]]:
    """All hints of an epoch by table, each once."""
    by_table: dict[str, list[pa.Table]] = {}
    for name, rows in parts:
        by_table.setdefault(name, []).append(rows)
    for name, tables in by_table.items():
        first = tables[0].column_names
        yield name, _once(pa.concat_tables([t.select(first) for t in tables]), window)


def _once(hints: pa.Table, window: Sequence[str]) -> pa.Table:
    """The hints, each once: a session may have one from before it grew, with the end that it had."""
    numbers = KeySet.of(hints, (*window, AT)).inverse
    which = np.unique(numbers, return_index=True)[1]
    rows = hints if len(which) == hints.num_rows else hints.take(pa.array(which))
    return with_weights(rows, np.ones(rows.num_rows, np.int64))
