"""Listings: which runs make up a table, and the cache of pages behind them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from millpond.errors import DataError
from millpond.state.manifest import listing
from millpond.state.manifest.listing import Listing, PageCache, live_runs
from millpond.state.manifest.manifest import Manifest, Page, encode_page, run_id
from millpond.state.runs.run_ref import RunRef
from millpond.state.store.memory_store import MemoryStore


def ref(table: str, number: int, bucket: int | None = None) -> RunRef:
    return RunRef(table, f"runs/1/{number}", 0, bucket, number, number, 1, 9, 0, 7, "delta")


def test_a_listing_is_pages_less_gone_plus_recent() -> None:
    store = MemoryStore()
    store.put_new("pages/1", encode_page([ref("a", 1), ref("b", 2)]))
    store.put_new("pages/2", encode_page([ref("a", 3)]))
    gone = (run_id(ref("a", 1)),)
    manifest = Manifest(
        "p", 1, 1, "n", 1, pages=(Page("pages/1", 2), Page("pages/2", 1)), recent=(ref("a", 4),), gone=gone
    )
    found = Listing.of(manifest, PageCache(store))
    assert found.tables() == ["a", "b"]
    assert found.runs("a") == [ref("a", 3), ref("a", 4)]
    assert found.all() == [ref("a", 3), ref("a", 4), ref("b", 2)]
    assert found.runs("c") == []


def test_the_earliest_bucket_is_of_bucketed_runs_only() -> None:
    found = Listing([ref("a", 1, 7), ref("a", 2, -3), ref("b", 3)])
    assert found.earliest_bucket("a") == -3
    assert found.earliest_bucket("b") is None
    assert found.earliest_bucket("c") is None


class Counting(MemoryStore):
    reads = 0

    def get(self, name: str) -> bytes:
        self.reads += 1
        return super().get(name)


def test_a_page_is_read_once_and_what_is_kept_follows_what_an_epoch_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that runs for days sees pages without end, and each is hundreds of runs."""
    monkeypatch.setattr(listing, "PAGES_SPARE", 1)
    store = Counting()
    for number in range(20):
        store.put_new(f"pages/{number}", encode_page([ref("a", number)]))
    cache = PageCache(store)
    for number in range(18):
        epoch = [Page(f"pages/{number}", 1), Page(f"pages/{number + 1}", 1), Page(f"pages/{number + 2}", 1)]
        for _ in range(2):
            found = live_runs(epoch, (), (), cache)
            assert [r.lo for r in found] == [ref("a", n).lo for n in range(number, number + 3)]
        assert len(cache._pages) <= 1 + 2 * 3
    assert store.reads == 20
    cache.read("pages/0")
    assert store.reads == 21


def test_a_page_that_is_missing_or_damaged_is_named() -> None:
    store = MemoryStore()
    store.put_new("pages/1", b"{}")
    with pytest.raises(DataError, match="pages/1 cannot be read"):
        live_runs([Page("pages/1", 1)], (), (), PageCache(store))


def test_threads_share_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers, merges and the chain look at once: between two looks another may drop an entry."""
    monkeypatch.setattr(listing, "PAGES_SPARE", 1)
    store = MemoryStore()
    for number in range(2):
        store.put_new(f"pages/{number}", encode_page([ref("a", number)]))
    cache = PageCache(store)

    class Guarded(OrderedDict[str, tuple[RunRef, ...]]):
        touched = 0

        def __getattribute__(self, name: str) -> Any:
            if name in ("get", "move_to_end", "popitem"):
                assert cache._lock.locked()
                Guarded.touched += 1
            return super().__getattribute__(name)

    cache._pages = Guarded()
    for number in (0, 0, 1, 0):
        assert cache.read(f"pages/{number}") == (ref("a", number),)
        cache.trim(0)
    assert Guarded.touched > 4
