"""Forks: they begin as the parent was, go on by themselves, and never touch the parent."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

import millpond
from millpond.errors import ConflictError, InvalidError
from millpond.pond import Pond
from millpond.state.manifest.fork import fork
from millpond.state.manifest.manifest import Manifest
from millpond.state.manifest.pins import pins
from millpond.state.store.memory_store import MemoryStore
from millpond.state.store.store import Data, NotWritableError, Put, PutUnknownError, Store, open_store

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def opened(path: Path, **settings: Any) -> Pond:
    settings = {"durable": False, "checks": True, **settings}
    return millpond.open(path, engine="inline", **settings)


@pytest.fixture
def parent(tmp_path: Path) -> Pond:
    pond = opened(tmp_path / "parent")
    rows = pond.table("t", SCHEMA, key="k")
    rows.aggregate(n="count(*)", s="sum(v)").view("total")
    pond.drain()
    for number in range(6):
        pond.insert("t", [{"k": 1, "v": number}, {"k": 10 + number, "v": number}])
        pond.drain()
    return pond


def child_of(parent: Pond, path: Path, epoch: int) -> Store:
    store = open_store(path.as_uri(), durable=False)
    first = fork(parent.store, store, epoch, pond="child", now_us=0)
    assert first.kind == "fork"
    return store


def rows(pond: Pond, view: str = "t") -> dict[int, int]:
    return {r["k"]: r["v"] for r in pond.read(view).to_pylist()}


def test_a_fork_begins_as_its_parent_was(parent: Pond, tmp_path: Path) -> None:
    epoch = parent.epoch
    for wanted in (epoch, epoch - 2):
        child_of(parent, tmp_path / f"c{wanted}", wanted)
        child = opened(tmp_path / f"c{wanted}")
        assert rows(child) == {r["k"]: r["v"] for r in parent.read("t", epoch=wanted).to_pylist()}
        assert child.head().pond == "child"


def test_a_fork_goes_on_and_its_changes_are_newer_than_its_parents(parent: Pond, tmp_path: Path) -> None:
    """Epochs of a fork start at zero, so what it took over must count as older than that."""
    child_of(parent, tmp_path / "c", parent.epoch)
    with opened(tmp_path / "c") as child:
        child.insert("t", [{"k": 1, "v": 100}])
        child.delete("t", [{"k": 10, "v": 0}])
        child.drain()
        assert rows(child) == {1: 100, 11: 1, 12: 2, 13: 3, 14: 4, 15: 5}
        assert child.read("total").to_pylist() == [{"n": 6, "s": 115}]
        child.compact()
        assert rows(child)[1] == 100
    assert rows(parent)[1] == 5
    assert parent.read("total").to_pylist() == [{"n": 7, "s": 20}]


def test_merges_of_a_fork_take_the_place_of_the_parents_runs(parent: Pond, tmp_path: Path) -> None:
    child_of(parent, tmp_path / "c", parent.epoch)
    with opened(tmp_path / "c", fan_in=2) as child:
        for number in range(4):
            child.insert("t", [{"k": 1, "v": 200 + number}])
            child.drain()
            assert rows(child)[1] == 200 + number
        child.compact()
        assert not any("!" in r.file for r in child._runner.coordinator.live.values())
        assert rows(child) == {1: 203, 10: 0, 11: 1, 12: 2, 13: 3, 14: 4, 15: 5}


def test_a_fork_of_a_fork(parent: Pond, tmp_path: Path) -> None:
    child_of(parent, tmp_path / "c", parent.epoch)
    child = opened(tmp_path / "c")
    child.insert("t", [{"k": 1, "v": 100}])
    child.drain()
    child_of(child, tmp_path / "g", child.epoch)
    grandchild = opened(tmp_path / "g")
    assert rows(grandchild) == rows(child)
    grandchild.insert("t", [{"k": 1, "v": 1000}])
    grandchild.drain()
    assert rows(grandchild)[1] == 1000
    assert rows(child)[1] == 100


def test_the_parent_keeps_what_a_fork_names(parent: Pond, tmp_path: Path) -> None:
    epoch = parent.epoch - 3
    before = {r["k"]: r["v"] for r in parent.read("t", epoch=epoch).to_pylist()}
    store = child_of(parent, tmp_path / "c", epoch)
    parent.close()
    with opened(tmp_path / "parent", retain_epochs=1, collect_every=1, fan_in=2) as again:
        for number in range(12):
            again.insert("t", [{"k": 2, "v": number}])
            again.drain()
        assert again.head().floor > epoch
        assert [p.epoch for p in pins(again.store) if p.expires_us is None] == [epoch]
    assert rows(opened(tmp_path / "c")) == before
    assert store.list("runs/") == []


def test_an_epoch_that_is_gone_cannot_be_forked_and_leaves_no_pin(parent: Pond, tmp_path: Path) -> None:
    store = open_store((tmp_path / "c").as_uri(), durable=False)
    with pytest.raises(InvalidError, match="epoch 99 cannot be forked"):
        fork(parent.store, store, 99, pond="child", now_us=0)
    assert [p for p in pins(parent.store) if p.expires_us is None] == []
    empty = open_store((tmp_path / "nothing").as_uri(), durable=False)
    with pytest.raises(InvalidError, match="cannot be forked"):
        fork(empty, store, 0, pond="child", now_us=0)
    assert empty.list("pins/") == []


def test_a_fork_needs_an_empty_place(parent: Pond, tmp_path: Path) -> None:
    child_of(parent, tmp_path / "c", parent.epoch)
    with pytest.raises(ConflictError, match="there is a pond here already"):
        child_of(parent, tmp_path / "c", parent.epoch)
    assert len([p for p in pins(parent.store) if p.expires_us is None]) == 1


class Doubtful(MemoryStore):
    """Puts of manifests have no answer, before or after they took effect."""

    def __init__(self, *, takes: int, told: Put | None = None) -> None:
        super().__init__()
        self.takes = takes  # the put that takes effect
        self.told = told

    def put_new(self, name: str, data: Data) -> Put:
        if not name.startswith("manifests/"):
            return super().put_new(name, data)
        self.takes -= 1
        outcome = super().put_new(name, data) if self.takes == 0 else None
        if outcome is not None and self.told is not None:
            return self.told
        raise PutUnknownError("no answer")


@pytest.mark.parametrize(
    "child", [Doubtful(takes=1), Doubtful(takes=2), Doubtful(takes=1, told=Put.LOST)], ids=lambda c: c.takes
)
def test_a_fork_whose_outcome_is_unknown_is_read_back(parent: Pond, child: Doubtful) -> None:
    first = fork(parent.store, child, parent.epoch, pond="child", now_us=0)
    assert Manifest.decode(child.get("manifests/0000000000000000")) == first
    assert [p.epoch for p in pins(parent.store) if p.expires_us is None] == [parent.epoch]


def test_a_fork_that_may_exist_keeps_its_pin_and_one_that_cannot_exist_does_not(parent: Pond) -> None:
    with pytest.raises(PutUnknownError):
        fork(parent.store, Doubtful(takes=99), parent.epoch, pond="child", now_us=0)
    assert len([p for p in pins(parent.store) if p.expires_us is None]) == 1
    full = MemoryStore()
    full.put_new = Mock(side_effect=NotWritableError("full"))  # type: ignore[method-assign]
    with pytest.raises(NotWritableError):
        fork(parent.store, full, parent.epoch, pond="child", now_us=0)
    assert len([p for p in pins(parent.store) if p.expires_us is None]) == 1


def test_names_cursors_and_the_inbox_stay_with_the_parent(parent: Pond, tmp_path: Path) -> None:
    parent.savepoint("s")
    child = child_of(parent, tmp_path / "c", parent.epoch)
    first = Manifest.decode(child.get("manifests/0000000000000000"))
    assert (first.savepoints, first.cursors, first.floor) == ({}, {}, 0)
    assert "inbox" not in first.positions
    assert first.metrics == {"parent": parent.head().pond, "parent_epoch": parent.epoch}
