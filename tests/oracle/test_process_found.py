"""What random programs, and a second look, found in process steps; each as small as it gets."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import cloudpickle
import pyarrow as pa
import pytest

import millpond
from millpond import BroadcastState, ListState, MapState, Process, ValueState
from millpond.clock import ManualClock
from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.process import handle
from millpond.process.spec import StateSpec
from millpond.sources.memory import MemorySource
from tests.oracle.process_model import Collections, LivingUntimed, Values
from tests.oracle.process_world import World

SCHEMA = pa.schema([("k", pa.string()), ("x", pa.int64())])
NESTED = pa.schema([("k", pa.string()), ("many", pa.list_(pa.int64()))])


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(10**12)


@pytest.fixture
def pond(tmp_path: Path, clock: ManualClock) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False, checks=True, clock=clock) as made:
        yield made


def test_reading_a_default_stores_nothing(tmp_path: Path) -> None:
    """A Decimal cannot be changed in place, so there is no need to keep the one that was read."""
    with World(tmp_path / "pond", Values) as world:
        world.push([(0, 0.0, [["d", "get"], ["n", "get"], ["s", "get"]])])
        world.drain()
        assert world.pond.state_rows("plays", "d") == []


@pytest.mark.parametrize(
    "last", [[["le", "all"], ["ctx", "fail"]], [["ctx", "now"]]], ids=["fails", "never asks"]
)
def test_a_list_ends_neither_by_a_call_that_fails_nor_by_one_that_never_asks(
    tmp_path: Path, last: list[list[str]]
) -> None:
    """Its life is over for a later row before the watermark has come so far; rows from before may still come."""
    with World(tmp_path / "pond", LivingUntimed, delay_s=2) as world:
        rows = [(0, 0.0, [["le", "extend", 0, 3]]), (0, 0.0, [["ctx", "fail"]]), (0, 5.0, last)]
        world.push(rows)
        world.drain()
        world.push([(0, -2.0, [["le", "all"]])])
        world.drain()
        assert len(world.pond.state_rows("plays", "le")) == 3


def test_items_whose_life_is_over_are_not_seen_beyond_those_fetched(tmp_path: Path) -> None:
    """Of a long list only the newest are fetched at once; the oldest may be over all the same."""
    with World(tmp_path / "pond", LivingUntimed, near=3) as world:
        world.push([(0, 0.0, [["le", "extend", 0, 5]])])
        world.drain()
        world.push([(0, 3.9, [["le", "extend", 5, 5], ["le", "len"]])])
        world.drain()
        for verb in (["len"], ["all"], ["at", 0], ["last", 9], ["keep", 4]):
            world.push([(0, 0.02, [["le", *verb]])])
            world.drain()
        world.push([(0, 0.0, [["le", "len"], ["le", "clear"], ["le", "append", 1], ["le", "all"]])])
        world.drain()


def test_a_list_that_was_emptied_keeps_its_new_items(tmp_path: Path) -> None:
    """Positions begin anew in an empty list: where old items ended says nothing of the new ones."""
    with World(tmp_path / "pond", LivingUntimed) as world:
        world.push([(0, 0.0, [["le", "extend", 0, 5]])])
        world.drain()
        world.push([(0, 1.0, [["le", "clear"]])])
        world.drain()
        world.push([(0, 2.5, [["le", "append", 9]])])
        world.drain()
        world.push([(1, 2.5, [["le", "len"]])])  # time passes for all keys
        world.drain()
        world.push([(0, 0.0, [["le", "all"]])])
        world.drain()


@pytest.mark.parametrize("near", [1, 32])
def test_what_was_changed_in_place_is_as_before_when_the_row_fails(tmp_path: Path, near: int) -> None:
    with World(tmp_path / "pond", Collections, near=near) as world:
        world.push([(0, 0.0, [["g", "grow", 1], ["g", "grow", 2], ["q", "points", 1]])])
        world.drain()
        world.push([(0, 1.0, [["g", "grow", 1], ["ctx", "fail"]]), (0, 1.0, [["g", "get", 1]])])
        world.drain()
        assert world.pond.errors().num_rows == 1


def test_entries_come_in_the_order_of_the_table_whatever_was_asked_before(pond: Pond) -> None:
    def entries(row: Any, m: Any = MapState(str, int)) -> Any:
        if row.x == 0:
            for n in range(9):
                m.put(f"e{n}", n)
            return None
        m.put("b", 1)
        m.put("a", 1)
        m.get("e7")
        m.remove("e3")
        return {"seen": " ".join(m)}

    source = MemorySource(SCHEMA)
    pond.stream("in", source).key_by("k").process(entries, {"seen": str}).view("out")
    with mock.patch.object(handle, "FETCHED_PER_KEY", 2):
        source.push([{"k": "a", "x": 0}])
        pond.drain()
        source.push([{"k": "a", "x": 1}])
        pond.drain()
    assert pond.read("out")["seen"].to_pylist() == ["e0 e1 e2 e4 e5 e6 e7 e8 b a"]


def test_state_that_cannot_be_stored_is_told_beside_a_row_that_fails(pond: Pond) -> None:
    def hold(row: Any, lock: Any = ValueState()) -> Any:
        lock.value = threading.Lock()
        if row.x:
            raise ValueError("besides")

    source = MemorySource(SCHEMA)
    pond.stream("in", source).key_by("k").process(hold, {"x": int}, id="hold").view("out")
    source.push([{"k": "a", "x": 0}, {"k": "a", "x": 1}])
    with pytest.raises(InvalidError, match="state 'lock' of key k='a' cannot be stored") as caught:
        pond.drain()
    assert caught.value.step == "hold"


def test_rows_that_do_not_fit_are_told_beside_keys_that_were_taken_back(pond: Pond) -> None:
    class Newest(Process):
        def on_row(self, row: Any, ctx: Any) -> Any:
            if row.x == 0:
                ctx.remove()
                return None
            return {"k": row.k, "x": "text" if row.x == 2 else row.x}

    source = MemorySource(SCHEMA)
    pond.stream("in", source).key_by("k").process(Newest, {"k": str, "x": int}, latest=True).view("out")
    source.push([{"k": name, "x": x} for name in "abcdefgh" for x in (1, 0, 3)])
    source.push([{"k": name, "x": x} for name in "ijkl" for x in (1, 2, 0)])
    source.push([{"k": name, "x": x} for name in "mnop" for x in (1, 0, 2)])
    pond.drain()
    assert pond.errors().num_rows == 8
    held = {r["k"]: r["x"] for r in pond.read("out").to_pylist()}
    assert held == dict.fromkeys("abcdefgh", 3)


def test_what_a_row_holds_is_the_same_when_its_key_is_done_again(pond: Pond) -> None:
    """A list inside a row can be changed; the second pass must not see what the first did."""

    def count(row: Any, n: Any = ValueState(int, default=0)) -> Any:
        row.many.append(0)
        n.value += len(row.many)
        if row.many[0] == 13:
            raise ValueError("bad luck")
        return {"k": row.k, "n": n.value}

    source = MemorySource(NESTED)
    pond.stream("in", source).key_by("k").process(count, {"k": str, "n": int}, id="count").view("out")
    source.push([{"k": "a", "many": [1, 2]}, {"k": "a", "many": [13]}, {"k": "b", "many": []}])
    pond.drain()
    found = sorted((r["k"], r["n"]) for r in pond.read("out").to_pylist())
    assert found == [("a", 3), ("b", 1)]


@pytest.mark.parametrize("at", [2**63, -(2**63) - 1, 2**70])
def test_a_timer_beyond_all_time_is_an_error_row(pond: Pond, at: int) -> None:
    class Far(Process):
        def on_row(self, row: Any, ctx: Any) -> Any:
            ctx.set_timer("far", at if row.x else 0, clock="processing")
            return {"x": row.x}

        def on_timer(self, timer: Any, ctx: Any) -> None: ...

    source = MemorySource(SCHEMA)
    pond.stream("in", source).key_by("k").process(Far, {"x": int}, id="far").view("out")
    source.push([{"k": "a", "x": 0}, {"k": "a", "x": 1}])
    pond.drain()
    assert pond.read("out")["x"].to_pylist() == [0]
    (error,) = pond.errors().to_pylist()
    assert "test_process_found.py" in error["reason"]


def test_a_key_may_be_called_like_the_entries_of_a_broadcast(pond: Pond, clock: ManualClock) -> None:
    class Both(Process):
        rates = BroadcastState(int, float)
        n = ValueState(int, default=0, ttl="1s", clock="processing")

        def on_control(self, row: Any, ctx: Any) -> None:
            self.rates.put(row.id, row.rate)

        def on_row(self, row: Any, ctx: Any) -> Any:
            self.n.value += 1
            ctx.set_timer("t", after=1, clock="processing")
            return {"entry": row.entry, "n": self.n.value}

        def on_timer(self, timer: Any, ctx: Any) -> Any:
            return {"entry": ctx.key.entry, "n": -1}

    source = MemorySource(pa.schema([("entry", pa.string())]))
    control = MemorySource(pa.schema([("id", pa.int64()), ("rate", pa.float64())]))
    rates = pond.stream("rates", control)
    made = pond.stream("in", source).key_by("entry").process(Both, {"entry": str, "n": int}, control=rates)
    made.view("out")
    source.push([{"entry": "a"}])
    pond.drain()
    clock.advance(5_000_000)
    source.push([{"entry": "b"}])
    pond.drain()
    found = sorted((r["entry"], r["n"]) for r in pond.read("out").to_pylist())
    assert found == [("a", -1), ("a", 1), ("b", 1)]


def test_fields_without_default_of_a_class_that_came_by_value() -> None:
    """Workers get a user's dataclass by value; its MISSING is then no longer the one of this process."""
    by_value = cloudpickle.loads(cloudpickle.dumps(_local_record()))
    spec = StateSpec("r", "value", "record", pa.schema([("a", pa.int64()), ("b", pa.int64())]), by_value)
    assert spec.defaults == (("b", 4),)


def _local_record() -> type:
    @dataclass
    class Record:
        a: int
        b: int = 4

    return Record


@dataclass
class Leaf:
    n: int


@dataclass
class Tree:
    one: Leaf | None
    many: list[Leaf]
    named: dict[str, Leaf]
    row: tuple[int, ...]


class Pair(NamedTuple):
    leaf: Leaf
    n: int


TREE = Tree(Leaf(1), [Leaf(2), Leaf(3)], {"a": Leaf(4)}, (5, 6))


class Grows(Process):
    tree = ValueState(Tree)
    leaves = ValueState(list[Leaf])
    named = ValueState(dict[str, Leaf])
    counts = ValueState(dict[str, int])
    row = ValueState(tuple[int, ...])
    pair = ValueState(Pair)
    trees = ListState(Tree)
    by_name = MapState(str, Pair)

    def on_row(self, row: Any, ctx: Any) -> Any:
        held: list[Any] = [self.tree, self.leaves, self.named, self.counts, self.row, self.pair]
        if row.x == 0:
            values = [TREE, TREE.many, TREE.named, {"b": 7}, TREE.row, Pair(Leaf(8), 9)]
            for state, value in zip(held, values, strict=True):
                state.value = value
            self.trees.append(TREE)
            self.by_name.put("p", Pair(Leaf(8), 9))
        return {"seen": repr([*(state.value for state in held), *self.trees, self.by_name["p"]])}


def test_a_value_is_the_same_in_the_next_epoch(pond: Pond) -> None:
    """Records inside of records, lists and dicts come back as what they were, not as dicts and lists."""
    source = MemorySource(SCHEMA)
    pond.stream("in", source).key_by("k").process(Grows, {"seen": str}, id="grows").view("out")
    for x in (0, 1):
        source.push([{"k": "a", "x": x}])
        pond.drain()
    first, second = pond.read("out")["seen"].to_pylist()
    assert first == second
    assert pond.errors().num_rows == 0


@pytest.mark.parametrize("state", ["e", "le", "me"])
def test_a_life_that_begins_and_ends_in_one_epoch_leaves_nothing(tmp_path: Path, state: str) -> None:
    """Its end would lie in a bucket that this epoch drops, because another life ended there."""
    begin = {"e": ["e", "increase"], "le": ["le", "append", 1], "me": ["me", "put", "x", 1]}[state]
    with World(tmp_path / "pond", LivingUntimed) as world:
        world.push([(0, 0.0, [begin])])
        world.drain()
        world.push([(1, 0.0, [begin]), (0, 5.0, [["e", "get"]])])
        world.drain()
        for _ in range(2):  # the world looks at what is stored after every epoch
            world.push([(0, 1.0, [["e", "get"]])])
            world.drain()


@pytest.mark.parametrize("cut", [True, False])
def test_a_life_by_event_time_does_not_depend_on_epochs(tmp_path: Path, cut: bool) -> None:
    def once(row: Any, seen: Any = ValueState(bool, ttl="10s")) -> Any:
        new = seen.value is None
        seen.value = True
        return {"s": row.ts.second, "new": new}

    pond = millpond.open(tmp_path / "pond", engine="inline", checks=True)
    source = MemorySource(pa.schema([("k", pa.string()), ("ts", pa.timestamp("us"))]))
    stream = pond.stream("in", source, event_time="ts", delay="1m")
    stream.key_by("k").process(once, {"s": int, "new": bool}, id="once").view("out")
    for second in (0, 9, 20, 29, 40):
        source.push([{"k": "a", "ts": datetime.datetime(2024, 1, 1, 0, 10, second)}])
        if cut:
            pond.drain()
    pond.drain()
    found = {row["s"]: row["new"] for row in pond.read("out").to_pylist()}
    assert found == {0: True, 9: False, 20: True, 29: False, 40: True}
    pond.close()
