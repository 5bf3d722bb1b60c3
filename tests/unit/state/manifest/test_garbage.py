"""Garbage: what goes, what stays, and what nobody may touch (law 6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millpond.state import inbox
from millpond.state.manifest.garbage import Collection, Facts, collect
from millpond.state.manifest.history import epochs
from millpond.state.manifest.listing import PageCache
from millpond.state.manifest.manifest import Manifest, encode_page, fold, manifest_name, run_id
from millpond.state.manifest.pins import pin
from millpond.state.runs.run_ref import RunRef
from millpond.state.store.memory_store import MemoryStore
from millpond.state.store.store import MissingError

TOKEN = 2


def ref(file: str, lo: int, kind: Any = "delta") -> RunRef:
    return RunRef("t", file, 0, None, lo, lo, 1, 9, 0, 7, kind)


class Pond:
    """A chain in which every epoch adds one run, and every fourth merges all before it."""

    def __init__(self, length: int, *, fold_at: int = 6) -> None:
        self.store = MemoryStore()
        self.pages = PageCache(self.store)
        self.head = Manifest("p", 0, TOKEN, "n0", 0)
        self.store.put_new(manifest_name(0), self.head.encode())
        self.live: list[RunRef] = []
        for epoch in range(1, length + 1):
            self.commit(epoch, fold_at)

    def run(self, epoch: int, tag: str = "0-0", token: int = TOKEN) -> str:
        name = f"runs/{token}/{epoch:016d}-{tag}-x"
        self.store.put_new(name, b"run")
        return name

    def commit(self, epoch: int, fold_at: int) -> None:
        added, removed = [ref(self.run(epoch), epoch)], []
        if epoch % 4 == 0:
            removed = [run_id(r) for r in self.live]
            added.append(ref(self.run(epoch - 1, "c-0"), epoch - 1, "merge"))
        new = fold(
            self.head.pages,
            self.head.recent,
            self.head.gone,
            added,
            removed,
            read_page=self.pages.read,
            name_page=lambda: f"pages/{epoch:016d}-x",
            fold_at=fold_at,
        )
        for name, refs in new.new_pages:
            self.store.put_new(name, encode_page(refs))
        self.live = [r for r in self.live if run_id(r) not in removed] + added
        self.head = replace(
            self.head,
            epoch=epoch,
            nonce=f"n{epoch}",
            pages=new.pages,
            recent=new.recent,
            gone=new.gone,
            added=tuple(added),
            removed=tuple(removed),
            positions={"inbox": epoch},
        )
        inbox.append(self.store, "rows", {}, start=epoch - 1)
        self.store.put_new(manifest_name(epoch), self.head.encode())

    def collect(self, floor: int, *, now_us: int = 100, **options: Any) -> Collection:
        head = replace(self.head, floor=floor, savepoints=options.pop("savepoints", {}))
        options = {"spare_from": self.head.epoch, "token": TOKEN, **options}
        return collect(self.store, head, now_us=now_us, pages=PageCache(self.store), **options)

    def readable(self, epoch: int) -> bool:
        """Is everything there that reading this epoch, and its changes, takes?"""
        try:
            manifest = Manifest.decode(self.store.get(manifest_name(epoch)))
            files = [p.name for p in manifest.pages] + [r.file for r in manifest.added]
            for page in manifest.pages:
                gone = set(manifest.gone)
                files += [r.file for r in PageCache(self.store).read(page.name) if run_id(r) not in gone]
            for name in [*files, *(r.file for r in manifest.recent)]:
                self.store.get(name)
        except MissingError:
            return False
        return True


def test_what_is_below_the_floor_goes_and_the_rest_stays() -> None:
    pond = Pond(20)
    done = pond.collect(15)
    assert epochs(pond.store) == list(range(15, 21))
    assert done.manifests == 15
    assert done.files > 8
    assert all(pond.readable(e) for e in range(15, 21))
    assert not any(pond.readable(e) for e in range(15))


def test_nothing_is_left_that_no_kept_epoch_needs() -> None:
    pond = Pond(20)
    pond.collect(20)
    manifest = pond.head
    wanted = {r.file for r in pond.live} | {r.file for r in manifest.added}
    # What this coordinator may still commit is spared: runs named by the head's epoch or later.
    assert set(pond.store.list("runs/")) == wanted
    assert set(pond.store.list("pages/")) == {p.name for p in manifest.pages}


def test_collecting_again_finds_nothing() -> None:
    pond = Pond(20)
    pond.collect(15)
    assert pond.collect(15) == Collection()


@pytest.mark.parametrize("keep", ["savepoint", "pin", "fork"])
def test_a_kept_epoch_below_the_floor_stays_whole_with_its_parent(keep: str) -> None:
    pond = Pond(20)
    options: dict[str, Any] = {}
    if keep == "savepoint":
        options["savepoints"] = {"s": 7}
    else:
        pin(pond.store, 7, 200 if keep == "pin" else None)
    pond.collect(15, **options)
    # A reader goes on from the epoch it holds to the newest: the manifests in between stay, without files.
    between = range(8, 15) if keep == "pin" else ()
    assert epochs(pond.store) == [6, 7, *between, *range(15, 21)]
    assert keep != "pin" or not all(pond.readable(e) for e in between)
    assert pond.readable(6)
    assert pond.readable(7)


def test_a_stretch_stays_whole() -> None:
    pond = Pond(20)
    pin(pond.store, 7, 200, last=11)
    pond.collect(15)
    assert epochs(pond.store) == list(range(6, 21))
    assert all(pond.readable(e) for e in range(6, 12))


def test_an_expired_pin_keeps_nothing_and_goes() -> None:
    pond = Pond(20)
    pin(pond.store, 7, 99)
    pond.collect(15)
    assert epochs(pond.store) == list(range(15, 21))
    assert pond.store.list("pins/") == []


def test_what_a_running_job_may_still_commit_is_spared() -> None:
    pond = Pond(20)
    running = [pond.run(21), pond.run(18, "c-9"), pond.run(25, token=TOKEN + 1)]
    page = "pages/0000000000000021-y"
    pond.store.put_new(page, b"page")
    dead = [pond.run(17, "c-9"), pond.run(30, token=TOKEN - 1)]
    pond.collect(15, spare_from=18)
    assert all(pond.store.size(name) is not None for name in [*running, page])
    assert all(pond.store.size(name) is None for name in dead)


def test_a_collector_that_was_overtaken_deletes_nothing_that_is_needed() -> None:
    """Its list of epochs is old: the new coordinator has collected them, and lives on the same files."""
    pond = Pond(10)
    old = pond.head
    for epoch in range(11, 14):  # goes on with the runs of the old token
        pond.commit(epoch, 6)
    for epoch in range(11):
        pond.store.delete(manifest_name(epoch))

    class Stale(MemoryStore):
        def __init__(self, base: MemoryStore) -> None:
            super().__init__()
            self._files = base._files

        def list(self, prefix: str, after: str | None = None) -> list[str]:
            if prefix == "manifests/":
                return [manifest_name(e) for e in range(old.epoch + 1)]
            return super().list(prefix, after)

    done = collect(
        Stale(pond.store), replace(old, floor=8), spare_from=10, token=TOKEN, now_us=100, pages=pond.pages
    )
    assert done == Collection()
    assert all(pond.readable(e) for e in range(11, 14))


def test_a_hole_in_what_must_be_kept_stops_the_collection() -> None:
    """The files of a lost manifest are what a restored copy of it needs."""
    pond = Pond(20)
    pond.store.delete(manifest_name(17))
    before = pond.store.list("")
    assert pond.collect(15) == Collection()
    assert pond.store.list("") == before


def test_facts_of_epochs_are_read_once() -> None:
    pond = Pond(20)
    facts: Facts = {}
    pond.collect(10, facts=facts)
    assert sorted(facts) == list(range(10, 21))
    reads: list[str] = []
    get = pond.store.get
    pond.store.get = lambda name: reads.append(name) or get(name)  # type: ignore[method-assign,func-returns-value]
    pond.collect(15, facts=facts)
    assert sorted(facts) == list(range(15, 21))
    assert len([name for name in reads if name.startswith("manifests/")]) <= 2
    assert all(pond.readable(e) for e in range(15, 21))


def test_executed_entries_go_but_the_last_of_them() -> None:
    pond = Pond(20)
    pond.collect(15, savepoints={"s": 3})
    numbers = [int(name[6:]) for name in pond.store.list("inbox/")]
    assert numbers == list(range(14, 20)), "the savepoint's epoch read no entry"
    assert inbox.append(pond.store, "rows", {}, start=20) == 20
