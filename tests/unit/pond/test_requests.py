"""Requests with an id of the client's own count once, whoever sends them again and whatever crashes."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.settings import make_settings
from millpond.state import inbox, request_ids
from millpond.state.store.memory_store import MemoryStore
from millpond.testing.dying_store import Died, DyingStore


def opened(store: DyingStore) -> Pond:
    settings = make_settings(checks=True, durable=False, lease_ms=1, epoch_rows_max=3)
    pond = Pond(store, engine="inline", settings=settings, take_over=True)
    pond.table("t", {"k": int})
    return pond


def test_every_request_counts_once_over_crashes() -> None:
    below = MemoryStore()
    chance = random.Random(2)
    sent: set[int] = set()
    died = 0
    for number in range(12):
        store = DyingStore(below)
        pond = opened(store)
        for _ in range(6):
            k = chance.randrange(20)
            sent.add(k)
            pond.insert("t", [{"k": k}], request=f"r{k}")
            if chance.random() < 0.5:  # a client that does not look first
                args = {"table": "t", "rows": 1, request_ids.TEXT: f"r{k}"}
                payload = inbox.read(below, inbox.numbers(below)[-1]).payload
                if inbox.read(below, inbox.numbers(below)[-1]).args.get(request_ids.TEXT) == f"r{k}":
                    inbox.append(below, "rows", args, payload)
        store.armed_after = None if number == 11 else chance.randrange(4)
        try:
            pond.drain()
            if number == 11:
                assert Counter(r["k"] for r in pond.read("t").to_pylist()) == Counter(sent)
                assert pond.errors().num_rows == 0
        except Died:
            died += 1
        finally:
            store.armed = False
            pond.close()
    assert died > 3


def test_a_request_that_is_known_appends_nothing(tmp_path: Path) -> None:
    with millpond.open(tmp_path, engine="inline", durable=False) as pond:
        pond.table("t", {"k": int})
        first = pond.insert("t", {"k": 1}, request="a")
        second = pond.insert("t", {"k": 1}, request="a")  # not executed yet: it is passed over later
        assert second > first
        pond.drain()
        assert pond.insert("t", {"k": 1}, request="a") == first
        assert pond.insert("t", {"k": 1}) == second + 1
        pond.drain()
        assert pond.read("t").num_rows == 2
        with pytest.raises(InvalidError, match="request"):
            pond.insert("t", {"k": 1}, request=5)  # type: ignore[arg-type]


def test_a_refused_request_does_not_use_its_id_up(tmp_path: Path) -> None:
    with millpond.open(tmp_path, engine="inline", durable=False) as pond:
        pond.table("t", {"k": int})
        pond.drain()
        inbox.append(pond.store, "rows", {"table": "other", "rows": 1, request_ids.TEXT: "a"}, b"")
        pond.drain()
        pond.insert("t", {"k": 7}, request="a")
        pond.drain()
        assert pond.read("t").to_pylist() == [{"k": 7}]


def test_ids_are_forgotten_after_some_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    for number in range(10):
        assert request_ids.claim(store, f"r{number}", number)
        assert request_ids.claim(store, f"r{number}", number)
        assert not request_ids.claim(store, f"r{number}", number + 100)
    monkeypatch.setattr(request_ids, "IDS_KEPT", 4)
    for name in request_ids.expired(store, 10):
        store.delete(name)
    assert [n for n in range(10) if request_ids.claimed_by(store, f"r{n}") is not None] == [6, 7, 8, 9]
    assert len(store.list(request_ids.PREFIX)) == 8


def test_the_collection_forgets_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_ids, "IDS_KEPT", 3)
    with millpond.open(tmp_path, engine="inline", durable=False, retain_epochs=1, collect_every=1) as pond:
        pond.table("t", {"k": int})
        for number in range(20):
            pond.insert("t", {"k": number}, request=f"r{number}")
            pond.drain()
        assert request_ids.claimed_by(pond.store, "r19") is not None
        assert request_ids.claimed_by(pond.store, "r0") is None


def test_requests_with_a_number_count_once_and_for_ever(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.table("t", {"n": int})
        pond.drain()
        for number, n in [(0, 1), (0, 1), (1, 2), (0, 1), (1, 2)]:
            pond.insert("t", {"n": n}, request=("shop", number))
            pond.insert("t", {"n": n + 100}, request=("other", number))
        pond.drain()
        pond.insert("t", {"n": 1}, request=("shop", 1))
        pond.insert("t", {"n": 3}, request=("shop", 5))
        pond.drain()
        assert sorted(pond.read("t")["n"].to_pylist()) == [1, 2, 3, 101, 102]
        pond.backup(tmp_path / "backup")
    millpond.restore(tmp_path / "backup", tmp_path / "restored")
    with millpond.open(tmp_path / "restored", engine="inline", durable=False) as pond:
        pond.insert("t", {"n": 3}, request=("shop", 5))
        pond.drain()
        assert sorted(pond.read("t")["n"].to_pylist()) == [1, 2, 3, 101, 102]


@pytest.mark.parametrize(
    "request_", ["", 7, ("shop",), ("shop", -1), ("shop", True), ("", 1), (1, "shop"), ["a", 1]]
)
def test_wrong_ids_are_refused(request_: Any, tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as pond:
        pond.table("t", {"n": int})
        pond.drain()
        with pytest.raises(InvalidError, match="the id of a request is a text"):
            pond.insert("t", {"n": 1}, request=request_)
