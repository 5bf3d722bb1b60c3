"""in_order, counting, custom windows that merge and joins of windows, against plain models.

With restarts, late rows and, where the input may retract, updates and deletes.
"""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.clock import ManualClock
from millpond.pond import Pond
from millpond.sources.memory import MemorySource
from millpond.windows import counting, custom, sessions, tumbling

START = datetime.datetime(2024, 1, 1)
SCHEMA = {"k": str, "n": int, "at": datetime.datetime}
SEEDS = [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3, 4, 5, 6, 7))]
Row = dict[str, Any]


def at(second: float) -> datetime.datetime:
    return START + datetime.timedelta(seconds=second)


class Restarted:
    """A pond that is defined again after each restart, with another parallelism."""

    def __init__(self, path: Path, rng: random.Random, define: Callable[[Pond], None]) -> None:
        self.path, self.rng, self.define = path, rng, define
        self.clock = ManualClock(1_700_000_000_000_000)
        self.pond = self._opened()

    def _opened(self) -> Pond:
        tasks = self.rng.choice([1, 2, 4])
        settings: dict[str, Any] = {"engine": "inline", "checks": True, "clock": self.clock}
        pond = millpond.open(self.path, parallelism=tasks, **settings)
        self.define(pond)
        return pond

    def epoch(self) -> int:
        before = self.pond.status.epoch or 0
        self.pond.drain()
        if self.rng.random() < 0.3:
            self.pond.close()
            self.pond = self._opened()
        return before

    def added(self, view: str, since: int) -> list[Row]:
        rows = [r for delta in self.pond.changes(view, since=since) for r in delta.table.to_pylist()]
        return [{**{c: v for c, v in r.items() if c != "_w"}} for r in rows for _ in range(r["_w"])]


def plain(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_in_order(seed: int, timed: bool, tmp_path: Path) -> None:
    """Each epoch hands on what the model does; rows of equal time go in the order of their columns."""
    rng, source, slack = random.Random(seed), MemorySource(SCHEMA), seed % 4
    delay = datetime.timedelta(seconds=6)

    def define(pond: Pond) -> None:
        stream = pond.stream("s", source, **({"event_time": "at", "delay": "6s"} if timed else {}))
        stream.key_by("k").in_order(slack=slack, time="at", id="sorted").stream.view("v")

    world = Restarted(tmp_path / "pond", rng, define)
    held: dict[str, list[Row]] = {"x": [], "y": []}
    left: dict[str, datetime.datetime] = {}
    late: list[Row] = []
    too_late = 0
    bound: datetime.datetime | None = None
    now = 0
    for _ in range(12):
        now += rng.choice([0, 1, 4])
        rows = [
            {"k": rng.choice("xy"), "n": rng.randrange(4), "at": at(max(0, now + rng.randrange(-8, 3)))}
            for _ in range(rng.choice([0, 2, 5]))
        ]
        if rows:
            source.push(rows)
        since = world.epoch()
        on_time = [r for r in rows if bound is None or r["at"] >= bound]
        too_late += len(rows) - len(on_time)
        if timed and rows:
            newest = max(r["at"] for r in rows) - delay
            bound = newest if bound is None else max(bound, newest)
        wanted = []
        behind = {k: t for k, t in left.items()}
        for row in on_time:
            if row["k"] in behind and row["at"] < behind[row["k"]]:
                late.append(row)
            else:
                held[row["k"]].append(row)
        for k, some in held.items():
            some.sort(key=lambda r: (r["at"], r["n"]))
            gone = max(0, len(some) - slack)
            while bound is not None and gone < len(some) and some[gone]["at"] < bound:
                gone += 1
            wanted += some[:gone]
            if gone:
                left[k] = max(left.get(k, START), some[gone - 1]["at"])
            held[k] = some[gone:]
        assert plain(world.added("v", since)) == plain(wanted)
    assert plain(world.pond.late("sorted").to_pylist()) == plain(late)
    counts = world.pond.head().counts
    assert counts.get("late/sorted", 0) == len(late) and counts.get("late/s.watermark", 0) == too_late
    world.pond.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_counting(seed: int, tmp_path: Path) -> None:
    """Windows that close when they are full or when their time is over, and windows that fill."""
    rng, source = random.Random(seed), MemorySource(SCHEMA)
    n, step, timeout = rng.randint(1, 4), rng.randint(1, 4), 10

    def define(pond: Pond) -> None:
        keyed = pond.stream("s", source).key_by("k")
        keyed.window(counting(n, step), on_close=True).aggregate(rows="count(*)", total="sum(n)").view("full")
        keyed.window(counting(n, step)).aggregate(rows="count(*)", total="sum(n)").view("filling")
        timed = keyed.window(counting(n, timeout=f"{timeout}s"), on_close=True)
        timed.aggregate(rows="count(*)", total="sum(n)").view("timed")
        keyed.window(counting(n, step), on_close=True).top_n(1, ["n desc"]).view("best")

    world = Restarted(tmp_path / "pond", rng, define)
    came: dict[str, list[int]] = {"x": [], "y": []}
    open_since: dict[str, int] = {}
    base = {"x": 0, "y": 0}  # where the open window of `timed` begins
    timed: list[tuple[Any, ...]] = []
    second = 0
    for _ in range(14):
        passed = rng.choice([0, 3, 11])
        second += passed
        world.clock.advance(passed * 1_000_000)
        for k in [k for k, since in open_since.items() if second >= since + timeout]:
            some = came[k][base[k] :]
            timed.append((k, base[k], len(came[k]), len(some), sum(some)))
            base[k] = len(came[k])
            del open_since[k]
        if passed and rng.random() < 0.6:  # otherwise rows come in the epoch in which their window is due
            world.epoch()
        rows = [
            {"k": rng.choice("xy"), "n": rng.randrange(9), "at": START} for _ in range(rng.choice([0, 1, 4]))
        ]
        if rows:
            source.push(rows)
        world.epoch()
        for row in rows:
            k = row["k"]
            came[k].append(row["n"])
            open_since.setdefault(k, second)
            if len(came[k]) - base[k] == n:
                timed.append((k, base[k], len(came[k]), n, sum(came[k][base[k] :])))
                base[k] = len(came[k])
                del open_since[k]
        windows = {
            (k, first): came[k][first : first + n] for k in came for first in range(0, len(came[k]), step)
        }
        filling = Counter((k, f, f + n, len(some), sum(some)) for (k, f), some in windows.items())
        full = Counter({w: c for w, c in filling.items() if w[3] == n})
        assert plain(world.pond.read("filling").to_pylist()) == filling
        assert plain(world.pond.read("full").to_pylist()) == full
        best = Counter((r["k"], r["window_start"], r["n"]) for r in world.pond.read("best").to_pylist())
        assert best == Counter((k, f, max(some)) for (k, f), some in windows.items() if len(some) == n)
        assert plain(world.pond.read("timed").to_pylist()) == Counter(timed)
    world.pond.close()


def in_chains(some: list[Any]) -> list[Any]:
    """Windows that touch are one, and so are windows that overlap."""
    found: list[Any] = []
    for start, end in some:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def two_seconds(row: Any) -> list[Any]:
    return [(row.at, row.at + datetime.timedelta(seconds=2))] if row.n else []


def merged(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for k in {r["k"] for r in rows}:
        mine = [
            (r["at"], r["at"] + datetime.timedelta(seconds=2), r["n"]) for r in rows if r["k"] == k and r["n"]
        ]
        for start, end in in_chains(sorted((s, e) for s, e, _ in mine)):
            inside = [n for s, _, n in mine if start <= s < end]
            found[k, start, end, len(inside), sum(inside)] += 1
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_custom_windows_merge_and_split(seed: int, tmp_path: Path) -> None:
    """Over a table: deletes split what a row had merged; a row for which the function returns nothing is in none."""
    rng = random.Random(seed)

    def define(pond: Pond) -> None:
        rows = pond.table("t", {"id": int, **SCHEMA}, key="id")
        windowed = rows.key_by("k").window(custom(two_seconds, merge=in_chains), time="at")
        windowed.aggregate(rows="count(*)", total="sum(n)").view("v")
        windowed.top_n(1, ["n desc", "id"]).view("best")
        windowed.distinct("n").view("different")

    world = Restarted(tmp_path / "pond", rng, define)
    held: dict[int, Row] = {}
    for _ in range(10):
        for _ in range(rng.randint(1, 4)):
            id = rng.randrange(8)
            if id in held and rng.random() < 0.4:
                world.pond.delete("t", [held.pop(id)])
            else:
                held[id] = {
                    "id": id,
                    "k": rng.choice("xy"),
                    "n": rng.randrange(4),
                    "at": at(rng.randrange(14)),
                }
                world.pond.insert("t", [held[id]])
        world.epoch()
        wanted = merged(list(held.values()))
        assert plain(world.pond.read("v").to_pylist()) == wanted
        inside = {
            w: [r for r in held.values() if r["k"] == w[0] and r["n"] and w[1] <= r["at"] < w[2]]
            for w in wanted
        }
        best = Counter((r["k"], r["window_start"], r["id"]) for r in world.pond.read("best").to_pylist())
        assert best == Counter(
            (w[0], w[1], min(some, key=lambda r: (-r["n"], r["id"]))["id"]) for w, some in inside.items()
        )
        different = Counter(
            (r["k"], r["window_start"], r["n"]) for r in world.pond.read("different").to_pylist()
        )
        assert different == Counter(
            (w[0], w[1], n) for w, some in inside.items() for n in {r["n"] for r in some}
        )
    world.pond.close()


def joined(
    left: list[Row], right: list[Row], window_of: Callable[..., Any], kind: str
) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    both = [*left, *right]
    for one in left:
        met = [two for two in right if two["k"] == one["k"] and window_of(two, both) == window_of(one, both)]
        for two in met:
            found[one["id"], two["id"]] += 1
        if kind == "left" and not met:
            found[one["id"], None] += 1
    return found


def tumbled(row: Row, rows: list[Row]) -> Any:
    return (row["at"] - START).total_seconds() // 5


def session(row: Row, rows: list[Row]) -> Any:
    """The bounds of a row's session among the rows of both sides."""
    times = sorted(r["at"] for r in rows if r["k"] == row["k"])
    chains = in_chains(
        [(t, t + datetime.timedelta(seconds=3) - datetime.timedelta(microseconds=1)) for t in times]
    )
    return next(c for c in chains if c[0] <= row["at"] <= c[1])


@pytest.mark.parametrize("windows", ["tumbling", "sessions"])
@pytest.mark.parametrize("seed", SEEDS)
def test_joins_of_windows_follow_both_sides(seed: int, windows: str, tmp_path: Path) -> None:
    rng = random.Random(seed)
    kind = tumbling("5s") if windows == "tumbling" else sessions("3s")
    window_of = tumbled if windows == "tumbling" else session

    def define(pond: Pond) -> None:
        sides = [pond.table(name, {"id": int, **SCHEMA}, key="id") for name in ("a", "b")]
        left, right = (side.key_by("k").window(kind, time="at") for side in sides)
        left.join(right).view("inner_one")
        left.join(right, "left").view("left_one")

    world = Restarted(tmp_path / "pond", rng, define)
    held: dict[str, dict[int, Row]] = {"a": {}, "b": {}}
    for _ in range(10):
        for _ in range(rng.randint(1, 4)):
            name, id = rng.choice("ab"), rng.randrange(6)
            side = held[name]
            if id in side and rng.random() < 0.4:
                world.pond.delete(name, [side.pop(id)])
            else:
                side[id] = {"id": id, "k": rng.choice("xy"), "n": 1, "at": at(rng.randrange(15))}
                world.pond.insert(name, [side[id]])
        world.epoch()
        left, right = (list(held[name].values()) for name in ("a", "b"))
        for view, how in (("inner_one", "inner"), ("left_one", "left")):
            given = Counter((r["id"], r["id_right"]) for r in world.pond.read(view).to_pylist())
            assert given == joined(left, right, window_of, how), view
    world.pond.close()
