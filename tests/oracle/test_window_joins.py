"""Joins of windows of streams, against a plain model (laws 1 and 8).

Two streams come out of order and at their own pace, with restarts in between.  Every row is late on its side or
accounted for; at the end the join is that of the accounted rows by window, and no state is left.  Where windows
close, no pair was ever taken back.
"""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millpond.pond import Pond
from millpond.sources.memory import EventTimeBound, MemorySource
from millpond.windows import Windows, custom, sessions, sliding, tumbling
from tests.oracle.test_window_steps import SCHEMA, START, Restarted, Row, at, plain
from tests.sampling import first

KINDS = ("inner", "left", "right", "full", "semi", "anti")
GAP = datetime.timedelta(seconds=3)
Bounds = tuple[datetime.datetime, datetime.datetime]


def span(start: float, size: float) -> Bounds:
    return at(start), at(start + size)


def shift(row: Any) -> list[Bounds]:
    """Windows that are on no grid, of different lengths."""
    return [(row.at, row.at + datetime.timedelta(seconds=2 + row.n))]


def tumbled(row: Row) -> list[Bounds]:
    return [span((row["at"] - START).total_seconds() // 5 * 5, 5)]


def slid(row: Row) -> list[Bounds]:
    last = (row["at"] - START).total_seconds() // 3 * 3
    return [span(last - 3, 6), span(last, 6)]


def shifted(row: Row) -> list[Bounds]:
    return [(row["at"], row["at"] + datetime.timedelta(seconds=2 + row["n"]))]


WINDOWS: dict[str, tuple[Windows, Callable[[Row], list[Bounds]]]] = {
    "tumbling": (tumbling("5s"), tumbled),
    "sliding": (sliding("6s", "3s"), slid),
    "custom": (custom(shift), shifted),
    "sessions": (sessions("3s"), lambda row: [(row["at"], row["at"] + GAP)]),
}


class Sessions:
    """The sessions of the accepted rows of both sides; one that both watermarks have passed takes no more."""

    def __init__(self) -> None:
        self.held: dict[str, list[tuple[Bounds, list[Row]]]] = {}
        self.closed: list[tuple[Bounds, list[Row]]] = []

    def add(self, rows: list[Row], passed: datetime.datetime | None) -> None:
        for k, some in self.held.items():
            if passed is not None:
                self.closed += [s for s in some if s[0][1] <= passed]
                self.held[k] = [s for s in some if s[0][1] > passed]
        for row in rows:
            self.held.setdefault(row["k"], []).append(((row["at"], row["at"] + GAP), [row]))
        for k, some in self.held.items():
            found: list[tuple[Bounds, list[Row]]] = []
            for (start, end), mine in sorted(some, key=lambda s: s[0]):
                if found and start < found[-1][0][1]:
                    (begin, reach), before = found[-1]
                    found[-1] = ((begin, max(end, reach)), before + mine)
                else:
                    found.append(((start, end), mine))
            self.held[k] = found

    def pairs(self) -> list[tuple[Row, Bounds]]:
        every = self.closed + [s for some in self.held.values() for s in some]
        return [(row, bounds) for bounds, rows in every for row in rows]


def joined(kind: str, left: list[tuple[Row, Bounds]], right: list[tuple[Row, Bounds]]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    met: Counter[int] = Counter()
    for one, window in left:
        partners = [n for n, (two, w) in enumerate(right) if w == window and two["k"] == one["k"]]
        met.update(partners)
        if kind in ("semi", "anti"):
            found[one["id"], None] += bool(partners) == (kind == "semi")
            continue
        for n in partners:
            found[one["id"], right[n][0]["id"]] += 1
        if not partners and kind in ("left", "full"):
            found[one["id"], None] += 1
    if kind in ("right", "full"):
        found.update((None, two["id"]) for n, (two, _) in enumerate(right) if not met[n])
    return Counter({pair: n for pair, n in found.items() if n})


@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("seed", first(1, range(8)))
def test_joins_of_windows_of_streams(seed: int, name: str, closes: bool, tmp_path: Path) -> None:
    rng = random.Random(f"{seed} {name}")
    lateness = None if closes else rng.choice([None, 2])
    after = datetime.timedelta(seconds=lateness or 0, microseconds=0 if closes else 1)
    windows, windows_of = WINDOWS[name]
    delays = {side: rng.choice([0, 3]) for side in "ab"}
    lags = {side: rng.choice([0, 0, 12]) for side in "ab"}  # how far its rows are behind the other side
    kinds = rng.sample(KINDS, 3)
    sources = {side: MemorySource({"id": int, **SCHEMA}) for side in "ab"}

    def define(pond: Pond) -> None:
        sides = [
            pond.stream(side, sources[side], event_time="at", delay=f"{delays[side]}s")
            .key_by("k")
            .window(windows, on_close=closes, allowed_lateness=lateness)
            for side in "ab"
        ]
        for kind in kinds:
            sides[0].join(sides[1], kind).view(kind)
        for side, windowed in zip("ab", sides, strict=True):
            windowed.late().view(f"late_{side}")

    world = Restarted(tmp_path / "pond", rng, define)
    told: dict[str, list[Row]] = {kind: [] for kind in kinds}
    sent: dict[str, list[Row]] = {side: [] for side in "ab"}
    marks: dict[str, datetime.datetime | None] = dict.fromkeys("ab")
    merged, now, number = Sessions(), 0, 0

    def epoch() -> None:
        since = world.epoch()
        for kind in kinds:
            told[kind] += world.added(kind, since)

    for _ in range(9):
        now += rng.choice([0, 1, 4, 9])
        passed = None if None in marks.values() else min(m for m in marks.values() if m is not None) - after
        fresh: dict[str, list[Row]] = {}
        for side in "ab":
            fresh[side] = [
                {
                    "id": number + n,
                    "k": rng.choice("xy"),
                    "n": rng.randrange(4),
                    "at": at(max(0, now - lags[side] - back)),
                }
                for n, back in enumerate(rng.choices([0, 0.5, 1, 2, 6], k=rng.choice([0, 1, 3])))
            ]
            number += len(fresh[side])
            if fresh[side]:
                sources[side].push(fresh[side])
            sent[side] += fresh[side]
        before = dict(marks)
        epoch()
        taken = []
        for side, rows in fresh.items():
            mark = before[side]
            taken += [r for r in rows if mark is None or r["at"] + GAP > mark - after]
            if rows:
                newest = max(r["at"] for r in rows) - datetime.timedelta(seconds=delays[side])
                marks[side] = newest if mark is None else max(mark, newest)
        merged.add(taken, passed)
    end = (at(10_000) - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    for side in rng.sample("ab", 2):
        sources[side].push(EventTimeBound(end))
        epoch()
    late = {
        side: Counter(
            (r["id"], r["window_start"], r["window_end"]) for r in world.pond.read(f"late_{side}").to_pylist()
        )
        for side in "ab"
    }
    accounted = {}
    for side in "ab":
        if name == "sessions":
            ids = {r["id"] for r in sent[side]}
            accounted[side] = [p for p in merged.pairs() if p[0]["id"] in ids]
            assert {i for i, _, _ in late[side]} == ids - {p[0]["id"] for p in accounted[side]}
        else:
            every = [(row, w) for row in sent[side] for w in windows_of(row)]
            accounted[side] = [(row, w) for row, w in every if (row["id"], *w) not in late[side]]
            assert len(every) == len(accounted[side]) + late[side].total()
    for kind in kinds:
        shown = Counter((r.get("id"), r.get("id_right")) for r in world.pond.read(kind).to_pylist())
        assert shown == joined(kind, accounted["a"], accounted["b"]), kind
        if closes:
            assert plain(told[kind]) == plain(world.pond.read(kind).to_pylist()), f"{kind}: taken back"
    shown = {view.table for view in world.pond.plan.views.values()}
    left = [
        s for s in world.pond.states() if s.rows and s.state != "late" and f"{s.step}/{s.state}" not in shown
    ]
    assert not left, left
    world.pond.close()
