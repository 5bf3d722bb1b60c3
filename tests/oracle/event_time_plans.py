"""Random plans in event time, and scripts of what their sources send, for `test_event_time_modes`."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from millpond import Pond, ValueState, watermarks
from millpond.flow.stream import Stream
from millpond.flow.window_steps import Mode
from millpond.flow.windowed import WindowedStream
from millpond.sources.memory import EventTimeBound, MemorySource
from millpond.triggers import (
    after_count,
    after_delay,
    after_watermark,
    always,
    at_percentile,
    every,
    repeatedly,
)
from millpond.windows import custom, sessions, sliding, tumbling

START = datetime.datetime(2024, 1, 1, 12)
START_US = int(START.replace(tzinfo=datetime.UTC).timestamp()) * 1_000_000
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us"))])
SOURCES = ("a", "b", "c")

Streams = dict[str, Stream]


def newest(rows: pa.Table, state: int | None) -> tuple[int | None, int | None]:
    """A watermark of a user's function: the newest time less two seconds."""
    times = [t for t in rows.column("at").to_pylist() if t is not None]
    if not times:
        return None, state
    found = int((max(times) - START).total_seconds() * 1_000_000) + START_US - 2_000_000
    found = found if state is None else max(found, state)
    return found, found


def shift(row: Any) -> list[tuple[datetime.datetime, datetime.datetime]]:
    return [(row.at, row.at + datetime.timedelta(seconds=4))]


def seen(row: Any, n: ValueState[int] = ValueState(int, default=0)) -> dict[str, Any]:
    n.value += 1
    return {"k": row.k, "n": n.value}


def streams(pond: Pond, rng: random.Random, sources: dict[str, MemorySource]) -> Streams:
    """Sources with watermarks of random strategies, some behind a user's function or a lookup."""
    found = {}
    for name in SOURCES[: rng.choice([2, 2, 3])]:
        stream = pond.stream(name, sources[name])
        front = rng.random()
        if front < 0.15:
            stream = stream.map(lambda row: {"k": row.k, "v": row.v, "at": row.at}, SCHEMA)
        elif front < 0.3:
            stream = stream.filter("v <> 3")
        how: Any = rng.choice(
            ["2s", "2s", "0s", watermarks.percentile(0.8, "20s"), watermarks.slack(5), None]
        )
        idle = rng.choice([None, None, "7s"])
        if how is None and front >= 0.15:
            how, idle = watermarks.custom(newest), None
        found[name] = stream.watermark("at", how or "1s", idle=idle, id=f"{name}.mark")
    return found


def _windows(rng: random.Random, merge: bool = True) -> Any:
    some = [tumbling("5s"), tumbling("4s"), sliding("6s", "3s"), custom(shift)]
    return rng.choice([*some, sessions("2s")] if merge else some[:3])


def _contents(rng: random.Random, windowed: WindowedStream) -> Stream:
    what = rng.randrange(4)
    if what == 0:
        return windowed.aggregate(n="count(*)", total="sum(v)", most="max(v)")
    if what == 1:
        return windowed.top_n(2, ["v desc", "at"])
    if what == 2:
        return windowed.distinct("v")
    return windowed.apply(sql="SELECT median(v) AS m FROM input")


def open_windows(rng: random.Random, of: Streams, name: str) -> None:
    windowed = _pick(rng, of).key_by("k").window(_windows(rng), allowed_lateness=rng.choice([None, "3s"]))
    _contents(rng, windowed).view(name)
    if rng.random() < 0.5:
        windowed.late().view(f"{name}_late")


def closing(rng: random.Random, of: Streams, name: str) -> None:
    closed = (
        _pick(rng, of).key_by("k").window(_windows(rng), on_close=True).aggregate(n="count(*)", v="sum(v)")
    )
    closed.view(name)
    if rng.random() < 0.4:
        again = closed.select("k", "v", closed="window_end")
        if again.shape.watermark is not None and again.shape.time == "closed":
            windowed = again.key_by("v").window(tumbling("20s"), on_close=rng.random() < 0.5)
            windowed.aggregate(n="count(*)").view(f"{name}_again")


def tumbled(rng: random.Random, of: Streams, name: str) -> None:
    rows = _pick(rng, of).tumble("5s") if rng.random() < 0.5 else _pick(rng, of).hop("6s", "3s")
    rows.key_by("k", "window_end").aggregate(on_close=rng.random() < 0.6, n="count(*)", m="min(v)").view(name)


def triggered(rng: random.Random, of: Streams, name: str) -> None:
    trigger = rng.choice(
        [
            after_watermark(early=after_count(2), late=after_count(1)),
            after_watermark(early=every("3s")),
            after_watermark(early=at_percentile(0.5)),
            repeatedly(after_count(3)),
            after_count(2),
            after_delay("2s"),
            always(),
        ]
    )
    modes: tuple[Mode, ...] = ("retracting", "accumulating", "discarding")
    lateness, mode = rng.choice([None, "3s"]), rng.choice(modes)
    windowed = (
        _pick(rng, of)
        .key_by("k")
        .window(_windows(rng), trigger=trigger, allowed_lateness=lateness, mode=mode, panes=True)
    )
    windowed.aggregate(n="count(*)", total="sum(v)").view(name)
    if rng.random() < 0.6:
        windowed.late().view(f"{name}_late")


def joined(rng: random.Random, of: Streams, name: str) -> None:
    windows, on_close = _windows(rng, merge=False), rng.random() < 0.6
    left, right = (of[n].key_by("k").window(windows, on_close=on_close) for n in rng.sample(sorted(of), 2))
    left.join(right, rng.choice(["inner", "left", "full"])).view(name)


def ordered(rng: random.Random, of: Streams, name: str) -> None:
    kept = _pick(rng, of).key_by("k").in_order(slack=rng.choice([2, 1000]))
    if rng.random() < 0.5:
        kept.stream.view(name)
    else:
        kept.process(seen, {"k": str, "n": int}).view(name)


def late(rng: random.Random, of: Streams, name: str) -> None:
    _pick(rng, of).late().view(name)


def union(rng: random.Random, of: Streams, name: str) -> None:
    one, two = (of[n] for n in rng.sample(sorted(of), 2))
    windowed = one.union(two).key_by("k").window(_windows(rng), on_close=rng.random() < 0.7)
    windowed.aggregate(n="count(*)", total="sum(v)").view(name)


def plain(rng: random.Random, of: Streams, name: str) -> None:
    _pick(rng, of).key_by("k").aggregate(n="count(*)").view(name)


KINDS: tuple[Callable[[random.Random, Streams, str], None], ...] = (
    *(open_windows, closing, closing, tumbled, tumbled, triggered, triggered),
    *(joined, ordered, late, union, union, plain),
)


def _pick(rng: random.Random, of: Streams) -> Stream:
    return of[rng.choice(sorted(of))]


def define(pond: Pond, seed: int, views: int, sources: dict[str, MemorySource]) -> list[str]:
    """The same plan for the same seed; returns its views."""
    rng = random.Random(seed)
    of = streams(pond, rng, sources)
    for number in range(views):
        rng.choice(KINDS)(rng, of, f"v{number}")
    return sorted(pond.plan.views)


def script(seed: int, epochs: int) -> Iterator[tuple[int, list[tuple[str, str, Any]]]]:
    """By epoch: the seconds that pass by the clock, and (source, partition, item) to push."""
    rng = random.Random(seed)
    now = 0.0
    for _ in range(epochs):
        now += rng.choice([0, 1, 3, 6])
        items: list[tuple[str, str, Any]] = []
        for name in SOURCES:
            for partition in rng.sample(["p", "q"], rng.choice([0, 1, 1, 2])):
                items.append((name, partition, [_row(rng, now) for _ in range(rng.randrange(1, 6))]))
            if rng.random() < 0.1:
                items.append((name, "p", EventTimeBound(START_US + int(now * 1_000_000))))
        yield rng.choice([0, 1, 4, 9]), items


def _row(rng: random.Random, now: float) -> dict[str, Any]:
    at = max(0.0, now + rng.choice([0, 1, 2, 0.5, -1, -3, -7]))
    time = None if rng.random() < 0.03 else START + datetime.timedelta(seconds=at)
    return {"k": rng.choice("xyz"), "v": rng.randrange(5), "at": time}
