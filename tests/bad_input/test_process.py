"""Process steps that are wrong: each is refused, or told with step, key and line, and nothing is half done (law 9)."""

from __future__ import annotations

import inspect
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond import AggregatingState, ListState, MapState, Process, ReducingState, ValueState
from millpond.clock import ManualClock
from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.process import batch
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.string()), ("v", pa.int64())])
OUT = {"k": str, "v": int}
HERE = Path(__file__).name
START_US = 1_700_000_000_000_000


def open_pond(folder: Path, **options: Any) -> Pond:
    return millpond.open(
        folder, engine="inline", durable=False, checks=True, clock=ManualClock(START_US), **options
    )


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with open_pond(tmp_path / "pond", parallelism=2) as made:
        yield made


def rows(*pairs: tuple[str | None, int]) -> list[dict[str, Any]]:
    return [{"ts": START_US + 1000 * n, "k": k, "v": v} for n, (k, v) in enumerate(pairs)]


def line_of(function: Callable[..., Any], text: str) -> str:
    """Where a text stands in this file, as file:line."""
    lines, first = inspect.getsourcelines(function)
    return f"{HERE}:{first + next(i for i, line in enumerate(lines) if text in line)}"


def given(pond: Pond, view: str = "out") -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in pond.read(view).to_pylist())


def build(pond: Pond, code: Any, *, event_time: bool = False, **options: Any) -> MemorySource:
    source = MemorySource(SCHEMA)
    stream = pond.stream("in", source, **({"event_time": "ts"} if event_time else {}))
    made = stream.key_by("k").process(code, **{"schema": OUT, "id": "mine", **options})
    made.view("out")
    for side in options.get("sides", {}):
        made.side(side).view(side)
    return source


def refused(pond: Pond, code: Any, **options: Any) -> InvalidError:
    with pytest.raises(InvalidError) as caught:
        build(pond, code, **options)
        pond.plan  # noqa: B018
    assert caught.value.step == "mine"
    return caught.value


# ---------------------------------------------------------------- before anything runs


def test_a_state_name_used_twice(pond: Pond) -> None:
    class Twice(Process):
        a = ValueState(int, name="n")
        b = ValueState(int, name="n")

        def on_row(self, row: Any, ctx: Any) -> None: ...

    assert "state 'n' is declared twice" in str(refused(pond, Twice))


@pytest.mark.parametrize("name", ["timers", "out", "ttl", "a/b", "a.b", "_x"])
def test_a_state_name_that_cannot_be(pond: Pond, name: str) -> None:
    class Named(Process):
        a = ValueState(int, name=name)

        def on_row(self, row: Any, ctx: Any) -> None: ...

    assert "a state cannot be called" in str(refused(pond, Named))


def test_a_state_named_like_the_key(pond: Pond) -> None:
    class Named(Process):
        k = ValueState(int)

        def on_row(self, row: Any, ctx: Any) -> None: ...

    assert "two columns named 'k'" in str(refused(pond, Named))


def test_event_time_to_live_without_event_time(pond: Pond) -> None:
    class Lives(Process):
        n = ValueState(int, ttl="1h", clock="event")

        def on_row(self, row: Any, ctx: Any) -> None: ...

    error = refused(pond, Lives)
    assert "state 'n' has a time to live in event time, but the stream has no event time" in str(error)
    assert "event_time=" in (error.hint or "")


def test_retractable_input(pond: Pond) -> None:
    source = MemorySource(SCHEMA, append_only=False)
    stream = pond.stream("in", source)
    with pytest.raises(InvalidError, match="process needs append-only input") as caught:
        stream.key_by("k").process(good, OUT, id="mine")
    assert caught.value.step == "mine" and caught.value.hint


def test_an_aggregate_can_be_taken_back(pond: Pond) -> None:
    counts = pond.stream("in", MemorySource(SCHEMA)).key_by("k").aggregate(n="count(*)")
    with pytest.raises(InvalidError, match="append-only"):
        counts.key_by("k").process(good, OUT, id="mine")


def test_an_id_used_twice(pond: Pond) -> None:
    stream = pond.stream("in", MemorySource(SCHEMA))
    stream.key_by("k").process(good, OUT, id="mine").view("one")
    with pytest.raises(InvalidError, match="mine"):
        stream.key_by("v").process(good, OUT, id="mine").view("two")


@pytest.mark.parametrize("name", ["main", ""])
def test_a_side_output_that_cannot_be(pond: Pond, name: str) -> None:
    assert "a side output" in str(refused(pond, good, sides={name: OUT}))


def test_a_side_output_that_was_not_declared(pond: Pond) -> None:
    made = pond.stream("in", MemorySource(SCHEMA)).key_by("k").process(good, OUT, id="mine")
    with pytest.raises(InvalidError, match="other"):
        made.side("other")


def test_no_such_key(pond: Pond) -> None:
    with pytest.raises(InvalidError, match="nothing"):
        pond.stream("in", MemorySource(SCHEMA)).key_by("nothing").process(good, OUT, id="mine")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (lambda row, n: None, "no default"),
        (lambda: None, "cannot be a process function"),
        (3, "takes a Process class or a function"),
        (type("Empty", (Process,), {}), "has no on_row"),
        (type("Few", (Process,), {"on_row": lambda self, row: None}), "on_row|lambda"),
        (type("Takes", (Process,), {"__init__": lambda self, x: None, "on_row": lambda s, r, c: None}), "x"),
    ],
    ids=["no default", "no row", "no code", "no on_row", "no ctx", "arguments"],
)
def test_code_that_cannot_be_called(pond: Pond, code: Any, said: str) -> None:
    assert re.search(said, str(refused(pond, code)))


@pytest.mark.parametrize(
    "state",
    [
        lambda: ValueState(object),
        lambda: ListState(dict),
        lambda: MapState(list[int], int),
        lambda: ValueState(int, ttl="soon"),
        lambda: ValueState(int, ttl=0),
        lambda: ValueState(int, clock="event"),
        lambda: ValueState(int, ttl="1s", clock="sundial"),
        lambda: ListState(int, ttl="1s", clock="processing", reset="read"),
    ],
    ids=["object", "dict", "list", "soon", "zero", "no ttl", "sundial", "list read"],
)
def test_a_state_that_cannot_be_declared(pond: Pond, state: Callable[[], Any]) -> None:
    with pytest.raises(InvalidError):
        kind = type("Declares", (Process,), {"s": state(), "on_row": lambda self, row, ctx: None})
        build(pond, kind)


def test_no_schema(pond: Pond) -> None:
    assert "the columns of the process step's rows are not known" in str(refused(pond, good, schema=None))


# ---------------------------------------------------------------- a key of another type


def good(row: Any, n: Any = ValueState(int, default=0)) -> Any:
    n.value += row.v
    return {"k": str(row.k), "v": n.value}


def test_a_key_of_another_type_in_the_next_version(tmp_path: Path) -> None:
    """The state of before could not be found any more; so nothing runs, and nothing is lost."""
    other = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("v", pa.int64())])
    with open_pond(tmp_path / "pond") as pond:
        source = build(pond, good)
        source.push(rows(("a", 1)))
        pond.drain()
        epoch = pond.epoch
    with open_pond(tmp_path / "pond") as pond:
        changed = MemorySource(other)
        changed.push([{"ts": 0, "k": 1, "v": 1}], [{"ts": 0, "k": 2, "v": 1}])
        with pytest.raises(InvalidError):
            pond.stream("in", changed).key_by("k").process(good, OUT, id="mine").view("out")
            pond.drain()
    with open_pond(tmp_path / "pond") as pond:
        build(pond, good)
        assert pond.epoch >= epoch
        assert pond.state_rows("mine", "n") == [{"k": "a", "n": 1}]


def test_another_key_in_the_next_version(tmp_path: Path) -> None:
    with open_pond(tmp_path / "pond") as pond:
        source = build(pond, good)
        source.push(rows(("a", 1)))
        pond.drain()
    with open_pond(tmp_path / "pond") as pond, pytest.raises(InvalidError):
        pond.stream("in", source).key_by("v").process(good, OUT, id="mine").view("out")
        pond.drain()


# ---------------------------------------------------------------- state that cannot be stored


class Holds(Process):
    n = ValueState(int, default=0)
    any = ValueState()
    items = ListState()
    typed = ListState(int)
    entries = MapState(str)
    numbers = MapState(int, int)

    def __init__(self, hold: Callable[[Any], None]) -> None:
        self.hold = hold

    def on_row(self, row: Any, ctx: Any) -> Any:
        if row.v == 13:
            self.hold(self)
        return {"k": row.k, "v": row.v}


@pytest.mark.parametrize(
    ("name", "hold"),
    [
        ("any", lambda h: h.any.set(threading.Lock())),
        ("any", lambda h: h.any.set(x for x in [1])),
        ("items", lambda h: h.items.append(threading.Lock())),
        ("entries", lambda h: h.entries.put("e", threading.Lock())),
        ("n", lambda h: h.n.set("text")),
        ("n", lambda h: h.n.set(1.5)),
        ("n", lambda h: h.n.set(2**70)),
        ("typed", lambda h: h.typed.append("text")),
        ("numbers", lambda h: h.numbers.put(1, "text")),
        ("numbers", lambda h: h.numbers.put("text", 1)),
    ],
    ids=["lock", "generator", "in a list", "in a map", "text", "float", "big", "list", "map", "entry"],
)
def test_state_that_cannot_be_stored(pond: Pond, name: str, hold: Callable[[Any], None]) -> None:
    source = build(pond, Holds(hold))
    source.push(rows(("a", 1), ("b", 13), ("c", 2)))
    with pytest.raises(InvalidError, match=f"state '{name}' of key k='b' cannot be stored") as caught:
        pond.drain()
    assert caught.value.step == "mine" and caught.value.hint
    assert pond.epoch == 0, "nothing is committed"


def test_none_in_lists_and_maps(pond: Pond) -> None:
    def hold(row: Any, items: Any = ListState(int), m: Any = MapState(str, int)) -> Any:
        if row.v == 1:
            items.append(None)
        elif row.v == 2:
            m.put("x", None)
        elif row.v == 3:
            m[None] = 1
        return {"k": row.k, "v": len(items) + len(m)}

    source = build(pond, hold)
    source.push(rows(("a", 1), ("a", 2), ("a", 3), ("a", 4)))
    pond.drain()
    assert given(pond) == [("a", 0)]
    assert all("takes no None" in e["reason"] for e in pond.errors().to_pylist())


class Gone:
    """A class that the next version no longer has."""


def test_state_made_of_a_class_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(row: Any, thing: Any = ValueState()) -> Any:
        if thing.value is None:
            thing.value = Gone()
        return {"k": row.k, "v": row.v}

    with open_pond(tmp_path / "pond") as pond:
        source = build(pond, keep)
        source.push(rows(("a", 1)))
        pond.drain()
        monkeypatch.delitem(globals(), "Gone")
        source.push(rows(("a", 2)))
        with pytest.raises(InvalidError, match="what is stored of state 'thing' cannot be read") as caught:
            pond.drain()
        assert caught.value.step == "mine" and "Gone" in (caught.value.detail or "")


# ---------------------------------------------------------------- rows that fail


@dataclass
class Pair:
    a: int
    b: list[int]


class Failing(Process):
    """Changes everything it has, then fails where v is odd."""

    n = ValueState(int, default=0)
    blob = ValueState(default=dict)
    pair = ValueState(Pair)
    top = ReducingState(max, int)
    all = AggregatingState(list, lambda held, x: [*held, x], sum)
    items = ListState(int)
    things = ListState()
    m = MapState(str, int)
    lists = MapState(int)
    lives = ValueState(int, ttl="1h", clock="processing", reset="read")

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n.value += row.v
        self.blob.value[row.v] = [row.v]
        if self.pair.value is None:
            self.pair.value = Pair(0, [])
        self.pair.value.a += 1
        self.pair.value.b.append(row.v)
        self.top.add(row.v)
        self.all.add(row.v)
        self.items.extend([row.v, row.v])
        self.items.keep(5)
        self.things.append({row.v})
        self.m.put(str(row.v), row.v)
        self.m.remove(str(row.v - 2))
        self.lists.put(0, [*self.lists.get(0, []), row.v])
        self.lists[0].append(-1)
        self.lives.value = (self.lives.value or 0) + row.v
        ctx.set_timer("t", after=row.v, clock="processing")
        ctx.emit("side", {"v": row.v})
        yield {"k": row.k, "v": self.n.value}
        if row.v % 2:
            raise ValueError(f"odd {row.v}")

    def on_timer(self, timer: Any, ctx: Any) -> Any: ...


STATES = ("n", "blob", "pair", "top", "all", "items", "things", "m", "lists", "lives", "timers")


def play(folder: Path, values: list[int], *, at_once: bool) -> dict[str, Any]:
    with open_pond(folder) as pond:
        source = build(pond, Failing, sides={"side": {"v": int}})
        for part in [values] if at_once else [[v] for v in values]:
            source.push(rows(*((k, v) for v in part for k in ("a", "b"))))
            pond.drain()
        found: dict[str, Any] = {"out": given(pond), "side": given(pond, "side")}
        for name in STATES:
            found[name] = sorted(map(_unplaced, pond.state_rows("mine", name)))
        found["errors"] = sorted((json.loads(e["row"])["v"], e["reason"]) for e in pond.errors().to_pylist())
        assert {e["step"] for e in pond.errors().to_pylist()} <= {"mine"}
        return found


def _unplaced(row: dict[str, Any]) -> str:
    return repr({name: value for name, value in row.items() if name != "position"})


def test_a_row_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    """The same, whether the failing rows come at all, or share an epoch with the others."""
    values = [2, 3, 4, 5, 7, 8, 10, 11]
    together = play(tmp_path / "together", values, at_once=True)
    apart = play(tmp_path / "apart", values, at_once=False)
    even = play(tmp_path / "even", [v for v in values if v % 2 == 0], at_once=True)
    errors = together.pop("errors")
    assert errors == apart.pop("errors")
    assert even.pop("errors") == []
    assert together == even
    assert apart == even
    where = line_of(Failing.on_row, "raise")
    assert errors == sorted((v, f"ValueError: odd {v} ({where})") for v in values if v % 2 for _ in "ab")


class FailingTimer(Process):
    n = ValueState(int, default=0)
    items = ListState(int)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.n.value += row.v
        for seconds, name in enumerate(("good", "bad", "last"), 1):
            ctx.set_timer(name, after=seconds, clock="processing")

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        self.items.append(1)
        self.n.value *= 2
        if timer.name == "bad":
            ctx.delete_timer("last", clock="processing")
            ctx.set_timer("new", after=1, clock="processing")
            raise LookupError("in a timer")
        return {"k": str(ctx.key.k), "v": self.n.value * 100 + len(self.items)}


@pytest.mark.parametrize("seconds", [1, 4])
def test_a_timer_that_fails(pond: Pond, seconds: int) -> None:
    """It has fired, its key is as before, and the timers after it fire; in one epoch or in several."""
    source = build(pond, FailingTimer)
    source.push(rows(("a", 1), ("b", 2), (None, 3)))
    pond.drain()
    for _ in range(4 // seconds):
        pond._clock.advance(seconds * 1_000_000)  # type: ignore[attr-defined]
        pond.drain()
    good = [(k, n * 200 + 1) for k, n in (("None", 3), ("a", 1), ("b", 2))]
    last = [(k, n * 400 + 2) for k, n in (("None", 3), ("a", 1), ("b", 2))]
    assert given(pond) == sorted(good + last)
    errors = pond.errors().to_pylist()
    where = line_of(FailingTimer.on_timer, "raise LookupError")
    assert [e["reason"] for e in errors] == [f"timer 'bad': LookupError: in a timer ({where})"] * 3
    assert {json.loads(e["row"])["k"] for e in errors} == {"a", "b", None}
    assert {e["step"] for e in errors} == {"mine"}
    assert pond.state_rows("mine", "timers") == []


def _returns(value: Any) -> Callable[[Any], Any]:
    def code(row: Any, n: Any = ValueState(int, default=0)) -> Any:
        n.value += row.v
        return value(row, n.value) if row.v == 13 else {"k": row.k, "v": n.value}

    return code


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (lambda row, n: {"k": row.k}, "row has columns k; declared k, v"),
        (lambda row, n: {"k": row.k, "w": n}, "row has columns k, w; declared k, v"),
        (lambda row, n: {"k": row.k, "v": "text"}, "column 'v' must be int64"),
        (lambda row, n: {"k": row.k, "v": 1.5}, "column 'v' must be int64"),
        (lambda row, n: {"k": n, "v": n}, "column 'k' must be string"),
        (lambda row, n: (row.k,), "row has 1 values; declared k, v"),
        (lambda row, n: 7, "rows must be dicts or tuples, not int"),
        (lambda row, n: "ab", "rows must be dicts or tuples, not str"),
        (lambda row, n: [{"k": row.k, "v": n}, None], "not NoneType"),
        (lambda row, n: (x for x in [(row.k, n), (n, row.k)]), "column 'k' must be string"),
        (lambda row, n: row, "row has columns ts, k, v"),
    ],
    ids=["few", "names", "type", "fraction", "key", "short", "int", "str", "none", "second", "row"],
)
def test_a_row_of_another_schema(pond: Pond, value: Any, said: str) -> None:
    """The row that gave it is an error row, and its key is as before."""
    source = build(pond, _returns(value))
    source.push(rows(("a", 1), ("a", 13), ("b", 5), ("a", 2)))
    pond.drain()
    assert given(pond) == [("a", 1), ("a", 3), ("b", 5)]
    (error,) = pond.errors().to_pylist()
    assert said in error["reason"], error["reason"]
    assert HERE in error["reason"]
    assert json.loads(error["row"])["v"] == 13
    assert {r["k"]: r["n"] for r in pond.state_rows("mine", "n")} == {"a": 3, "b": 5}


def test_side_outputs_that_are_wrong(pond: Pond) -> None:
    def code(row: Any, ctx: Any, n: Any = ValueState(int, default=0)) -> Any:
        n.value += 1
        ctx.emit("side", {"v": row.v})
        if row.v == 1:
            ctx.emit("other", {"v": row.v})
        if row.v == 2:
            ctx.emit("side", {"v": "text"})
        if row.v == 3:
            ctx.emit("side", None)
        return {"k": row.k, "v": n.value}

    source = build(pond, code, sides={"side": {"v": int}})
    source.push(rows(("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 5)))
    pond.drain()
    assert given(pond) == [("a", 1), ("b", 1)]
    assert given(pond, "side") == [(4,), (5,)]
    reasons = sorted((json.loads(e["row"])["v"], e["reason"]) for e in pond.errors().to_pylist())
    assert [v for v, _ in reasons] == [1, 2, 3]
    assert "no side output 'other'; declared are side" in reasons[0][1]
    assert line_of(code, 'ctx.emit("other"') in reasons[0][1]


@pytest.mark.parametrize(
    "write",
    [
        lambda row: setattr(row, "v", 1),
        lambda row: row.__setitem__("v", 1),
        lambda row: row.__delitem__(0),
        lambda row: delattr(row, "v"),
    ],
    ids=["attribute", "item", "delete item", "delete"],
)
def test_writing_to_the_input_row(pond: Pond, write: Callable[[Any], None]) -> None:
    def code(row: Any) -> Any:
        if row.v == 13:
            write(row)
        return {"k": row.k, "v": row.v}

    source = build(pond, code)
    source.push(rows(("a", 1), ("a", 13)))
    pond.drain()
    assert given(pond) == [("a", 1)]
    (error,) = pond.errors().to_pylist()
    assert "read-only" in error["reason"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda ctx: ctx.set_timer("t", after=1, clock="processing"), "timers need an on_timer method"),
        (lambda ctx: ctx.timer("t"), "timers need an on_timer method"),
        (lambda ctx: ctx.remove(), "latest=True"),
    ],
    ids=["set", "timer", "remove"],
)
def test_asking_for_what_the_step_does_not_have(pond: Pond, call: Callable[[Any], Any], said: str) -> None:
    def code(row: Any, ctx: Any) -> Any:
        call(ctx)

    source = build(pond, code)
    source.push(rows(("a", 1)))
    pond.drain()
    (error,) = pond.errors().to_pylist()
    assert said in error["reason"], error["reason"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda ctx: ctx.set_timer("t", after=1), "event-time timers need event time"),
        (lambda ctx: ctx.set_timer("t", clock="processing"), "either at= or after="),
        (lambda ctx: ctx.set_timer("t", 1, after=1, clock="processing"), "either at= or after="),
        (lambda ctx: ctx.set_timer("t", "noon", clock="processing"), "a time is a datetime"),
        (lambda ctx: ctx.set_timer("t", after=1, clock="sundial"), "no clock 'sundial'"),
        (lambda ctx: ctx.set_timer("t", after=1e40, clock="processing"), "OverflowError"),
    ],
    ids=["no event time", "neither", "both", "text", "clock", "far"],
)
def test_timers_that_cannot_be_set(pond: Pond, call: Callable[[Any], Any], said: str) -> None:
    class Sets(Process):
        def on_row(self, row: Any, ctx: Any) -> Any:
            call(ctx)

        def on_timer(self, timer: Any, ctx: Any) -> Any: ...

    source = build(pond, Sets)
    source.push(rows(("a", 1)))
    pond.drain()
    (error,) = pond.errors().to_pylist()
    assert said in error["reason"], error["reason"]


# ---------------------------------------------------------------- code without an end


def test_timers_that_never_end(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Process):
        def on_row(self, row: Any, ctx: Any) -> Any:
            ctx.set_timer("again", after=0)

        def on_timer(self, timer: Any, ctx: Any) -> Any:
            ctx.set_timer("again", after=-1)

    monkeypatch.setattr(batch, "FIRES_MAX", 1000)
    source = build(pond, Endless, event_time=True)
    source.push(rows(("a", 1)))
    with pytest.raises(InvalidError, match="too many timers fired for one key") as caught:
        pond.drain()
    assert caught.value.step == "mine" and "k='a'" in (caught.value.detail or "")
    assert pond.epoch == 0


def loops(row: Any, ctx: Any) -> Any:
    while row.v == 13:
        pass
    return {"k": row.k, "v": row.v}


def catches_all(row: Any, ctx: Any) -> Any:
    """Even code that catches what should end it is ended, at the second time."""
    caught = 0
    while row.v == 13:
        try:
            time.sleep(0.001)
        except BaseException:
            caught += 1
            if caught == 2:
                raise
    return {"k": row.k, "v": row.v}


def yields_for_ever(row: Any, ctx: Any) -> Any:
    while row.v == 13:
        yield from ()
    yield {"k": row.k, "v": row.v}


class LoopsInTimer(Process):
    def on_row(self, row: Any, ctx: Any) -> Any:
        if row.v == 13:
            ctx.set_timer("t", after=0)

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        while True:
            pass


@pytest.mark.parametrize(
    "code", [loops, catches_all, yields_for_ever, LoopsInTimer], ids=lambda c: c.__name__
)
def test_code_that_does_not_come_back(pond: Pond, code: Any) -> None:
    source = build(pond, code, event_time=True, timeout="1s")
    source.push(rows(("a", 1), ("b", 13), ("c", 2)))
    with pytest.raises(InvalidError, match="took longer than its timeout") as caught:
        pond.drain()
    assert caught.value.step == "mine"
    assert "key k='b'" in (caught.value.detail or "") and "timeout" in (caught.value.hint or "")
    assert pond.epoch == 0


def test_slow_code_that_comes_back_is_no_error(pond: Pond) -> None:
    """The limit is for one call, not for all."""

    def slow(row: Any) -> Any:
        time.sleep(0.2)
        return {"k": row.k, "v": row.v}

    source = build(pond, slow, timeout="2s")
    source.push(rows(*(("a", n) for n in range(12))))
    pond.drain()
    assert len(given(pond)) == 12
