"""Taking over with state that was written anew: in the same commit, only over the head it was made from."""

from __future__ import annotations

from millpond.engine.coordinator.policy import Policy
from millpond.engine.coordinator.protocol import (
    Compact,
    Halt,
    HeadRead,
    PollSources,
    PutLost,
    PutManifest,
    PutWon,
    ReadBack,
    ReadBackDone,
    ReadHead,
    StateRewrite,
)
from millpond.errors import ConflictError
from millpond.state.manifest.manifest import run_id
from tests.unit.engine.coordinator.test_coordinator import OLD, created, epoch, made, none, one, ref

BEFORE = (ref(3, "s/a"), ref(4, "s/a"), ref(4, "s/b"))
ANEW = StateRewrite("old", ("s/a",), (ref(8, "s/a"),), tuple(run_id(r) for r in BEFORE[:2]))


def test_what_was_written_anew_is_in_the_take_over() -> None:
    coordinator = made(rewrite=ANEW)
    coordinator.start()
    taken = one(coordinator.handle(HeadRead(OLD, BEFORE)), PutManifest).manifest
    assert (taken.kind, taken.epoch, taken.token) == ("takeover", 8, 4)
    assert (taken.added, taken.removed) == (ANEW.added, ANEW.removed)
    assert taken.metrics == {"rewrote": ["s/a"]}
    one(coordinator.handle(PutWon()), PollSources)
    assert {r.table for r in coordinator.live.values()} == {"s/a", "s/b"}
    assert len(coordinator.live) == 2


def test_a_pond_that_went_on_is_left_alone() -> None:
    """Also when that is found only after a lost put: the runs were made from another head."""
    coordinator = made(rewrite=ANEW)
    coordinator.start()
    one(coordinator.handle(HeadRead(OLD, BEFORE)), PutManifest)
    one(coordinator.handle(PutLost()), ReadBack)
    other = OLD.__class__(pond="q", epoch=8, token=4, nonce="other", now_us=600, parent_nonce="old")
    assert coordinator.handle(ReadBackDone(other)) == [ReadHead()]
    halt = one(coordinator.handle(HeadRead(other, BEFORE)), Halt)
    assert isinstance(halt.error, ConflictError)
    assert "nothing was changed" in (halt.error.detail or "")


def test_only_tables_that_the_plan_has_are_merged() -> None:
    coordinator = created(policy=Policy(fan_in=2), tables={"s/b"})
    for number in range(1, 4):
        none(epoch(coordinator, ref(number, "s/a")), Compact)
    coordinator.compact_everything()
    none(epoch(coordinator, ref(4, "s/a")), Compact)
    assert not coordinator.merging
    coordinator = created(policy=Policy(fan_in=2), tables={"s/b"})
    epoch(coordinator, ref(1, "s/b"), ref(1, "s/a", file="x"))
    assert one(epoch(coordinator, ref(2, "s/b"), ref(2, "s/a", file="y")), Compact).job.table == "s/b"
