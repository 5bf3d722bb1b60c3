"""A change of the program, step by step of the coordinator: asked for, made, committed, taken up; or refused."""

from __future__ import annotations

from dataclasses import replace

from millpond.engine.change.backfill_schedule import CHUNK_ROWS
from millpond.engine.coordinator.policy import Policy
from millpond.engine.coordinator.protocol import (
    BackfillBegun,
    BackfillChunkDone,
    ChangeFailed,
    ChangePlan,
    Deliver,
    Delivered,
    Halt,
    HeadRead,
    PlanChanged,
    Polled,
    PollSources,
    ProgramSummary,
    PutLost,
    PutManifest,
    PutUnknown,
    PutWon,
    ReadBack,
    ReadBackDone,
    ReadHead,
    RunBackfillChunk,
)
from millpond.engine.coordinator.takeover import NO_POND
from millpond.errors import ConflictError, InvalidError
from millpond.plan.sink_settings import SinkSettings
from millpond.state.manifest.backfill_progress import BackfillProgress
from millpond.state.manifest.manifest import Manifest, is_retained, run_id
from tests.unit.engine.coordinator.test_coordinator import (
    DOWN,
    command,
    created,
    epoch,
    head,
    made,
    none,
    one,
    ref,
)

PROGRAM = ProgramSummary("catalog/2", ("in",), ("s2",), {}, frozenset({"t", "new"}))
CHANGED = PlanChanged(
    PROGRAM,
    (ref(2, "new"),),
    frozenset({"old"}),
    frozenset({"old/rows"}),
    {"late/w": 1},
    {},
    {"c": 1},
    {"came": ["w"]},
)


def asked() -> tuple[object, ChangePlan]:
    coordinator = created(sinks=["s1"])
    epoch(
        coordinator,
        ref(1),
        ref(1, "old/rows"),
        counts={"errors/old": 2, "errors/in": 1},
        watermarks={"old": {"max": 1, "bound": 1}},
    )
    return coordinator, one(coordinator.handle(command("change", number=6, catalog="catalog/2")), ChangePlan)


def test_one_commit_holds_the_program_what_came_and_the_end_of_what_went() -> None:
    coordinator, ask = asked()
    assert (ask.epoch, ask.catalog, ask.base, ask.rows_max) == (2, "catalog/2", head(coordinator), CHUNK_ROWS)
    m = one(coordinator.handle(CHANGED), PutManifest).manifest
    assert (m.epoch, m.kind, m.catalog) == (2, "change", "catalog/2")
    assert (m.added, m.removed) == ((ref(2, "new"),), (run_id(ref(1, "old/rows")),))
    assert m.positions == {"in": 1, "inbox": 7, "c": 1}
    assert m.counts == {"errors/in": 1, "late/w": 1}
    assert m.watermarks == {}
    assert coordinator.catalog == "catalog/1", "not before it is won"
    asked_for = coordinator.handle(PutWon())
    one(asked_for, PollSources)
    assert coordinator.catalog == "catalog/2"
    assert [d.sink for d in asked_for if isinstance(d, Deliver)] == ["s2"]
    assert coordinator.handle(Delivered("s1", 1)) == [], "that sink is gone"
    assert is_retained(head(coordinator), 1)


def test_a_doubt_is_settled_like_any_other() -> None:
    coordinator, _ = asked()
    put = one(coordinator.handle(CHANGED), PutManifest)
    one(coordinator.handle(PutUnknown(DOWN)), ReadBack)
    one(coordinator.handle(ReadBackDone(put.manifest)), PollSources)
    assert coordinator.catalog == "catalog/2"
    other, _ = asked()
    put = one(other.handle(CHANGED), PutManifest)
    one(other.handle(PutLost()), ReadBack)
    lost = one(other.handle(ReadBackDone(replace(put.manifest, nonce="another"))), Halt)
    assert isinstance(lost.error, ConflictError)
    assert other.catalog == "catalog/1"


def test_what_fails_for_now_is_tried_again_and_what_cannot_be_is_refused_on_record() -> None:
    coordinator, ask = asked()
    assert coordinator.handle(ChangeFailed(DOWN)) == [ask]
    m = one(coordinator.handle(ChangeFailed(InvalidError("no", detail="never"))), PutManifest).manifest
    assert (m.kind, m.catalog, m.positions["inbox"]) == ("epoch", "catalog/1", 7)
    assert m.metrics == {"refused": "inbox 6: change refused: no; never"}
    one(coordinator.handle(PutWon()), PollSources)
    assert coordinator.catalog == "catalog/1"


def test_a_program_that_is_there_already_moves_the_inbox_alone() -> None:
    coordinator = created()
    m = one(coordinator.handle(command("change", catalog="catalog/1")), PutManifest).manifest
    assert (m.kind, m.positions) == ("epoch", {"inbox": 1})
    refused = created()
    m = one(refused.handle(command("change", catalog=7)), PutManifest).manifest
    assert "no such command" in m.metrics["refused"]


def test_who_opens_a_pond_with_more_takes_it_over_first() -> None:
    old = head(created())
    coordinator = made(catalog="catalog/1b", change="catalog/2", based_on="catalog/1")
    assert coordinator.start() == [ReadHead()]
    taken = one(coordinator.handle(HeadRead(old)), PutManifest).manifest
    assert (taken.kind, taken.catalog, taken.token) == ("takeover", "catalog/1b", 2)
    asked_for = coordinator.handle(PutWon())
    none(asked_for, PollSources)
    assert one(asked_for, ChangePlan).base == taken
    assert not coordinator.ready
    m = one(coordinator.handle(CHANGED), PutManifest).manifest
    assert (m.epoch, m.token, m.catalog) == (2, 2, "catalog/2")
    one(coordinator.handle(PutWon()), PollSources)
    assert coordinator.ready


def test_it_has_no_other_program_to_go_on_with() -> None:
    old = head(created())
    coordinator = made(change="catalog/2", based_on="catalog/1")
    coordinator.start()
    coordinator.handle(HeadRead(old))
    coordinator.handle(PutWon())
    error = InvalidError("no")
    assert coordinator.handle(ChangeFailed(error)) == [Halt(error)]


def test_a_program_that_changed_meanwhile_is_not_taken_over() -> None:
    old = replace(head(created()), catalog="catalog/9")
    coordinator = made(based_on="catalog/1")
    coordinator.start()
    halt = one(coordinator.handle(HeadRead(old)), Halt)
    assert isinstance(halt.error, ConflictError)
    assert "changed while it was being taken over" in halt.error.message


def test_a_pond_that_another_process_created_first_is_not_taken_over_with_an_unchecked_program() -> None:
    coordinator = made(based_on=NO_POND)
    coordinator.start()
    one(coordinator.handle(HeadRead(None)), PutManifest)
    one(coordinator.handle(PutLost()), ReadBack)
    theirs = replace(head(created()), nonce="theirs", catalog="catalog/9")
    assert coordinator.handle(ReadBackDone(theirs)) == [ReadHead()]
    halt = one(coordinator.handle(HeadRead(theirs)), Halt)
    assert isinstance(halt.error, ConflictError)


def test_a_pond_that_another_process_created_first_is_taken_over_with_an_equal_program() -> None:
    equal = "0123456789ab" * 2
    coordinator = made(catalog=f"catalog/a-{equal}", based_on=NO_POND)
    coordinator.start()
    theirs = replace(head(created()), catalog=f"catalog/b-{equal}")
    taken = one(coordinator.handle(HeadRead(theirs)), PutManifest).manifest
    assert (taken.kind, taken.token, taken.catalog) == ("takeover", 2, f"catalog/a-{equal}")


def test_a_group_never_ends_again_before_the_cursor_that_ended_the_last_one() -> None:
    """A delivery that ends while a change is computed moves the cursor in the commit that ends the next group."""
    settings = {"s": SinkSettings(every_us=50)}
    coordinator = created(sinks=["s"], sink_settings=settings)
    epoch(coordinator, ref(1))
    group = one(epoch(coordinator, ref(2)), Deliver)
    one(coordinator.handle(command("change", catalog="catalog/2")), ChangePlan)
    coordinator.handle(Delivered("s", group.epoch))
    coordinator._state.uptime_us += 100  # the group's time is over
    m = one(coordinator.handle(ChangeFailed(InvalidError("no"))), PutManifest).manifest
    assert (m.cursors, m.gathered) == ({"s": group.epoch}, {"s": group.epoch + 1})


def test_a_rollback_takes_up_the_program_of_its_epoch() -> None:
    coordinator = created()
    epoch(coordinator, ref(1))
    target = HeadRead(head(coordinator), (ref(1),), {})
    ask = replace(command("rollback", target=target, epoch=1), program=PROGRAM)
    m = one(coordinator.handle(ask), PutManifest).manifest
    assert (m.kind, m.catalog) == ("rollback", "catalog/2")
    coordinator.handle(PutWon())
    assert coordinator.catalog == "catalog/2"


# -- one that takes long ---------------------------------------------------------------

FILL = BackfillProgress(6, "catalog/2", ("new",), ("new", "copy"), 1, (("t", 2, 5, 50),), 0, 5, 10)


def filling() -> tuple[object, RunBackfillChunk]:
    coordinator, _ = asked()
    m = one(coordinator.handle(BackfillBegun(FILL)), PutManifest).manifest
    assert (m.epoch, m.kind, m.catalog, m.positions["inbox"]) == (2, "epoch", "catalog/1", 7)
    assert m.backfill == FILL and Manifest.decode(m.encode()) == m
    return coordinator, one(coordinator.handle(PutWon()), RunBackfillChunk)


def chunk(done: int, epoch: int) -> BackfillChunkDone:
    moved = replace(FILL, done=done, chunks=done, rows=5 * done)
    return BackfillChunkDone(
        moved, (replace(ref(epoch, "new"), kind="merge"), replace(ref(epoch, "copy"), kind="merge")), 5, 1.0
    )


def test_a_chunk_joins_the_next_commit_whatever_that_is_for() -> None:
    coordinator, ask = filling()
    assert (ask.base, ask.epoch, ask.progress) == (head(coordinator), 3, FILL)
    one(coordinator.handle(chunk(1, 3)), PollSources)
    m = one(coordinator.handle(command("rescale", number=7, parallelism=3)), PutManifest).manifest
    assert m.backfill is not None and (m.backfill.done, m.parallelism) == (1, 3)
    assert [r.table for r in m.added] == ["new", "copy"]
    ask = one(coordinator.handle(PutWon()), RunBackfillChunk)
    assert (ask.progress.done, ask.parallelism) == (1, 3)
    one(coordinator.handle(chunk(2, 4)), PollSources)
    m = one(coordinator.handle(Polled(0, {})), PutManifest).manifest
    assert m.backfill is not None and m.backfill.done == 2, "also where nothing else is to be committed"
    one(coordinator.handle(PutWon()), RunBackfillChunk)
    last = replace(CHANGED, tables_gone=frozenset({"old/rows", "copy"}), runs=())
    m = one(coordinator.handle(last), PutManifest).manifest
    assert (m.kind, m.catalog, m.backfill) == ("change", "catalog/2", None)
    assert {i[0] for i in m.removed} == {ref(1, "old/rows").file, ref(3, "copy").file, ref(4, "copy").file}
    one(coordinator.handle(PutWon()), PollSources)


def test_the_floor_waits_for_what_a_fill_reads() -> None:
    coordinator = created(policy=Policy(retain_epochs=1))
    for number in range(1, 4):
        epoch(coordinator, ref(number))
    at = head(coordinator).epoch
    one(coordinator.handle(command("change", number=6, catalog="catalog/2")), ChangePlan)
    coordinator.handle(BackfillBegun(replace(FILL, base=at)))
    for done in range(1, 4):
        one(coordinator.handle(PutWon()), RunBackfillChunk)
        coordinator.handle(replace(chunk(done, at + 1 + done), progress=replace(FILL, base=at, done=done)))
        m = one(coordinator.handle(Polled(0, {})), PutManifest).manifest
        assert m.floor == at < m.epoch - 1
    later = replace(FILL, since=at, base=at + 3)
    one(coordinator.handle(PutWon()), RunBackfillChunk)
    coordinator.handle(replace(chunk(1, at + 5), progress=later))
    assert one(coordinator.handle(Polled(0, {})), PutManifest).manifest.floor == at


def test_programs_change_one_after_the_other() -> None:
    coordinator, _ = filling()
    coordinator.handle(chunk(1, 3))
    m = one(coordinator.handle(command("change", number=7, catalog="catalog/3")), PutManifest).manifest
    assert "changed by somebody else meanwhile: new is being backfilled" in m.metrics["refused"]
    assert m.backfill is not None and m.backfill.done == 1


def test_a_chunk_that_fails_for_now_is_tried_again_and_one_that_cannot_be_ends_it() -> None:
    coordinator, _ = filling()
    coordinator.handle(chunk(1, 3))
    one(coordinator.handle(Polled(0, {})), PutManifest)
    ask = one(coordinator.handle(PutWon()), RunBackfillChunk)
    assert coordinator.handle(ChangeFailed(DOWN)) == [ask]
    m = one(coordinator.handle(ChangeFailed(InvalidError("no"))), PutManifest).manifest
    assert (m.backfill, m.metrics) == (None, {"refused": "inbox 6: change refused: no"})
    assert set(m.removed) == {run_id(ref(3, "new")), run_id(ref(3, "copy"))}
    one(coordinator.handle(PutWon()), PollSources)


def test_a_rollback_ends_it_and_brings_no_other_back() -> None:
    coordinator, _ = filling()
    coordinator.handle(chunk(1, 3))
    one(coordinator.handle(Polled(0, {})), PutManifest)
    coordinator.handle(PutWon())
    middle = HeadRead(head(coordinator), tuple(coordinator.live.values()), {})
    coordinator.handle(chunk(2, 4))
    m = one(coordinator.handle(command("rollback", number=7, target=middle, epoch=3)), PutManifest).manifest
    assert (m.backfill, m.added) == (None, ())
    assert set(m.removed) == {run_id(ref(3, "new")), run_id(ref(3, "copy"))}
    assert m.metrics["refused"].startswith("inbox 6: change refused")


def test_who_takes_over_goes_on_with_it_unless_with_another_program() -> None:
    coordinator, _ = filling()
    coordinator.handle(chunk(1, 3))
    one(coordinator.handle(Polled(0, {})), PutManifest)
    coordinator.handle(PutWon())
    left = HeadRead(head(coordinator), tuple(coordinator.live.values()), {})
    other = made(based_on="catalog/1")
    other.start()
    taken = one(other.handle(left), PutManifest).manifest
    assert taken.backfill is not None and taken.backfill.done == 1
    assert one(other.handle(PutWon()), RunBackfillChunk).progress.done == 1
    more = made(change="catalog/9", based_on="catalog/1")
    more.start()
    taken = one(more.handle(left), PutManifest).manifest
    assert taken.backfill is None and len(taken.removed) == 2
