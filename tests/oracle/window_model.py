"""Random windows, and what a batch query says of them.

The windows of rows come from DuckDB (`time_bucket` arithmetic, `date_trunc` in a time zone), those of a user's
function from that function; those that merge from a plain loop over the rows of a key.
"""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

import duckdb
import pyarrow as pa

from millpond.arguments.durations import Duration
from millpond.flow.stream import Stream
from millpond.flow.window_kinds import GapExpression
from millpond.flow.window_steps import Mode
from millpond.flow.windowed import WindowedStream
from millpond.kernels.calendar_windows import Calendar
from millpond.kernels.custom_windows import CustomWindows
from millpond.kernels.window_assigners import Everything, Gap, Sliding, Tumbling
from millpond.triggers import (
    Trigger,
    after_all,
    after_any,
    after_count,
    after_delay,
    after_each,
    after_watermark,
    always,
    at_percentile,
    every,
    never,
    repeatedly,
)
from millpond.triggers import custom as own_trigger
from millpond.windows import Windows, calendar, custom, everything, sessions, sliding, tumbling

START = datetime.datetime(2024, 3, 30, 20)  # a day before the clocks change in Europe
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.string()),
        ("j", pa.int64()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("at", pa.timestamp("us")),
    ]
)
PAIRS = SCHEMA.append(pa.field("window_start", pa.timestamp("us"))).append(
    pa.field("window_end", pa.timestamp("us"))
)
ZONES = ("UTC", "Europe/Berlin", "America/Santiago", "Asia/Beirut", "Asia/Kathmandu", "Pacific/Apia")
FIRST, LAST = "TIMESTAMP '0001-01-01'", "TIMESTAMP '9999-12-31 23:59:59.999999'"
Row = dict[str, Any]


# -- windows and triggers of a user's own --------------------------------------------------

Bounds = tuple[datetime.datetime, datetime.datetime]
SECOND = datetime.timedelta(seconds=1)
GAP_OF_ROW = "CASE WHEN j = 1 THEN 2 ELSE n END"  # some rows have none, or one that is not positive


def of_row(row: Any) -> list[Bounds]:
    """Windows on no grid: one or two of a length that the row says, or none."""
    begin = row.at.replace(microsecond=0)
    if row.n is None:
        return []
    longer = [(begin - 3 * SECOND, begin + 7 * SECOND)] if row.j else []
    return [(begin, begin + (4 + row.n) * SECOND), *longer]


def around(row: Any) -> list[Bounds]:
    return [(row.at, row.at + (1 if row.j else 4) * SECOND)]


def that_touch(windows: list[Bounds]) -> list[Bounds]:
    """Unlike sessions, windows that touch are one as well."""
    found: list[Bounds] = []
    for start, end in windows:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def that_overlap(windows: list[Bounds]) -> list[Bounds]:
    found: list[Bounds] = []
    for start, end in sorted(windows):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def counts_up(n: int, event: Any) -> int:
    return n + int(event.rows)


def from_three(n: int, event: Any) -> bool:
    return n >= 3


def from_two_or_at_the_end(n: int, event: Any) -> bool:
    return n >= 2 or bool(n and event.watermark >= event.window_end)


@dataclass(frozen=True)
class Contents:
    build: Callable[[WindowedStream, tuple[str, ...]], Stream]
    query: str  # over `pairs`; {key} is the list of key columns, with a comma behind each


def _added(key: tuple[str, ...]) -> Callable[[Any, Any], Row]:
    """Combines rows; columns of the key are left out of the result."""

    def add(a: Any, b: Any) -> Row:
        rest = {c: getattr(a, c) for c in ("k", "j", "n") if c not in key}
        return {**rest, "id": min(a.id, b.id), "x": a.x + b.x, "at": max(a.at, b.at)}

    return add


CONTENTS = {
    "aggregate": Contents(
        lambda w, key: w.aggregate(
            n="count(*)", total="sum(n)", lo="min(x)", hi="max(n)", mean="avg(x)", kinds="count(distinct n)"
        ),
        "SELECT {key} window_start, window_end, count(*) n, sum(n)::BIGINT total, min(x) lo, max(n) hi, avg(x) mean,"
        " count(DISTINCT n) kinds FROM pairs GROUP BY ALL",
    ),
    "top_n": Contents(
        lambda w, key: w.top_n(2, ["x desc", "id"]),
        "SELECT * FROM pairs QUALIFY row_number() OVER"
        " (PARTITION BY {key} window_start, window_end ORDER BY x DESC, id) <= 2",
    ),
    "distinct": Contents(
        lambda w, key: w.distinct("n"), "SELECT DISTINCT {key} window_start, window_end, n FROM pairs"
    ),
    "reduce": Contents(
        lambda w, key: w.reduce(_added(key)),
        'SELECT {key} window_start, window_end, min(id) id, sum(x) x, max("at") AS "at" FROM pairs GROUP BY ALL',
    ),
    "apply": Contents(
        lambda w, key: w.apply(sql="SELECT count(*) AS c, median(x) AS m FROM input"),
        "SELECT {key} window_start, window_end, count(*) c, median(x) m FROM pairs GROUP BY ALL",
    ),
}


@dataclass(frozen=True)
class Case:
    windows: Windows
    key: tuple[str, ...]
    trigger: Trigger | None
    lateness: str | None
    mode: Mode | None
    panes: bool
    delay: str
    contents: tuple[str, ...]
    unit_s: float  # how far apart rows are

    @property
    def merges(self) -> bool:
        windows = self.windows
        return isinstance(windows, Gap | GapExpression) or (
            isinstance(windows, CustomWindows) and windows.merges
        )

    def own_window(self, row: Row) -> Bounds:
        """Of windows that merge: the one that a row has by itself."""
        if isinstance(self.windows, Gap):
            return row["at"], row["at"] + datetime.timedelta(microseconds=self.windows.gap_us)
        if isinstance(self.windows, GapExpression):
            return row["at"], row["at"] + (2 if row["j"] == 1 else row["n"]) * SECOND
        return around(SimpleNamespace(**row))[0]

    def merged(self, windows: Iterable[Bounds]) -> list[Bounds]:
        both = sorted(set(windows))
        return that_touch(both) if isinstance(self.windows, CustomWindows) else that_overlap(both)

    def fails(self, row: Row) -> bool:
        """Is it an error row?"""
        if not isinstance(self.windows, GapExpression):
            return False
        return row["j"] != 1 and (row["n"] is None or row["n"] <= 0)

    @property
    def settles(self) -> bool:
        """Does each row end in the window that the batch query says?

        A session that merges with one whose last pane was emitted leaves rows where they were emitted.
        """
        closes = self.trigger == after_watermark() and not self.panes
        return not self.merges or self.trigger is None or closes or self.trigger in _SETTLE

    @property
    def after_us(self) -> int:
        """How far the watermark is past the end of a window when it takes no more rows."""
        if self.trigger == after_watermark() and not self.panes:
            return 0
        return (0 if self.lateness is None else int(self.lateness[:-1]) * 1_000_000) + 1


def random_case(rng: random.Random, table: bool = False) -> Case:
    unit, windows = rng.choice(_WINDOWS)(rng)
    trigger: Trigger | None = None
    if not table and rng.random() < 0.85:
        trigger = _fires_at_last(rng) if isinstance(windows, Everything) else _once(rng)
        merges = isinstance(windows, Gap | GapExpression | CustomWindows)
        if merges and rng.random() < 0.7:
            trigger = rng.choice([_fires_at_last(rng), _at_the_end(rng)])
    mode: Any = (
        rng.choice([None, "retracting", "accumulating", "discarding"]) if trigger is not None else None
    )
    others = [name for name in CONTENTS if name != "aggregate"]
    return Case(
        windows,
        rng.choice([(), ("k",), ("k",), ("k", "j")]),
        trigger,
        None if table else rng.choice([None, "0s", "3s", "40s"]),
        mode,
        trigger is not None and rng.random() < 0.5,
        rng.choice(["0s", "2s", "30s"]),
        ("aggregate", *rng.sample(others, 2)),
        unit,
    )


def _tumbling(rng: random.Random) -> tuple[float, Windows]:
    offsets: list[Duration] = [0, "2s", -3, "1ms"]
    return 1, tumbling(rng.choice(["1s", "7s", "10s"]), rng.choice(offsets))


def _sliding(rng: random.Random) -> tuple[float, Windows]:
    size, slide = rng.choice([("10s", "5s"), ("10s", "3s"), ("3s", "10s"), ("4s", "4s")])
    return 1, sliding(size, slide, rng.choice(["0s", "1s"]))


def _calendar(rng: random.Random) -> tuple[float, Windows]:
    unit: Literal["day", "week", "month", "year"] = rng.choice(["day", "day", "week", "month", "year"])
    return 3600 * rng.choice([1, 7]), calendar(unit, rng.choice(ZONES))


_WINDOWS: tuple[Callable[[random.Random], tuple[float, Windows]], ...] = (
    _tumbling,
    _sliding,
    _calendar,
    lambda rng: (1, sessions(rng.choice(["2s", "5s"]))),
    lambda rng: (1, sessions(rng.choice(["1s", "10s"]))),
    lambda rng: (1, everything()),
    lambda rng: (1, sessions(GAP_OF_ROW)),
    lambda rng: (1, custom(of_row)),
    lambda rng: (1, custom(around, merge=that_touch)),
)


def _once(rng: random.Random, depth: int = 2) -> Trigger:
    kinds: list[Callable[[], Trigger]] = [
        lambda: after_count(rng.randint(1, 4)),
        lambda: after_delay(rng.choice(["1s", "5s"])),
        lambda: every("3s"),
        always,
        never,
        after_watermark,
        lambda: at_percentile(rng.choice([0.5, 0.9])),
        lambda: own_trigger(counts_up, from_three, once=rng.random() < 0.5),
        lambda: own_trigger(counts_up, from_two_or_at_the_end, at_end=True),
    ]
    if depth:
        kinds += [
            lambda: after_any(_once(rng, depth - 1), _once(rng, depth - 1)),
            lambda: after_all(_once(rng, depth - 1), _once(rng, depth - 1)),
            lambda: after_each(_once(rng, depth - 1), _once(rng, depth - 1)),
            lambda: repeatedly(_once(rng, depth - 1)),
            lambda: _once(rng, depth - 1).or_finally(_once(rng, depth - 1)),
            lambda: after_watermark(_once(rng, depth - 1), _once(rng, depth - 1)),
            lambda: after_watermark(early=_once(rng, depth - 1)),
            lambda: after_watermark(late=_once(rng, depth - 1)),
        ]
    return rng.choice(kinds)()


_NEVER_FINISH = (
    always(),
    every("3s"),
    repeatedly(after_count(1)),
    repeatedly(after_delay("5s")),
    repeatedly(after_any(after_count(3), after_delay("2s"))),
)
_SETTLE = (*_NEVER_FINISH, never(), after_watermark(early=after_count(2), late=always()))


def _fires_at_last(rng: random.Random) -> Trigger:
    """A trigger that releases every row by the clock, and never finishes."""
    return rng.choice(_NEVER_FINISH)


def _at_the_end(rng: random.Random) -> Trigger:
    """A trigger that releases every row by the end of its window, and finishes there or never."""
    return rng.choice([after_watermark(), after_watermark(early=after_count(2), late=always()), never()])


def random_row(rng: random.Random, case: Case, now_s: float, number: int) -> Row:
    back = rng.choice([0, 0, 1, 2, 3, 8, 30, 90])
    at = now_s + case.unit_s * (rng.choice([0, 0.5, 0.999, 1, 2]) - rng.random() * back)
    return {
        "id": number,
        "k": rng.choice(["a", "b", None]),
        "j": rng.choice([1, 1, None]),
        "n": rng.choice([None, -3, 0, 4]),
        "x": rng.choice([0.5, 0.25, -2.0, 8.0]),
        "at": START + datetime.timedelta(milliseconds=round(at * 1000)),
    }


# -- the batch query ------------------------------------------------------------------


def _run(query: str, **tables: pa.Table) -> list[Row]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table)
        found: list[Row] = connection.sql(query).to_arrow_table().to_pylist()
        return found


def assigned(case: Case, rows: Sequence[Row]) -> list[Row]:
    """Every pair of a row and a window that contains it."""
    windows = case.windows
    if isinstance(windows, CustomWindows):
        return [
            {**row, "window_start": start, "window_end": end}
            for row in rows
            for start, end in of_row(SimpleNamespace(**row))
        ]
    us = 'epoch_us("at")'
    if isinstance(windows, Tumbling):
        windows = Sliding(windows.size_us, windows.size_us, windows.offset_us)
    if isinstance(windows, Sliding):
        # All candidates around a row, of which those are kept that contain it.
        size, slide, offset = windows.size_us, windows.slide_us, windows.offset_us
        query = f"""
          SELECT rows.*, make_timestamp(s) window_start, make_timestamp(s + {size}) window_end FROM (
            SELECT *, unnest(list_transform(range(-{size // slide + 2}, 3),
              lambda i: (({us} // {slide}) + i) * {slide} + {offset % slide})) s FROM input) rows
          WHERE s <= {us} AND {us} < s + {size}"""
        return _without(_run(query, input=pa.Table.from_pylist(list(rows), SCHEMA)), "s")
    if isinstance(windows, Calendar):
        local = f"timezone('{windows.zone}', timezone('UTC', \"at\"))"
        begin = f"date_trunc('{windows.unit}', {local})"

        def utc(text: str) -> str:
            return f"timezone('UTC', timezone('{windows.zone}', {text}))"

        query = f"""SELECT *, {utc(begin)} window_start, {utc(f"{begin} + INTERVAL 1 {windows.unit}")} window_end
          FROM input"""
        return _run(query, input=pa.Table.from_pylist(list(rows), SCHEMA))
    assert isinstance(windows, Everything)
    query = f"SELECT *, {FIRST} window_start, {LAST} window_end FROM input"
    return _run(query, input=pa.Table.from_pylist(list(rows), SCHEMA))


def _without(rows: Iterable[Row], column: str) -> list[Row]:
    return [{n: v for n, v in row.items() if n != column} for row in rows]


def sessions_of(case: Case, rows: Sequence[Row], epochs: Sequence[int], late: set[int]) -> list[Row]:
    """Rows with their merged windows; windows that expired before an epoch take no rows from it."""
    after = datetime.timedelta(microseconds=case.after_us)
    delay = datetime.timedelta(seconds=int(case.delay[:-1]))
    closed: list[tuple[Bounds, list[Row]]] = []
    still: dict[Any, list[tuple[Bounds, list[Row]]]] = {}
    mark: datetime.datetime | None = None
    first = 0
    for end in epochs or [len(rows)]:
        fresh = rows[first:end]
        first = end
        if mark is not None:
            for key, found in still.items():
                closed += [s for s in found if s[0][1] <= mark - after]
                still[key] = [s for s in found if s[0][1] > mark - after]
        for row in fresh:
            if row["id"] not in late and not case.fails(row):
                key = tuple(row[c] for c in case.key)
                still.setdefault(key, []).append((case.own_window(row), [row]))
        for key, found in still.items():
            merged = {bounds: list[Row]() for bounds in case.merged(bounds for bounds, _ in found)}
            for (start, over), mine in found:
                merged[next(b for b in merged if b[0] <= start and over <= b[1])] += mine
            still[key] = list(merged.items())
        if epochs and fresh:
            newest = max(row["at"] for row in fresh) - delay
            mark = newest if mark is None else max(mark, newest)
    every = closed + [s for found in still.values() for s in found]
    return [
        {**row, "window_start": start, "window_end": over} for (start, over), mine in every for row in mine
    ]


def expected(case: Case, name: str, pairs: Sequence[Row]) -> list[Row]:
    return answered(case, CONTENTS[name].query, pairs)


def answered(case: Case, query: str, pairs: Sequence[Row]) -> list[Row]:
    """A query over the pairs; {key} in it is the list of key columns, with a comma behind each."""
    key = "".join(f"{column}, " for column in case.key)
    return _run(query.format(key=key), pairs=pa.Table.from_pylist(list(pairs), PAIRS))


def counted(rows: Sequence[Row], columns: Iterable[str]) -> Counter[tuple[Any, ...]]:
    """Rows by these columns: those of the batch query, without panes and what a reduction leaves open."""
    return Counter(tuple((name, repr(row[name])) for name in columns) for row in rows)


def difference(got: Sequence[Row], want: Sequence[Row]) -> str | None:
    """How rows differ from those that a batch query returned."""
    if not got or not want:
        return None if len(got) == len(want) else f"{got} instead of {want}"
    found, asked = (counted(rows, want[0]) for rows in (got, want))
    return None if found == asked else f"{found - asked} instead of {asked - found}"


def totals(case: Case, rows: Iterable[Row], *columns: str) -> dict[Any, tuple[int, ...]]:
    """Sums of columns by window; by key alone where windows merge."""
    key = case.key if case.merges else (*case.key, "window_start", "window_end")
    found: dict[Any, tuple[int, ...]] = {}
    for row in rows:
        mine = tuple(row[c] for c in key)
        before = found.get(mine, (0,) * len(columns))
        found[mine] = tuple(b + (row[c] or 0) for b, c in zip(before, columns, strict=True))
    return {k: v for k, v in found.items() if any(v)}
