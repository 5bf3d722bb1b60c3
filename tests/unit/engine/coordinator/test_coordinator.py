"""The coordinator as a pure machine: (state, event) -> instructions, with no store and no clock."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import pytest

from millpond.engine.coordinator.commands import require_parallelism
from millpond.engine.coordinator.coordinator import Coordinator
from millpond.engine.coordinator.policy import Policy
from millpond.engine.coordinator.protocol import (
    Collect,
    Collected,
    Command,
    Compact,
    Compacted,
    CompactFailed,
    Deliver,
    Delivered,
    DeliverFailed,
    EpochOutcome,
    Halt,
    HeadRead,
    Instruction,
    Polled,
    PollSources,
    ProgramSummary,
    PutLost,
    PutManifest,
    PutUnknown,
    PutWon,
    Ran,
    ReadBack,
    ReadBackDone,
    ReadHead,
    RunEpoch,
    RunFailed,
    Unanswered,
    Wait,
    Woke,
)
from millpond.engine.coordinator.sink_deliveries import is_empty
from millpond.errors import (
    ConflictError,
    DataError,
    InternalError,
    InvalidError,
    MillpondError,
    UnavailableError,
)
from millpond.operators.operator import Wake
from millpond.plan.sink_settings import SinkSettings
from millpond.sources.source import Advance, Poll, Split
from millpond.state.manifest.manifest import Manifest, run_id
from millpond.state.runs.run_ref import RunRef
from tests.sampling import first

T = TypeVar("T")
DOWN = UnavailableError("down")


def made(**changes: Any) -> Coordinator:
    numbers = iter(range(10**6))
    program = ProgramSummary("catalog/1", ("in",))
    of_program = {f.name: changes.pop(f.name) for f in fields(ProgramSummary) if f.name in changes}
    facts: dict[str, Any] = {
        "pond": "p",
        "program": replace(program, **of_program),
        "parallelism": 2,
        "policy": Policy(compact=False),
        "ids": lambda: f"id{next(numbers)}",
        "now_us": 100,
    }
    return Coordinator(**{**facts, **changes})


def one(instructions: Sequence[Instruction], kind: type[T]) -> T:
    found = [i for i in instructions if isinstance(i, kind)]
    assert len(found) == 1, instructions
    return found[0]


def none(instructions: Sequence[Instruction], *kinds: type) -> None:
    assert not [i for i in instructions if isinstance(i, kinds)], instructions


def created(**changes: Any) -> Coordinator:
    """A coordinator that has made its pond and polls."""
    coordinator = made(**changes)
    assert coordinator.start() == [ReadHead()]
    one(coordinator.handle(HeadRead(None)), PutManifest)
    one(coordinator.handle(PutWon()), PollSources)
    return coordinator


def polled(now_us: int = 200, rows: int = 0, **facts: Any) -> Polled:
    splits = (Split({"n": 1}, rows, 8 * rows),) if rows else ()
    return Polled(now_us, {"in": Poll(splits)}, **facts)


def ref(epoch: int, table: str = "t", **facts: Any) -> RunRef:
    base = RunRef(table, f"runs/1/{epoch}-{table}", 0, None, epoch, epoch, 1, 100, 0, 2**64 - 1, "delta")
    return replace(base, **facts)


def outcome(*runs: RunRef, position: int = 1, **facts: Any) -> EpochOutcome:
    base = EpochOutcome(runs, {}, {}, {}, {"in": Advance(position)}, {"rows": 1, "ms": 5})
    return replace(base, **facts)


def epoch(coordinator: Coordinator, *runs: RunRef, **facts: Any) -> list[Instruction]:
    """Poll, run and commit one epoch; what is asked for after it."""
    one(coordinator.handle(polled(rows=1)), RunEpoch)
    one(coordinator.handle(Ran(outcome(*runs, **facts))), PutManifest)
    return coordinator.handle(PutWon())


def head(coordinator: Coordinator) -> Manifest:
    assert coordinator.head is not None
    return coordinator.head


# -- making a pond, taking one over ----------------------------------------------------


def test_the_first_manifest_is_epoch_zero() -> None:
    coordinator = made()
    coordinator.start()
    put = one(coordinator.handle(HeadRead(None)), PutManifest)
    first = put.manifest
    assert (first.epoch, first.token, first.kind, first.parallelism, first.now_us) == (0, 1, "create", 2, 100)
    assert not coordinator.owner
    asked = one(coordinator.handle(PutWon()), PollSources)
    assert coordinator.owner
    assert asked.positions == {}


OLD = Manifest(
    pond="q", epoch=7, token=3, nonce="old", now_us=500, positions={"in": 4}, catalog="c", cursors={"s": 7}
)


def test_taking_over_is_a_commit_with_the_next_token() -> None:
    coordinator = made(parallelism=None)
    coordinator.start()
    taken = one(coordinator.handle(HeadRead(OLD, (ref(3),))), PutManifest).manifest
    assert (taken.epoch, taken.token, taken.kind, taken.pond) == (8, 4, "takeover", "q")
    assert (taken.parent_nonce, taken.catalog, taken.parallelism) == ("old", "catalog/1", 1)
    assert taken.positions == {"in": 4}
    assert taken.now_us == 500, "time never falls, whatever this machine's clock says"
    assert (taken.added, taken.removed) == ((), ())
    assert not coordinator.owner
    coordinator.handle(PutWon())
    assert coordinator.owner
    assert list(coordinator.live) == [run_id(ref(3))]


@pytest.mark.parametrize(
    ("fixed", "chosen", "cores", "then"),
    [
        (False, None, 8, (8, False)),
        (True, None, 8, (3, True)),
        (False, 5, 8, (5, True)),
        (True, 5, 8, (5, True)),
    ],
)
def test_the_parallelism_follows_the_cores_unless_a_user_chose_it(
    fixed: bool, chosen: int | None, cores: int, then: tuple[int, bool]
) -> None:
    coordinator = made(parallelism=chosen, cores=cores)
    coordinator.start()
    head = replace(OLD, parallelism=3, parallelism_fixed=fixed)
    taken = one(coordinator.handle(HeadRead(head, ())), PutManifest).manifest
    assert (taken.parallelism, taken.parallelism_fixed) == then


def test_losing_the_race_to_take_over_looks_again() -> None:
    coordinator = made()
    coordinator.start()
    coordinator.handle(HeadRead(OLD))
    assert coordinator.handle(PutLost()) == [ReadBack(8)]
    theirs = replace(OLD, epoch=8, token=4, nonce="theirs")
    assert coordinator.handle(ReadBackDone(theirs)) == [ReadHead()]
    taken = one(coordinator.handle(HeadRead(theirs)), PutManifest).manifest
    assert (taken.epoch, taken.token) == (9, 5)


def test_losing_that_race_for_ever_ends() -> None:
    coordinator = made()
    coordinator.start()
    newest = OLD
    for _ in range(200):
        coordinator.handle(HeadRead(newest))
        coordinator.handle(PutLost())
        newest = replace(newest, epoch=newest.epoch + 1, nonce=f"theirs{newest.epoch}")
        got = coordinator.handle(ReadBackDone(newest))
        if isinstance(got[0], Halt):
            assert isinstance(got[0].error, ConflictError)
            return
    raise AssertionError("it tries for ever")


def test_two_that_make_the_same_pond_agree_on_one() -> None:
    coordinator = made()
    coordinator.start()
    coordinator.handle(HeadRead(None))
    coordinator.handle(PutLost())
    theirs = Manifest("other", 0, 1, "theirs", 1)
    assert coordinator.handle(ReadBackDone(theirs)) == [ReadHead()]
    taken = one(coordinator.handle(HeadRead(theirs)), PutManifest).manifest
    assert (taken.pond, taken.epoch, taken.token) == ("other", 1, 2)


# -- one epoch ------------------------------------------------------------------------


def test_an_epoch_is_one_run_and_one_commit() -> None:
    coordinator = created()
    run = one(coordinator.handle(polled(now_us=300, rows=5)), RunEpoch)
    assert (run.epoch, run.token, run.now_us, run.parallelism, run.base) == (1, 1, 300, 2, coordinator.head)
    assert run.admitted == {"in": (Split({"n": 1}, 5, 40),)}
    marks = {"w": {"max": 9, "bound": 5}}
    put = one(
        coordinator.handle(Ran(outcome(ref(1), position=5, watermarks=marks, counts={"late/w": 2}))),
        PutManifest,
    )
    m = put.manifest
    assert (m.epoch, m.positions, m.watermarks, m.counts) == (1, {"in": 5}, marks, {"late/w": 2})
    assert (m.added, m.removed, m.recent) == ((ref(1),), (), (ref(1),))
    assert m.admitted == {"in": [{"n": 1}]}
    asked = one(coordinator.handle(PutWon()), PollSources)
    assert asked.positions == {"in": 5}


def test_counts_add_up_and_time_stands_rather_than_falls() -> None:
    coordinator = created()
    epoch(coordinator, counts={"late/w": 2})
    one(coordinator.handle(polled(now_us=1, rows=1)), RunEpoch)
    m = one(coordinator.handle(Ran(outcome(counts={"late/w": 3}))), PutManifest).manifest
    assert m.counts == {"late/w": 5}
    assert m.now_us == 200


def test_input_that_is_only_bad_is_an_epoch_too() -> None:
    coordinator = created()
    run = one(coordinator.handle(Polled(200, {"in": Poll((), (("file", "torn"),))})), RunEpoch)
    assert run.admitted == {}
    assert run.rejects == {"in": (("file", "torn"),)}


# -- epochs without input ----------------------------------------------------------------

WAKE = Wake("t", width_us=100, after=1)  # bucket 4 is due at 500


def waiting(bucket: int = 4, **changes: Any) -> Coordinator:
    """A coordinator with rows in one bucket of a table that waits for the clock."""
    coordinator = created(wakes={"t": WAKE}, **changes)
    epoch(coordinator, ref(1, bucket=bucket))
    return coordinator


def idle_outcome(*runs: RunRef, **facts: Any) -> EpochOutcome:
    return outcome(*runs, **{"advances": {}, "metrics": {"rows": 0, "ms": 1}, **facts})


def test_an_epoch_is_due_when_the_clock_says_so_and_not_before() -> None:
    coordinator = waiting()
    one(coordinator.handle(polled(now_us=499)), Wait)
    coordinator.handle(Woke())
    run = one(coordinator.handle(polled(now_us=500)), RunEpoch)
    assert (run.admitted, run.rejects, run.due, run.now_us) == ({}, {}, frozenset({"t"}), 500)
    m = one(coordinator.handle(Ran(idle_outcome(drops={"t": 5}))), PutManifest).manifest
    assert (m.kind, m.admitted, m.positions, m.now_us) == ("epoch", {}, {"in": 1}, 500)
    assert m.removed == (run_id(ref(1, bucket=4)),)
    coordinator.handle(PutWon())
    one(coordinator.handle(polled(now_us=500)), Wait)


def test_what_is_due_rides_along_with_rows() -> None:
    coordinator = waiting()
    assert one(coordinator.handle(polled(now_us=400, rows=1)), RunEpoch).due == frozenset()
    coordinator = waiting()
    run = one(coordinator.handle(polled(now_us=500, rows=1)), RunEpoch)
    assert (list(run.admitted), run.due) == (["in"], frozenset({"t"}))


def test_commands_come_before_what_is_due() -> None:
    coordinator = waiting()
    asked = polled(now_us=500, commands=(Command(0, "rescale", {"parallelism": 3}),))
    assert one(coordinator.handle(asked), PutManifest).manifest.parallelism == 3
    coordinator.handle(PutWon())
    assert one(coordinator.handle(polled(now_us=500)), RunEpoch).due == frozenset({"t"})


def test_a_commit_of_a_paused_pond_does_not_pass_the_time_that_a_table_waits_for() -> None:
    """Its steps do not run, so its views show what was valid before (law 1)."""
    coordinator = waiting(sinks=["s"])
    coordinator.handle(Delivered("s", 0))
    pause = polled(now_us=300, commands=(Command(0, "settings", {"settings": {"paused": True}}),))
    one(coordinator.handle(pause), PutManifest)
    coordinator.handle(PutWon())
    coordinator.handle(Delivered("s", 1))
    coordinator.handle(Delivered("s", 2))
    put = one(coordinator.handle(polled(now_us=900, rows=1)), PutManifest)  # of the cursor
    assert (put.manifest.cursors, put.manifest.now_us) == ({"s": 2}, 300)


def test_what_was_due_before_a_takeover_is_still_due() -> None:
    coordinator = made(wakes={"t": WAKE})
    coordinator.start()
    held = ref(1, bucket=4)
    coordinator.handle(HeadRead(replace(OLD, recent=(held,)), (held,)))
    coordinator.handle(PutWon())
    assert one(coordinator.handle(polled(now_us=10**9)), RunEpoch).due == frozenset({"t"})


def test_an_idle_epoch_that_fails_is_run_again() -> None:
    coordinator = waiting()
    run = one(coordinator.handle(polled(now_us=500)), RunEpoch)
    assert coordinator.handle(RunFailed(DOWN)) == [run]


def idled(coordinator: Coordinator, now_us: int, *runs: RunRef, **facts: Any) -> None:
    one(coordinator.handle(polled(now_us=now_us)), RunEpoch)
    one(coordinator.handle(Ran(idle_outcome(*runs, **facts))), PutManifest)
    coordinator.handle(PutWon())


def test_an_idle_epoch_that_changes_nothing_is_not_followed_by_another() -> None:
    coordinator = waiting()
    idled(coordinator, 500)
    with pytest.raises(InternalError, match="buckets of t stay due"):
        coordinator.handle(polled(now_us=500))


def test_a_clock_that_goes_on_does_not_hide_it_for_long() -> None:
    coordinator = waiting()
    with pytest.raises(InternalError, match="stay due"):
        for now_us in range(500, 600):
            idled(coordinator, now_us)
    assert head(coordinator).epoch < 10


def test_an_idle_epoch_may_leave_more_to_do_at_the_same_time() -> None:
    """As long as each changes something: a timer may set another that is due at once."""
    coordinator = waiting()
    for number in range(2, 30):
        idled(coordinator, 500, ref(number, bucket=3), drops={"t": 3})
    idled(coordinator, 500, drops={"t": 5})
    one(coordinator.handle(polled(now_us=500)), Wait)


def test_buckets_that_are_over_are_dropped_also_what_came_just_now() -> None:
    coordinator = created()
    old = [ref(1, bucket=b, segment=b) for b in (1, 2, 3)]
    epoch(coordinator, *old)
    one(coordinator.handle(polled(rows=1)), RunEpoch)
    fresh = [ref(2, bucket=b, segment=b) for b in (2, 3)]
    m = one(coordinator.handle(Ran(outcome(*fresh, drops={"t": 3}))), PutManifest).manifest
    assert m.removed == tuple(run_id(r) for r in old[:2])
    assert m.added == (fresh[1],)


@pytest.mark.parametrize("error", [InternalError("mixed"), DOWN], ids=["internal", "unavailable"])
def test_a_failed_run_is_tried_again_the_same_way_then_halts(error: MillpondError) -> None:
    coordinator = created()
    run = one(coordinator.handle(polled(rows=1)), RunEpoch)
    for _ in range(coordinator.policy.tries - 1):
        assert coordinator.handle(RunFailed(error)) == [run]
    assert coordinator.handle(RunFailed(error)) == [Halt(error)]


def test_tries_are_counted_anew_for_every_epoch() -> None:
    coordinator = created()
    for _ in range(3):
        run = one(coordinator.handle(polled(rows=1)), RunEpoch)
        for _ in range(coordinator.policy.tries - 1):
            assert coordinator.handle(RunFailed(DOWN)) == [run]
        one(coordinator.handle(Ran(outcome())), PutManifest)
        coordinator.handle(PutWon())
    assert head(coordinator).epoch == 3


@pytest.mark.parametrize("error", [InvalidError("user code"), DataError("torn run")], ids=["invalid", "data"])
def test_what_cannot_get_better_is_not_tried_again(error: MillpondError) -> None:
    coordinator = created()
    coordinator.handle(polled(rows=1))
    assert coordinator.handle(RunFailed(error)) == [Halt(error)]


def test_questions_are_asked_again_a_bounded_number_of_times() -> None:
    coordinator = created()
    asked = PollSources({}, 1)
    limit = 4 * coordinator.policy.tries
    for _ in range(limit - 1):
        assert coordinator.handle(Unanswered(asked, DOWN)) == [asked]
    coordinator.handle(polled())  # an answer: the count starts again
    for _ in range(limit - 1):
        assert coordinator.handle(Unanswered(asked, DOWN)) == [asked]
    assert coordinator.handle(Unanswered(asked, DOWN)) == [Halt(DOWN)]


# -- the three outcomes of a commit -----------------------------------------------------


def committing() -> tuple[Coordinator, PutManifest]:
    coordinator = created()
    coordinator.handle(polled(rows=1))
    return coordinator, one(coordinator.handle(Ran(outcome(ref(1)))), PutManifest)


@pytest.mark.parametrize("doubt", [PutLost(), PutUnknown(DOWN)], ids=["lost", "unknown"])
def test_a_doubt_is_settled_by_reading_back(doubt: PutLost | PutUnknown) -> None:
    coordinator, put = committing()
    before = head(coordinator)
    assert coordinator.handle(doubt) == [ReadBack(1)]
    assert coordinator.head == before, "nothing is believed before it is read"
    one(coordinator.handle(ReadBackDone(put.manifest)), PollSources)
    assert coordinator.head == put.manifest


def test_what_is_not_there_is_put_again() -> None:
    coordinator, put = committing()
    coordinator.handle(PutUnknown(DOWN))
    assert coordinator.handle(ReadBackDone(None)) == [put]
    one(coordinator.handle(PutWon()), PollSources)


@pytest.mark.parametrize("doubt", [PutLost(), PutUnknown(DOWN)], ids=["lost", "unknown"])
def test_another_in_our_place_is_the_end(doubt: PutLost | PutUnknown) -> None:
    coordinator, put = committing()
    coordinator.handle(doubt)
    halt = one(coordinator.handle(ReadBackDone(replace(put.manifest, nonce="other", token=9))), Halt)
    assert isinstance(halt.error, ConflictError)
    assert halt.error.detail == "its token is 9, ours is 1"
    assert head(coordinator).epoch == 0


@pytest.mark.parametrize("doubt", [PutLost(), PutUnknown(DOWN)], ids=["lost", "unknown"])
def test_a_doubt_that_cannot_be_settled_ends(doubt: PutLost | PutUnknown) -> None:
    coordinator, put = committing()
    for _ in range(200):
        (asked,) = coordinator.handle(doubt)
        if isinstance(asked, Halt):
            return
        assert asked == ReadBack(1)
        (asked,) = coordinator.handle(ReadBackDone(None))
        if isinstance(asked, Halt):
            return
        assert asked == put
    raise AssertionError("it asks for ever")


def test_a_put_that_nobody_asked_for_is_our_bug() -> None:
    with pytest.raises(InternalError, match="not requested"):
        created().handle(PutWon())


# -- commands ----------------------------------------------------------------------------


def command(kind: str, /, number: int = 0, target: HeadRead | None = None, **args: Any) -> Polled:
    return polled(commands=(Command(number, kind, args),), rollback_to=target)


def test_a_command_is_a_commit_that_moves_the_inbox() -> None:
    coordinator = created()
    m = one(coordinator.handle(command("rescale", number=4, parallelism=7)), PutManifest).manifest
    assert (m.parallelism, m.positions, m.added) == (7, {"inbox": 5}, ())
    coordinator.handle(PutWon())
    assert one(coordinator.handle(polled(rows=1)), RunEpoch).parallelism == 7


def test_savepoints_name_the_head_and_can_be_dropped() -> None:
    coordinator = created()
    epoch(coordinator, ref(1))
    m = one(coordinator.handle(command("savepoint", name="s")), PutManifest).manifest
    assert (m.epoch, m.savepoints) == (2, {"s": 1})
    coordinator.handle(PutWon())
    m = one(coordinator.handle(command("drop_savepoint", number=1, name="s")), PutManifest).manifest
    assert m.savepoints == {}


def test_a_command_does_not_wait_for_a_backlog() -> None:
    coordinator = created()
    put = one(
        coordinator.handle(polled(rows=1, commands=(Command(0, "rescale", {"parallelism": 7}),))), PutManifest
    )
    assert put.manifest.parallelism == 7


def test_a_rollback_names_older_files_in_a_new_epoch() -> None:
    coordinator = created()
    epoch(coordinator, ref(1), position=1, watermarks={"w": {"max": 5, "bound": 5}})
    old = head(coordinator)
    epoch(coordinator, ref(2), position=2, watermarks={"w": {"max": 9, "bound": 9}}, counts={"late/w": 1})
    target = HeadRead(old, (ref(1),), {})
    m = one(coordinator.handle(command("rollback", number=3, target=target, epoch=1)), PutManifest).manifest
    assert (m.epoch, m.kind, m.restores, m.token) == (3, "rollback", 1, 1)
    assert m.positions == {"in": 1, "inbox": 4}, "sources go back, the inbox never does"
    assert (m.watermarks, m.counts) == (old.watermarks, old.counts)
    assert (m.added, m.removed) == ((), (run_id(ref(2)),))
    assert not is_empty(m)
    coordinator.handle(PutWon())
    assert list(coordinator.live) == [run_id(ref(1))]


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("dance", {}),
        ("rescale", {}),
        ("rescale", {"parallelism": 0}),
        ("rescale", {"parallelism": "many"}),
        ("rescale", {"parallelism": True}),
        ("rescale", {"parallelism": 10**9}),
        ("savepoint", {}),
        ("savepoint", {"name": ""}),
        ("savepoint", {"name": 7}),
        ("drop_savepoint", {}),
        ("drop_savepoint", {"name": "never made"}),
        ("rollback", {}),
        ("rollback", {"epoch": 99}),
        ("rollback", {"epoch": "yesterday"}),
    ],
)
def test_a_command_that_cannot_be_is_refused_and_the_inbox_goes_on(kind: str, args: dict[str, Any]) -> None:
    coordinator = created()
    m = one(coordinator.handle(command(kind, number=3, **args)), PutManifest).manifest
    assert m.positions == {"inbox": 4}
    assert m.metrics["refused"].startswith(f"inbox 3: {kind} refused")
    assert (m.parallelism, m.savepoints) == (2, {})
    coordinator.handle(PutWon())
    m = one(coordinator.handle(command("rescale", number=4, parallelism=3)), PutManifest).manifest
    assert m.parallelism == 3


# -- nothing to do -----------------------------------------------------------------------


def test_nothing_to_do_is_a_wait_and_no_epoch() -> None:
    coordinator = created()
    for _ in range(5):
        assert coordinator.handle(polled()) == [Wait()]
        one(coordinator.handle(Woke()), PollSources)
    assert head(coordinator).epoch == 0


def idle_epochs(coordinator: Coordinator, *, turns: int = 30) -> int:
    """Epochs that are made while the sources have nothing; deliveries succeed at once."""
    before = head(coordinator).epoch
    queue: list[Instruction] = coordinator.handle(polled())
    for _ in range(turns):
        beside = [i for i in queue if isinstance(i, Deliver)]
        chain = [i for i in queue if not isinstance(i, Deliver | Collect | Compact)]
        queue = [] if chain else queue
        for deliver in beside:
            queue += coordinator.handle(Delivered(deliver.sink, deliver.epoch))
        (asked,) = chain
        if isinstance(asked, PutManifest):
            queue += coordinator.handle(PutWon())
        elif isinstance(asked, Wait):
            queue += coordinator.handle(Woke())
        else:
            assert isinstance(asked, PollSources)
            queue += coordinator.handle(polled())
    return head(coordinator).epoch - before


@pytest.mark.parametrize("sinks", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_no_endless_empty_epochs_after_deliveries(sinks: list[str]) -> None:
    coordinator = created(sinks=sinks)
    epoch(coordinator, ref(1))
    for sink in sinks:
        assert coordinator.handle(Delivered(sink, 1)) == []
    assert idle_epochs(coordinator) <= 2
    assert idle_epochs(coordinator) == 0


@pytest.mark.parametrize("seed", first(10, range(40)))
def test_it_comes_to_rest_however_slow_the_deliveries_are(seed: int) -> None:
    """Deliveries, merges and commits interleave at will; some epochs later nothing is left to do."""
    rng = random.Random(seed)
    coordinator = created(sinks=["a", "b", "c"][: rng.randint(1, 3)], policy=Policy(fan_in=3))
    left, eager, delivered = rng.randint(1, 6), rng.choice([0, 0.1, 0.5]), []
    chain: list[Instruction] = [PollSources({}, 1)]
    beside: list[Instruction] = []
    ask: Instruction = chain[0]
    for _ in range(400):
        woken = isinstance(ask, Deliver | Compact)  # an answer from beside wakes the chain
        if beside and (rng.random() < eager or (isinstance(chain[0], Wait) and not woken)):
            ask = beside.pop(rng.randrange(len(beside)))
            if isinstance(ask, Deliver):
                delivered.append(ask)
                got = coordinator.handle(Delivered(ask.sink, ask.epoch))
            else:
                assert isinstance(ask, Compact)
                got = coordinator.handle(Compacted(ask.job, (merged(ask),)))
        else:
            ask = chain.pop()
            if isinstance(ask, PollSources):
                left -= 1
                got = coordinator.handle(polled(rows=int(left >= 0)))
            elif isinstance(ask, RunEpoch):
                got = coordinator.handle(Ran(outcome(ref(ask.epoch))))
            else:
                assert isinstance(ask, PutManifest | Wait)
                got = coordinator.handle(PutWon() if isinstance(ask, PutManifest) else Woke())
        beside += [i for i in got if isinstance(i, Deliver | Compact)]
        chain += [i for i in got if not isinstance(i, Deliver | Compact)]
        assert len(chain) == 1
    assert not beside
    shown = [(d.sink, d.epoch) for d in delivered]
    assert len(set(shown)) == len(shown)
    assert head(coordinator).epoch < 40
    before = head(coordinator).epoch
    for _ in range(20):
        coordinator.handle(polled())
        coordinator.handle(Woke())
    assert head(coordinator).epoch == before
    assert set(head(coordinator).cursors.values()) <= {before, before - 1}


def merged(ask: Compact) -> RunRef:
    name = f"runs/1/merge-{ask.job.lo}-{ask.job.hi}"
    return ref(0, lo=ask.job.lo, hi=ask.job.hi, file=name, kind="merge")


# -- sinks ---------------------------------------------------------------------------------


def test_epochs_are_delivered_one_after_the_other_and_cursors_are_committed() -> None:
    coordinator = created(sinks=["s"])  # epoch 0 has nothing to show
    assert one(epoch(coordinator, ref(1)), Deliver) == Deliver("s", 1)
    none(epoch(coordinator, ref(2)), Deliver)
    assert coordinator.handle(Delivered("s", 1)) == [Deliver("s", 2)]
    assert coordinator.handle(Delivered("s", 2)) == []
    assert one(epoch(coordinator, ref(3)), Deliver) == Deliver("s", 3)
    assert head(coordinator).cursors == {"s": 2}


def test_empty_epochs_need_no_delivery() -> None:
    coordinator = created(sinks=["s"])
    got = coordinator.handle(command("savepoint", name="x"))
    one(got, PutManifest)
    none(coordinator.handle(PutWon()), Deliver)
    assert one(epoch(coordinator, ref(2)), Deliver) == Deliver("s", 2)


def test_a_sink_goes_on_where_the_manifest_says() -> None:
    coordinator = made(sinks=["s"])
    coordinator.start()
    coordinator.handle(HeadRead(replace(OLD, cursors={"s": 5, "gone": 2})))
    assert one(coordinator.handle(PutWon()), Deliver) == Deliver("s", 6)


def test_a_new_sink_on_an_old_pond_begins_with_all_rows() -> None:
    """What was delivered epoch by epoch long ago is no longer kept; the rows themselves are."""
    coordinator = made(sinks=["s"], policy=Policy(compact=False, retain_epochs=1))
    coordinator.start()
    coordinator.handle(HeadRead(replace(OLD, cursors={}, floor=6)))
    assert one(coordinator.handle(PutWon()), Deliver) == Deliver("s", 6, all_rows=True)
    assert head(coordinator).floor == 6
    epoch(coordinator, ref(9))
    assert head(coordinator).floor == 6, "the floor waits until it has begun"
    assert coordinator.handle(Delivered("s", 6)) == [Deliver("s", 7)]


def test_a_new_sink_that_gets_epochs_at_most_once_begins_with_all_rows_too() -> None:
    settings = {"s": SinkSettings(guarantee="at_most_once")}
    coordinator = made(sinks=["s"], sink_settings=settings)
    coordinator.start()
    coordinator.handle(HeadRead(replace(OLD, cursors={}, floor=6)))
    none(coordinator.handle(PutWon()), Deliver)
    asked = one(epoch(coordinator, ref(9)), Deliver)
    assert (asked.first, asked.epoch, asked.all_rows) == (6, 8, True)


@pytest.mark.parametrize(("since", "floor"), [(1, 1), (-1, 0), (1, 2), (-1, 1)])
def test_a_replay_needs_the_epoch_that_was_delivered_last(since: int, floor: int) -> None:
    """The changes of the next epoch are computed against it; epoch 0 has none before it."""
    coordinator = made(sinks=["s"])
    coordinator.start()
    coordinator.handle(HeadRead(replace(OLD, detached={"s": since}, cursors={}, floor=floor)))
    coordinator.handle(PutWon())
    m = one(coordinator.handle(command("attach", name="s", replay=True)), PutManifest).manifest
    assert ("refused" in m.metrics) == (max(since, 0) < floor)


def test_a_replay_keeps_the_epochs_that_it_begins_with() -> None:
    """Nothing waited for the sink while it was detached; the commit that attaches it must."""
    coordinator = made(sinks=["s"], policy=Policy(compact=False, retain_epochs=3))
    coordinator.start()
    coordinator.handle(HeadRead(replace(OLD, detached={"s": 5}, cursors={}, floor=5)))
    coordinator.handle(PutWon())
    m = one(coordinator.handle(command("attach", name="s", replay=True)), PutManifest).manifest
    assert (m.epoch, m.floor, m.detached) == (9, 5, {})


def test_the_floor_waits_for_slow_sinks_and_never_falls() -> None:
    coordinator = created(sinks=["fast", "slow"], policy=Policy(compact=False, retain_epochs=2))
    for number in range(1, 7):
        epoch(coordinator, ref(number))
        coordinator.handle(Delivered("fast", number - 1))
    assert head(coordinator).floor == 0
    for number in range(1, 5):
        coordinator.handle(Delivered("slow", number))
    epoch(coordinator, ref(7))
    assert head(coordinator).floor == 4
    coordinator = created(policy=Policy(compact=False, retain_epochs=2))
    for number in range(1, 7):
        epoch(coordinator, ref(number))
    assert head(coordinator).floor == 4


def test_the_floor_waits_for_what_a_sink_reads_whose_cursor_moved_first() -> None:
    settings = {"s": SinkSettings(guarantee="at_most_once", every_us=50)}
    policy = Policy(compact=False, retain_epochs=1)
    coordinator = created(sinks=["s"], sink_settings=settings, policy=policy)
    epoch(coordinator, ref(1))
    one(epoch(coordinator, ref(2)), Deliver)
    coordinator.handle(Delivered("s", 1))
    epoch(coordinator, ref(3))
    cursor = head(coordinator).cursors["s"]
    one(coordinator.handle(polled(now_us=900)), PutManifest)
    asked = one(coordinator.handle(PutWon()), Deliver)
    assert (asked.after, head(coordinator).cursors["s"]) == (cursor, asked.epoch)
    for number in range(5, 9):
        epoch(coordinator, ref(number))
    assert head(coordinator).epoch == 8
    assert head(coordinator).floor <= cursor, "it still reads the epochs after this one"
    coordinator.handle(Delivered("s", asked.epoch))
    epoch(coordinator, ref(9))
    assert head(coordinator).floor >= asked.epoch


def test_a_failed_sink_rests_and_the_chain_goes_on() -> None:
    coordinator = created(sinks=["s"])
    epoch(coordinator, ref(1))
    assert coordinator.handle(DeliverFailed("s", 1, DOWN)) == []
    assert coordinator.failed_sinks == {"s": DOWN}
    none(epoch(coordinator, ref(2)), Deliver)
    assert head(coordinator).epoch == 2
    coordinator.retry_sink("s")
    assert one(coordinator.handle(polled()), Deliver) == Deliver("s", 1)


def test_a_clock_that_is_set_back_does_not_keep_a_failed_sink_waiting() -> None:
    coordinator = created(sinks=["s"])
    epoch(coordinator, ref(1))
    hour_us = 3_600_000_000
    coordinator.handle(polled(now_us=2 * hour_us))
    coordinator.handle(DeliverFailed("s", 1, DOWN))
    none(coordinator.handle(polled(now_us=hour_us)), Deliver)
    assert one(coordinator.handle(polled(now_us=hour_us + 2_000_000)), Deliver) == Deliver("s", 1)


def test_a_failed_sink_is_tried_again_by_itself_later_and_later() -> None:
    coordinator = created(sinks=["s"])
    epoch(coordinator, ref(1))
    now_us, waits = 10**9, []
    coordinator.handle(polled(now_us=now_us))
    for _ in range(9):
        coordinator.handle(DeliverFailed("s", 1, DOWN))
        start = now_us
        while True:
            now_us += 250_000
            if any(isinstance(i, Deliver) for i in coordinator.handle(polled(now_us=now_us))):
                break
            assert now_us - start < 10**9
            coordinator.handle(Woke())
        coordinator.handle(Woke())
        waits.append((now_us - start) / 1e6)
    assert waits[0] <= 2
    assert waits == sorted(waits)
    assert 30 <= waits[-1] <= 120
    assert coordinator.failed_sinks == {"s": DOWN}, "still told, until it works"
    coordinator.handle(Delivered("s", 1))
    assert coordinator.failed_sinks == {}


def test_damage_that_a_delivery_finds_stops_the_pond() -> None:
    coordinator = created(sinks=["s"])
    torn = DataError("run file x is damaged")
    assert coordinator.handle(DeliverFailed("s", 0, torn)) == [Halt(torn)]


# -- merges --------------------------------------------------------------------------------


def merging(epochs: int = 3, **policy: Any) -> tuple[Coordinator, Compact]:
    coordinator = created(policy=Policy(fan_in=3, **policy))
    got: list[Instruction] = []
    for number in range(1, epochs + 1):
        got = epoch(coordinator, ref(number))
    return coordinator, one(got, Compact)


MERGED = ref(3, lo=1, file="runs/1/merge", kind="merge")


def test_a_merge_joins_the_next_commit() -> None:
    coordinator, asked = merging()
    assert (asked.job.lo, asked.job.hi, asked.epoch, asked.token) == (1, 3, 3, 1)
    assert coordinator.handle(Compacted(asked.job, (MERGED,))) == []
    coordinator.handle(polled(rows=1))
    m = one(coordinator.handle(Ran(outcome(ref(4)))), PutManifest).manifest
    assert m.added == (ref(4), MERGED)
    assert set(m.removed) == {run_id(ref(n)) for n in (1, 2, 3)}
    coordinator.handle(PutWon())
    assert set(coordinator.live) == {run_id(MERGED), run_id(ref(4))}


def test_a_merge_does_not_wait_for_input() -> None:
    coordinator, asked = merging()
    coordinator.handle(Compacted(asked.job, (MERGED,)))
    m = one(coordinator.handle(polled()), PutManifest).manifest
    assert m.added == (MERGED,)
    assert is_empty(m)


def test_a_merge_whose_inputs_are_gone_is_forgotten() -> None:
    coordinator = created(policy=Policy(fan_in=3))
    for number in (1, 2):
        epoch(coordinator, ref(number, bucket=1))
    asked = one(epoch(coordinator, ref(3, bucket=1)), Compact)
    coordinator.handle(Compacted(asked.job, (replace(MERGED, bucket=1),)))
    one(coordinator.handle(polled(rows=1)), RunEpoch)
    m = one(coordinator.handle(Ran(outcome(ref(4), drops={"t": 2}))), PutManifest).manifest
    assert m.added == (ref(4),)
    assert set(m.removed) == {run_id(ref(n)) for n in (1, 2, 3)}


def test_a_merge_of_an_abandoned_future_is_forgotten() -> None:
    coordinator, asked = merging()
    coordinator.handle(Compacted(asked.job, (MERGED,)))
    target = HeadRead(replace(head(coordinator), epoch=1, nonce="x"), (ref(1),), {})
    m = one(coordinator.handle(command("rollback", target=target, epoch=1)), PutManifest).manifest
    assert m.added == ()
    assert set(m.removed) == {run_id(ref(n)) for n in (2, 3)}


def test_a_merge_that_ends_after_a_rollback_joins_only_if_its_inputs_stand() -> None:
    coordinator, asked = merging()
    target = HeadRead(replace(head(coordinator), epoch=1, nonce="x"), (ref(1),), {})
    coordinator.handle(command("rollback", target=target, epoch=1))
    coordinator.handle(PutWon())
    coordinator.handle(Compacted(asked.job, (MERGED,)))
    m = one(coordinator.handle(polled()), PutManifest).manifest
    assert (m.added, m.removed) == ((), ())


def test_a_merge_that_fails_is_planned_again_then_halts() -> None:
    coordinator, asked = merging()
    for turn in range(coordinator.policy.tries):
        got = coordinator.handle(CompactFailed(asked.job, DOWN))
        if turn == coordinator.policy.tries - 1:
            assert got == [Halt(DOWN)]
        else:
            assert got == []
            assert one(coordinator.handle(polled()), Compact).job == asked.job
            coordinator.handle(Woke())
    torn = DataError("torn")
    coordinator, asked = merging()
    assert coordinator.handle(CompactFailed(asked.job, torn)) == [Halt(torn)]


def test_everything_is_merged_when_asked_and_then_it_rests() -> None:
    coordinator = created()
    for number in (1, 2):
        none(epoch(coordinator, ref(number)), Compact)
    coordinator.compact_everything()
    asked = one(coordinator.handle(polled()), Compact)
    assert coordinator.merging
    assert [r.lo for r in asked.job.refs] == [1, 2]
    coordinator.handle(Compacted(asked.job, (replace(MERGED, hi=2),)))
    coordinator.handle(Woke())
    one(coordinator.handle(polled()), PutManifest)
    none(coordinator.handle(PutWon()), Compact)
    assert coordinator.handle(polled()) == [Wait()]
    assert not coordinator.merging
    none(epoch(coordinator, ref(4)), Compact)


# -- collection ----------------------------------------------------------------------------


def test_garbage_is_collected_once_the_floor_rose_and_then_in_turns() -> None:
    coordinator = created(policy=Policy(compact=False, retain_epochs=2, collect_every=5))
    asked = [(number, i) for number in range(1, 4) for i in epoch(coordinator, ref(number))]
    found = [(n, i) for n, i in asked if isinstance(i, Collect)]
    assert [n for n, _ in found] == [3], "one at a time"
    assert (found[0][1].spare_from, found[0][1].token, found[0][1].head.floor) == (3, 1, 1)
    coordinator.handle(Collected(1))
    due = [n for n in range(4, 12) for i in epoch(coordinator, ref(n)) if isinstance(i, Collect)]
    assert due == [8], "five epochs after the one in which it was done"


def test_a_collection_spares_the_files_of_a_running_merge() -> None:
    coordinator, asked = merging(retain_epochs=3)
    got = epoch(coordinator, ref(4))
    assert one(got, Collect).spare_from == asked.epoch == 3


# -- small things --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, -1, 32769, True, False, 1.5, "4", None])
def test_a_parallelism_that_cannot_work(n: Any) -> None:
    with pytest.raises(InvalidError, match="parallelism must be a whole number from 1 to 32768") as caught:
        require_parallelism(n)
    assert repr(n) in (caught.value.detail or "")


def test_a_parallelism_that_works() -> None:
    assert [require_parallelism(n) for n in (1, 7, 32768)] == [1, 7, 32768]
