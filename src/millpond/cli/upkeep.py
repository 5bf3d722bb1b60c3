"""A pond taken over for a moment, to merge its runs or to collect its garbage.

Taking over is a commit like any other, so it is safe beside a pipeline that
is believed dead; one that is alive is left alone.  Nothing is admitted: no
source is asked, the inbox and the sinks stay as they are for the next run.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

from millpond.clock import SystemClock
from millpond.control import lease
from millpond.engine.coordinator import Coordinator, Policy
from millpond.engine.inline import InlineEngine
from millpond.engine.protocol import (
    Event,
    Instruction,
    Polled,
    PollSources,
)
from millpond.engine.runner import Runner
from millpond.engine.shell import Shell
from millpond.engine.worker import Worker
from millpond.errors import ConflictError, InternalError
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan
from millpond.serve.reader import Reader
from millpond.settings import Settings
from millpond.state.garbage import Collection, Garbage, collect, find_garbage
from millpond.state.manifest import Manifest

LEASE_MS = Settings().lease_ms
FOREVER = 1 << 62


class RunningError(ConflictError):
    """A pipeline runs on the pond: it must be asked, not taken over."""


class IdleShell(Shell):
    """A shell whose sources and inbox have nothing to give."""

    def perform(self, instruction: Instruction) -> Event:
        if isinstance(instruction, PollSources):
            return Polled(self.clock.now_us(), {})
        return super().perform(instruction)


@dataclass(frozen=True)
class Upkeep:
    """The token holder, for now."""

    worker: Worker
    shell: Shell
    runner: Runner

    @property
    def head(self) -> Manifest:
        head = self.runner.coordinator.head
        if head is None:
            raise InternalError("the pond was not taken over")
        return head

    @property
    def runs(self) -> int:
        return len(self.runner.coordinator.live)

    def compact(self) -> None:
        """Merge every table into one run per time bucket."""
        self.runner.compact_everything()
        self.runner.drain(settle=True)

    def collect(self) -> Collection:
        """Delete what no readable epoch needs; with the bytes that gave."""
        return collect(
            self.worker.store,
            self.head,
            spare_from=self.head.epoch + 1,
            token=self.runner.coordinator.token,
            now_us=self.shell.clock.now_us(),
            pages=self.worker.pages,
            measure=True,
        )


@contextlib.contextmanager
def taken_over(
    reader: Reader, *, retain_epochs: int | None = None, lease_ms: int = LEASE_MS
) -> Iterator[Upkeep]:
    """Take the pond over; with `retain_epochs` older ones are given up (but what sinks still owe)."""
    head = reader.head()
    _refuse_running(reader, lease_ms)
    plan = reader.plan_of(head)
    clock = SystemClock()
    coordinator = Coordinator(
        pond=head.pond,
        catalog=head.catalog or "",
        sources=(),
        sinks=(),
        parallelism=None,
        policy=Policy(retain_epochs=retained(head, plan, retain_epochs), compact=False, collect=False),
        ids=lambda: uuid.uuid4().hex,
        now_us=clock.now_us(),
    )
    shell = IdleShell(reader.worker, InlineEngine(reader.worker), plan, cut(plan), head.catalog or "", clock)
    runner = Runner(coordinator, shell)
    keeper = lease.Keeper(reader.store, lease_ms)
    try:
        runner.boot()
        keeper.token = coordinator.token
        runner.drain()  # the takeover is committed when there is nothing more to do
        yield Upkeep(reader.worker, shell, runner)
    finally:
        runner.close()
        keeper.release()


def retained(head: Manifest, plan: Plan, wanted: int | None) -> int:
    """How many epochs the takeover keeps beside its own: those wanted, and what a sink has still to show."""
    if wanted is None:
        return FOREVER
    owed = [head.epoch + 1 - head.cursors.get(name, 0) for name in plan.sinks if name not in head.detached]
    return max([wanted - 1, *owed])


def found_garbage(reader: Reader, retain_epochs: int | None) -> tuple[Garbage, int]:
    """What a collection would delete now, and the oldest epoch that would stay; nothing is changed."""
    head = reader.head()
    wanted = head.epoch + 1 - retained(head, reader.plan_of(head), retain_epochs)
    floor = max(head.floor, min(head.epoch, wanted))
    found = find_garbage(
        reader.store,
        replace(head, floor=floor),
        spare_from=head.epoch + 1,
        token=head.token,
        now_us=SystemClock().now_us(),
        pages=reader.worker.pages,
    )
    return found, floor


def _refuse_running(reader: Reader, lease_ms: int) -> None:
    last = lease.latest(reader.store)
    until = time.monotonic() + lease_ms / 1000 + 1
    if not lease.silent_for(reader.store, lease_ms / 1000, stop=lambda: time.monotonic() > until):
        raise RunningError(
            "a pipeline is running on this pond",
            detail=last.described() if last else None,
            hint="it compacts and collects by itself; stop it first to do that by hand",
        )
