"""Takes over a pond for a short time, to compact its runs or to collect its garbage.

A takeover is a commit, so it is safe even if the old pipeline is still alive; a pipeline that renews its
lease
is not disturbed.
Nothing is admitted: sources are not polled, and the inbox and the sinks wait for the next run.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

from millpond.clock import SystemClock
from millpond.control import lease
from millpond.engine.coordinator.coordinator import Coordinator
from millpond.engine.coordinator.policy import Policy
from millpond.engine.coordinator.protocol import (
    Event,
    Instruction,
    Polled,
    PollSources,
    ProgramSummary,
)
from millpond.engine.coordinator.runner import Runner
from millpond.engine.coordinator.shell import Shell
from millpond.engine.inline import InlineEngine
from millpond.engine.task.worker import Worker
from millpond.errors import ConflictError, InternalError
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan
from millpond.serve.reader import Reader
from millpond.settings import Settings
from millpond.state.manifest.garbage import Collection, Garbage, collect, find_garbage
from millpond.state.manifest.manifest import Manifest

LEASE_MS = Settings().lease_ms
FOREVER = 1 << 62


class RunningError(ConflictError):
    """A pipeline runs on the pond: send it a command instead of taking over."""


class IdleShell(Shell):
    """A shell whose sources and inbox are empty."""

    def perform(self, instruction: Instruction) -> Event:
        if isinstance(instruction, PollSources):
            return Polled(self.clock.now_us(), {})
        return super().perform(instruction)


@dataclass(frozen=True)
class Upkeep:
    """A pond that this process has taken over."""

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
        """Delete files that no readable epoch needs, and count the freed bytes."""
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
    """Take the pond over; `retain_epochs` drops older epochs, except those that sinks have not received."""
    head = reader.head()
    _refuse_running(reader, lease_ms)
    plan = reader.plan_of(head)
    clock = SystemClock()
    coordinator = Coordinator(
        pond=head.pond,
        program=ProgramSummary(head.catalog or ""),
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
        runner.drain()  # commits the takeover
        yield Upkeep(reader.worker, shell, runner)
    finally:
        runner.close()
        keeper.release()


def retained(head: Manifest, plan: Plan, wanted: int | None) -> int:
    """How many epochs the takeover keeps besides its own: those wanted, and those that a sink still needs."""
    if wanted is None:
        return FOREVER
    owed = [head.epoch + 1 - head.cursors.get(name, 0) for name in plan.sinks if name not in head.detached]
    return max([wanted - 1, *owed])


def found_garbage(reader: Reader, retain_epochs: int | None) -> tuple[Garbage, int]:
    """The files that a collection would delete now, and the oldest epoch that would stay."""
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
            hint="it compacts and collects automatically; stop it first to do that by hand",
        )
