"""The protocol of the coordinator: the instructions it gives and the events that answer them.

Both are plain data.  The shell (or the simulator) executes an instruction and answers it with one event.
The process may die between any two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millpond.errors import MillpondError
from millpond.operators.operator import Wake
from millpond.plan.sheddable import ShedRules
from millpond.plan.sink_settings import SinkSettings
from millpond.plan.watermark_steps import WatermarkSteps
from millpond.sources.source import Advance, Poll, Split
from millpond.state.manifest.backfill_progress import BackfillProgress
from millpond.state.manifest.manifest import Manifest, RunId
from millpond.state.runs.compaction import MergeJob
from millpond.state.runs.run_ref import RunRef

# -- instructions -----------------------------------------------------------


@dataclass(frozen=True)
class ReadHead:
    """Find the newest manifest. Answer: HeadRead."""


@dataclass(frozen=True)
class PollSources:
    """Poll the sources and the inbox for new input. Answer: Polled."""

    positions: Mapping[str, Any]
    max_rows: int
    held: bool = False  # is input held back, as far as the coordinator knows?


@dataclass(frozen=True)
class RunEpoch:
    """Run the levels over the admitted input, from the state of `base`. Answer: Ran or RunFailed."""

    base: Manifest
    epoch: int
    token: int
    now_us: int
    parallelism: int
    admitted: Mapping[str, tuple[Split, ...]]
    rejects: Mapping[str, tuple[tuple[str, str], ...]]
    due: frozenset[str] = frozenset()  # tables with a due bucket: their steps run even without input
    waiting: int = 0  # rows in time buckets that this epoch may close
    log_buckets: Mapping[str, int] = field(
        default_factory=dict
    )  # into which error rows and late rows are written
    arrivals: Mapping[str, Any] = field(default_factory=dict)  # by scan: see `engine.task.watermarks`


@dataclass(frozen=True)
class ChangePlan:
    """Change to another plan: compute the state of the steps that `base` does not have.

    Answer: PlanChanged, BackfillBegun or ChangeFailed.
    """

    base: Manifest
    epoch: int
    token: int
    now_us: int
    parallelism: int
    catalog: str  # of the new plan
    rows_max: int  # of a chunk
    entry: int | None = None  # of the inbox; None: make the change directly, however long it takes
    at_once: int = 0  # up to this many rows the change is made directly, without chunks between epochs
    begins: bool = False  # `base` is epoch 0 and not committed yet: all steps are new


@dataclass(frozen=True)
class RunBackfillChunk:
    """Run the next chunk of the backfill that `base` names. Answer: BackfillChunkDone or ChangeFailed.

    The last chunk is answered with PlanChanged.
    """

    base: Manifest
    epoch: int
    token: int
    now_us: int
    parallelism: int
    progress: BackfillProgress
    rows: int  # approximate rows to read


@dataclass(frozen=True)
class PutManifest:
    """Write the new pages, then commit. Answer: PutWon, PutLost or PutUnknown."""

    manifest: Manifest
    pages: tuple[tuple[str, tuple[RunRef, ...]], ...] = ()


@dataclass(frozen=True)
class ReadBack:
    """Read the manifest of an epoch, to find out who committed it. Answer: ReadBackDone."""

    epoch: int


@dataclass(frozen=True)
class Deliver:
    """Deliver the changes up to an epoch to one sink. Answer: Delivered or DeliverFailed."""

    sink: str
    epoch: int
    all_rows: bool = False  # begin with all rows of the view instead of its changes: the sink is new
    after: int | None = None  # the epoch after which the changes begin; None: only those of `epoch`
    token: int = field(default=0, compare=False)
    head: int = field(default=0, compare=False)  # the newest epoch when it was made; names its files
    error_bucket: int = field(default=0, compare=False)  # into which refused rows are written

    @property
    def first(self) -> int:
        return self.epoch if self.after is None else self.after + 1


@dataclass(frozen=True)
class Compact:
    """Merge runs beside the chain. Answer: Compacted or CompactFailed."""

    job: MergeJob
    token: int
    epoch: int  # head when the job was made; names the files it writes
    also: tuple[MergeJob, ...] = ()  # small merges that are written into the same file


@dataclass(frozen=True)
class Collect:
    """Delete files that no retained, pinned or forked manifest or running job needs. Answer: Collected."""

    head: Manifest
    spare_from: int  # files of this epoch or later may belong to a running job
    token: int


@dataclass(frozen=True)
class Wait:
    """Wait, as there is nothing to do. Answer: Woke, after some time or when the runner is woken."""


@dataclass(frozen=True)
class Halt:
    """Stop with this error."""

    error: MillpondError


Instruction = (
    ReadHead
    | PollSources
    | RunEpoch
    | ChangePlan
    | RunBackfillChunk
    | PutManifest
    | ReadBack
    | Deliver
    | Compact
    | Collect
    | Wait
    | Halt
)
BACKGROUND = (Deliver, Compact, Collect)


@dataclass(frozen=True)
class StateRewrite:
    """State that a bootstrap or a migration wrote, to be committed with the takeover."""

    base: str  # nonce of the head on which it is based
    tables: tuple[str, ...]
    added: tuple[RunRef, ...]
    removed: tuple[RunId, ...]


@dataclass(frozen=True)
class ProgramSummary:
    """What the coordinator needs to know of a program: a plan and the catalog in which it is stored."""

    catalog: str
    sources: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    wakes: Mapping[str, Wake] = field(default_factory=dict)  # by table
    tables: frozenset[str] | None = None  # tables that may be merged; None for all
    constant: bool = False  # does it have rows before any input?
    late: frozenset[str] = frozenset()  # tables of late rows
    late_needed: frozenset[str] = frozenset()  # of these, the ones that backfills of new views read
    watermarks: WatermarkSteps = field(default_factory=WatermarkSteps)
    shed_rules: ShedRules = field(default_factory=ShedRules)  # which sources may be shed
    sink_settings: Mapping[str, SinkSettings] = field(default_factory=dict)  # of sinks that have some


# -- events -------------------------------------------------------------------


@dataclass(frozen=True)
class HeadRead:
    manifest: Manifest | None
    runs: tuple[RunRef, ...] = ()
    pages: Mapping[str, tuple[RunRef, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """An entry of the inbox that contains no rows."""

    number: int
    kind: str  # rescale, rollback, savepoint, attach, compact, clear_errors, change, …
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Polled:
    now_us: int
    polls: Mapping[str, Poll]
    commands: Sequence[Command] = ()  # the first command after the admitted rows, if any
    rollback_to: HeadRead | None = None  # for a rollback: the epoch to restore
    program: ProgramSummary | None = (
        None  # for a rollback: the program of that epoch, where it differs from the head's
    )
    cleared: tuple[RunRef, ...] = ()  # for clear_errors of one view: runs that retract its error rows
    command_waits: bool = False  # is there a command behind the rows of the inbox?
    unpolled: frozenset[str] = frozenset()  # sources that failed while a command waits


@dataclass(frozen=True)
class EpochOutcome:
    """The result of one epoch: the reports of all tasks, checked and merged."""

    runs: tuple[RunRef, ...]
    drops: Mapping[str, int]
    counts: Mapping[str, int]
    watermarks: Mapping[str, Any]
    advances: Mapping[str, Advance]
    metrics: Mapping[str, Any]


@dataclass(frozen=True)
class Ran:
    outcome: EpochOutcome


@dataclass(frozen=True)
class RunFailed:
    error: MillpondError


@dataclass(frozen=True)
class PlanChanged:
    """The content of the commit that changes the plan."""

    program: ProgramSummary
    runs: tuple[RunRef, ...]
    steps_gone: frozenset[str]
    tables_gone: frozenset[str]
    counts: Mapping[str, int]
    watermarks: Mapping[str, Any]
    positions: Mapping[str, Any]  # of sources that are new
    metrics: Mapping[str, Any]
    drops: Mapping[str, int] = field(default_factory=dict)  # of backfilled tables, as in BackfillChunkDone


@dataclass(frozen=True)
class BackfillBegun:
    """The change needs a backfill in chunks; epochs run between them."""

    progress: BackfillProgress


@dataclass(frozen=True)
class BackfillChunkDone:
    """A chunk was computed; the next commit contains it."""

    progress: BackfillProgress
    runs: tuple[RunRef, ...]
    rows: int
    ms: float
    drops: Mapping[str, int] = field(default_factory=dict)  # by table: lower buckets are dropped


@dataclass(frozen=True)
class ChangeFailed:
    error: MillpondError
    stopped: bool = False  # by the user: nothing is wrong, and the change will be requested again


@dataclass(frozen=True)
class PutWon:
    pass


@dataclass(frozen=True)
class PutLost:
    pass


@dataclass(frozen=True)
class PutUnknown:
    error: MillpondError


@dataclass(frozen=True)
class ReadBackDone:
    manifest: Manifest | None


@dataclass(frozen=True)
class Delivered:
    sink: str
    epoch: int
    refused: tuple[RunRef, ...] = ()  # error rows: what the target refused
    refused_rows: int = 0  # how many; equal ones are stored once
    rows: int = 0  # changes that the sink received
    bytes: int = 0


@dataclass(frozen=True)
class DeliverFailed:
    sink: str
    epoch: int
    error: MillpondError


@dataclass(frozen=True)
class Compacted:
    job: MergeJob
    added: tuple[RunRef, ...]
    also: tuple[tuple[MergeJob, tuple[RunRef, ...]], ...] = ()


@dataclass(frozen=True)
class CompactFailed:
    job: MergeJob
    error: MillpondError


@dataclass(frozen=True)
class Collected:
    floor: int


@dataclass(frozen=True)
class Unanswered:
    """Storage or a source was unavailable; the instruction had no effect and may be repeated."""

    instruction: ReadHead | PollSources | ReadBack
    error: MillpondError


@dataclass(frozen=True)
class Woke:
    pass


Event = (
    HeadRead
    | Polled
    | Ran
    | RunFailed
    | PlanChanged
    | BackfillBegun
    | BackfillChunkDone
    | ChangeFailed
    | PutWon
    | PutLost
    | PutUnknown
    | ReadBackDone
    | Delivered
    | DeliverFailed
    | Compacted
    | CompactFailed
    | Collected
    | Unanswered
    | Woke
)
