"""The inbox: every entry has a place of its own, none is skipped, none is put where nobody looks again."""

from __future__ import annotations

import threading

import pytest

from millpond.errors import DataError
from millpond.state import inbox
from millpond.state.memory_store import MemoryStore
from millpond.state.store import Data, Put, PutUnknownError, StoreError


def test_entries_come_back_in_order() -> None:
    store = MemoryStore()
    for number in range(5):
        assert inbox.append(store, "rows", {"n": number}, b"\nraw\n%d" % number) == number
    found = inbox.beyond(store, 2)
    assert [(e.number, e.kind, e.args, e.payload) for e in found] == [
        (n, "rows", {"n": n}, b"\nraw\n%d" % n) for n in (2, 3, 4)
    ]
    assert [e.number for e in inbox.beyond(store, 0, limit=2)] == [0, 1]
    assert inbox.beyond(store, 5) == []
    assert inbox.read(store, 3).name == "inbox/0000000000000003"


def test_no_more_than_fits_is_read_at_once() -> None:
    store = MemoryStore()
    for _ in range(5):
        inbox.append(store, "rows", {}, b"x" * 100)
    assert len(inbox.beyond(store, 0, bytes_max=150)) == 2
    assert len(inbox.beyond(store, 0, bytes_max=1)) == 1


def test_a_place_that_cannot_be_checked_is_told_as_a_doubt() -> None:
    class Half(MemoryStore):
        def list(self, prefix: str, after: str | None = None) -> list[str]:
            if after is not None:
                raise StoreError("down")
            return super().list(prefix, after)

    store = Half()
    with pytest.raises(PutUnknownError, match="inbox entry 0 is written"):
        inbox.append(store, "rows", {})
    assert store.list("inbox/") == [inbox.entry_name(0)]


def test_an_entry_behind_a_gap_waits() -> None:
    store = MemoryStore()
    inbox.append(store, "rows", {})
    inbox.append(store, "rows", {}, start=3)
    assert [e.number for e in inbox.beyond(store, 0)] == [0]


def test_many_writers_get_a_place_each() -> None:
    store = MemoryStore()
    places: list[int] = []

    def write(who: int) -> None:
        for turn in range(20):
            places.append(inbox.append(store, "rows", {"who": who, "turn": turn}))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(places) == list(range(80))
    assert len(inbox.beyond(store, 0)) == 80


class Doubtful(MemoryStore):
    """The answer of the first put is lost, after or before it landed."""

    def __init__(self, *, landed: bool, other: bytes | None = None) -> None:
        super().__init__()
        self.landed = landed
        self.other = other
        self.asked = 0

    def put_new(self, name: str, data: Data) -> Put:
        self.asked += 1
        if self.asked == 1:
            if self.landed:
                super().put_new(name, data)
            elif self.other is not None:
                super().put_new(name, self.other)
            raise PutUnknownError("no answer")
        return super().put_new(name, data)


@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_makes_one_entry(landed: bool) -> None:
    store = Doubtful(landed=landed)
    assert inbox.append(store, "rows", {"n": 1}) == 0
    assert [e.args for e in inbox.beyond(store, 0)] == [{"n": 1}]


def test_a_lost_answer_and_another_in_its_place() -> None:
    store = Doubtful(landed=False, other=b'{"kind":"rows","args":{"n":2}}\n')
    assert inbox.append(store, "rows", {"n": 1}) == 1
    assert [e.args for e in inbox.beyond(store, 0)] == [{"n": 2}, {"n": 1}]


def test_equal_entries_are_told_apart() -> None:
    """Another client's equal entry in the place we asked for is not ours."""
    store = MemoryStore()
    inbox.append(store, "rows", {"n": 1})
    store = Doubtful(landed=False, other=store.get("inbox/0000000000000000"))
    inbox.append(store, "rows", {"n": 1})
    assert len(inbox.beyond(store, 0)) == 2


class Slow(MemoryStore):
    """Between the listing and the put of a writer, others write, are executed and collected."""

    def __init__(self, collected_to: int) -> None:
        super().__init__()
        self.collected_to = collected_to
        self.slept = False

    def put_new(self, name: str, data: Data) -> Put:
        if not self.slept:
            self.slept = True
            for number in range(self.collected_to + 4):
                super().put_new(inbox.entry_name(number), b'{"kind":"rows","args":{}}\n')
            for number in range(self.collected_to):
                self.delete(inbox.entry_name(number))
        return super().put_new(name, data)


@pytest.mark.parametrize("before", [0, 3])
def test_a_place_that_was_used_and_collected_is_not_taken_again(before: int) -> None:
    """The entry would lie below the position, and never be executed."""
    store = Slow(collected_to=8)
    for number in range(before):
        store._files[inbox.entry_name(number)] = b'{"kind":"rows","args":{}}\n'
    assert inbox.append(store, "rows", {"mine": True}) == 12
    assert [e.args for e in inbox.beyond(store, 8)][-1] == {"mine": True}
    assert store.list("inbox/")[0] == inbox.entry_name(8)


def test_storage_that_does_not_answer_is_told() -> None:
    class Down(MemoryStore):
        def put_new(self, name: str, data: Data) -> Put:
            raise StoreError("down")

    with pytest.raises(StoreError, match="down"):
        inbox.append(Down(), "rows", {})


@pytest.mark.parametrize("raw", [b"", b"{}\n", b"[1]\n", b"\xff\n", b'{"kind":"rows"}\nx'])
def test_an_entry_that_cannot_be_read_is_named(raw: bytes) -> None:
    with pytest.raises(DataError, match="inbox entry 7 cannot be read"):
        inbox.parse(7, raw)
