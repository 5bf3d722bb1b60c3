"""A lease watch remembers the renewals that it has seen, and never longer than the silence of the holder."""

from __future__ import annotations

import time

from millpond.control import lease, process_name
from millpond.control.lease import Beat, beat, latest
from millpond.control.lease_watch import LeaseWatch
from millpond.state.store.memory_store import MemoryStore
from millpond.state.store.store import Store

SILENCE_S = 4.0


class Watched:
    """A watch over a holder on another machine, with a clock that is set by hand."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.now = 100.0
        self.waits = 0
        self.is_alive = True
        self.watch = LeaseWatch(self.store, SILENCE_S, monotonic=lambda: self.now, alive=self.alive)

    def alive(self, store: Store, silence_s: float) -> Beat | None:
        """Waits for a renewal, and finds one while the holder is alive."""
        self.waits += 1
        self.now += 1 if self.is_alive else silence_s
        if not self.is_alive:
            return None
        self.renew()
        return latest(store)

    def renew(self, **fields: bool) -> None:
        last = latest(self.store)
        beat(self.store, 0 if last is None else last.number + 1, "elsewhere:7", **fields)


def test_a_renewal_that_was_seen_is_not_waited_for_again() -> None:
    held = Watched()
    held.renew()
    for _ in range(20):
        assert held.watch.holder() is not None
        held.now += 0.1
    assert held.waits == 1
    for _ in range(20):  # it renews, and somebody looks, more often than it may be silent
        held.now += 1
        held.renew()
        assert held.watch.holder() is not None
    assert held.waits == 1


def test_a_holder_that_is_silent_is_gone() -> None:
    held = Watched()
    held.renew()
    assert held.watch.holder() is not None
    held.is_alive = False
    held.now += SILENCE_S - 0.5
    assert held.watch.holder() is not None, "it may be silent for that long"
    held.now += 0.5
    assert held.watch.holder() is None
    assert held.waits == 2


def test_a_renewal_from_before_the_last_look_proves_nothing() -> None:
    held = Watched()
    held.renew()
    assert held.watch.holder() is not None
    held.renew()
    held.now += 10 * SILENCE_S  # nobody looked meanwhile
    held.is_alive = False
    assert held.watch.holder() is None
    assert held.waits == 2


def test_a_lease_that_is_released_or_ours_is_nobody_elses() -> None:
    held = Watched()
    assert held.watch.holder() is None
    held.renew()
    assert held.watch.holder() is not None
    held.renew(released=True)
    assert held.watch.holder() is None
    beat(held.store, 9, lease.holder_name(), process=process_name.own(), instance=process_name.instance())
    assert held.watch.holder() is None
    assert held.waits == 1


def test_a_process_of_this_machine_that_has_just_renewed_is_not_waited_for() -> None:
    held = Watched()
    held.is_alive = False  # so waiting would find nobody
    facts = {"process": process_name.own(), "instance": "another", "lease_ms": 4000}
    now_us = time.time_ns() // 1000
    beat(held.store, 1, "here:7", at_us=now_us, **facts)
    assert held.watch.holder() == latest(held.store)
    beat(held.store, 2, "here:7", at_us=now_us - 5_000_000, **facts)
    assert held.watch.holder() is None, "it has been silent"
    beat(held.store, 3, "here:7", at_us=now_us + 5_000_000_000, **facts)
    assert held.watch.holder() is None, "its clock was set back"
    beat(held.store, 4, "there:7", at_us=now_us, lease_ms=4000, process="another boot/pid:[1]/7/8")
    assert held.watch.holder() is None, "another machine, another clock"
    assert held.waits == 3
