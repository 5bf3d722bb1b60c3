"""Pins: what they keep, for how long."""

from __future__ import annotations

from millpond.state.manifest.pins import pin, pins, unpin
from millpond.state.store.memory_store import MemoryStore


def test_pins_are_found_until_they_are_removed() -> None:
    store = MemoryStore()
    one = pin(store, 4, 1000)
    span = pin(store, 6, 2000, last=9)
    fork = pin(store, 5, None, why="fork file:///x")
    assert sorted(pins(store), key=lambda p: p.epoch) == [one, fork, span]
    assert [list(p.epochs) for p in (one, fork, span)] == [[4], [5], [6, 7, 8, 9]]
    unpin(store, fork)
    unpin(store, fork)
    assert sorted(pins(store), key=lambda p: p.epoch) == [one, span]


def test_two_pins_of_one_epoch_are_two() -> None:
    store = MemoryStore()
    first, second = pin(store, 4, 1000), pin(store, 4, 1000)
    unpin(store, first)
    assert pins(store) == [second]


class Vanishing(MemoryStore):
    def get(self, name: str) -> bytes:
        self.delete(name)
        return super().get(name)


def test_a_pin_that_goes_while_pins_are_read_is_gone() -> None:
    store = Vanishing()
    pin(store, 4, 1000)
    assert pins(store) == []
