"""The runner: it drives a coordinator through a shell.

The chain of epochs runs in the caller's thread; every sink, the compaction and
the collection have a thread of their own beside it (`lanes`), and their answers are
heard between two instructions of the chain.  What fails is tried again after a pause that
grows.  A runner out of which an error came is `broken`: what it knew comes
back from the head manifest, by booting another.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
from collections.abc import Callable

from millpond.engine.coordinator import Coordinator
from millpond.engine.lanes import DaemonExecutor as ThreadPoolExecutor  # tests put one that runs at once here
from millpond.engine.lanes import Lanes
from millpond.engine.protocol import (
    BACKGROUND,
    ChangeFailed,
    Collect,
    Compact,
    CompactFailed,
    Deliver,
    Delivered,
    DeliverFailed,
    Event,
    Halt,
    Instruction,
    PollSources,
    PutUnknown,
    ReadBackDone,
    RunFailed,
    Unanswered,
    Wait,
    Woke,
)
from millpond.engine.shell import Shell
from millpond.errors import InternalError, MillpondError, UnavailableError
from millpond.state.manifest import Manifest

PAUSE_S, PAUSE_S_MAX = 0.02, 2.0  # before the first try again, and the longest
SLOW_S = 10.0  # a drain that waited so long for sinks says so on the log
PATIENCE_S = 600.0  # and gives up after this, without an answer of any
log = logging.getLogger("millpond.engine")


class Runner:
    def __init__(
        self,
        coordinator: Coordinator,
        shell: Shell,
        *,
        on_commit: Callable[[Manifest], None] = lambda manifest: None,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self.coordinator = coordinator
        self.shell = shell
        self._on_commit = on_commit
        self._lanes = Lanes(ThreadPoolExecutor)
        self._heard: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
        self._beside = 0
        self._next: Instruction | None = None
        self._committed = -1
        self._wake = threading.Event()
        self._pause = pause or self._sleep
        self._failed = 0  # how often in a row the chain's instruction failed
        self.polls = 0  # how often the sources were asked
        self.idle_polls = 0  # how often they had nothing to give
        self.broken = False

    def boot(self) -> None:
        """Create the pond, or take it over; returns when this process may commit epochs."""
        self._take(self.coordinator.start())
        while not self.coordinator.owner:
            self.step()

    def make_ready(self) -> None:
        """Go on to the program that the pond was opened with, where that takes a backfill."""
        while not self.coordinator.ready:
            self.step()

    def step(self) -> None:
        """One instruction of the chain, and whatever was heard from beside it."""
        if self.broken:
            raise InternalError("a broken runner was asked to go on")
        try:
            self._listen()
            self._step()
        except BaseException:
            self.broken = True
            raise

    def _step(self) -> None:
        instruction, self._next = self._next, None
        if instruction is None:
            raise InternalError("the chain has no next instruction")
        if isinstance(instruction, Wait):
            self._take(self.coordinator.handle(Woke()))
            return
        self.polls += isinstance(instruction, PollSources)
        event = self.shell.perform(instruction)
        if isinstance(event, Unanswered | PutUnknown | RunFailed | ChangeFailed):
            self._failed += 1
        elif not isinstance(event, ReadBackDone):  # that settles a doubt, it does not mend what caused it
            self._failed = 0
        self._take(self.coordinator.handle(event))
        if isinstance(event, Unanswered | PutUnknown | RunFailed | ChangeFailed):
            if not (isinstance(event, ChangeFailed) and event.stopped):
                log.warning("%s; trying again (failure %d)", one_line(event.error), self._failed)
            self._pause(min(PAUSE_S_MAX, PAUSE_S * 2 ** min(self._failed, 20)))

    def _sleep(self, seconds: float) -> None:
        self._wake.clear()
        self._wake.wait(seconds)

    @property
    def waiting(self) -> bool:
        return isinstance(self._next, Wait)

    @property
    def quiet(self) -> bool:
        """Had the sources nothing to give, and have all sinks heard of everything?"""
        return self.waiting and not self.coordinator.delivering

    def drain(self, until: Callable[[], bool] = lambda: False, *, settle: bool = False) -> None:
        """Run epochs until the sources have nothing more to give and every sink has heard of it.

        With `settle` also until nothing is being merged or collected.
        """
        self._wake.clear()
        fresh = False  # a Wait that answers a poll made before this call proves nothing
        while not until():
            if self.waiting and fresh:
                if self.coordinator.delivering or (settle and self._beside):
                    self._hear(until)
                    fresh = False
                    continue
                return
            fresh = True
            self.step()

    def run(self, stop: threading.Event, poll_ms: int) -> None:
        """Run until told to stop."""
        while not stop.is_set():
            if self.waiting:
                self._wake.wait(poll_ms / 1000)
                self._wake.clear()
                if stop.is_set():
                    return
            self.step()

    def compact_everything(self) -> None:
        """Ask for every table to be merged into one run; done by the time a drain returns."""
        self.coordinator.compact_everything()

    def wake(self) -> None:
        self._wake.set()

    def close(self, sinks_s: float | None = None) -> list[str]:
        """Wait for what runs beside the chain; what has not begun is not begun any more.

        Sinks are waited for at most `sinks_s`.  Those that are still busy then are named, and left behind.
        """
        busy = self._lanes.close(lambda lane: sinks_s if lane.startswith(SINK_LANE) else None)
        left = [lane.removeprefix(SINK_LANE) for lane in busy]
        for sink in left:
            log.warning(
                "sink %r did not return within %g s; it is left behind, and the epoch it was given is "
                "delivered again by the next run",
                sink,
                sinks_s,
            )
        return left

    def _hear(self, until: Callable[[], bool]) -> None:
        """Wait for an answer from beside the chain."""
        started, told = time.monotonic(), False
        while self._beside and self._heard.empty() and not until():
            waited = time.monotonic() - started
            if waited > SLOW_S and not told:
                told = True
                log.warning("waiting for %s", self._awaited())
            if waited > PATIENCE_S:
                raise UnavailableError(
                    f"{self._awaited()} did not return for {PATIENCE_S:.0f} s",
                    hint="see what it waits for; what it was given is delivered again by the next run",
                )
            self._wake.wait(0.05)
            self._wake.clear()
        try:
            self._listen()
        except BaseException:
            self.broken = True
            raise

    def _awaited(self) -> str:
        sinks = self.coordinator.delivering_sinks
        return ", ".join(f"sink {sink!r}" for sink in sinks) or "a compaction or a collection"

    def _take(self, instructions: list[Instruction]) -> None:
        head = self.coordinator.head
        if head is not None and self.coordinator.owner and head.epoch != self._committed:
            self._committed = head.epoch
            self.shell.committed(head)
            self._on_commit(head)
        for instruction in instructions:
            if isinstance(instruction, Halt):
                raise instruction.error
            if isinstance(instruction, BACKGROUND):
                self._beside += 1
                self._lanes.submit(lane_of(instruction), functools.partial(self._perform_beside, instruction))
            elif self._next is not None:
                raise InternalError(
                    "two instructions of the chain at once", detail=f"{instruction}, {self._next}"
                )
            else:
                self._next = instruction
                if isinstance(instruction, Wait):
                    self.idle_polls += 1

    def _perform_beside(self, instruction: Instruction) -> None:
        try:
            self._heard.put(self.shell.perform(instruction))
        except BaseException as error:  # handed to the chain's thread, which raises it
            self._heard.put(error)
        self._wake.set()

    def _listen(self) -> None:
        while self._beside:
            try:
                heard = self._heard.get(block=False)
            except queue.Empty:
                return
            self._beside -= 1
            if isinstance(heard, BaseException):
                raise heard
            self._tell(heard)
            kept, self._next = self._next, None
            self._take(self.coordinator.handle(heard))
            if self._next is None:
                self._next = kept
            elif kept is not None:
                raise InternalError("an answer from beside the chain moved the chain")

    def _tell(self, heard: Event) -> None:
        """What failed beside the chain goes on the log: nobody else may ask for it."""
        if isinstance(heard, DeliverFailed | CompactFailed):
            log.warning("%s; trying again later", one_line(heard.error))
        elif isinstance(heard, Delivered) and heard.sink in self.coordinator.failed_sinks:
            log.info("sink %r works again from epoch %d", heard.sink, heard.epoch)


SINK_LANE = "sink-"


def lane_of(instruction: Deliver | Compact | Collect) -> str:
    """The thread that carries it out."""
    if isinstance(instruction, Deliver):
        return f"{SINK_LANE}{instruction.sink}"
    return "compaction" if isinstance(instruction, Compact) else "collection"


def one_line(error: MillpondError) -> str:
    return error.message if error.detail is None else f"{error.message}: {error.detail}"
