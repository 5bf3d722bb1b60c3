"""The coordinator: admit, run, commit; deliver, compact and collect beside it.

A synchronous state machine without I/O: `handle(event)` returns instructions.  It only dispatches: each
concern is a machine in a separate file, and all share one `PondState`.

| machine | file |
|---|---|
| who may write the pond | `takeover.py` |
| which epoch runs next | `epoch_loop.py` |
| commands of the inbox | `commands.py` |
| changes of the program | `program_changes.py` |
| commits and their doubts | `commits.py` |
| beside the chain | `sink_deliveries.py`, `compaction_schedule.py`, `garbage_schedule.py` |
| with every commit | `log_retention.py` |

One instruction of the chain of epochs is outstanding at any time; delivery, compaction and collection run
beside it and join a later commit.  A coordinator can be dropped at any moment: a new one reads everything
from the head manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from millpond.engine.coordinator.commands import Commands
from millpond.engine.coordinator.commits import Commits
from millpond.engine.coordinator.compaction_schedule import CompactionSchedule
from millpond.engine.coordinator.epoch_loop import EpochLoop
from millpond.engine.coordinator.garbage_schedule import GarbageSchedule
from millpond.engine.coordinator.log_retention import LogRetention
from millpond.engine.coordinator.planned_commit import Next, PlannedCommit
from millpond.engine.coordinator.policy import Policy
from millpond.engine.coordinator.pond_state import PondState
from millpond.engine.coordinator.program_changes import ProgramChanges
from millpond.engine.coordinator.protocol import (
    BackfillBegun,
    BackfillChunkDone,
    ChangeFailed,
    ChangePlan,
    Collected,
    Compacted,
    CompactFailed,
    Delivered,
    DeliverFailed,
    Event,
    Halt,
    HeadRead,
    Instruction,
    PlanChanged,
    Polled,
    ProgramSummary,
    PutLost,
    PutUnknown,
    PutWon,
    Ran,
    ReadBackDone,
    ReadHead,
    RunFailed,
    StateRewrite,
    Unanswered,
    Wait,
    Woke,
)
from millpond.engine.coordinator.sink_deliveries import SinkDeliveries
from millpond.engine.coordinator.takeover import Takeover
from millpond.errors import MillpondError, UnavailableError
from millpond.state.manifest.manifest import Manifest
from millpond.state.runs.compaction import MergeJob
from millpond.state.tables.live_runs import LiveRuns


class Coordinator:
    def __init__(
        self,
        *,
        pond: str,
        program: ProgramSummary,
        parallelism: int | None,
        cores: int | None = None,
        policy: Policy,
        ids: Callable[[], str],
        now_us: int = 0,
        rewrite: StateRewrite | None = None,
        change: str | None = None,
        based_on: str | None = None,
    ) -> None:
        """`parallelism` is the number that the user chose; without one, it is the number of `cores`.

        `change` is the catalog of the plan to change to after the takeover of the pond.

        `based_on` is the catalog of the head against which these arguments were checked: `takeover.NO_POND`
        if there was none, None if they were not checked.
        """
        self._state = state = PondState(policy, program, ids, now_us)
        self._epochs = EpochLoop(state)
        self._deliveries = SinkDeliveries(state)
        self._compactions = CompactionSchedule(state)
        self._collections = GarbageSchedule(state)
        self._retention = LogRetention(state)
        self._commits = Commits(state)
        self._changes = ProgramChanges(state, self._deliveries, change)
        self._commands = Commands(
            state, self._changes, self._deliveries, self._compactions, self._collections
        )
        self._takeover = Takeover(
            state,
            self._changes,
            pond=pond,
            parallelism=parallelism,
            cores=cores,
            rewrite=rewrite,
            based_on=based_on,
        )
        self._unanswered = 0

    def start(self) -> list[Instruction]:
        return [ReadHead()]

    def handle(self, event: Event) -> list[Instruction]:
        if isinstance(event, HeadRead | Polled | ReadBackDone):
            self._unanswered = 0
        match event:
            case HeadRead():
                self._commits.adopt(event.pages)
                return self._proceed(self._takeover.on_head(event))
            case Polled():
                return self._on_polled(event)
            case Ran(outcome):
                return self._proceed(self._epochs.on_ran(outcome))
            case RunFailed(error):
                return [self._epochs.on_run_failed(error)]
            case PlanChanged():
                return self._proceed(self._changes.on_changed(event))
            case BackfillBegun(progress):
                return self._proceed(self._changes.on_backfill_begun(progress))
            case BackfillChunkDone():
                self._changes.on_chunk(event)
                return [self._epochs.poll()]
            case ChangeFailed(error, stopped):
                return self._on_change_failed(error, stopped)
            case PutWon():
                return self._on_won()
            case PutLost():
                error = UnavailableError("the storage accepts no manifest, and has none")
                return [self._commits.on_doubt(error)]
            case PutUnknown(error):
                return [self._commits.on_doubt(error)]
            case ReadBackDone(manifest):
                return self._on_read_back(manifest)
            case Woke():
                return [self._epochs.poll()]
            case Unanswered(instruction, error):
                self._unanswered += 1
                return [Halt(error) if self._unanswered >= self.policy.storage_tries else instruction]
            case Delivered():
                return [*self._deliveries.on_delivered(event)]
            case DeliverFailed(sink, epoch, error):
                return [*self._deliveries.on_failed(sink, epoch, error)]
            case Compacted():
                self._compactions.on_compacted(event)
                return []
            case CompactFailed(_, error):
                return [*self._compactions.on_failed(error)]
            case Collected():
                self._collections.on_collected()
                return []

    # -- the chain ------------------------------------------------------------

    def _on_polled(self, event: Polled) -> list[Instruction]:
        run = self._epochs.on_polled(event, hold=self._deliveries.holds_input)
        if event.commands:
            return self._proceed(self._commands.on_polled(event))
        beside = self._beside()
        if run is not None:
            return [run, *beside]
        delivered = self._deliveries.cursors_due or self._deliveries.groups_due
        if self._compactions.waits_for_commit or self._changes.chunk_waits or delivered:
            state = self._state
            child = state.child("epoch", state.time_without_steps(state.now_us))
            return [*self._commit(PlannedCommit(child)), *beside]
        return [Wait(), *beside]

    def _on_change_failed(self, error: MillpondError, stopped: bool) -> list[Instruction]:
        following = self._changes.on_failed(error, stopped)
        return self._commit(following) if isinstance(following, PlannedCommit) else [following]

    def _proceed(self, following: Next) -> list[Instruction]:
        """Commit what a machine planned, or return the instruction that it requests."""
        match following:
            case PlannedCommit():
                return self._commit(following)
            case ChangePlan(begins=False):
                return [following, *self._beside()]
            case _:
                return [following]

    def _commit(self, planned: PlannedCommit) -> list[Instruction]:
        """Commit it, together with everything that waits for a commit."""
        if planned.manifest.kind == "rollback":
            # Results computed from the epochs that it discards are void.
            self._compactions.forget()
            self._changes.end_backfill()
        elif planned.manifest.kind != "create":
            for machine in (self._changes, self._retention, self._compactions):
                planned = machine.join(planned)
        if planned.manifest.kind != "create":
            planned = self._deliveries.join(planned)
        self._deliveries.on_commit()
        return [self._commits.put(planned)]

    def _on_won(self) -> list[Instruction]:
        head = self._commits.on_won()
        self._takeover.on_won()
        self._deliveries.on_won(head)
        if self._changes.opening is not None:
            return [self._changes.open(self._changes.opening), *self._beside()]
        if head.backfill is not None:
            chunk = self._changes.next_chunk(head.backfill, idle=not self._epochs.had_input)
            return [chunk, *self._beside()]
        self._changes.end_backfill()
        return [self._epochs.poll(), *self._beside()]

    def _on_read_back(self, committed: Manifest | None) -> list[Instruction]:
        if committed is None:
            return [self._commits.put_again()]
        if self._commits.is_ours(committed):
            return self._on_won()
        return [self._takeover.on_lost(committed)]

    # -- beside the chain -----------------------------------------------------

    def _beside(self) -> list[Instruction]:
        """The instructions that can start beside the chain now."""
        instructions: list[Instruction] = [*self._deliveries.start()]
        instructions += self._compactions.start(self._changes.backfilled_tables)
        if not self._compactions.waits_for_commit:
            instructions += self._collections.start(self._compactions.running, self._deliveries.oldest_files)
        return instructions

    # -- for callers, some of them in other threads ----------------------------

    @property
    def policy(self) -> Policy:
        return self._state.policy

    @property
    def head(self) -> Manifest | None:
        return self._state.committed

    @property
    def live(self) -> LiveRuns:
        return self._state.live

    @property
    def token(self) -> int:
        return self._state.token

    @property
    def catalog(self) -> str:
        return self._state.program.catalog

    @property
    def owner(self) -> bool:
        """May this process commit epochs, as far as it knows?"""
        return self._takeover.owner

    @property
    def ready(self) -> bool:
        """Does this process own the pond, and run the program with which it was opened?"""
        return self._takeover.owner and self._changes.opening is None

    @property
    def backlog_rows(self) -> int:
        return self._epochs.backlog_rows

    @property
    def cursors(self) -> Mapping[str, int]:
        """By sink, the last epoch that was delivered."""
        return dict(self._state.cursors)

    @property
    def behind(self) -> Mapping[str, int]:
        """The sinks that have epochs to receive, and the last epoch that each received."""
        return self._deliveries.behind

    @property
    def delivering_sinks(self) -> tuple[str, ...]:
        return self._deliveries.delivering

    @property
    def delivering(self) -> bool:
        return bool(self._deliveries.delivering)

    @property
    def failed_sinks(self) -> Mapping[str, MillpondError]:
        """Sinks whose last delivery failed, until one succeeds or is asked for again."""
        return self._deliveries.failed

    @property
    def sink_errors(self) -> Mapping[str, MillpondError]:
        """The error of the last delivery of each sink, until one succeeds."""
        return self._deliveries.errors

    def awaits(self, sink: str) -> bool:
        """Is a delivery of this sink awaited?"""
        return sink in self._deliveries.delivering

    def retry_sink(self, sink: str) -> None:
        """Retry a failed sink immediately."""
        self._deliveries.retry(sink)

    def deliver_gathered(self) -> None:
        """Deliver what sinks have gathered, without waiting for more epochs."""
        self._deliveries.deliver_gathered()

    @property
    def compacting(self) -> MergeJob | None:
        """The merge that is running, if one is."""
        running = self._compactions.running
        return None if running is None else running.job

    @property
    def merging(self) -> bool:
        return self._compactions.busy

    def compact_everything(self) -> None:
        """Merge until every table is one run, regardless of the policy."""
        self._compactions.compact_everything()

    @property
    def busy_beside(self) -> bool:
        compacting = self._compactions.running is not None or self._compactions.waits_for_commit
        return self.delivering or compacting or self._collections.running
