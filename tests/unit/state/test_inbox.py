"""The inbox: every entry has a place of its own, none is skipped, none is put where nobody looks again."""

from __future__ import annotations

import threading

import pytest

from millpond.errors import DataError
from millpond.state import inbox
from millpond.state.manifest.manifest import Manifest, manifest_name
from millpond.state.store.memory_store import MemoryStore
from millpond.state.store.store import Data, Put, PutUnknownError, StoreError


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


def committed(store: MemoryStore, position: int, epoch: int = 0) -> None:
    """Make the store a pond that has executed all entries before `position`."""
    made = Manifest("p", epoch, 1, f"n{epoch}", 0, positions={"inbox": position})
    store.put_new(manifest_name(epoch), made.encode())


def with_entries(count: int, store: MemoryStore | None = None) -> MemoryStore:
    made = store or MemoryStore()
    for number in range(count):
        inbox.append(made, "rows", {"n": number})
    return made


def test_entries_before_a_lost_one_are_given_and_then_it_is_named() -> None:
    store = with_entries(5)
    store.delete(inbox.entry_name(2))
    assert [e.number for e in inbox.beyond(store, 0)] == [0, 1]
    with pytest.raises(DataError, match="inbox entry 2 is missing"):
        inbox.beyond(store, 2)


def test_nothing_is_written_behind_a_lost_entry() -> None:
    store = with_entries(5)
    committed(store, 1)
    store.delete(inbox.entry_name(2))
    with pytest.raises(DataError, match="inbox entry 2 is missing"):
        inbox.append(store, "rows", {}, start=1)
    assert inbox.numbers(store) == [0, 1, 3, 4]


def test_entries_that_were_executed_and_collected_are_not_lost() -> None:
    """Also for who knows only an older position."""
    store = with_entries(8)
    committed(store, 6)
    for number in range(5):
        store.delete(inbox.entry_name(number))
    assert inbox.append(store, "rows", {}) == 8
    assert [e.number for e in inbox.beyond(store, 6)] == [6, 7, 8]
    assert inbox.beyond(store, 2) == []


class Lagging(MemoryStore):
    """A listing that does not show some names yet; reading them by name works."""

    hidden: tuple[str, ...] = ()

    def list(self, prefix: str, after: str | None = None) -> list[str]:
        return [name for name in super().list(prefix, after) if name not in self.hidden]


def test_a_listing_that_lags_behind_is_no_gap() -> None:
    store = Lagging()
    with_entries(5, store)
    committed(store, 0)
    committed(store, 3, epoch=1)
    store.hidden = (inbox.entry_name(3), manifest_name(1))
    assert [e.number for e in inbox.beyond(store, 3)] == [3, 4]
    assert inbox.append(store, "rows", {}, start=3) == 5
    store.delete(inbox.entry_name(2))
    assert inbox.append(store, "rows", {}) == 6, "executed, by a manifest that the listing does not show"


def test_files_that_are_no_entries_are_left_alone() -> None:
    store = with_entries(2)
    store.put_new("inbox/notes.txt", b"mine")
    assert inbox.append(store, "rows", {}) == 2
    assert [e.number for e in inbox.beyond(store, 0)] == [0, 1, 2]


def test_every_byte_of_an_entry_is_verified() -> None:
    raw = inbox.encode("rows", {"table": "t", "n": 1}, b"\npay\nload", id="x")
    assert inbox.parse(3, raw) == inbox.Entry(3, "rows", {"table": "t", "n": 1}, b"\npay\nload")
    for place in range(len(raw)):
        for bit in (1, 4, 128):
            flipped = raw[:place] + bytes([raw[place] ^ bit]) + raw[place + 1 :]
            with pytest.raises(DataError, match="inbox entry 3 cannot be read"):
                inbox.parse(3, flipped)
    for cut in range(len(raw)):
        with pytest.raises(DataError, match="inbox entry 3 cannot be read"):
            inbox.parse(3, raw[:cut])


def test_entries_written_before_there_were_checksums_are_read() -> None:
    raw = b'{"kind": "rows", "args": {"n": 1}, "id": "0011223344556677"}\npayload'
    assert inbox.parse(0, raw) == inbox.Entry(0, "rows", {"n": 1}, b"payload")


@pytest.mark.parametrize("head", [b'{"kind": 1, "args": {}}', b'{"kind": "rows", "args": [1]}'])
def test_an_intact_entry_that_makes_no_sense_is_for_the_executor_to_refuse(head: bytes) -> None:
    assert inbox.parse(0, head + b"\n").kind == ""


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


def test_a_put_that_the_network_repeats_makes_one_entry() -> None:
    """A proxy may send a put again whose answer was lost: the second answer says that the name is taken."""

    class Repeating(MemoryStore):
        def put_new(self, name: str, data: Data) -> Put:
            super().put_new(name, data)
            return super().put_new(name, data)

    store = Repeating()
    assert [inbox.append(store, "rows", {"n": n}) for n in (1, 2)] == [0, 1]
    assert [e.args for e in inbox.beyond(store, 0)] == [{"n": 1}, {"n": 2}]


def test_an_entry_that_cannot_be_read_back_stays_in_doubt() -> None:
    class Silent(Doubtful):
        def get(self, name: str) -> bytes:
            raise StoreError("the storage did not answer")

    with pytest.raises(PutUnknownError, match="cannot say whether inbox entry 0 was written"):
        inbox.append(Silent(landed=True), "rows", {"n": 1})


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
            committed(self, self.collected_to + 1)
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
