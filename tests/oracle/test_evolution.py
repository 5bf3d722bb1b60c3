"""State over code upgrades, with the Process API: fields come, types change by migration, TTL and lists stay.

The oracle is a plain dict per key that goes on while the code changes.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond import ListState, MapState, Process, ValueState
from millpond.clock import ManualClock
from millpond.errors import InvalidError
from millpond.plan.codec import Unloaded, with_code
from millpond.pond import Pond
from millpond.sources.memory import MemorySource
from tests.sampling import first

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("ts", pa.timestamp("us"))])
OUT = pa.schema([("user", pa.string()), ("n", pa.int64())])
START = datetime(2024, 1, 1)

Make = Callable[..., Pond]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Make]:
    """A pond whose step `step` runs the code given; each call is a new process over the same pond."""
    source = MemorySource(SCHEMA)
    clock = ManualClock()
    ponds: list[Pond] = []

    def make(code: Any, path: str = "pond", **more: Any) -> Pond:
        for pond in ponds:
            pond.close()
        pond = millpond.open(tmp_path / path, engine="inline", clock=clock, **more)
        ponds.append(pond)
        stream = pond.stream("in", source, event_time="ts", delay="0s")
        stream.key_by("user").process(code, schema=OUT, id="step").view("out")
        pond.source, pond.clock = source, clock  # type: ignore[attr-defined]
        return pond

    yield make
    for pond in ponds:
        pond.close()


def feed(pond: Pond, *rows: tuple[str, int], at: float = 0) -> None:
    table = pa.Table.from_pylist(
        [{"user": u, "amount": a, "ts": START + timedelta(seconds=at)} for u, a in rows], schema=SCHEMA
    )
    pond.source.push(table)  # type: ignore[attr-defined]
    pond.drain()


def wait(pond: Pond, **time: int) -> None:
    pond.clock.advance(timedelta(**time) // timedelta(microseconds=1))  # type: ignore[attr-defined]


def last_out(pond: Pond) -> dict[str, int]:
    """The largest n given for each user: these steps only count up."""
    found: dict[str, int] = {}
    for row in pond.read("out").to_pylist():
        found[row["user"]] = max(row["n"], found.get(row["user"], row["n"]))
    return found


def state(pond: Pond, name: str) -> dict[str, Any]:
    return {
        r["user"]: {n: v for n, v in r.items() if n != "user"} for r in pond.state("step", name).to_pylist()
    }


# ---------------------------------------------------------------- a record that gains fields


@dataclass
class Seen1:
    count: int = 0


@dataclass
class Seen2:
    count: int = 0
    largest: int = -1
    tags: list[str] | None = None


@dataclass
class Seen3:
    largest: int = 7  # another default than the one it came with, and `count` is gone
    label: str = "none"


class First(Process):
    seen = ValueState(Seen1)

    def on_row(self, row: Any, ctx: Any) -> Any:
        seen = self.seen.value or Seen1()
        self.seen.value = Seen1(seen.count + 1)
        return {"user": row.user, "n": seen.count + 1}


class Second(Process):
    seen = ValueState(Seen2)

    def on_row(self, row: Any, ctx: Any) -> Any:
        seen = self.seen.value or Seen2()
        self.seen.value = Seen2(seen.count + 1, max(seen.largest, row.amount), ["x"])
        return {"user": row.user, "n": seen.count + 1}


class Third(Process):
    seen = ValueState(Seen3)

    def on_row(self, row: Any, ctx: Any) -> Any:
        seen = self.seen.value or Seen3()
        self.seen.value = Seen3(max(seen.largest, row.amount), seen.label)
        return {"user": row.user, "n": self.seen.value.largest}


@pytest.mark.parametrize("seed", first(1, range(4)))
def test_fields_come_and_go_and_the_state_goes_on(opened: Make, seed: int) -> None:
    draw = random.Random(seed)
    model: dict[str, dict[str, Any]] = {}
    users = [f"u{n}" for n in range(12)]

    def rows() -> list[tuple[str, int]]:
        return [(draw.choice(users), draw.randrange(100)) for _ in range(draw.randrange(1, 8))]

    def check(pond: Pond, *fields: str) -> None:
        wanted = {user: {name: held.get(name) for name in fields} for user, held in model.items()}
        assert state(pond, "seen") == wanted

    def tasks() -> int:
        return draw.randrange(1, 8)

    pond = opened(First(), parallelism=tasks())
    for at in range(3):
        for user, _ in (given := rows()):
            held = model.setdefault(user, {"count": 0})
            held["count"] += 1
        feed(pond, *given, at=at)
    check(pond, "count")
    pond = opened(Second(), parallelism=tasks())
    for held in model.values():
        held |= {"largest": -1, "tags": None}
    for at in range(3, 6):
        for user, amount in (given := rows()):
            held = model.setdefault(user, {"count": 0, "largest": -1})
            held |= {"count": held["count"] + 1, "largest": max(held["largest"], amount), "tags": ["x"]}
        feed(pond, *given, at=at)
        if draw.random() < 0.5:
            pond.compact()
    check(pond, "count", "largest", "tags")
    pond = opened(Third(), parallelism=tasks())
    for held in model.values():
        held |= {"label": "none"}
    for at in range(6, 9):
        for user, amount in (given := rows()):
            held = model.setdefault(user, {"largest": 7, "label": "none"})
            held["largest"] = max(held["largest"], amount)
        feed(pond, *given, at=at)
        if draw.random() < 0.5:
            pond.compact()
    check(pond, "largest", "label")
    with pytest.raises(InvalidError, match="column 'count' was removed before"):
        opened(Second()).drain()


# ---------------------------------------------------------------- a type that changes


class Amounts(Process):
    total = ValueState(int, default=0)
    names = MapState(str, int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.total.value += row.amount
        self.names[f"a{row.amount}"] = self.names.get(f"a{row.amount}", 0) + 1
        return {"user": row.user, "n": int(self.total.value)}


class Cents(Process):
    total = ValueState(float, default=0.0)
    names = MapState(str, int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.total.value += row.amount * 100
        return {"user": row.user, "n": int(self.total.value)}


def test_a_type_change_is_refused_and_a_migration_mends_it(opened: Make) -> None:
    feed(opened(Amounts()), ("ann", 3), ("bob", 4), ("ann", 5))
    pond = opened(Cents())
    with pytest.raises(InvalidError) as caught:
        pond.drain()
    assert (
        caught.value.message
        == "state 'total' of step 'step' cannot continue: column 'total' has another type"
    )
    assert caught.value.detail == "int64 in the pond, double in this pipeline"
    assert "pond.migrate('step', fn, state='total')" in (caught.value.hint or "")
    assert pond.migrate("step", lambda row: {"total": row["total"] * 100.0}, state="total") == 2
    feed(pond, ("ann", 1))
    assert state(pond, "total") == {"ann": {"total": 900.0}, "bob": {"total": 400.0}}
    assert {(r["user"], r["entry"]): r["names"] for r in pond.state("step", "names").to_pylist()} == {
        ("ann", "a3"): 1,
        ("ann", "a5"): 1,
        ("bob", "a4"): 1,
    }


# ---------------------------------------------------------------- bootstrap, and what lives for a time


class Living(Process):
    total = ValueState(int, default=0, ttl="1h", clock="processing")
    recent = ListState(int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.total.value += row.amount
        self.recent.append(row.amount)
        return {"user": row.user, "n": self.total.value}


def test_bootstrap_then_run_then_export(opened: Make, tmp_path: Path) -> None:
    pond = opened(Living())
    rows = [{"user": f"u{n}", "total": n} for n in range(100)]
    assert pond.bootstrap("step", "total", rows) == 100
    listed = [{"user": "u1", "position": p, "recent": p * 10} for p in range(3)]
    assert pond.bootstrap("step", "recent", listed) == 3
    feed(pond, ("u1", 41))
    assert last_out(pond) == {"u1": 42}
    kept = sorted((r["position"], r["recent"]) for r in pond.state("step", "recent").to_pylist())
    assert kept == [(0, 0), (1, 10), (2, 20), (3, 41)]
    assert pond.export("step", "total", tmp_path / "total.parquet") == 100
    found = {r["user"]: r["total"] for r in pq.read_table(tmp_path / "total.parquet").to_pylist()}
    assert found == {f"u{n}": n for n in range(100)} | {"u1": 42}


def test_what_was_bootstrapped_ends_with_its_time_to_live(opened: Make) -> None:
    pond = opened(Living())
    pond.bootstrap("step", "total", [{"user": "ann", "total": 5}, {"user": "bob", "total": 6}])
    wait(pond, minutes=40)
    feed(pond, ("ann", 1))
    assert state(pond, "total") == {"ann": {"total": 6}, "bob": {"total": 6}}
    wait(pond, minutes=40)
    feed(pond, ("eve", 1))
    assert state(pond, "total") == {"ann": {"total": 6}, "eve": {"total": 1}}
    wait(pond, hours=3)
    pond.drain()
    pond.compact()
    assert state(pond, "total") == {}
    with pond._reader.pinned() as snapshot:  # and the rows themselves are gone
        assert not [r for r in snapshot.listing.all() if r.table.startswith("step/t")]
    feed(pond, ("ann", 1))
    assert state(pond, "total") == {"ann": {"total": 1}}


def test_what_was_migrated_ends_when_it_would_have(opened: Make) -> None:
    """Also under another key: what says when rows end is written anew with them."""
    pond = opened(Living())
    feed(pond, ("ann", 1), ("bob", 2))
    wait(pond, minutes=30)
    feed(pond, ("bob", 2))
    pond.migrate("step", lambda row: {"user": row["user"] + "a", "total": 9}, state="total")
    wait(pond, minutes=40)
    feed(pond, ("eve", 1))
    assert state(pond, "total") == {"boba": {"total": 9}, "eve": {"total": 1}}
    wait(pond, hours=3)
    pond.drain()
    pond.compact()
    assert state(pond, "total") == {}
    with pond._reader.pinned() as snapshot:
        assert not [r for r in snapshot.listing.all() if r.table.startswith("step/t")]


def test_when_it_ends_may_be_given(opened: Make) -> None:
    pond = opened(Living())
    now = datetime(1970, 1, 1) + timedelta(microseconds=pond.clock.now_us())  # type: ignore[attr-defined]
    rows = [{"user": "ann", "total": 5, "expires": now + timedelta(minutes=5)}]
    pond.bootstrap("step", "total", rows)
    feed(pond, ("bob", 1))
    assert set(state(pond, "total")) == {"ann", "bob"}
    wait(pond, minutes=6)
    feed(pond, ("ann", 1))
    assert state(pond, "total")["ann"] == {"total": 1}


class ByEventTime(Process):
    total = ValueState(int, default=0, ttl="1h", clock="event")

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.total.value += row.amount
        return {"user": row.user, "n": self.total.value}


def test_by_event_time_it_lives_from_the_watermark_on(opened: Make) -> None:
    pond = opened(ByEventTime())
    with pytest.raises(InvalidError, match="the expiry of rows of state 'total' is not known yet"):
        pond.bootstrap("step", "total", [{"user": "ann", "total": 5}])
    feed(pond, ("bob", 1))
    feed(pond, ("bob", 1))
    pond.bootstrap("step", "total", [{"user": "ann", "total": 5}], replace=True)
    feed(pond, ("eve", 1), at=60)
    assert set(state(pond, "total")) == {"ann", "eve"}
    feed(pond, ("eve", 1), at=3 * 3600)
    feed(pond, ("eve", 1), at=3 * 3600 + 1)
    assert set(state(pond, "total")) == {"eve"}


class Mortal(Process):
    """`Amounts` with a time to live, which its rows were written without."""

    total = ValueState(int, default=0, ttl="1h", clock="processing")
    names = MapState(str, int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.total.value += row.amount
        return {"user": row.user, "n": self.total.value}


def test_a_time_to_live_may_come_and_go(opened: Make) -> None:
    feed(opened(Amounts()), ("ann", 3), ("bob", 4))
    pond = opened(Mortal())
    feed(pond, ("ann", 1))
    assert state(pond, "total") == {"ann": {"total": 4}, "bob": {"total": 4}}
    wait(pond, hours=3)
    feed(pond, ("bob", 1))
    assert state(pond, "total") == {"bob": {"total": 5}}
    pond = opened(Amounts())
    feed(pond, ("bob", 1))
    assert state(pond, "total")["bob"] == {"total": 6}


# ---------------------------------------------------------------- untyped values


class Models(Process):
    model = ValueState()

    def on_row(self, row: Any, ctx: Any) -> Any:
        held = self.model.value or {"n": 0}
        self.model.value = {**held, "n": held["n"] + row.amount}
        return {"user": row.user, "n": self.model.value["n"]}


def test_untyped_values_are_migrated_as_what_they_are(opened: Make) -> None:
    feed(opened(Models()), ("ann", 3), ("bob", 4))
    pond = opened(Models())
    pond.migrate("step", lambda row: {"model": {**row["model"], "v": 2, "n": row["model"]["n"] * 10}})
    feed(pond, ("ann", 1))
    found = {r["user"]: r["model"] for r in pond.state_rows("step", "model")}
    assert found == {"ann": {"n": 31, "v": 2}, "bob": {"n": 40, "v": 2}}
    assert "'v': 2" in state_text(pond)["ann"]


def state_text(pond: Pond) -> dict[str, str]:
    return {r["user"]: r["model"] for r in pond.state("step", "model", unpickle=True).to_pylist()}


# ---------------------------------------------------------------- code that moved


MODULE = """
from millpond import Process, ValueState

class {name}(Process):
    total = ValueState(int, default=0)

    def on_row(self, row, ctx):
        self.total.value += row.amount
        return {{"user": row.user, "n": self.total.value}}
"""


def test_a_class_may_be_renamed(opened: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog names the class that is gone: the pond is read, and upgraded, without it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "renamed_code.py").write_text(MODULE.format(name="Before"))
    module = importlib.import_module("renamed_code")
    feed(opened(module.Before()), ("ann", 3))
    (tmp_path / "renamed_code.py").write_text(MODULE.format(name="After") + "# other\n")
    importlib.invalidate_caches()
    del module.Before
    importlib.reload(module)
    reader = millpond.open(tmp_path / "pond", engine="inline")
    step: Any = with_code(reader.plan).nodes["step"].operator
    assert isinstance(step.code.target, Unloaded)
    assert reader.read("out").to_pylist() == [{"user": "ann", "n": 3}]
    assert state(reader, "total") == {"ann": {"total": 3}}
    reader.close()
    pond = opened(module.After())
    feed(pond, ("ann", 4))
    assert state(pond, "total") == {"ann": {"total": 7}}


# ---------------------------------------------------------------- a view that is the step's own table


def shown(pond: Pond, schema: dict[str, type]) -> None:
    """The newest row of each user, with whatever columns the code of the day gives."""

    def newest(row: Any, n: Any = ValueState(int, default=0)) -> Any:
        n.value += row.amount
        return {"n": n.value, "twice": 2 * n.value} if "twice" in schema else {"n": n.value}

    stream = pond.stream("in", pond.source, event_time="ts", delay="0s")  # type: ignore[attr-defined]
    stream.key_by("user").process(newest, schema=schema, latest=True, id="step").view("newest")


def test_a_view_gains_a_column_and_its_feed_goes_on(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)

    def at(schema: dict[str, type]) -> Pond:
        pond = millpond.open(tmp_path / "pond", engine="inline")
        pond.source = source  # type: ignore[attr-defined]
        shown(pond, schema)
        return pond

    pond = at({"n": int})
    feed(pond, ("ann", 1), ("bob", 2))
    first = pond.epoch
    pond.close()
    pond = at({"n": int, "twice": int})
    feed(pond, ("ann", 3))
    assert sorted(pond.read("newest").to_pylist(), key=lambda r: r["user"]) == [
        {"user": "ann", "n": 4, "twice": 8},
        {"user": "bob", "n": 2, "twice": None},
    ]
    wanted = [
        {"user": "ann", "n": 1, "twice": None, "_w": -1},
        {"user": "ann", "n": 4, "twice": 8, "_w": 1},
    ]
    assert sorted(pond.diff("newest", first, pond.epoch).to_pylist(), key=lambda r: r["_w"]) == wanted
    fed = [row for delta in pond.changes("newest", first) for row in delta.table.to_pylist()]
    assert sorted(fed, key=lambda r: r["_w"]) == wanted
    assert pond.lookup("newest", "bob").to_pylist() == [{"user": "bob", "n": 2, "twice": None}]
    whole = pond.diff("newest", 0, pond.epoch)
    assert sorted((r["user"], r["twice"], r["_w"]) for r in whole.to_pylist() if r["user"] == "ann") == [
        ("ann", 8, 1)
    ]
    pond.close()
