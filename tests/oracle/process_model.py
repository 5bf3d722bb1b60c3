"""Small programs of state operations, and what they must come to: a dict per key is the oracle.

A row carries a program, a list of operations.  `Plays` and its kinds are process
steps that play the programs of their rows on their states; `Model` plays the
same programs on plain dicts and lists, one key after the other, with times
written out.  The time of a key is as documented: its rows in an epoch come in
the order of (event time, origin); event-time timers up to a row's time (as far
as the watermark has come) fire before it; timers of the clock fire first; what
is set late fires after the rows.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond import AggregatingState, ListState, MapState, Process, ReducingState, ValueState

START = datetime.datetime(2024, 3, 1)
EPOCH = datetime.datetime(1970, 1, 1)
EPOCH_UTC = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
US = datetime.timedelta(microseconds=1)
SECOND = 1_000_000
NEVER = -(2**62)

OUT = {"id": int, "seen": str}
SIDE = {"x": int}


@dataclass
class Inner:
    a: int
    b: str | None


@dataclass
class Point:
    x: int
    name: str
    inner: Inner
    many: list[int]


def point(n: int) -> Point:
    return Point(n, f"p{n}", Inner(n + 1, None if n % 2 else "b"), [n] * (n % 3))


# What programs may set, by state; an operation names a value by its place, so that a program is JSON.
VALUES: Mapping[str, Sequence[Any]] = {
    "n": [0, 1, -7, 2**62, None],
    "f": [0.0, -1.5, 1e300, float("inf"), None],
    "s": ["", "a", "é\0\n", "a longer string than twelve bytes", None],
    "b": [True, False, None],
    "t": [START, START + datetime.timedelta(microseconds=1), datetime.datetime(1901, 2, 3), None],
    "d": [Decimal("0"), Decimal("-1.25"), Decimal("123456789.000000001"), None],
    "y": [b"", b"\0x", b"abc", None],
    "r": [point(0), point(1), point(2), None],
    "o": [[1], {"k": {2}}, (3, "x"), None],
    "e": [1, 2, 3, None],
    "er": [1, 2, 3, None],
    "p": [1, 2, 3, None],
    "pr": [[1], [2], None],
}


def pair() -> list[int]:
    return [0, 0]


def take_in(pair: list[int], item: int) -> list[int]:
    return [pair[0] + item, pair[1] + 1]


def take_in_place(names: list[int], item: int) -> list[int]:
    names.append(item)
    return names


def mean(pair: list[int]) -> float:
    return pair[0] / pair[1]


# ---------------------------------------------------------------- the programs


def play(states: Any, ctx: Any, program: Sequence[Sequence[Any]]) -> list[Any]:
    """Do the operations one after the other; what they gave."""
    seen: list[Any] = []
    for name, verb, *args in program:
        if name == "ctx":
            seen.append(CONTROL[verb](ctx, *args))
            continue
        state = getattr(states, name)
        value = copy.deepcopy(VALUES[name][args[0]]) if verb == "set" else None
        seen.append(VERBS[verb](state, value) if verb == "set" else VERBS[verb](state, *args))
    return seen


def _set(state: Any, value: Any) -> None:
    state.value = value


def _add(state: Any, n: int) -> None:
    state.add(n)


def _mutate(state: Any) -> Any:
    """Change what is held, without setting it."""
    value = state.value
    if isinstance(value, list):
        value.append(len(value))
    elif isinstance(value, dict):
        value[len(value)] = "new"
    elif isinstance(value, Point):
        value.x += 1
        value.many.append(value.x)
        value.inner.b = "changed"
    return copy.deepcopy(value)


def _increase(state: Any) -> Any:
    state.value = (state.value or 0) % 1000 + 1
    return state.value


def _grow(state: Any, entry: Any) -> Any:
    found = state.get(entry)
    if found is None:
        state.put(entry, [0])
    else:
        found.append(len(found))
    return copy.deepcopy(state[entry])


def _at(state: Any, which: int) -> Any:
    try:
        return state[which]
    except (IndexError, KeyError) as error:
        return type(error).__name__


VERBS: Mapping[str, Callable[..., Any]] = {
    "set": _set,
    "get": lambda state, *entry: copy.deepcopy(state.get(*entry) if entry else state.value),
    "clear": lambda state: state.clear(),
    "mutate": _mutate,
    "increase": _increase,
    "add": _add,
    "append": lambda state, n: state.append(n),
    "extend": lambda state, start, count: state.extend(range(start, start + count)),
    "points": lambda state, n: state.extend([point(n), point(n + 1)]),
    "last": lambda state, n: list(state.last(n)),
    "keep": lambda state, n: state.keep(n),
    "all": lambda state: list(state),
    "len": len,
    "bool": bool,
    "at": _at,
    "put": lambda state, entry, n: state.put(entry, n),
    "default": lambda state, entry: state.get(entry, -1),
    "remove": lambda state, entry: state.remove(entry),
    "in": lambda state, entry: entry in state,
    "items": lambda state: sorted(state.items()),
    "keys": lambda state: sorted(state),
    "values": lambda state: sorted(told(v) for v in state.values()),
    "fill": lambda state, count: [state.put(f"e{n:03}", n) for n in range(count)] and None,
    "grow": _grow,
}


def _fail(ctx: Any) -> None:
    raise ValueError("as told")


CONTROL: Mapping[str, Callable[..., Any]] = {
    "time": lambda ctx: ctx.time,
    "watermark": lambda ctx: ctx.watermark,
    "now": lambda ctx: ctx.now,
    "key": lambda ctx: tuple(ctx.key),
    "at": lambda ctx, name, clock, seconds: ctx.set_timer(name, _absolute(clock, seconds), clock=clock),
    "after": lambda ctx, name, clock, seconds: ctx.set_timer(name, after=seconds, clock=clock),
    "delete": lambda ctx, name, clock: ctx.delete_timer(name, clock=clock),
    "timer": lambda ctx, name, clock: ctx.timer(name, clock=clock),
    "emit": lambda ctx, n: ctx.emit("side", {"x": n}),
    "fail": _fail,
    "misfit": lambda ctx: None,  # then the row given does not fit
    "misfit side": lambda ctx: ctx.emit("side", {"x": "text"}),
    "no side": lambda ctx: ctx.emit("nowhere", {"x": 1}),
}
CLOCK_START = 1_000_000 * SECOND


def _absolute(clock: str, seconds: float) -> int:
    start = CLOCK_START if clock == "processing" else (START - EPOCH) // US
    return start + int(seconds * SECOND)


# What a timer of a name does when it fires.
ON_TIMER: Mapping[str, Sequence[Sequence[Any]]] = {
    "plain": [],
    "count": [["n", "increase"], ["l", "append", 7], ["l", "len"]],
    "chain": [["ctx", "after", "plain", "event", 2.0], ["ctx", "after", "plain", "processing", 2.0]],
    "past": [["ctx", "after", "plain", "event", -5.0], ["ctx", "after", "plain", "processing", -5.0]],
    "again": [["ctx", "after", "again", "event", 40.0]],
    "drop": [["ctx", "delete", "plain", "event"], ["ctx", "delete", "count", "processing"]],
    "fail": [["n", "increase"], ["l", "append", 8], ["ctx", "after", "plain", "event", 1.0], ["ctx", "fail"]],
    "living": [["e", "get"], ["p", "get"], ["le", "len"], ["me", "len"], ["ctx", "watermark"]],
}


def told(value: Any) -> str:
    """A value as text, the same for equal values."""
    if isinstance(value, Decimal):
        return f"Decimal {value.normalize():f}"
    if isinstance(value, bool | None | str | bytes | datetime.datetime):
        return repr(value)
    if isinstance(value, int | float):
        return repr(float(value)) if abs(value) < 2**53 else repr(value)
    if dataclasses.is_dataclass(value):
        return f"{type(value).__name__}({', '.join(told(v) for v in vars(value).values())})"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(told, value))})"
    return repr(value)


# ---------------------------------------------------------------- the steps


class Plays(Process):
    """Plays the program of each row."""

    def on_row(self, row: Any, ctx: Any) -> Iterator[Any]:
        program = json.loads(row.program)
        yield {"id": row.id, "seen": told(play(self, ctx, program))}
        if ["ctx", "misfit"] in program:
            yield {"id": "text", "seen": "x"}


class Values(Plays):
    n = ValueState(int, default=5)
    f = ValueState(float)
    s = ValueState(str, default="-")
    b = ValueState(bool)
    t = ValueState(datetime.datetime)
    d = ValueState(Decimal, default=Decimal("1.5"))
    y = ValueState(bytes)
    r = ValueState(Point)
    o = ValueState(default=list)
    top = ReducingState(max, int)
    mean = AggregatingState(pair, take_in, mean, list[int])
    many = AggregatingState(list, take_in_place, len)


class Collections(Plays):
    l = ListState(int)  # noqa: E741
    q = ListState(Point)
    m = MapState(str, int)
    g = MapState(int)


class Timed(Plays):
    n = ValueState(int, default=5)
    l = ListState(int)  # noqa: E741

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        seen = play(self, ctx, ON_TIMER[timer.name])
        return {"id": -1, "seen": told([tuple(ctx.key), timer.name, timer.clock, timer.at, ctx.time, seen])}


class Living(Timed):
    n = ValueState(int, default=5)
    l = ListState(int)  # noqa: E741
    e = ValueState(int, ttl="4s", clock="event")
    er = ValueState(int, ttl="4s", clock="event", reset="read")
    p = ValueState(int, default=9, ttl="4s", clock="processing")
    pr = ValueState(default=list, ttl="4s", clock="processing", reset="read")
    es = ReducingState(max, int, ttl="4s", clock="event")
    le = ListState(int, ttl="4s", clock="event")
    lp = ListState(int, ttl="4s", clock="processing")
    me = MapState(str, int, ttl="4s", clock="event")
    mr = MapState(str, int, ttl="4s", clock="event", reset="read")
    mp = MapState(str, ttl="4s", clock="processing", reset="read")


class LivingUntimed(Plays):
    """Time to live in a step without timers, which has a loop of its own."""

    e = ValueState(int, ttl="4s", clock="event")
    le = ListState(int, ttl="4s", clock="event")
    me = MapState(str, int, ttl="4s", clock="event")


# ---------------------------------------------------------------- the model


@dataclass(frozen=True)
class Spec:
    """A state as the model knows it."""

    kind: str
    default: Any = None
    make: Callable[[], Any] | None = None
    adds: tuple[Callable[[], Any] | None, Callable[..., Any], Callable[[Any], Any] | None] | None = None
    ttl: int | None = None
    clock: str = "event"
    on_read: bool = False


_VALUE, _LIST, _MAP, _FOUR = Spec("value"), Spec("list"), Spec("map"), 4 * SECOND
_EVENT: dict[str, Any] = {"ttl": _FOUR, "clock": "event"}
_PROCESSING: dict[str, Any] = {"ttl": _FOUR, "clock": "processing"}
SPECS: Mapping[type[Plays], Mapping[str, Spec]] = {
    Values: {
        "n": Spec("value", 5),
        "f": _VALUE,
        "s": Spec("value", "-"),
        "b": _VALUE,
        "t": _VALUE,
        "d": Spec("value", Decimal("1.5")),
        "y": _VALUE,
        "r": _VALUE,
        "o": Spec("value", make=list),
        "top": Spec("value", adds=(None, max, None)),
        "mean": Spec("value", adds=(pair, take_in, mean)),
        "many": Spec("value", adds=(list, take_in_place, len)),
    },
    Collections: {"l": _LIST, "q": _LIST, "m": _MAP, "g": _MAP},
    Timed: {"n": Spec("value", 5), "l": _LIST},
    Living: {
        "n": Spec("value", 5),
        "l": _LIST,
        "e": Spec("value", **_EVENT),
        "er": Spec("value", **_EVENT, on_read=True),
        "p": Spec("value", 9, **_PROCESSING),
        "pr": Spec("value", make=list, **_PROCESSING, on_read=True),
        "es": Spec("value", adds=(None, max, None), **_EVENT),
        "le": Spec("list", **_EVENT),
        "lp": Spec("list", **_PROCESSING),
        "me": Spec("map", **_EVENT),
        "mr": Spec("map", **_EVENT, on_read=True),
        "mp": Spec("map", **_PROCESSING, on_read=True),
    },
    LivingUntimed: {"e": Spec("value", **_EVENT), "le": Spec("list", **_EVENT), "me": Spec("map", **_EVENT)},
}


@dataclass
class Key:
    """All that is held for a key: values and entries as [value, end], lists of them, timers by clock and name."""

    held: dict[str, Any] = field(default_factory=dict)
    timers: dict[tuple[str, str], int] = field(default_factory=dict)


class ModelState:
    """The operations, written down naively."""

    def __init__(self, key: Key, name: str, spec: Spec, times: dict[str, int]) -> None:
        self.key, self.name, self.spec, self.times = key, name, spec, times

    def _end(self) -> int | None:
        return None if self.spec.ttl is None else self._now() + self.spec.ttl

    def _now(self) -> int:
        return self.times["here" if self.spec.clock == "event" else "processing"]

    def _lives(self, one: list[Any]) -> bool:
        return one[1] is None or one[1] > self._now()

    def _read(self, one: list[Any]) -> Any:
        if self.spec.on_read:
            one[1] = self._end()
        return one[0]

    # values

    @property
    def value(self) -> Any:
        one = self.key.held.get(self.name)
        if one is None or not self._lives(one):
            if self.spec.make is None:
                return self.spec.default
            one = self.key.held[self.name] = [self.spec.make(), self._end()]
        value = self._read(one)
        result = self.spec.adds and self.spec.adds[2]
        return result(value) if result else value

    @value.setter
    def value(self, value: Any) -> None:
        if value is None:
            self.key.held.pop(self.name, None)
        else:
            self.key.held[self.name] = [value, self._end()]

    def add(self, item: Any) -> None:
        assert self.spec.adds is not None
        create, add, _ = self.spec.adds
        one = self.key.held.get(self.name)
        if one is not None and self._lives(one):
            self.value = add(one[0], item)
        else:
            self.value = item if create is None else add(create(), item)

    # lists and maps

    @property
    def items_(self) -> list[list[Any]]:
        kept = [one for one in self.key.held.get(self.name, []) if self._lives(one)]
        self.key.held[self.name] = kept
        return kept

    @property
    def all_entries(self) -> dict[Any, list[Any]]:
        return self.key.held.setdefault(self.name, {})  # type: ignore[no-any-return]

    @property
    def entries(self) -> dict[Any, list[Any]]:
        return {e: one for e, one in self.all_entries.items() if self._lives(one)}

    def append(self, item: Any) -> None:
        items, end = self.items_, self._end()
        if end is not None and items:
            end = max(end, items[-1][1])  # none outlives the next
        items.append([item, end])

    def extend(self, items: Any) -> None:
        for item in items:
            self.append(item)

    def last(self, n: int) -> list[Any]:
        return [one[0] for one in self.items_][max(0, len(self.items_) - n) :] if n > 0 else []

    def keep(self, n: int) -> None:
        self.key.held[self.name] = self.items_[max(0, len(self.items_) - n) :]

    def clear(self) -> None:
        self.key.held.pop(self.name, None)

    def put(self, entry: Any, value: Any) -> None:
        self.all_entries[entry] = [value, self._end()]

    def remove(self, entry: Any) -> None:
        self.all_entries.pop(entry, None)

    def get(self, entry: Any, default: Any = None) -> Any:
        one = self.entries.get(entry)
        return default if one is None else self._read(one)

    def items(self) -> list[tuple[Any, Any]]:
        return [(entry, self._read(one)) for entry, one in self.entries.items()]

    def values(self) -> list[Any]:
        return [value for _, value in self.items()]

    def __contains__(self, entry: Any) -> bool:
        return self.get(entry) is not None

    def __iter__(self) -> Iterator[Any]:
        if self.spec.kind == "map":
            return iter([entry for entry, _ in self.items()])
        return iter([one[0] for one in self.items_])

    def __len__(self) -> int:
        return len(self.items()) if self.spec.kind == "map" else len(self.items_)

    def __bool__(self) -> bool:
        if self.spec.kind == "map":  # no more than one entry is looked at, which one is not said
            return bool(self.entries)
        return bool(self.items_)

    def __getitem__(self, which: Any) -> Any:
        if self.spec.kind == "list":
            return self.items_[which][0]
        return self._read(self.entries[which])


class ModelStates:
    def __init__(self, key: Key, specs: Mapping[str, Spec], times: dict[str, int]) -> None:
        for name, spec in specs.items():
            setattr(self, name, ModelState(key, name, spec, times))


class ModelContext:
    """What a program asks of `ctx`."""

    def __init__(self, of: tuple[Any, ...], key: Key, times: dict[str, int], timed: bool, time: int) -> None:
        self.key, self._key, self._times, self._timed = of, key, times, timed
        self._here = time
        self.side: list[int] = []

    @property
    def time(self) -> datetime.datetime | None:
        return EPOCH + self._here * US if self._timed else None

    @property
    def watermark(self) -> datetime.datetime | None:
        return EPOCH + self._times["event"] * US if self._timed else None

    @property
    def now(self) -> datetime.datetime:
        return EPOCH_UTC + self._times["processing"] * US

    def set_timer(self, name: str, at: int | None = None, *, after: float = 0.0, clock: str) -> None:
        if at is None:
            at = (self._here if clock == "event" else self._times["processing"]) + int(after * SECOND)
        if clock == "processing":
            at = -(-at // 1000) * 1000
        self._key.timers[clock, name] = at

    def delete_timer(self, name: str, *, clock: str) -> None:
        self._key.timers.pop((clock, name), None)

    def timer(self, name: str, *, clock: str) -> datetime.datetime | None:
        at = self._key.timers.get((clock, name))
        return None if at is None else (EPOCH if clock == "event" else EPOCH_UTC) + at * US

    def emit(self, side: str, row: Mapping[str, Any]) -> None:
        if side != "side" or not isinstance(row["x"], int):
            raise TypeError("does not fit")
        self.side.append(row["x"])


@dataclass
class World:
    """Everything after an epoch."""

    keys: dict[tuple[Any, ...], Key] = field(default_factory=dict)
    out: Counter[tuple[int, str]] = field(default_factory=Counter)
    side: Counter[int] = field(default_factory=Counter)
    failed: Counter[tuple[Any, ...]] = field(default_factory=Counter)  # ("row", id) or ("timer", name)
    late: int = 0
    bound: int = NEVER


class Model:
    """The worlds after every epoch of a pond."""

    def __init__(self, kind: type[Plays], key: Sequence[str], *, timed: bool, delay_us: int = 0) -> None:
        self.kind, self.key, self.timed, self.delay_us = kind, tuple(key), timed, delay_us
        self.specs = SPECS[kind]
        self.fires = hasattr(kind, "on_timer") and kind.on_timer is not Process.on_timer
        self.worlds: dict[int, World] = {}

    def commit(self, manifest: Any, items: Sequence[Any], source: str) -> None:
        """One more epoch, from what its manifest says it admitted."""
        if manifest.epoch == 0:
            self.worlds.setdefault(0, World())
            return
        if manifest.kind == "rollback":
            self.worlds[manifest.epoch] = self.worlds[manifest.restores]
            return
        world = copy.deepcopy(self.worlds[manifest.epoch - 1])
        self.worlds[manifest.epoch] = world
        if manifest.kind != "epoch" or "tasks" not in manifest.metrics:  # a command: no step is run
            return
        rows: list[dict[str, Any]] = []
        told_bound = NEVER
        for split in sorted(manifest.admitted.get(source, ()), key=lambda s: s["item"]):
            item = items[split["item"]]
            if isinstance(item, pa.Table):
                rows += item.to_pylist()
            else:
                told_bound = max(told_bound, item.at_us)
        self._epoch(world, rows, told_bound, manifest.now_us)

    def _epoch(self, world: World, rows: list[dict[str, Any]], told_bound: int, now: int) -> None:
        before = world.bound
        if self.timed:
            on_time = [row for row in rows if _us(row["ts"]) >= before]
            world.late += len(rows) - len(on_time)
            newest = max((_us(row["ts"]) - self.delay_us for row in on_time), default=NEVER)
            world.bound = max(before, newest, told_bound)
            rows = sorted(on_time, key=lambda row: row["ts"])  # stable: then as they came
        by_key: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in rows:
            by_key.setdefault(tuple(row[name] for name in self.key), []).append(row)
        for of in {**dict.fromkeys(world.keys), **by_key}:
            self._run(world, of, by_key.get(of, []), before, now)

    def _run(
        self, world: World, of: tuple[Any, ...], rows: list[dict[str, Any]], before: int, now: int
    ) -> None:
        times = {"event": before, "here": before, "processing": now}

        def fire(clock: str, upto: int) -> bool:
            timers = world.keys[of].timers if of in world.keys else {}
            due = sorted((at, name) for (c, name), at in timers.items() if c == clock and at <= upto)
            if not due:
                return False
            at, name = due[0]
            del world.keys[of].timers[clock, name]
            if clock == "event":
                times["event"] = max(times["event"], at)
            times["here"] = times["event"]
            moment = (EPOCH if clock == "event" else EPOCH_UTC) + at * US
            self._call(world, of, times, ON_TIMER[name], times["event"], (name, clock, moment))
            return True

        while fire("processing", now):
            pass
        for row in rows:
            at = now
            if self.timed:
                at = _us(row["ts"])
                upto = min(at, world.bound)
                while fire("event", upto):
                    pass
                times["event"] = max(times["event"], upto)
                times["here"] = at
            self._call(world, of, times, json.loads(row["program"]), at, row["id"])
        while fire("event", world.bound) or fire("processing", now):
            pass

    def _call(
        self,
        world: World,
        of: tuple[Any, ...],
        times: dict[str, int],
        program: Sequence[Sequence[Any]],
        at: int,
        what: Any,
    ) -> None:
        fired = isinstance(what, tuple)
        key = copy.deepcopy(world.keys.get(of, Key()))
        ctx = ModelContext(of, key, times, self.timed, at)
        try:
            seen = play(ModelStates(key, self.specs, times), ctx, program)
            if ["ctx", "misfit"] in program:
                raise TypeError("does not fit")
        except (ValueError, TypeError):
            world.failed["timer" if fired else "row", what[0] if fired else what] += 1
            return
        world.keys[of] = key
        world.side.update(ctx.side)
        text = told([of, *what, ctx.time, seen]) if fired else told(seen)
        world.out[-1 if fired else what, text] += 1

    # -- what is stored ------------------------------------------------------------------

    def stored(self, epoch: int, name: str, now: int) -> Counter[tuple[Any, ...]]:
        """The rows of a state that live after an epoch, as text: key, position or entry, value."""
        spec, world = self.specs[name], self.worlds[epoch]
        over = world.bound if spec.clock == "event" else now
        found: Counter[tuple[Any, ...]] = Counter()
        for of, key in world.keys.items():
            held = key.held.get(name)
            if held is None:
                continue
            if spec.kind == "value":
                held = {None: held}
            elif spec.kind == "list":
                held = dict(enumerate([one for one in held if one[1] is None or one[1] > over]))
            for place, (value, end) in held.items():
                if end is None or end > over:
                    found[told(of), told(place), told(value)] += 1
        return found

    def timers(self, epoch: int) -> Counter[tuple[Any, ...]]:
        return Counter(
            (told(of), f"{clock}:{name}", at)
            for of, key in self.worlds[epoch].keys.items()
            for (clock, name), at in key.timers.items()
        )


def _us(at: datetime.datetime) -> int:
    return (at - EPOCH) // US
