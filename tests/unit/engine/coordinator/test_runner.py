"""The runner: one instruction at a time, answers from beside between two, errors out of every thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

import pytest

from millpond.engine.coordinator.coordinator import Coordinator
from millpond.engine.coordinator.policy import Policy
from millpond.engine.coordinator.protocol import (
    Collect,
    Collected,
    Deliver,
    Delivered,
    DeliverFailed,
    EpochOutcome,
    Event,
    HeadRead,
    Instruction,
    Polled,
    PollSources,
    ProgramSummary,
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
)
from millpond.engine.coordinator.runner import PAUSE_S_MAX, Runner
from millpond.errors import ConflictError, DataError, InternalError, UnavailableError
from millpond.sources.source import Advance, Poll, Split
from millpond.state.manifest.manifest import Manifest
from millpond.state.runs.run_ref import RunRef

DOWN = UnavailableError("down")


class FakeShell:
    """Answers from memory: a source of `items`, a manifest kept in a list, a sink that is a list."""

    def __init__(self, items: int = 0) -> None:
        self.items = items
        self.chain: list[Manifest] = []
        self.shown: list[int] = []
        self.known: list[int] = []
        self.asked: list[Instruction] = []
        self.answers: list[Callable[[Instruction], Event | None]] = []

    def committed(self, manifest: Manifest) -> None:
        self.known.append(manifest.epoch)

    def close_sinks(self, busy: Collection[str] = ()) -> None:
        pass

    def perform(self, ask: Instruction) -> Event:
        self.asked.append(ask)
        for answer in self.answers:
            found = answer(ask)
            if found is not None:
                return found
        match ask:
            case ReadHead():
                return HeadRead(self.chain[-1] if self.chain else None)
            case PollSources():
                at = int(ask.positions.get("in", 0))
                splits = (Split({"n": at}, 1, 8),) if at < self.items else ()
                return Polled(len(self.chain) + 1, {"in": Poll(splits)})
            case RunEpoch():
                ref = RunRef("t", f"runs/{ask.epoch}", 0, None, ask.epoch, ask.epoch, 1, 9, 0, 7, "delta")
                at = int(ask.base.positions.get("in", 0))
                return Ran(EpochOutcome((ref,), {}, {}, {}, {"in": Advance(at + 1)}, {"rows": 1, "ms": 1}))
            case PutManifest():
                self.chain.append(ask.manifest)
                return PutWon()
            case ReadBack(epoch):
                found = [m for m in self.chain if m.epoch == epoch]
                return ReadBackDone(found[0] if found else None)
            case Deliver():
                self.shown.append(ask.epoch)
                return Delivered(ask.sink, ask.epoch)
            case Collect():
                return Collected(0)
        raise AssertionError(ask)


def made(shell: FakeShell, *, sinks: tuple[str, ...] = (), **options: Any) -> Runner:
    numbers = iter(range(10**6))
    coordinator = Coordinator(
        pond="p",
        program=ProgramSummary("c", ("in",), tuple(sinks)),
        parallelism=1,
        policy=Policy(compact=False),
        ids=lambda: f"{id(shell)}-{next(numbers)}",
    )
    options.setdefault("pause", lambda seconds: None)
    return Runner(coordinator, shell, **options)  # type: ignore[arg-type]


def test_boot_ends_when_the_pond_is_ours() -> None:
    shell = FakeShell()
    seen: list[int] = []
    runner = made(shell, on_commit=lambda m: seen.append(m.epoch))
    runner.boot()
    assert [m.kind for m in shell.chain] == ["create"]
    again = made(shell, on_commit=lambda m: seen.append(m.epoch))
    again.boot()
    assert [m.kind for m in shell.chain] == ["create", "takeover"]
    assert seen == [0, 1], "what another committed is not told as ours"
    assert shell.known == [0, 1]


def test_drain_runs_until_nothing_is_left() -> None:
    shell = FakeShell(items=5)
    seen: list[int] = []
    runner = made(shell, sinks=("s",), on_commit=lambda m: seen.append(m.epoch))
    runner.boot()
    runner.drain()
    assert shell.chain[-1].positions == {"in": 5}
    assert shell.shown == [1, 2, 3, 4, 5]
    assert seen == [m.epoch for m in shell.chain]
    assert runner.quiet
    epochs = len(shell.chain)
    for _ in range(3):
        runner.drain()
    assert len(shell.chain) == epochs, "draining again makes no epochs"
    shell.items = 6
    runner.drain()
    assert shell.chain[-1].positions == {"in": 6}
    runner.close()


def test_drain_until_a_condition() -> None:
    shell = FakeShell(items=10**6)
    runner = made(shell)
    runner.boot()
    runner.drain(until=lambda: len(shell.chain) >= 4)
    assert len(shell.chain) == 4


def test_what_fails_is_tried_again_after_a_growing_pause() -> None:
    shell = FakeShell(items=1)
    pauses: list[float] = []
    runner = made(shell, pause=pauses.append)
    runner.boot()
    fails = {PollSources: 12, RunEpoch: 3, PutManifest: 4}

    def failing(ask: Instruction) -> Event | None:
        if fails.get(type(ask), 0) == 0:
            return None
        fails[type(ask)] -= 1
        if isinstance(ask, PollSources):
            return Unanswered(ask, DOWN)
        return RunFailed(DOWN) if isinstance(ask, RunEpoch) else PutUnknown(DOWN)

    shell.answers.append(failing)
    runner.drain()
    assert shell.chain[-1].positions == {"in": 1}
    assert len(pauses) == 12 + 3 + 4
    polls = pauses[:12]
    assert polls == sorted(polls)
    assert polls[0] < 0.1
    assert polls[-1] == PAUSE_S_MAX
    assert pauses[12] == polls[0], "an answer starts the count again"
    assert pauses[15:] == polls[:4], "reading back in between is no progress"


@pytest.mark.parametrize("error", [ConflictError("other"), DataError("torn")])
def test_a_halt_comes_out_as_its_error_and_breaks_the_runner(error: Exception) -> None:
    shell = FakeShell(items=1)
    runner = made(shell)
    runner.boot()
    shell.answers.append(lambda ask: RunFailed(DataError("torn")) if isinstance(ask, RunEpoch) else None)
    with pytest.raises(DataError, match="torn"):
        runner.drain()
    assert runner.broken
    with pytest.raises(InternalError, match="broken runner"):
        runner.drain()


@pytest.mark.parametrize("kind", [PollSources, RunEpoch, PutManifest])
def test_anything_raised_in_the_chain_comes_out_and_breaks_it(kind: type) -> None:
    shell = FakeShell(items=1)
    runner = made(shell)
    runner.boot()

    def dying(ask: Instruction) -> Event | None:
        if isinstance(ask, kind):
            raise KeyError("a bug in a source")
        return None

    shell.answers.append(dying)
    with pytest.raises(KeyError, match="a bug in a source"):
        runner.drain()
    assert runner.broken


def test_anything_raised_beside_the_chain_comes_out_of_it() -> None:
    shell = FakeShell(items=3)
    runner = made(shell, sinks=("s",))
    runner.boot()

    def dying(ask: Instruction) -> Event | None:
        if isinstance(ask, Deliver):
            raise SystemExit("a sink that ends the process")
        return None

    shell.answers.append(dying)
    with pytest.raises(SystemExit):
        runner.drain()
    assert runner.broken
    runner.close()


def test_a_failed_delivery_does_not_hold_back_the_chain() -> None:
    shell = FakeShell(items=4)
    runner = made(shell, sinks=("bad", "good"))
    runner.boot()
    shell.answers.append(
        lambda ask: (
            DeliverFailed("bad", ask.epoch, DOWN) if isinstance(ask, Deliver) and ask.sink == "bad" else None
        )
    )
    runner.drain()
    assert shell.chain[-1].positions == {"in": 4}
    assert shell.shown == [1, 2, 3, 4]
    assert runner.coordinator.failed_sinks == {"bad": DOWN}
    shell.answers.clear()
    runner.coordinator.retry_sink("bad")
    runner.drain()
    assert shell.shown[4:8] == [1, 2, 3, 4]
    runner.close()


def test_a_slow_delivery_runs_beside_the_chain() -> None:
    shell = FakeShell(items=3)
    runner = made(shell, sinks=("s",))
    runner.boot()
    gate = threading.Event()

    def slow(ask: Instruction) -> Event | None:
        if isinstance(ask, Deliver):
            assert gate.wait(120)
        return None

    shell.answers.append(slow)
    runner.drain(until=lambda: shell.chain[-1].positions.get("in") == 3)
    assert shell.shown == []
    gate.set()
    runner.drain()
    assert shell.shown == [1, 2, 3]
    runner.close()


def test_run_goes_on_until_it_is_told_to_stop() -> None:
    shell = FakeShell(items=2)
    runner = made(shell)
    runner.boot()
    stop = threading.Event()
    thread = threading.Thread(target=runner.run, args=(stop, 60_000))
    thread.start()
    try:
        while not runner.waiting:
            pass
        shell.items = 3
        runner.wake()  # long before the next poll is due
        while shell.chain[-1].positions.get("in") != 3:
            assert thread.is_alive()
    finally:
        stop.set()
        runner.wake()
        thread.join(120)
    assert not thread.is_alive()
    assert not runner.broken
