"""The chain of manifests: finding the newest, and saying what is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millpond.errors import DataError, InvalidError
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest, manifest_name
from millpond.state.store.memory_store import MemoryStore


def chain(store: MemoryStore, *epochs: int, **facts: Any) -> None:
    for epoch in epochs:
        store.put_new(manifest_name(epoch), Manifest("p", epoch, 1, f"n{epoch}", epoch, **facts).encode())


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_no_manifest_is_no_pond(store: MemoryStore) -> None:
    assert history.read_head(store) is None
    assert history.newer_head(store, None) is None


def test_the_head_is_the_newest(store: MemoryStore) -> None:
    chain(store, *range(12))
    head = history.read_head(store)
    assert head is not None
    assert head.epoch == 11
    assert history.epochs(store) == list(range(12))


def test_a_missing_manifest_in_the_middle_is_damage(store: MemoryStore) -> None:
    chain(store, *range(8))
    store.delete(manifest_name(5))
    with pytest.raises(DataError, match="manifest of epoch 5 is missing") as caught:
        history.read_head(store)
    assert caught.value.epoch == 5
    assert "up to epoch 7, the floor is 0" in (caught.value.detail or "")


def test_the_oldest_manifest_that_must_be_kept_is_missed_too(store: MemoryStore) -> None:
    chain(store, *range(8), floor=3)
    store.delete(manifest_name(3))
    for epoch in range(3):
        store.delete(manifest_name(epoch))
    with pytest.raises(DataError, match="manifest of epoch 3 is missing"):
        history.read_head(store)


def test_gaps_below_the_floor_are_what_collection_leaves(store: MemoryStore) -> None:
    chain(store, 2, 5, 6, 7, floor=5, savepoints={"s": 2})
    head = history.read_head(store)
    assert head is not None
    assert head.epoch == 7


class Moving(MemoryStore):
    """Old manifests go, and new ones come, while somebody lists."""

    def __init__(self) -> None:
        super().__init__()
        self.stale: list[list[str]] = []

    def list(self, prefix: str, after: str | None = None) -> list[str]:
        return self.stale.pop(0) if self.stale else super().list(prefix, after)


def test_a_listing_made_during_a_collection_is_made_again() -> None:
    store = Moving()
    chain(store, *range(4, 9), floor=4)
    store.stale = [[manifest_name(e) for e in (4, 7, 8)]]
    head = history.read_head(store)
    assert head is not None
    assert head.epoch == 8


def test_an_epoch_that_is_not_there_says_which_are(store: MemoryStore) -> None:
    chain(store, 4, 5)
    with pytest.raises(InvalidError, match="epoch 3 is not in this pond") as caught:
        history.read_manifest(store, 3)
    assert caught.value.detail == "epochs 4 to 5 are retained"
    assert history.find_manifest(store, 3) is None


def test_looking_again_finds_what_came_since(store: MemoryStore) -> None:
    chain(store, 0, 1)
    known = history.read_head(store)
    assert history.newer_head(store, known) == known
    chain(store, 2, 3, 4)
    head = history.newer_head(store, known)
    assert head is not None
    assert head.epoch == 4


def test_looking_again_from_an_epoch_that_was_collected(store: MemoryStore) -> None:
    chain(store, 0, 1)
    known = history.read_head(store)
    for epoch in (0, 1):
        store.delete(manifest_name(epoch))
    chain(store, 7, 8, floor=7)
    head = history.newer_head(store, known)
    assert head is not None
    assert head.epoch == 8


def test_a_head_older_than_one_that_was_seen_is_damage(store: MemoryStore) -> None:
    chain(store, 0, 1, 2)
    seen = history.read_head(store)
    assert seen is not None
    older = history.read_manifest(store, 1)
    history.require_not_older(store, older, seen)  # a listing that lags: the manifest is there
    store.delete(manifest_name(2))
    history.require_not_older(store, older, None)
    history.require_not_older(store, older, history.read_head(store))
    history.require_not_older(store, replace(older, pond="another"), seen)
    with pytest.raises(DataError, match="the manifest of epoch 2 is missing"):
        history.require_not_older(store, older, seen)
