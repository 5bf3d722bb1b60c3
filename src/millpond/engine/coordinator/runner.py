"""The runner: drives a coordinator through a shell.

The chain of epochs runs in the caller's thread.  Each sink, compaction and garbage collection have a
background thread each (`background_threads`), whose answers are handled between two instructions of the
chain.  Failed instructions are retried after a growing pause.  A runner that raised an error is `broken`:
boot another one, which reads everything from the head manifest.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
from collections.abc import Callable

from millpond.engine.coordinator.background_threads import (
    DaemonExecutor as ThreadPoolExecutor,  # tests replace it by one that runs calls immediately
)
from millpond.engine.coordinator.background_threads import Lanes
from millpond.engine.coordinator.coordinator import Coordinator
from millpond.engine.coordinator.protocol import (
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
from millpond.engine.coordinator.repeated_warnings import RepeatedWarnings
from millpond.engine.coordinator.shell import Shell
from millpond.errors import InternalError, MillpondError, UnavailableError
from millpond.state.manifest.manifest import Manifest

PAUSE_S, PAUSE_S_MAX = 0.02, 2.0  # before the first retry, and the longest
SLOW_S = 10.0  # a drain that waits longer than this for sinks logs it
PATIENCE_S = 600.0  # and gives up after this time without any answer
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
        self._failed = 0  # consecutive failures of the chain's instruction
        self._warnings = RepeatedWarnings(log)
        self.polls = 0  # how often the sources were polled
        self.idle_polls = 0  # how often they had no input
        self.broken = False

    def boot(self) -> None:
        """Create the pond, or take it over; returns when this process may commit epochs."""
        self._take(self.coordinator.start())
        while not self.coordinator.owner:
            self.step()

    def make_ready(self) -> None:
        """Change to the program with which the pond was opened, if that takes a backfill."""
        while not self.coordinator.ready:
            self.step()

    def step(self) -> None:
        """Execute one instruction of the chain, and handle the answers of background threads."""
        if self.broken:
            raise InternalError("a broken runner was asked to continue")
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
        elif not isinstance(event, ReadBackDone):  # a read-back resolves a doubt, but not its cause
            self._failed = 0
        self._take(self.coordinator.handle(event))
        if isinstance(event, Unanswered | PutUnknown | RunFailed | ChangeFailed):
            if not (isinstance(event, ChangeFailed) and event.stopped):
                self._warnings.warn(one_line(event.error), self._failed)
            self._pause(min(PAUSE_S_MAX, PAUSE_S * 2 ** min(self._failed, 20)))

    def _sleep(self, seconds: float) -> None:
        self._wake.clear()
        self._wake.wait(seconds)

    @property
    def waiting(self) -> bool:
        return isinstance(self._next, Wait)

    @property
    def quiet(self) -> bool:
        """Did the sources have no input, and has every sink received every epoch?"""
        return self.waiting and not self.coordinator.delivering

    def drain(self, until: Callable[[], bool] = lambda: False, *, settle: bool = False) -> None:
        """Run epochs until the sources have no more input and every sink has received them.

        With `settle` also until no merge or collection is running.
        """
        self._wake.clear()
        fresh = False  # a Wait after a poll from before this call proves nothing
        while not until():
            self.coordinator.deliver_gathered()
            if self.waiting and fresh:
                if self.coordinator.delivering or (settle and self._beside):
                    self._wait_for_event(until)
                    fresh = False
                    continue
                return
            fresh = True
            self.step()

    def run(self, stop: threading.Event, poll_ms: int) -> None:
        """Run until `stop` is set."""
        while not stop.is_set():
            if self.waiting:
                self._wake.wait(poll_ms / 1000)
                self._wake.clear()
                if stop.is_set():
                    return
            self.step()

    def compact_everything(self) -> None:
        """Request a merge of every table into one run; it is done when a drain returns."""
        self.coordinator.compact_everything()

    def wake(self) -> None:
        self._wake.set()

    def close(self, sinks_s: float | None = None) -> list[str]:
        """Wait for background threads; calls that have not begun are dropped.

        Waits for sinks at most `sinks_s`.  Returns the names of those still busy, which are abandoned.
        """
        busy = self._lanes.close(lambda lane: sinks_s if lane.startswith(SINK_LANE) else None)
        left = [lane.removeprefix(SINK_LANE) for lane in busy]
        self.shell.close_sinks(left)
        for sink in left:
            log.warning(
                "sink %r did not return within %g s; it is left behind, and the epoch it was given is "
                "delivered again by the next run",
                sink,
                sinks_s,
            )
        return left

    def _wait_for_event(self, until: Callable[[], bool]) -> None:
        """Wait for an answer from a background thread."""
        started, warned = time.monotonic(), False
        while self._beside and self._heard.empty() and not until():
            waited = time.monotonic() - started
            if waited > SLOW_S and not warned:
                warned = True
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
        except BaseException as error:  # passed to the chain's thread, which raises it
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
            self._log_failures(heard)
            following, self._next = self._next, None
            self._take(self.coordinator.handle(heard))
            if self._next is None:
                self._next = following
            elif following is not None:
                raise InternalError("an answer from beside the chain moved the chain")

    def _log_failures(self, heard: Event) -> None:
        """Log failures of background threads."""
        if isinstance(heard, DeliverFailed) and not self.coordinator.awaits(heard.sink):
            return  # the sink was dropped, detached or paused meanwhile
        if isinstance(heard, DeliverFailed | CompactFailed):
            log.warning("%s; trying again later", one_line(heard.error))
        elif isinstance(heard, Delivered) and heard.sink in self.coordinator.sink_errors:
            log.info("sink %r works again from epoch %d", heard.sink, heard.epoch)


SINK_LANE = "sink-"


def lane_of(instruction: Deliver | Compact | Collect) -> str:
    """The name of the thread that executes it."""
    if isinstance(instruction, Deliver):
        return f"{SINK_LANE}{instruction.sink}"
    return "compaction" if isinstance(instruction, Compact) else "collection"


def one_line(error: MillpondError) -> str:
    return error.message if error.detail is None else f"{error.message}: {error.detail}"
