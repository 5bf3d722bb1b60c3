"""Each machine of the coordinator without the others: state in, one event, instructions out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millpond.engine.coordinator.commits import Commits
from millpond.engine.coordinator.compaction_schedule import CompactionSchedule
from millpond.engine.coordinator.epoch_loop import EpochLoop
from millpond.engine.coordinator.garbage_schedule import GarbageSchedule
from millpond.engine.coordinator.log_retention import LogRetention, open_buckets
from millpond.engine.coordinator.planned_commit import PlannedCommit
from millpond.engine.coordinator.policy import Policy
from millpond.engine.coordinator.pond_state import PondState
from millpond.engine.coordinator.program_changes import ProgramChanges
from millpond.engine.coordinator.protocol import (
    ChangePlan,
    Collect,
    Compacted,
    Deliver,
    Delivered,
    Halt,
    HeadRead,
    ProgramSummary,
    ReadBack,
    ReadHead,
    RunEpoch,
)
from millpond.engine.coordinator.rollback import roll_back
from millpond.engine.coordinator.sink_deliveries import SinkDeliveries
from millpond.engine.coordinator.takeover import Takeover
from millpond.errors import ConflictError, DataError, InternalError
from millpond.operators.operator import Wake
from millpond.state.manifest.manifest import Manifest, run_id
from millpond.state.retention import ERRORS, Retention
from millpond.state.store.store import ReadOnlyError
from millpond.state.tables.live_runs import LiveRuns
from tests.unit.engine.coordinator.test_coordinator import DOWN, outcome, polled, ref

HEAD = Manifest(pond="p", epoch=7, token=3, nonce="head", now_us=500, catalog="catalog/1")


def state(head: Manifest | None = HEAD, *runs: Any, **facts: Any) -> PondState:
    numbers = iter(range(10**6))
    base: dict[str, Any] = {
        "policy": Policy(fan_in=3),
        "program": ProgramSummary("catalog/1", ("in",)),
        "new_id": lambda: f"id{next(numbers)}",
        "now_us": 500,
        "committed": head,
        "live": LiveRuns(runs),
        "token": 3,
    }
    return PondState(**{**base, **facts})


# -- what they share ---------------------------------------------------------------------


def test_a_child_follows_the_head_and_carries_the_cursors() -> None:
    child = state(cursors={"s": 6}).child("epoch", 600)
    assert (child.epoch, child.parent_nonce, child.token, child.now_us) == (8, "head", 3, 600)
    assert child.cursors == {"s": 6}
    with pytest.raises(InternalError, match="no head yet"):
        state(None).child("epoch", 600)


def test_the_floor_waits_for_attached_sinks_only() -> None:
    shared = state(program=ProgramSummary("c", (), ("s",)), cursors={"s": 2})
    assert shared.floor(retain_epochs=1) == 2
    shared.committed = replace(HEAD, detached={"s": 2})
    assert shared.floor(retain_epochs=1) == 7


def test_a_commit_without_steps_does_not_pass_the_time_that_a_table_waits_for() -> None:
    waiting = state(HEAD, ref(1, bucket=4), program=ProgramSummary("c", wakes={"t": Wake("t", 100, 1)}))
    assert waiting.time_without_steps(501) == 500
    assert state().time_without_steps(501) == 501


# -- takeover ------------------------------------------------------------------------------


def takeover(shared: PondState, **facts: Any) -> Takeover:
    changes = ProgramChanges(shared, SinkDeliveries(shared), None)
    base: dict[str, Any] = {"pond": "p", "parallelism": None, "rewrite": None, "based_on": None}
    return Takeover(shared, changes, **{**base, **facts})


def test_taking_over_raises_the_token_and_adopts_what_the_head_says() -> None:
    shared = state(None, token=0)
    planned = takeover(shared).on_head(HeadRead(replace(HEAD, cursors={"s": 4}), (ref(3),)))
    assert isinstance(planned, PlannedCommit)
    assert (planned.manifest.kind, planned.manifest.token, shared.token) == ("takeover", 4, 4)
    assert (list(shared.live), shared.cursors) == ([run_id(ref(3))], {"s": 4})


def test_a_pond_with_another_program_than_was_checked_is_left_alone() -> None:
    halt = takeover(state(None), based_on="catalog/0").on_head(HeadRead(replace(HEAD, catalog="catalog/9")))
    assert isinstance(halt, Halt)
    assert isinstance(halt.error, ConflictError)


def test_only_a_process_that_does_not_own_the_pond_looks_again_after_losing() -> None:
    machine = takeover(state())
    assert machine.on_lost(HEAD) == ReadHead()
    machine.on_won()
    assert isinstance(machine.on_lost(HEAD), Halt)


# -- epochs ----------------------------------------------------------------------------------


def test_rows_make_an_epoch_and_its_outcome_a_commit() -> None:
    machine = EpochLoop(state())
    run = machine.on_polled(polled(now_us=600, rows=5))
    assert isinstance(run, RunEpoch)
    assert (run.epoch, run.now_us, machine.backlog_rows) == (8, 600, 5)
    planned = machine.on_ran(outcome(ref(8), position=5))
    assert (planned.manifest.positions, planned.added) == ({"in": 5}, (ref(8),))


def test_nothing_to_run_is_no_epoch() -> None:
    machine = EpochLoop(state())
    assert machine.on_polled(polled()) is None
    assert not machine.had_input
    with pytest.raises(InternalError, match="not requested"):
        machine.on_ran(outcome())


# -- deliveries ------------------------------------------------------------------------------


def deliveries(**facts: Any) -> SinkDeliveries:
    return SinkDeliveries(state(program=ProgramSummary("c", (), ("s",)), cursors={"s": 5}, **facts))


def test_a_sink_receives_one_epoch_at_a_time() -> None:
    machine = deliveries()
    assert machine.start() == [Deliver("s", 6)]
    assert machine.start() == []
    assert machine.on_delivered(Delivered("s", 6)) == [Deliver("s", 7)]
    assert not machine.cursors_due, "one more is on its way"
    assert machine.on_delivered(Delivered("s", 7)) == []
    assert machine.cursors_due
    machine.on_commit()
    assert not machine.cursors_due


def test_an_answer_that_nobody_waits_for_moves_no_cursor() -> None:
    machine = deliveries()
    machine.start()
    machine.detach("s")
    assert machine.on_delivered(Delivered("s", 6)) == []
    assert machine.behind == {"s": 5}


def test_a_failed_sink_pauses_and_damage_halts() -> None:
    machine = deliveries()
    machine.start()
    assert machine.on_failed("s", 6, DOWN) == []
    assert (machine.start(), machine.failed) == ([], {"s": DOWN})
    machine.retry("s")
    assert machine.start() == [Deliver("s", 6)]
    torn = DataError("torn")
    assert machine.on_failed("s", 6, torn) == [Halt(torn)]


# -- program changes -------------------------------------------------------------------------


def test_a_change_that_is_stopped_is_asked_for_again_without_counting() -> None:
    shared = state()
    machine = ProgramChanges(shared, SinkDeliveries(shared), None)
    ask = machine.begin("catalog/2", shared.child("epoch", 500), entry=4)
    assert isinstance(ask, ChangePlan)
    for _ in range(50):
        assert machine.on_failed(DOWN, stopped=True) == ask
    for _ in range(shared.policy.tries - 1):
        assert machine.on_failed(DOWN, stopped=False) == ask
    refused = machine.on_failed(DOWN, stopped=False)
    assert isinstance(refused, PlannedCommit)
    assert refused.manifest.metrics == {"refused": "inbox 4: change refused: down"}


def test_a_change_with_which_the_pond_is_opened_halts_when_it_fails() -> None:
    shared = state()
    machine = ProgramChanges(shared, SinkDeliveries(shared), "catalog/2")
    machine.open("catalog/2")
    error = DataError("torn")
    assert machine.on_failed(error, stopped=False) == Halt(error)


# -- rollback --------------------------------------------------------------------------------


def test_a_rollback_swaps_runs_and_keeps_the_place_in_the_inbox() -> None:
    shared = state(replace(HEAD, positions={"in": 9, "inbox": 4}), ref(1), ref(7))
    child = replace(shared.child("epoch", 500), positions={"in": 9, "inbox": 5})
    old = replace(HEAD, epoch=3, positions={"in": 2, "inbox": 1})
    planned = roll_back(shared, HeadRead(old, (ref(1), ref(3))), child, None)
    assert (planned.added, planned.removed) == ((ref(3),), (run_id(ref(7)),))
    assert (planned.manifest.kind, planned.manifest.restores) == ("rollback", 3)
    assert planned.manifest.positions == {"in": 2, "inbox": 5}


# -- upkeep ----------------------------------------------------------------------------------


def test_a_merge_joins_a_commit_only_while_its_inputs_are_live() -> None:
    runs = [ref(n) for n in (1, 2, 3)]
    merged = ref(3, lo=1, file="runs/1/merge", kind="merge")
    for removed, joins in (((), True), ((run_id(ref(2)),), False)):
        shared = state(HEAD, *runs)
        machine = CompactionSchedule(shared)
        (compact,) = machine.start(frozenset())
        assert machine.start(frozenset()) == [], "one at a time"
        machine.on_compacted(Compacted(compact.job, (merged,)))
        planned = machine.join(PlannedCommit(shared.child("epoch", 500), removed=removed))
        assert planned.added == ((merged,) if joins else ())
        assert not machine.busy


def test_a_collection_is_due_every_few_epochs_and_spares_a_running_merge() -> None:
    shared = state(replace(HEAD, floor=2), *(ref(n) for n in (1, 2, 3)))
    (compact,) = CompactionSchedule(shared).start(frozenset())
    machine = GarbageSchedule(shared)
    assert machine.start(replace(compact, epoch=5)) == [Collect(shared.head, 5, 3)]
    machine.on_collected()
    assert machine.start(None) == []
    machine.collect_soon()
    assert machine.start(None) == [Collect(shared.head, 7, 3)]


def test_old_error_rows_leave_with_a_commit() -> None:
    old = ref(1, ERRORS, bucket=10)
    shared = state(HEAD, old, policy=Policy(errors=Retention(1000, age_us=160)))
    assert open_buckets(shared) == {ERRORS: 500}
    planned = LogRetention(shared).join(PlannedCommit(shared.child("epoch", 500)))
    assert planned.removed == (run_id(old),)


# -- commits ---------------------------------------------------------------------------------


def test_a_put_in_doubt_is_read_back_a_bounded_number_of_times() -> None:
    shared = state()
    machine = Commits(shared)
    put = machine.put(PlannedCommit(shared.child("epoch", 600), (ref(8),), (), ProgramSummary("catalog/2")))
    for _ in range(shared.policy.storage_tries - 1):
        assert machine.on_doubt(DOWN) == ReadBack(8)
    assert machine.on_doubt(DOWN) == Halt(DOWN)
    assert machine.is_ours(put.manifest)
    assert not machine.is_ours(replace(put.manifest, nonce="theirs"))
    assert shared.head == HEAD, "nothing is believed before it is won"
    assert machine.on_won() == shared.head == put.manifest
    assert (list(shared.live), shared.program.catalog) == ([run_id(ref(8))], "catalog/2")


def test_storage_that_cannot_be_written_is_not_tried_again() -> None:
    shared = state()
    machine = Commits(shared)
    machine.put(PlannedCommit(shared.child("epoch", 600)))
    error = ReadOnlyError("read-only")
    assert machine.on_doubt(error) == Halt(error)
