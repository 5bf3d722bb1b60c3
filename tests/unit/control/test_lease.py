"""The lease: rising renewals, silence by the reader's own clock, and nobody beats for a pond that is not theirs."""

from __future__ import annotations

import os

import pytest

from millpond.control import lease, process_name
from millpond.control.lease import Beat, Keeper, beat, latest, silent_for
from millpond.state.store.memory_store import MemoryStore
from millpond.state.store.store import Data, Put, StoreError
from tests.waiting import until


def test_no_beat_is_no_lease() -> None:
    assert latest(MemoryStore()) is None


def test_the_newest_beat_counts_and_old_ones_go() -> None:
    store = MemoryStore()
    for number in range(20):
        beat(store, number, "a:1")
    assert latest(store) == Beat(19, "a:1", False)
    assert len(store.list(lease.PREFIX)) == 3
    beat(store, 20, "a:1", released=True)
    assert latest(store) == Beat(20, "a:1", True)


def test_a_beat_that_is_swept_while_it_is_read() -> None:
    class Sweeping(MemoryStore):
        def get(self, name: str) -> bytes:
            if name.endswith("4"):
                self.delete(name)
                super().put_new(f"{lease.PREFIX}{9:016d}", b'{"holder": "b:2", "released": false}')
            return super().get(name)

    store = Sweeping()
    beat(store, 4, "a:1")
    assert latest(store) == Beat(9, "b:2", False)


def test_a_keeper_renews_until_it_is_released() -> None:
    store = MemoryStore()
    keeper = Keeper(store, lease_ms=20)
    first = latest(store)
    assert first is not None
    assert first.holder == lease.holder_name()
    until(lambda: (latest(store) or first).number >= first.number + 3)
    keeper.release()
    last = latest(store)
    assert last is not None
    assert last.released
    assert not keeper._thread.is_alive(), "nothing is left that could renew"
    keeper.release()  # once more is fine
    assert latest(store) == last


def test_a_keeper_that_stops_goes_silent_without_a_word() -> None:
    """It lost the pond: the lease is another's to release."""
    store = MemoryStore()
    keeper = Keeper(store, lease_ms=20)
    keeper.stop()
    assert not keeper._thread.is_alive(), "nothing is left that could renew"
    last = latest(store)
    assert last is not None
    assert not last.released


def test_a_keeper_goes_on_after_the_storage_failed() -> None:
    class Flaky(MemoryStore):
        down = False
        refused = 0

        def put_new(self, name: str, data: Data) -> Put:
            if self.down:
                self.refused += 1
                raise StoreError("down")
            return super().put_new(name, data)

    store = Flaky()
    keeper = Keeper(store, lease_ms=20)
    store.down = True
    until(lambda: store.refused >= 2)
    before = latest(store)
    store.down = False
    until(lambda: latest(store) != before)
    store.down = True
    keeper.release()  # the lease runs out by itself


def test_two_keepers_both_are_heard() -> None:
    """A zombie's renewals must not hide those of the one that took over."""
    store = MemoryStore()
    one = Keeper(store, lease_ms=20)
    two = Keeper(store, lease_ms=20)
    seen: set[str] = set()
    one._holder, two._holder = "one", "two"
    until(lambda: seen.add((latest(store) or Beat(0, "", False)).holder) or {"one", "two"} <= seen)  # type: ignore[func-returns-value]
    one.release()
    two.release()


@pytest.mark.parametrize("state", ["none", "released"])
def test_no_silence_is_waited_for_where_nobody_is(state: str) -> None:
    store = MemoryStore()
    if state == "released":
        beat(store, 1, "a:1", released=True)
    slept: list[float] = []
    assert silent_for(store, 1000, stop=lambda: False, sleep=slept.append)
    assert slept == []


def test_silence_is_judged_by_renewals() -> None:
    store = MemoryStore()
    beat(store, 0, "a:1")
    numbers = iter(range(1, 4))
    slept = 0.0

    def sleep(seconds: float) -> None:
        nonlocal slept
        slept += seconds
        number = next(numbers, None)
        if number is not None:
            beat(store, number, "a:1")

    assert silent_for(store, 1.0, stop=lambda: False, sleep=sleep, monotonic=lambda: slept)
    assert next(numbers, None) is None
    assert slept == pytest.approx(0.75 + 1.25), "three renewals, and then more than a second of silence"


def test_waiting_for_silence_can_be_stopped() -> None:
    store = MemoryStore()
    beat(store, 0, "a:1")
    turns = iter([False, False, True])
    assert not silent_for(store, 1000, stop=lambda: next(turns), sleep=lambda s: None)


def test_two_containers_with_one_host_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system names no process, host name and number can be the same in two containers."""
    store = MemoryStore()
    monkeypatch.setattr(process_name, "own", lambda: None)
    monkeypatch.setattr(lease, "holder_name", lambda: "app:1")
    keeper = lease.Keeper(store, 60_000)
    assert lease.latest(store).is_ours  # type: ignore[union-attr]
    monkeypatch.setattr(process_name, "instance", lambda: "of another container")
    found = lease.latest(store)
    assert found is not None
    assert not found.is_ours
    keeper.stop()


def test_a_forked_process_is_another_instance() -> None:
    ours = process_name.instance()
    assert ours == process_name.instance()
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writes, process_name.instance().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reads, 100).decode() != ours


def test_a_renewal_makes_two_requests() -> None:
    """Lists are the dearest requests of a bucket, and a lease is renewed every second."""
    calls: list[str] = []

    class Counting(MemoryStore):
        def list(self, prefix: str, after: str | None = None) -> list[str]:
            calls.append("list")
            return super().list(prefix, after)

        def put_new(self, name: str, data: Data) -> Put:
            calls.append("put")
            return super().put_new(name, data)

        def delete(self, name: str) -> None:
            calls.append("delete")
            super().delete(name)

        def get(self, name: str) -> bytes:
            calls.append("get")
            return super().get(name)

    store = Counting()
    keeper = Keeper(store, 20)
    until(lambda: calls.count("put") >= 43)
    keeper.stop()
    puts = calls.count("put")
    # Two each and two more for every check; a renewal that comes late, on a busy machine, looks once more.
    assert len(calls) <= 3 * puts + 8
    assert len(store.list(lease.PREFIX)) == 3
