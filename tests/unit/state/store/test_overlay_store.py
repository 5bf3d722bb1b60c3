"""The overlay: whatever is written on it, the store below stays as it is (law 6)."""

from __future__ import annotations

import doctest

import pytest

from millpond.errors import InternalError
from millpond.state.store import overlay_store
from millpond.state.store.memory_store import MemoryStore
from millpond.state.store.overlay_store import OverlayStore
from millpond.state.store.store import MissingError, Put


def test_reads_fall_through_and_writes_stay_above() -> None:
    below = MemoryStore()
    below.put_new("runs/a", b"below")
    above = OverlayStore(below)
    assert above.uri == below.uri
    assert above.put_new("runs/a", b"other") is Put.LOST
    assert above.put_new("runs/b", [b"ab", memoryview(b"c")]) is Put.WON
    assert above.put_new("runs/b", b"again") is Put.LOST
    assert (above.get("runs/a"), above.get("runs/b")) == (b"below", b"abc")
    assert (above.map("runs/a").to_pybytes(), above.map("runs/b").to_pybytes()) == (b"below", b"abc")
    assert (above.size("runs/a"), above.size("runs/b"), above.size("runs/c")) == (5, 3, None)
    assert above.list("runs/") == ["runs/a", "runs/b"] and above.list("runs/", after="runs/a") == ["runs/b"]
    assert above.list("pages/") == [] and below.list("") == ["runs/a"]
    with pytest.raises(MissingError):
        above.get("runs/c")


def test_nothing_can_be_deleted_through_it() -> None:
    below = MemoryStore()
    below.put_new("runs/a", b"x")
    with pytest.raises(InternalError, match="nothing may be deleted"):
        OverlayStore(below).delete("runs/a")
    assert below.list("") == ["runs/a"]


def test_the_examples() -> None:
    assert doctest.testmod(overlay_store).failed == 0
