"""The words of the coordinator: events it hears, instructions it gives.

Both are plain data.  Whoever carries out instructions (the shell, or the
simulator) answers each with an event; between any two the process may die.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millpond.errors import MillpondError
from millpond.operators.operator import Wake
from millpond.sources.source import Advance, Poll, Split
from millpond.state.compaction import MergeJob
from millpond.state.filling import Fill
from millpond.state.manifest import Manifest, RunId
from millpond.state.run_ref import RunRef

# -- instructions -----------------------------------------------------------


@dataclass(frozen=True)
class ReadHead:
    """Find the newest manifest. Answer: HeadRead."""


@dataclass(frozen=True)
class PollSources:
    """Ask sources and the inbox what they have. Answer: Polled."""

    positions: Mapping[str, Any]
    max_rows: int


@dataclass(frozen=True)
class RunEpoch:
    """Run the levels over what was admitted, from the state of `base`. Answer: Ran or RunFailed."""

    base: Manifest
    epoch: int
    token: int
    now_us: int
    parallelism: int
    admitted: Mapping[str, tuple[Split, ...]]
    rejects: Mapping[str, tuple[tuple[str, str], ...]]
    due: frozenset[str] = frozenset()  # tables whose time has come: their steps run without input too
    waiting: int = 0  # rows of the state that time may close
    log_buckets: Mapping[str, int] = field(default_factory=dict)  # where error rows and late rows are written


@dataclass(frozen=True)
class ChangePlan:
    """Make all that a wanted plan has beyond that of `base`. Answer: Changed, FillBegun or ChangeFailed."""

    base: Manifest
    epoch: int
    token: int
    now_us: int
    parallelism: int
    catalog: str  # of the wanted plan
    rows_max: int  # taken in at once
    entry: int | None = None  # of the inbox; without one it is done here and now, however long it takes
    at_once: int = 0  # rows that are not worth a fill
    begins: bool = False  # `base` is the first epoch, not committed yet: all steps are new


@dataclass(frozen=True)
class FillMore:
    """Take in one more chunk of what `base` says is being filled, or the last. Answer: as for ChangePlan.

    FillMoved tells of a chunk, Changed of the last.
    """

    base: Manifest
    epoch: int
    token: int
    now_us: int
    parallelism: int
    fill: Fill
    rows: int  # to take in, about


@dataclass(frozen=True)
class PutManifest:
    """Write the new pages, then commit. Answer: PutWon, PutLost or PutUnknown."""

    manifest: Manifest
    pages: tuple[tuple[str, tuple[RunRef, ...]], ...] = ()


@dataclass(frozen=True)
class ReadBack:
    """Read the manifest of an epoch to settle a doubt. Answer: ReadBackDone."""

    epoch: int


@dataclass(frozen=True)
class Deliver:
    """Hand the changes of one epoch to one sink. Answer: Delivered or DeliverFailed."""

    sink: str
    epoch: int
    whole: bool = False  # all rows of the view, not what changed: the sink is new


@dataclass(frozen=True)
class Compact:
    """Merge runs beside the chain. Answer: Compacted or CompactFailed."""

    job: MergeJob
    token: int
    epoch: int  # head when the job was made; names the files it writes
    also: tuple[MergeJob, ...] = ()  # small ones that are done with it, and written into one file


@dataclass(frozen=True)
class Collect:
    """Delete what no retained, pinned or forked manifest and no running job can need. Answer: Collected."""

    head: Manifest
    spare_from: int  # files of this epoch or later may belong to a running job
    token: int


@dataclass(frozen=True)
class Wait:
    """Nothing to do now. Answer: Woke, when time has passed or somebody called."""


@dataclass(frozen=True)
class Halt:
    """Stop for good."""

    error: MillpondError


Instruction = (
    ReadHead
    | PollSources
    | RunEpoch
    | ChangePlan
    | FillMore
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
class Rewrite:
    """State written anew, to be committed with the take-over: all of it or nothing."""

    base: str  # nonce of the head that it was made from
    tables: tuple[str, ...]
    added: tuple[RunRef, ...]
    removed: tuple[RunId, ...]


@dataclass(frozen=True)
class Program:
    """What a coordinator must know of the plan that it runs."""

    catalog: str
    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    wakes: Mapping[str, Wake]  # by table
    tables: frozenset[str] | None  # those that may be merged; None for all
    constant: bool = False  # does it have rows before any input?
    late: frozenset[str] = frozenset()  # tables of late rows
    late_needed: frozenset[str] = frozenset()  # those by which new views are filled from tables of the pond


# -- events -------------------------------------------------------------------


@dataclass(frozen=True)
class HeadRead:
    manifest: Manifest | None
    runs: tuple[RunRef, ...] = ()
    pages: Mapping[str, tuple[RunRef, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """A control entry of the inbox."""

    number: int
    kind: str  # rescale, rollback, savepoint, attach, compact, clear_errors, change, …
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Polled:
    now_us: int
    polls: Mapping[str, Poll]
    commands: Sequence[Command] = ()  # the first control entry beyond the admitted rows, if any
    rollback_to: HeadRead | None = None  # for a rollback command: the epoch it names
    program: Program | None = None  # and the program of that epoch, where it is another than today's
    cleared: tuple[RunRef, ...] = ()  # for clear_errors of one view: what ends its error rows


@dataclass(frozen=True)
class Outcome:
    """What one run of the levels brought: checked reports, folded into one."""

    runs: tuple[RunRef, ...]
    drops: Mapping[str, int]
    counts: Mapping[str, int]
    watermarks: Mapping[str, Any]
    advances: Mapping[str, Advance]
    metrics: Mapping[str, Any]


@dataclass(frozen=True)
class Ran:
    outcome: Outcome


@dataclass(frozen=True)
class RunFailed:
    error: MillpondError


@dataclass(frozen=True)
class Changed:
    """All that one commit must hold for the pond to go on with another plan."""

    program: Program
    runs: tuple[RunRef, ...]
    steps_gone: frozenset[str]
    tables_gone: frozenset[str]
    counts: Mapping[str, int]
    watermarks: Mapping[str, Any]
    positions: Mapping[str, Any]  # that sources have from now on
    metrics: Mapping[str, Any]
    drops: Mapping[str, int] = field(default_factory=dict)  # of what was filled, as in FillMoved


@dataclass(frozen=True)
class FillBegun:
    """A change that takes long: the pond goes on meanwhile."""

    fill: Fill


@dataclass(frozen=True)
class FillMoved:
    """A chunk is in, as of the next commit."""

    fill: Fill
    runs: tuple[RunRef, ...]
    rows: int
    ms: float
    drops: Mapping[str, int] = field(default_factory=dict)  # by table: buckets below it are over


@dataclass(frozen=True)
class ChangeFailed:
    error: MillpondError
    stopped: bool = False  # by whoever runs the pond: nothing is wrong, and it is asked for again


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
    """Storage or a source was not there; the instruction changed nothing and may be given again."""

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
    | Changed
    | FillBegun
    | FillMoved
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
