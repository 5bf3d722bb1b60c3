"""A pond with one step that plays programs, disturbed as told, and compared with the model at every epoch."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import strategies as st

import millpond
from millpond.clock import ManualClock
from millpond.pond import Pond
from millpond.process import handle
from millpond.sources.memory import EventTimeBound, MemorySource
from tests.oracle.process_model import (
    CLOCK_START,
    EPOCH,
    OUT,
    SECOND,
    SIDE,
    START,
    US,
    VALUES,
    Collections,
    Inner,
    Living,
    LivingUntimed,
    Model,
    Plays,
    Point,
    Timed,
    Values,
    told,
)
from tests.oracle.world import AtOnce

ROW = pa.schema(
    [
        ("ts", pa.timestamp("us")),
        ("id", pa.int64()),
        ("program", pa.string()),
        ("ki", pa.int64()),
        ("ks", pa.string()),
        ("kf", pa.float64()),
        ("kb", pa.bool_()),
        ("kt", pa.timestamp("us")),
        ("kd", pa.decimal128(38, 9)),
        ("ky", pa.binary()),
    ]
)
KEYS: dict[str, list[Any]] = {
    "ki": [0, 1, -5, None],
    "ks": ["a", "", "é and a longer one", None],
    "kf": [0.0, 1.5, float("inf"), None],
    "kb": [True, False, None, True],
    "kt": [START, START + US, None, datetime.datetime(1969, 1, 1)],
    "kd": [Decimal("1.5"), Decimal("-2"), Decimal("0"), None],
    "ky": [b"", b"\0", b"long enough to be elsewhere", None],
}
KEYED_BY = [
    ("ki",),
    ("ks",),
    ("kf",),
    ("kb",),
    ("kt",),
    ("kd",),
    ("ky",),
    ("ks", "ki"),
    ("kb", "kt", "ks"),
    (),
]


class World:
    """See the module's text.  A row is (key number, seconds since the last row, program)."""

    def __init__(
        self,
        folder: Path,
        kind: type[Plays],
        key: Sequence[str] = ("ks",),
        *,
        event_time: bool = True,
        delay_s: int = 0,
        parallelism: int = 1,
        engine: Any = "inline",
        near: int = handle.FETCHED_PER_KEY,
        page: int = handle.FETCHED_PER_LOOKUP,
        **options: Any,
    ) -> None:
        self.folder, self.kind, self.key, self.event_time, self.delay_s = (
            folder,
            kind,
            key,
            event_time,
            delay_s,
        )
        self.options = {"engine": engine, "durable": False, "checks": True, **options}
        self.source = MemorySource(ROW)
        self.clock = ManualClock(CLOCK_START)
        self.model = Model(kind, key, timed=event_time, delay_us=delay_s * SECOND)
        self.at = START
        self.ids = 0
        self.forks = 0
        self.told = self.checked = -1
        self.nows: dict[int, int] = {}
        self.ran: set[int] = set()  # epochs in which steps were called
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(mock.patch.object(handle, "FETCHED_PER_KEY", near))
        self._stack.enter_context(mock.patch.object(handle, "FETCHED_PER_LOOKUP", page))
        self.pond: Pond = self._open(parallelism)

    def _open(self, parallelism: int | None) -> Pond:
        pond = millpond.open(
            self.folder, parallelism=parallelism, clock=self.clock, on_epoch=self._committed, **self.options
        )
        times: dict[str, Any] = {"event_time": "ts", "delay": f"{self.delay_s}s"} if self.event_time else {}
        stream = pond.stream("in", self.source, **times)
        made = stream.key_by(*self.key).process(self.kind, OUT, sides={"side": SIDE}, id="plays")
        made.view("out")
        made.side("side").view("side")
        with mock.patch("millpond.engine.coordinator.runner.ThreadPoolExecutor", AtOnce):
            pond._execution.boot()
        return pond

    def _committed(self, manifest: Any) -> None:
        if manifest.epoch > self.told:
            self.model.commit(manifest, self.source.items, "in")
            self.nows[manifest.epoch] = manifest.now_us
            if "tasks" in manifest.metrics:
                self.ran.add(manifest.epoch)
            self.told = manifest.epoch

    def close(self) -> None:
        self.pond.close()
        self._stack.close()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- what happens --------------------------------------------------------------------

    def rows(self, rows: Sequence[tuple[int, float, Any]]) -> list[dict[str, Any]]:
        found = []
        for number, seconds, program in rows:
            self.at += datetime.timedelta(seconds=seconds)
            self.ids += 1
            keys = {name: values[number] for name, values in KEYS.items()}
            found.append({"ts": self.at, "id": self.ids, "program": json.dumps(program), **keys})
        return found

    def push(self, rows: Sequence[tuple[int, float, Any]], splits: int = 1) -> None:
        found = self.rows(rows)
        size = max(1, -(-len(found) // splits))
        self.source.push(*(found[n : n + size] for n in range(0, len(found), size)))

    def disturb(self, what: str, n: int) -> None:
        if what == "restart":
            self.pond.close()
            self.pond = self._open(n % 7 + 1 if n % 2 else None)
        elif what == "rescale":
            self.pond.rescale(n % 7 + 1)
        elif what == "compact":
            self.pond.compact()
        elif what == "roll back" and self.told >= 2:
            self.pond.rollback(n % (self.told + 1))
        elif what == "fork":
            target = n % (self.told + 1)
            self.forks += 1
            folder = self.folder.with_name(f"{self.folder.name}-{self.forks}")
            assert self.pond.fork(folder, epoch=target) == target
            self.pond.close()
            self.folder = folder
            self.model.worlds = {0: self.model.worlds[target]}
            self.nows = {0: self.nows[target]}
            self.ran = set()
            self.told = self.checked = 0
            self.pond = self._open(None)
        elif what == "bound" and self.event_time:
            at = (self.at - EPOCH) // US + (n % 12) * SECOND
            self.source.push(EventTimeBound(at))

    def drain(self) -> None:
        self.pond.drain()
        self.check()

    # -- what must hold ------------------------------------------------------------------

    def check(self) -> None:
        assert self.told == self.pond.head().epoch
        for epoch in range(self.checked + 1, self.told + 1):
            self._check(epoch)
        self.checked = self.told

    def _check(self, epoch: int) -> None:
        world = self.model.worlds[epoch]
        got = Counter((r["id"], r["seen"]) for r in self.pond.read("out", epoch=epoch).to_pylist())
        assert got == world.out, _differ("output", epoch, got, world.out)
        side = Counter(self.pond.read("side", epoch=epoch)["x"].to_pylist())
        assert side == world.side, _differ("side output", epoch, side, world.side)
        errors = self.pond.errors(epoch=epoch).to_pylist()
        failed = Counter(_failed(r) for r in errors for _ in range(r["weight"]))
        assert failed == world.failed, _differ("errors", epoch, failed, world.failed)
        for name, spec in self.model.specs.items():
            want = self.model.stored(epoch, name, self.nows[epoch])
            held = self._stored(name, spec.kind, epoch)
            assert held == want, _differ(f"state {name!r}", epoch, held, want)
            if spec.ttl is not None and epoch in self.ran and epoch - 1 in self.model.worlds:
                before = self.model.worlds[epoch - 1].bound  # what began and ended since waits for the next
                self._check_swept(name, epoch, before if spec.clock == "event" else self.nows[epoch])
        if self.model.fires:
            timers = Counter(
                (told(tuple(r[k] for k in self.key)), r["timer"], (r["at"] - EPOCH) // US)
                for r in self.pond.state_rows("plays", "timers", epoch=epoch)
            )
            assert timers == self.model.timers(epoch), _differ(
                "timers", epoch, timers, self.model.timers(epoch)
            )

    def _check_swept(self, name: str, epoch: int, over: int) -> None:
        """What ended in seconds that are wholly over does not lie around."""
        plan = self.pond.plan
        spec = next(t for t in plan.nodes["plays"].binding.tables if t.name == f"plays/{name}")
        with self.pond._reader.pinned(epoch) as snapshot:
            ends = snapshot.table(spec).scan().column("expires").to_pylist()
        left = [end for end in ends if (end - EPOCH) // US // SECOND < over // SECOND]
        assert not left, f"state {name!r} at epoch {epoch} still holds what ended at {left}, it is {over}"

    def _stored(self, name: str, kind: str, epoch: int) -> Counter[tuple[Any, ...]]:
        found: Counter[tuple[Any, ...]] = Counter()
        lengths: Counter[str] = Counter()
        rows = self.pond.state_rows("plays", name, epoch=epoch)
        for row in sorted(rows, key=lambda r: r["position"]) if kind == "list" else rows:
            of = told(tuple(row[k] for k in self.key))
            place = lengths[of] if kind == "list" else row.get("entry")
            lengths[of] += 1
            value = _point(row) if "inner" in row else row[name]
            found[of, told(place), told(value)] += 1
        return found


def _point(row: dict[str, Any]) -> Point:
    return Point(row["x"], row["name"], Inner(**row["inner"]), row["many"])


def _failed(row: dict[str, Any]) -> tuple[Any, ...]:
    assert row["step"] == "plays"
    reason = row["reason"]
    if reason.startswith("timer "):
        assert "ValueError: as told (process_model.py:" in reason
        return "timer", reason.split("'")[1]
    assert "(process_model.py:" in reason, reason
    return "row", json.loads(row["row"])["id"]


def _differ(what: str, epoch: int, got: Counter[Any], want: Counter[Any]) -> str:
    return f"{what} at epoch {epoch}: has too much {dict(got - want)}, lacks {dict(want - got)}"


# ---------------------------------------------------------------- random programs


def _op(name: str, verb: str, *args: Any) -> st.SearchStrategy[list[Any]]:
    return st.tuples(*(a if isinstance(a, st.SearchStrategy) else st.just(a) for a in args)).map(
        lambda given: [name, verb, *given]
    )


SOON = [0.0, 0.0, 0.25, 1.0, 2.5, -1.5, 4.0]
FAR = [0.0, 0.0004, 0.03, 0.5, 2.0, 3.0, 40.0, 250.0, 1000.0, 20_000.0, -1.0]  # every width of bucket
SMALL = st.integers(0, 9)
ENTRIES = st.sampled_from(["e000", "e001", "e004", "e007", "x"])
NUMBERS = st.sampled_from([0, 1, 2, 40])


def _value(name: str) -> st.SearchStrategy[list[Any]]:
    some = [_op(name, "get"), _op(name, "clear")]
    if name in VALUES:
        some += [_op(name, "set", st.integers(0, len(VALUES[name]) - 1)), _op(name, "mutate")]
        if isinstance(VALUES[name][0], int) and not isinstance(VALUES[name][0], bool):
            some.append(_op(name, "increase"))
    else:
        some.append(_op(name, "add", SMALL))
        some.append(_op(name, "add", SMALL))
    return st.one_of(some)


def _list(name: str, item: st.SearchStrategy[list[Any]] | None = None) -> st.SearchStrategy[list[Any]]:
    adding = [_op(name, "append", SMALL), _op(name, "extend", SMALL, st.sampled_from([2, 5, 40]))]
    return st.one_of(
        *([item] if item is not None else adding),
        *(_op(name, verb) for verb in ("all", "len", "bool", "clear")),
        _op(name, "last", st.integers(-1, 12)),
        _op(name, "keep", st.integers(0, 12)),
        _op(name, "at", st.integers(-8, 8)),
    )


def _map(name: str, *, read: bool = False) -> st.SearchStrategy[list[Any]]:
    return st.one_of(
        *(_op(name, verb, ENTRIES) for verb in ("get", "default", "remove", "in", "at")),
        _op(name, "put", ENTRIES, SMALL),
        _op(name, "fill", st.sampled_from([3, 8, 40])),
        *(_op(name, verb) for verb in ("items", "len", "keys", "values", "clear")),
        *([] if read else [_op(name, "bool")]),
    )


def _growing() -> st.SearchStrategy[list[Any]]:
    return st.one_of(
        _op("g", "grow", NUMBERS), _op("g", "remove", NUMBERS), _op("g", "get", NUMBERS), _op("g", "items")
    )


CLOCKS = st.sampled_from(["event", "processing"])
TIMERS = ("plain", "count", "chain", "past", "again", "drop", "fail")


def _timer(names: Sequence[str]) -> st.SearchStrategy[list[Any]]:
    name = st.sampled_from(names)
    return st.one_of(
        _op("ctx", "after", name, CLOCKS, st.sampled_from([0.0, 0.0005, 1.0, 3.0, 70.0, -2.0])),
        _op("ctx", "after", name, CLOCKS, st.sampled_from(FAR)),
        _op("ctx", "at", name, CLOCKS, st.sampled_from([-5.0, 0.0, 2.0, 6.0, 9.5, 300.0])),
        _op("ctx", "delete", name, CLOCKS),
        _op("ctx", "timer", name, CLOCKS),
    )


SAID = st.one_of(
    *(_op("ctx", verb) for verb in ("time", "watermark", "now", "key")), _op("ctx", "emit", SMALL)
)
BAD = st.sampled_from(["fail", "fail", "misfit", "misfit side", "no side"]).map(lambda verb: ["ctx", verb])

OPS: dict[type[Plays], dict[str, st.SearchStrategy[list[Any]]]] = {
    Values: {n: _value(n) for n in ("n", "f", "s", "b", "t", "d", "y", "r", "o", "top", "mean", "many")},
    Collections: {
        "l": _list("l"),
        "q": _list("q", _op("q", "points", SMALL)),
        "m": _map("m"),
        "g": _growing(),
    },
    Timed: {"timers": _timer(TIMERS), "again": _timer(TIMERS), "n": _value("n"), "l": _list("l")},
    Living: {
        **{name: _value(name) for name in ("e", "er", "p", "pr", "es")},
        **{name: _list(name) for name in ("le", "lp")},
        **{name: _map(name, read=name != "me") for name in ("me", "mr", "mp")},
        "timers": _timer(("plain", "living")),
    },
    LivingUntimed: {"e": _value("e"), "le": _list("le"), "me": _map("me")},
}


def programs(kind: type[Plays], focus: Sequence[str] | None = None) -> st.SearchStrategy[list[Any]]:
    """Mostly good ones; some fail after what they did."""
    ops = [OPS[kind][name] for name in focus or OPS[kind]]
    good = st.lists(st.one_of(*ops, *ops, *ops, SAID), min_size=1, max_size=6)
    bad = st.tuples(good, BAD).map(lambda both: [*both[0], both[1]])
    return st.one_of(good, good, good, good, bad)


WHATS = ("restart", "rescale", "compact", "roll back", "fork")


@st.composite
def histories(draw: st.DrawFn, kind: type[Plays], steps: int = 6, rows_min: int = 0) -> list[Any]:
    """Steps of a pond: rows, splits, how far the clock goes on, and what else happens; about a few states."""
    names = st.sampled_from(sorted(OPS[kind]))
    focus = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    if kind is Timed:
        focus = sorted({*focus, "timers"})
    seconds = FAR if kind is Timed else SOON
    row = st.tuples(st.sampled_from([0, 0, 0, 1, 2, 3]), st.sampled_from(seconds), programs(kind, focus))
    what = st.sampled_from(["", "", "bound", *WHATS])
    clock = st.sampled_from([0, 0, *(int(s * SECOND) for s in seconds if s >= 0)])
    step = st.tuples(
        st.lists(row, min_size=rows_min, max_size=8), st.integers(1, 3), clock, what, st.integers(0, 50)
    )
    return draw(st.lists(step, min_size=steps if rows_min else 1, max_size=steps))


def settings_of(kind: type[Plays]) -> st.SearchStrategy[dict[str, Any]]:
    needs_time = kind in (Timed, Living, LivingUntimed)
    return st.fixed_dictionaries(
        {
            "key": st.sampled_from(KEYED_BY),
            "event_time": st.just(True) if needs_time else st.booleans(),
            "delay_s": st.sampled_from([0, 2]),
            "parallelism": st.integers(1, 7),
            "near": st.sampled_from([1, 2, 3, 32]),
            "page": st.sampled_from([2, 4096]),
            "fan_in": st.sampled_from([2, 6]),
            "vectorize_user_code": st.booleans(),
        }
    )


def run(world: World, history: Sequence[Any]) -> None:
    for rows, splits, clock, what, n in history:
        world.clock.advance(clock)
        world.disturb(what, n)
        world.push(rows, splits)
        world.drain()
