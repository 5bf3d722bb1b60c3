"""What people get wrong in their first process function is told, in words that say what to write."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond import BroadcastState, InvalidError, MapState, Process, ValueState
from millpond.sources.files import FileSource
from millpond.sources.memory import MemorySource

ROWS = [{"k": "a", "x": 1}, {"k": "a", "x": 2}]
GIVES = {"k": str, "n": int}


def run(place: Path, code: Any, **settings: Any) -> tuple[list[int], list[str]]:
    """The n of the rows that a step gives, and the reasons of its error rows."""
    source = MemorySource(pa.schema([("k", pa.string()), ("x", pa.int64())]))
    source.push(ROWS)
    with millpond.open(place, engine="inline") as pond:
        pond.stream("s", source).key_by("k").process(code, GIVES, id="mine", **settings).view("v")
        pond.drain()
        reasons = [row["reason"] for row in pond.errors().to_pylist()]
        return sorted(row["n"] for row in pond.read("v").to_pylist()), reasons


def test_error_rows_are_told_once_on_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A newcomer looks at an empty view, not at pond.errors()."""

    def fails(row: Any, n: Any = ValueState(int, 0)) -> Any:
        raise ValueError("no")

    source = MemorySource(pa.schema([("k", pa.string()), ("x", pa.int64())]))

    def opened() -> millpond.Pond:
        pond = millpond.open(tmp_path, engine="inline")
        pond.stream("s", source).key_by("k").process(fails, GIVES, id="mine").view("v")
        return pond

    with opened() as pond:
        pond.drain()
        assert caplog.messages == []
        for _ in range(2):
            source.push(ROWS)
            pond.drain()
        told = "step 'mine' could not process some rows; pond.errors() lists them with the reason"
        assert caplog.messages == [told]
    with opened() as pond:
        pond.drain()
        assert caplog.messages == [told], "those of before are known"
        source.push(ROWS)
        pond.drain()
        assert caplog.messages == [told] * 2


def test_a_state_is_not_overwritten(tmp_path: Path) -> None:
    class Overwrites(Process):
        n = ValueState(int, default=0)

        def on_row(self, row: Any, ctx: Any) -> Any:
            self.n = self.n.value + 1
            return {"k": row.k, "n": self.n}

    given, reasons = run(tmp_path, Overwrites)
    assert given == []
    assert len(reasons) == 2 and all("n is a state: set self.n.value" in r for r in reasons)


def test_what_is_not_a_state_is_not_kept(tmp_path: Path) -> None:
    class Forgets(Process):
        n = 0

        def on_row(self, row: Any, ctx: Any) -> Any:
            self.n += 1
            return {"k": row.k, "n": self.n}

    given, reasons = run(tmp_path, Forgets)
    assert given == []
    assert all("declare n = ValueState(...)" in r for r in reasons)


def test_settings_and_caches_are_allowed(tmp_path: Path) -> None:
    class Adds(Process):
        total = ValueState(int, 0)

        def __init__(self, by: int) -> None:
            self.by = by
            self._cache: dict[int, int] | None = None

        def on_row(self, row: Any, ctx: Any) -> Any:
            if self._cache is None:
                self._cache = {}
            times = self._cache.setdefault(row.x, row.x * self.by)
            self.total.value += times
            return {"k": row.k, "n": self.total.value}

    adds = Adds(10)
    assert run(tmp_path, adds) == ([10, 30], [])
    assert adds._cache is None and not hasattr(adds.total, "at"), "the object given is left as it was"


def truth(row: Any, n: Any = ValueState(int, 0)) -> Any:
    return None if n else {"k": row.k, "n": 1}


def equality(row: Any, n: Any = ValueState(int, 0)) -> Any:
    return {"k": row.k, "n": 1} if n == 0 else None


def sums(row: Any, n: Any = ValueState(int, 0)) -> Any:
    n += 1
    return {"k": row.k, "n": n}


def items(row: Any, n: Any = ValueState(default=dict)) -> Any:
    n["a"] = 1
    return {"k": row.k, "n": len(n)}


@pytest.mark.parametrize("code", [truth, equality, sums, items])
def test_a_state_is_not_its_value(tmp_path: Path, code: Any) -> None:
    given, reasons = run(tmp_path, code)
    assert given == []
    assert len(reasons) == 2 and all("n is a state, not its value: write n.value" in r for r in reasons)


class NoState(Process):
    n = ValueState

    def on_row(self, row: Any, ctx: Any) -> Any:
        return None


def no_state(row: Any, n: Any = ValueState) -> Any:
    return None


@pytest.mark.parametrize("code", [NoState, no_state])
def test_a_class_is_not_a_state(tmp_path: Path, code: Any) -> None:
    with pytest.raises(InvalidError, match=re.escape("'n' is the class ValueState, not a state of it")):
        run(tmp_path, code)


def test_every_door_takes_a_dict_of_types(tmp_path: Path) -> None:
    """Sources and tables too: who writes schema={"k": str} for a step writes it everywhere."""
    types = {"k": str, "n": int}
    schema = pa.schema([("k", pa.string()), ("n", pa.int64())])
    assert MemorySource(types).schema == schema
    assert FileSource(tmp_path, format="json", schema=types).schema == schema
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        assert pond.table("t", types, key="k").schema == schema


def test_a_map_does_what_a_dict_does(tmp_path: Path) -> None:
    def counts(row: Any, m: MapState[str, int] = MapState(str, int)) -> Any:
        assert m.setdefault("a", 5) == 5
        m.update({"b": row.x, "c": 0})
        assert m.pop("c") == 0 and m.pop("c") is None and m.pop("c", 7) == 7
        m["a"] += 1
        assert (m["a"], dict(m.items()), "c" in m) == (6, {"a": 6, "b": row.x}, False)
        assert m.pop("a") == 6 and len(m) == 1
        return {"k": row.k, "n": sum(m.values())}

    assert run(tmp_path, counts) == ([1, 2], [])


def test_a_key_can_lose_its_only_row(tmp_path: Path) -> None:
    """Also when no key of the task has one left."""

    def shown(row: Any, ctx: Any) -> Any:
        if row.x == 2:
            ctx.remove()
            return None
        return {"k": row.k, "n": row.x}

    assert run(tmp_path, shown, latest=True) == ([], [])


def test_a_broadcast_map_does_too(tmp_path: Path) -> None:
    class Rules(Process):
        rules = BroadcastState(str, int)

        def on_control(self, row: Any, ctx: Any) -> None:
            if row.n == 0:
                self.rules.clear()
            self.rules.update({row.k: row.n, "gone": 1})
            assert self.rules.pop("gone") == 1 and self.rules.setdefault("b", 3) == 3

        def on_row(self, row: Any, ctx: Any) -> Any:
            return {"k": row.k, "n": sum(self.rules.values())}

    source, control = MemorySource({"k": str}), MemorySource({"k": str, "n": int})
    with millpond.open(tmp_path, engine="inline", parallelism=3) as pond:
        rules = pond.stream("control", control)
        pond.stream("s", source).key_by("k").process(Rules, GIVES, control=rules).view("v")
        control.push([{"k": "a", "n": 4}])
        source.push([{"k": "x"}])
        pond.drain()
        control.push([{"k": "c", "n": 0}])
        source.push([{"k": "y"}])
        pond.drain()
        assert pond.errors().num_rows == 0
        assert {row["k"]: row["n"] for row in pond.read("v").to_pylist()} == {"x": 7, "y": 3}


def test_a_derived_id_is_found_by_its_end(tmp_path: Path) -> None:
    def best(row: Any, n: Any = ValueState(int, 0)) -> Any:
        n.value = max(n.value, row.x)

    source = MemorySource({"k": str, "x": int})
    source.push(ROWS)
    with millpond.open(tmp_path, engine="inline") as pond:
        pond.stream("s", source).key_by("k").process(best, GIVES).view("bests")
        pond.drain()
        assert pond.state("s.best", "n").to_pylist() == [{"k": "a", "n": 2}]
        with pytest.raises(InvalidError, match=re.escape("did you mean 's.best'?")):
            pond.state("best", "n")


def test_a_parameter_without_a_state_is_told(tmp_path: Path) -> None:
    def odd(row: Any, context: Any, n: Any = ValueState(int, 0)) -> Any: ...

    with pytest.raises(InvalidError) as caught:
        run(tmp_path, odd)
    assert caught.value.detail is not None and caught.value.hint is not None
    assert "n: 'Any' = ValueState(...)" in caught.value.detail
    assert "'context' has no default" in caught.value.detail and "then ctx if wanted" in caught.value.hint
