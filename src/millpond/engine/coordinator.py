"""The coordinator: admit, run, commit; deliver, compact and collect beside it.

A synchronous state machine without I/O: `handle(event)` returns instructions.
One foreground instruction is out at any time (the chain of epochs); delivery,
compaction and collection run beside it and join a later commit.  It can be
dropped at any moment: everything it knows comes back from the head manifest.

Commit has three outcomes (won, lost, unknown); on any doubt the manifest is
read back and its nonce compared.  Taking over is a commit with token + 1,
after which an older coordinator loses every put (law 2).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from millpond.control.admission import Bounds, Pace, admit, budget_rows
from millpond.engine.fill_turns import AT_ONCE_ROWS, CHUNK_ROWS, FillTurns
from millpond.engine.protocol import (
    Changed,
    ChangeFailed,
    ChangePlan,
    Collect,
    Collected,
    Command,
    Compact,
    Compacted,
    CompactFailed,
    Deliver,
    Delivered,
    DeliverFailed,
    Event,
    FillBegun,
    FillMore,
    FillMoved,
    Halt,
    HeadRead,
    Instruction,
    Outcome,
    Polled,
    PollSources,
    Program,
    PutLost,
    PutManifest,
    PutUnknown,
    PutWon,
    Ran,
    ReadBack,
    ReadBackDone,
    ReadHead,
    Rewrite,
    RunEpoch,
    RunFailed,
    Unanswered,
    Wait,
    Woke,
)
from millpond.errors import (
    ConflictError,
    DataError,
    InternalError,
    InvalidError,
    MillpondError,
    UnavailableError,
)
from millpond.operators.operator import Wake
from millpond.state.compaction import FAN_IN, UNIT_BYTES, MergeJob, plan_merges, together
from millpond.state.filling import Fill
from millpond.state.live import LiveRuns, Place, lasting
from millpond.state.manifest import Manifest, Page, RunId, check, fold, run_id
from millpond.state.retention import ERRORS, LATE, PARTS, Retention
from millpond.state.run_ref import RunRef
from millpond.state.store import ReadOnlyError

NEVER = -(2**62)  # a bucket before all others
CHANGED_MEANWHILE = "the program was changed by somebody else meanwhile"


@dataclass(frozen=True)
class Policy:
    """What a coordinator may decide by itself."""

    bounds: Bounds = field(default_factory=Bounds)
    retain_epochs: int = 1000
    fan_in: int = FAN_IN
    unit_bytes: int = UNIT_BYTES
    compact: bool = True
    collect: bool = True
    collect_every: int = 50  # epochs
    errors: Retention = field(default_factory=lambda: Retention(100_000, 30 * 86_400_000_000))
    late: Retention = field(default_factory=lambda: Retention(1_000_000, 366 * 86_400_000_000))
    tries: int = 5  # of a run, before giving up; of a put or a question four times as many
    cursor_lag: int = 100  # deliveries after which cursors are committed while more are to come
    sink_rest_us: int = 1_000_000  # a sink that failed is tried again after this, then twice this, ...
    sink_rest_us_max: int = 60_000_000


@dataclass(frozen=True)
class Rest:
    """A sink that failed, and when it is tried again."""

    error: MillpondError
    tries: int
    until_us: int


@dataclass(frozen=True)
class Idled:
    """An epoch that ran only because time had passed: when, and what of each table was due."""

    now_us: int
    runs: Mapping[str, frozenset[RunId]]
    times: int = 1  # in a row that it found the same


class Coordinator:
    """See the module's text."""

    def __init__(
        self,
        *,
        pond: str,
        catalog: str,
        sources: Iterable[str],
        sinks: Iterable[str],
        parallelism: int | None,
        policy: Policy,
        ids: Callable[[], str],
        now_us: int = 0,
        wakes: Mapping[str, Wake] | None = None,
        tables: Container[str] | None = None,
        rewrite: Rewrite | None = None,
        change: str | None = None,
        based_on: str | None = None,
        constant: bool = False,
        late: frozenset[str] = frozenset(),
        late_needed: frozenset[str] = frozenset(),
    ) -> None:
        """`change` is the catalog of a plan to go on to as soon as the pond is taken over.

        `based_on` is the catalog of the head against which all this was checked, if it was.
        `constant`: the plan has rows before any input, and the first epoch holds them.
        """
        self.policy = policy
        self.catalog = catalog
        self.head: Manifest | None = None
        self.live = LiveRuns()
        self.token = 0
        self.pace = Pace()
        self.backlog_rows = 0
        self.idle = False
        self._pond = pond
        self._sources = tuple(sources)
        self._sinks = tuple(sinks)
        self._parallelism = parallelism
        self._ids = ids
        self._now_us = now_us
        self._wakes = dict(wakes or {})  # by table
        self._tables = tables  # those that the plan has: others are never merged; None for all
        self._late = late
        self._late_needed = late_needed
        self._retain_at = 0  # when all error rows and late rows are looked at again
        self._rewrite = rewrite
        self._change = change
        self._based_on = based_on
        self._constant = constant
        # What is asked for, the child-to-be, and who asked.
        self._changing: tuple[ChangePlan | FillMore, Manifest, str] | None = None
        self._turns = FillTurns()
        self._fed = False  # did the sources or the inbox have anything, when they were asked last?
        self._program: Program | None = None  # that the draft goes on with
        self._idled: Idled | None = None
        self._pages: dict[str, tuple[RunRef, ...]] = {}
        self._draft: PutManifest | None = None
        self._draft_pages: dict[str, tuple[RunRef, ...]] = {}
        self._run: RunEpoch | None = None
        self._tries = 0
        self._races = 0  # lost while taking over
        self.owner = False  # may this process commit epochs, as far as it knows?
        self._merged: list[Compacted] = []
        self._compacting: Compact | None = None
        self._collecting = False
        self._collect_at = 0
        self._cursors: dict[str, int] = {}
        self._delivering: dict[str, int] = {}
        self._moved = 0  # deliveries since cursors were committed
        self._resting: dict[str, Rest] = {}
        self._compact_failures = 0
        self._everything = False
        self._unanswered = 0

    # -- the one door ---------------------------------------------------------

    def start(self) -> list[Instruction]:
        return [ReadHead()]

    def handle(self, event: Event) -> list[Instruction]:
        if isinstance(event, HeadRead | Polled | ReadBackDone):
            self._unanswered = 0
        match event:
            case HeadRead():
                return self._on_head(event)
            case Polled():
                return self._on_polled(event)
            case Ran(outcome):
                return self._on_ran(outcome)
            case RunFailed(error):
                return self._on_run_failed(error)
            case Changed():
                return self._on_changed(event)
            case FillBegun(fill):
                return self._on_fill_begun(fill)
            case FillMoved():
                return self._on_fill_moved(event)
            case ChangeFailed(error, stopped):
                return self._on_change_failed(error, stopped)
            case PutWon():
                return self._on_won()
            case PutLost():
                return self._on_doubt(UnavailableError("the storage takes no manifest, and shows none"))
            case PutUnknown(error):
                return self._on_doubt(error)
            case ReadBackDone(manifest):
                return self._on_read_back(manifest)
            case Woke():
                return [self._poll()]
            case Unanswered(instruction, error):
                self._unanswered += 1
                if self._unanswered >= self.policy.tries * 4:
                    return [Halt(error)]
                return [instruction]
            case Delivered(sink, epoch):
                return self._on_delivered(sink, epoch)
            case DeliverFailed(sink, epoch, error):
                return self._on_deliver_failed(sink, epoch, error)
            case Compacted():
                self._compacting = None
                self._compact_failures = 0
                self._merged.append(event)
                return []
            case CompactFailed(_, error):
                self._compacting = None
                self._compact_failures += 1
                if isinstance(error, DataError) or self._compact_failures >= self.policy.tries:
                    return [Halt(error)]
                return []
            case Collected(floor):
                self._collecting = False
                self._collect_at = self._head().epoch + self.policy.collect_every
                del floor
                return []

    # -- boot and take-over ---------------------------------------------------

    def _on_head(self, event: HeadRead) -> list[Instruction]:
        if event.manifest is None:
            first = Manifest(
                pond=self._pond,
                epoch=0,
                token=1,
                nonce=self._ids(),
                now_us=self._now_us,
                kind="create",
                catalog=self.catalog,
                parallelism=self._parallelism or 1,
            )
            self.token = 1
            if self._constant:  # law 1 holds for epoch 0, too
                return self._begin_change(first, self.catalog, first, "making the pond", begins=True)
            return self._put(first, {}, {}, ())
        self._adopt(event)
        head = event.manifest
        if self._based_on is not None and head.catalog not in (self._based_on, self.catalog):
            return [
                Halt(
                    ConflictError(
                        "the program of the pond changed while it was being taken over",
                        detail=f"its newest epoch is {head.epoch} now; nothing was changed",
                        hint="open the pond again",
                        epoch=head.epoch,
                    )
                )
            ]
        self.token = head.token + 1
        taken = replace(
            self._child(head, "takeover", self._standing(max(self._now_us, head.now_us))),
            token=self.token,
            catalog=self.catalog,
            parallelism=self._parallelism or head.parallelism,
        )
        rewrite = self._rewrite
        over: tuple[RunId, ...] = ()
        if head.filling is not None and (rewrite is not None or self._change is not None):
            over = self._fill_runs(head)
            taken = replace(taken, filling=None, metrics=fill_refused(head.filling, CHANGED_MEANWHILE))
        if rewrite is None:
            return self._commit(taken, added=(), removed=over)
        if rewrite.base != head.nonce:
            return [
                Halt(
                    ConflictError(
                        "the pond went on while its state was written anew",
                        detail=f"its newest epoch is {head.epoch} now; nothing was changed",
                        hint="stop the process that runs it, and try again",
                        epoch=head.epoch,
                    )
                )
            ]
        taken = replace(taken, metrics={**taken.metrics, "rewrote": list(rewrite.tables)})
        return self._commit(taken, added=rewrite.added, removed=(*rewrite.removed, *over))

    def _adopt(self, event: HeadRead) -> None:
        assert event.manifest is not None
        self.head = event.manifest
        self.live = LiveRuns(event.runs)
        self._pages = dict(event.pages)
        self._cursors = dict(event.manifest.cursors)

    # -- one epoch --------------------------------------------------------------

    def _poll(self) -> PollSources:
        head = self._head()
        rows = budget_rows(self.policy.bounds, self.pace, self.backlog_rows)
        return PollSources(head.positions, rows)

    def _on_polled(self, event: Polled) -> list[Instruction]:
        head = self._head()
        self._now_us = now_us = max(event.now_us, head.now_us)
        self.backlog_rows = sum(
            (p.backlog_rows or 0) + sum(s.rows for s in p.splits) for p in event.polls.values()
        )
        rows = budget_rows(self.policy.bounds, self.pace, self.backlog_rows)
        admitted = admit(
            {step: p.splits for step, p in event.polls.items()}, rows, self.policy.bounds.bytes_max
        )
        rejects = {step: p.rejects for step, p in event.polls.items() if p.rejects}
        self.idle = False
        self._fed = bool(admitted or rejects or event.commands)
        idled, self._idled = self._idled, None
        if event.commands:
            # A command is offered once it is first in the inbox; a backlog of rows must not keep it waiting.
            return self._on_command(event, now_us)
        due = self._due(now_us)
        if due and not admitted and not rejects:
            self._idled = self._idle(due, now_us, idled)
        if admitted or rejects or due:
            self._run = RunEpoch(
                head,
                head.epoch + 1,
                self.token,
                now_us,
                head.parallelism,
                {step: tuple(s) for step, s in admitted.items()},
                rejects,
                due,
                self.live.waiting,
                self._log_buckets(now_us),
            )
            return [self._run, *self._beside()]
        beside = self._beside()
        # A commit for its cursor alone gives a sink that is still behind one more epoch to hear of: it waits.
        caught_up = self._moved and not self._delivering
        waiting = self._merged or self._turns.noted is not None
        if waiting or caught_up or self._moved >= self.policy.cursor_lag:
            return [*self._commit(self._child(head, "epoch", now_us), added=(), removed=()), *beside]
        self.idle = True
        return [Wait(), *beside]

    def _due(self, now_us: int) -> frozenset[str]:
        """The tables whose time has come by the clock."""
        found = ((table, wake, self.live.earliest(table)) for table, wake in self._wakes.items())
        return frozenset(t for t, wake, bucket in found if bucket is not None and wake.due(bucket, now_us))

    def _standing(self, now_us: int) -> int:
        """The time of a commit that runs no step: time stands while something waits for it to pass.

        Otherwise views would show what no longer holds at the time of their epoch (law 1).
        """
        return self._head().now_us if self._due(now_us) else now_us

    def _idle(self, due: frozenset[str], now_us: int, last: Idled | None) -> Idled:
        """What an epoch without input is run for; refused when the one before it changed nothing of it."""
        runs = {t: frozenset(run_id(r) for r in self.live.at((t, self.live.earliest(t)))) for t in due}
        if last is None or last.runs != runs:
            return Idled(now_us, runs)
        if last.now_us == now_us or last.times >= self.policy.tries:
            names = ", ".join(sorted(due))
            raise InternalError(
                f"what is due in {names} stays due",
                detail=f"epoch {self._head().epoch} was run for it at {last.now_us} and left it as it was",
                hint="a step that wakes by the clock must drop or change the bucket it is woken for",
                epoch=self._head().epoch,
            )
        return Idled(now_us, runs, last.times + 1)

    def _on_command(self, event: Polled, now_us: int) -> list[Instruction]:
        head = self._head()
        command = event.commands[0]
        positions = {**head.positions, "inbox": command.number + 1}
        child = replace(self._child(head, "epoch", self._standing(now_us)), positions=positions)
        name, refused = command.args.get("name"), ""
        match command.kind:
            case "rescale":
                try:
                    child = replace(child, parallelism=require_parallelism(command.args.get("parallelism")))
                except InvalidError as error:
                    refused = f"{error.message}, {error.detail}"
            case "savepoint" if isinstance(name, str) and name:
                child = replace(child, savepoints={**head.savepoints, name: head.epoch})
            case "drop_savepoint" if isinstance(name, str) and name in head.savepoints:
                child = replace(child, savepoints={n: e for n, e in head.savepoints.items() if n != name})
            case "compact":
                self._everything = True  # merged beside the chain from here on
            case "gc":
                keep = command.args.get("keep")
                if keep is not None and (not isinstance(keep, int) or keep < 1):
                    refused = f"it cannot keep {keep!r} epochs"
                else:
                    floor = head.floor if keep is None else self._floor(head, keep)
                    child = replace(child, floor=max(child.floor, floor))
                    self._collect_at = 0
            case "attach" | "detach":
                child, refused = self._switch_sink(command, child)
            case "clear_errors" if command.args.get("refused") is None:
                if command.args.get("view") is not None:
                    return self._commit(child, added=event.cleared, removed=())
                gone = [r for r in self.live.values() if r.table == ERRORS]
                return self._commit(child, added=(), removed=tuple(run_id(r) for r in gone))
            case "clear_late" if (wanted := self._late_of(command.args.get("step"))) is not None:
                places = {(t, b) for t in wanted for b in self._held(head, t)}
                child, gone = self._without(child, places)
                return self._commit(child, added=(), removed=tuple(run_id(r) for r in gone))
            case "clear_errors":
                refused = str(command.args["refused"])
            case "clear_late":
                refused = f"no step {command.args.get('step')!r} keeps late rows"
            case "rollback" if event.rollback_to is not None:
                return self._roll_back(event.rollback_to, child, event.program)
            case "change" if isinstance(command.args.get("catalog"), str):
                if command.args.get("base") not in (None, head.catalog):
                    refused = CHANGED_MEANWHILE
                elif head.filling is not None:  # one after the other: its plan knows nothing of that one
                    refused = f"{CHANGED_MEANWHILE}: {', '.join(head.filling.steps)} is being filled"
                elif command.args["catalog"] != head.catalog:
                    asked_by = f"inbox {command.number}"
                    return self._begin_change(head, command.args["catalog"], child, asked_by, command.number)
            case "rollback":
                refused = command.args.get("refused") or f"epoch {command.args.get('epoch')!r} is not kept"
            case "savepoint" | "drop_savepoint":
                refused = f"no savepoint can be named {name!r}"
            case _:
                refused = "no such command"
        if refused:
            # With a reason that readers of the history can see; the inbox goes on (law 9).
            reason = f"inbox {command.number}: {command.kind or 'an entry'} refused: {refused}"
            child = replace(child, metrics={"refused": reason})
        return self._commit(child, added=(), removed=())

    def _switch_sink(self, command: Command, child: Manifest) -> tuple[Manifest, str]:
        """Attach or detach a sink; why not, if that cannot be."""
        sink, head = command.args.get("name"), self._head()
        if sink not in self._sinks:
            return child, f"there is no sink {sink!r}"
        if command.kind == "detach":
            if sink in head.detached:
                return child, ""
            # The epoch that is on its way to it may still arrive there.
            self._delivering.pop(sink, None)
            self._resting.pop(sink, None)
            since = self._cursors.get(sink, -1)
            return replace(child, detached={**head.detached, sink: since}), ""
        if sink not in head.detached:
            return child, ""
        since = head.detached[sink]
        if command.args.get("replay") and since + 1 < head.floor:
            return child, f"epochs since {since} are no longer all kept; the oldest is {head.floor}"
        self._cursors[sink] = since if command.args.get("replay") else child.epoch
        left = {name: epoch for name, epoch in head.detached.items() if name != sink}
        return replace(child, detached=left, cursors=dict(self._cursors)), ""

    # -- error rows and late rows -----------------------------------------------

    def _retention(self, table: str) -> Retention:
        return self.policy.errors if table == ERRORS else self.policy.late

    def _log_buckets(self, now_us: int) -> dict[str, int]:
        """Where an epoch writes its error rows and late rows."""
        head = self._head()
        found = {}
        for table in (ERRORS, *self._late):
            bucket = self._retention(table).open_bucket(self._held(head, table), now_us)
            found[table] = max(bucket, head.cleared.get(table, bucket))
        return found

    def _held(self, manifest: Manifest, table: str) -> dict[int | None, int]:
        """The rows of a table by bucket, without what was cleared."""
        found, limit = self.live.rows_by_bucket(table), manifest.cleared.get(table)
        return found if limit is None else {b: n for b, n in found.items() if b is not None and b >= limit}

    def _without(self, child: Manifest, over: Iterable[Place]) -> tuple[Manifest, list[RunRef]]:
        """The child without some buckets of error rows and late rows, and the runs that end.

        Late rows that a new view must leave out when it is filled stay, where nobody sees them: they are rows
        of a table that the pond holds anyway.
        """
        gone: list[RunRef] = []
        cleared, counts = dict(child.cleared), dict(child.counts)
        for table, bucket in over:
            if table in self._late_needed:
                limit = NEVER if bucket is None else bucket + 1
                cleared[table] = max(limit, cleared.get(table, limit))
                continue
            for ref in self.live.at((table, bucket)):
                gone.append(ref)
                if table != ERRORS:  # who fills a new view must know
                    name = f"late_dropped/{table.removesuffix(LATE)}"
                    counts[name] = counts.get(name, 0) + ref.rows
        return replace(child, cleared=cleared, counts=counts), gone

    def _late_of(self, step: Any) -> frozenset[str] | None:
        """The tables of late rows of one step, or of all; None if the step has none."""
        if step is None:
            return self._late
        table = f"{step}{LATE}"
        return frozenset({table}) if table in self._late else None

    def _too_old(self, child: Manifest, added: Iterable[RunRef]) -> set[Place]:
        """The buckets of error rows and late rows that retention drops with a commit.

        Asked of tables that got rows, and of all of them now and then: time passes for all.
        """
        tables = {r.table for r in added if r.table == ERRORS or r.table in self._late}
        if child.now_us >= self._retain_at:
            tables = {ERRORS, *self._late}
            part_us = min(self.policy.errors.age_us, self.policy.late.age_us) // PARTS
            self._retain_at = child.now_us + part_us
        found: set[Place] = set()
        for table in tables:
            held = self._held(child, table)
            for ref in added:
                if ref.table == table:
                    held[ref.bucket] = held.get(ref.bucket, 0) + ref.rows
            found |= {(table, bucket) for bucket in self._retention(table).over(held, child.now_us)}
        return found

    # -- another program ------------------------------------------------------

    def _begin_change(
        self,
        head: Manifest,
        catalog: str,
        child: Manifest,
        asked_by: str,
        entry: int | None = None,
        *,
        begins: bool = False,
    ) -> list[Instruction]:
        rows = min(self.policy.bounds.rows_max, CHUNK_ROWS)
        ask = ChangePlan(
            head,
            child.epoch,
            self.token,
            child.now_us,
            head.parallelism,
            catalog,
            rows,
            entry,
            min(rows, AT_ONCE_ROWS),
            begins,
        )
        self._changing = (ask, child, asked_by)
        self._tries = 0
        return [ask] if begins else [ask, *self._beside()]

    def _on_fill_begun(self, fill: Fill) -> list[Instruction]:
        """It takes long: the inbox goes on, and every manifest tells of it until it is done."""
        assert self._changing is not None
        _, child, _ = self._changing
        self._changing = None
        return self._commit(replace(child, filling=fill), added=(), removed=())

    def _fill_more(self, fill: Fill) -> FillMore:
        head = self._head()
        now_us = self._standing(max(self._now_us, head.now_us))
        rows = self._turns.rows(self.policy.bounds, idle=not self._fed)
        ask = FillMore(head, head.epoch + 1, self.token, now_us, head.parallelism, fill, rows)
        self._changing = (ask, self._child(head, "epoch", now_us), f"inbox {fill.entry}")
        self._tries = 0
        return ask

    def _on_fill_moved(self, event: FillMoved) -> list[Instruction]:
        """A chunk is in, and joins the next commit."""
        self._changing = None
        self._turns.moved(event)
        return [self._poll()]

    def _fill_runs(self, head: Manifest) -> tuple[RunId, ...]:
        """The runs of what is being filled."""
        tables = () if head.filling is None else head.filling.tables
        return tuple(run_id(r) for r in self.live.values() if r.table in tables) if tables else ()

    def _on_changed(self, event: Changed) -> list[Instruction]:
        """One commit: the new program, the state of what came, and the end of what went (law 2)."""
        assert self._changing is not None
        _, child, _ = self._changing
        self._changing = None
        if child.kind == "create":
            child = replace(
                child, positions=event.positions, watermarks=event.watermarks, counts=event.counts
            )
            return self._put(child, {run_id(r): r for r in lasting(event.runs, event.drops)}, {}, ())
        self._change = None
        gone = event.steps_gone
        counts = {n: c for n, c in child.counts.items() if n.partition("/")[2] not in gone}
        for name, count in event.counts.items():
            counts[name] = counts.get(name, 0) + count
        # Cursors of sinks that went before any kept epoch: no rollback brings these back.
        oldest = min([child.floor, *child.savepoints.values()])
        sinks = {*self._sinks, *event.program.sinks}
        self._cursors = {s: e for s, e in self._cursors.items() if s in sinks or e >= oldest}
        for sink in set(self._sinks) ^ set(event.program.sinks):
            self._delivering.pop(sink, None)
            self._resting.pop(sink, None)
            if (
                sink in event.program.sinks
            ):  # it begins here; the cursor of one that goes waits for a rollback
                self._cursors[sink] = child.epoch - 1
        child = replace(
            child,
            kind="change",
            filling=None,
            catalog=event.program.catalog,
            positions={**{s: p for s, p in child.positions.items() if s not in gone}, **event.positions},
            watermarks={**{s: w for s, w in child.watermarks.items() if s not in gone}, **event.watermarks},
            cursors=dict(self._cursors),
            # A sink that is created again is attached, whatever had its name before.
            detached={
                n: e for n, e in child.detached.items() if n not in event.program.sinks or n in self._sinks
            },
            counts=counts,
            metrics=event.metrics,
        )
        gone_runs = {run_id(r): None for r in self.live.values() if r.table in event.tables_gone}
        over = (*gone_runs, *(i for i in self.live.over(event.drops) if i not in gone_runs))
        self._program = event.program
        return self._commit(child, added=lasting(event.runs, event.drops), removed=over)

    def _on_change_failed(self, error: MillpondError, stopped: bool) -> list[Instruction]:
        assert self._changing is not None
        ask, child, asked_by = self._changing
        if stopped:
            return [ask]
        self._tries += 1
        retry = _may_pass(error)
        if retry and self._tries < self.policy.tries:
            return [ask]
        self._changing = None
        if isinstance(error, ReadOnlyError):
            return [Halt(error)]
        if self._change is not None or child.kind == "create":  # it has no other program to go on with
            return [Halt(error)]
        told = "; ".join(part for part in (error.message, error.detail) if part)
        child = replace(child, filling=None, metrics={"refused": f"{asked_by}: change refused: {told}"})
        return self._commit(child, added=(), removed=self._fill_runs(self._head()))

    def _go_on_with(self, program: Program) -> None:
        self.catalog = program.catalog
        self._sources = program.sources
        self._sinks = program.sinks
        self._wakes = dict(program.wakes)
        self._tables = program.tables
        self._late = program.late
        self._late_needed = program.late_needed

    @property
    def ready(self) -> bool:
        """Is the pond this process's to write, with the program that it was opened with?"""
        return self.owner and self._change is None

    # -- back in time ---------------------------------------------------------

    def _roll_back(self, target: HeadRead, child: Manifest, program: Program | None) -> list[Instruction]:
        """A forward commit that names the files of an older epoch, and its program."""
        old = target.manifest
        assert old is not None
        head = self._head()
        unseen = () if old.filling is None else old.filling.tables  # what was being filled then does not come
        back = {run_id(r): r for r in target.runs if r.table not in unseen}
        added = tuple(r for i, r in back.items() if i not in self.live)
        removed = tuple(i for i in self.live if i not in back)
        positions = {**old.positions, "inbox": child.positions["inbox"]}
        child = replace(
            child,
            kind="rollback",
            restores=old.epoch,
            filling=None,
            metrics={} if head.filling is None else fill_refused(head.filling, CHANGED_MEANWHILE),
            positions=positions,
            watermarks=old.watermarks,
            counts=old.counts,
            cleared=old.cleared,
            catalog=child.catalog if program is None else program.catalog,
        )
        self._program = program
        self._merged = []  # merges of the abandoned future do not stand, nor does what was filled from it
        self._turns.over()
        return self._commit(child, added=added, removed=removed)

    def _on_ran(self, outcome: Outcome) -> list[Instruction]:
        run = self._run
        assert run is not None
        head = self._head()
        self.pace = self.pace.measured(
            int(outcome.metrics.get("rows", 0)), float(outcome.metrics.get("ms", 0))
        )
        self.backlog_rows = max(0, self.backlog_rows - int(outcome.metrics.get("rows", 0)))
        positions = dict(head.positions)
        for step, advance in outcome.advances.items():
            positions[step] = advance.position
        counts = dict(head.counts)
        for name, count in outcome.counts.items():
            counts[name] = counts.get(name, 0) + count
        child = replace(
            self._child(head, "epoch", run.now_us),
            positions=positions,
            watermarks={**head.watermarks, **outcome.watermarks},
            counts=counts,
            admitted={step: [dict(s.what) for s in splits] for step, splits in run.admitted.items()},
            metrics=outcome.metrics,
        )
        self._run = None
        added = lasting(outcome.runs, outcome.drops)
        return self._commit(child, added=added, removed=self.live.over(outcome.drops))

    def _on_run_failed(self, error: MillpondError) -> list[Instruction]:
        run = self._run
        assert run is not None
        self._tries += 1
        retry = _may_pass(error)
        if not retry or self._tries >= self.policy.tries:
            return [Halt(error)]
        return [run]

    # -- commit ---------------------------------------------------------------

    def _child(self, head: Manifest, kind: str, now_us: int) -> Manifest:
        return replace(
            head,
            epoch=head.epoch + 1,
            token=self.token,
            nonce=self._ids(),
            parent_nonce=head.nonce,
            kind=kind,  # type: ignore[arg-type]
            now_us=now_us,
            admitted={},
            metrics={},
            restores=None,
            cursors=dict(self._cursors),
            floor=self._floor(head, self.policy.retain_epochs),
        )

    def _floor(self, head: Manifest, retain_epochs: int) -> int:
        """The oldest epoch that must stay readable; it never falls, and waits for slow sinks and fills."""
        wanted = head.epoch + 1 - retain_epochs
        for sink in self._sinks:
            if sink not in head.detached:
                wanted = min(wanted, self._cursors.get(sink, 0))
        if head.filling is not None:
            wanted = min(wanted, head.filling.oldest)
        return max(head.floor, wanted)

    def _commit(
        self, child: Manifest, *, added: tuple[RunRef, ...], removed: tuple[RunId, ...]
    ) -> list[Instruction]:
        added_all, removed_all = list(added), list(removed)
        filled = self._turns.taken()
        if filled is not None:
            child = replace(child, filling=filled.fill)
            added_all.extend(lasting(filled.runs, filled.drops))
            removed_all.extend(self.live.over(filled.drops))
        gone = set(removed_all)
        if child.kind != "rollback":
            over = self._too_old(child, added_all)
            if over:
                child, old = self._without(child, over)
                ended = {(r.table, r.bucket) for r in old}
                added_all = [r for r in added_all if (r.table, r.bucket) not in ended]
                removed_all.extend(i for i in map(run_id, old) if i not in gone)
                gone.update(map(run_id, old))
        for job, fresh in ((j, f) for m in self._merged for j, f in ((m.job, m.added), *m.also)):
            inputs = [run_id(r) for r in job.refs]
            if all(i in self.live and i not in gone for i in inputs):
                added_all.extend(fresh)
                removed_all.extend(inputs)
                gone.update(inputs)
        self._merged = []
        self._moved = 0
        return self._put(
            child, {run_id(r): r for r in added_all}, {i: None for i in removed_all}, child.pages
        )

    def _put(
        self,
        child: Manifest,
        added: Mapping[RunId, RunRef],
        removed: Mapping[RunId, None],
        pages: tuple[Page, ...],
    ) -> list[Instruction]:
        folded = fold(
            pages,
            child.recent,
            child.gone,
            tuple(added.values()),
            tuple(removed),
            read_page=self._pages.__getitem__,
            name_page=lambda: f"pages/{child.epoch:016d}-{self._ids()}",
        )
        manifest = replace(
            child,
            pages=folded.pages,
            recent=folded.recent,
            gone=folded.gone,
            added=tuple(added.values()),
            removed=tuple(removed),
        )
        check(manifest, self.head)
        self._draft = PutManifest(manifest, folded.new_pages)
        named = {p.name for p in folded.pages}
        self._draft_pages = {n: r for n, r in self._pages.items() if n in named} | dict(folded.new_pages)
        self._tries = 0
        return [self._draft]

    def _on_won(self) -> list[Instruction]:
        draft = self._drafted()
        self.head = draft.manifest
        self.live.change(draft.manifest.added, draft.manifest.removed)
        self._pages = self._draft_pages
        self._draft = None
        self.owner = True
        self._tries = 0
        if self._program is not None:
            self._go_on_with(self._program)
            self._program = None
        if is_empty(draft.manifest):
            # Nothing to show: no sink needs to hear of it, and no commit to remember that it did not.
            for sink in self._attached:
                if self._cursors.get(sink, -1) == draft.manifest.epoch - 1 and sink not in self._delivering:
                    self._cursors[sink] = draft.manifest.epoch
        if self._change is not None:
            child = self._child(draft.manifest, "change", draft.manifest.now_us)
            return self._begin_change(draft.manifest, self._change, child, "opening the pond")
        if draft.manifest.filling is not None:
            return [self._fill_more(draft.manifest.filling), *self._beside()]
        self._turns.over()
        return [self._poll(), *self._beside()]

    def _on_doubt(self, error: MillpondError) -> list[Instruction]:
        self._tries += 1
        if self._tries >= self.policy.tries * 4 or isinstance(error, ReadOnlyError):
            return [Halt(error)]
        return [ReadBack(self._drafted().manifest.epoch)]

    def _on_read_back(self, found: Manifest | None) -> list[Instruction]:
        draft = self._drafted()
        if found is None:
            return [draft]
        if found.nonce == draft.manifest.nonce:
            return self._on_won()
        if not self.owner:
            # Somebody else moved the head while we were taking over: look again.
            self._races += 1
            if self._races < self.policy.tries * 4:
                self._draft = None
                return [ReadHead()]
        return [
            Halt(
                ConflictError(
                    f"another coordinator committed epoch {found.epoch}",
                    detail=f"its token is {found.token}, ours is {self.token}",
                    hint="only one process may write a pond; stop one of them, or open with standby=True",
                    epoch=found.epoch,
                )
            )
        ]

    # -- beside the chain --------------------------------------------------------

    def _beside(self) -> list[Instruction]:
        head = self._head()
        found: list[Instruction] = []
        for sink in self._attached:
            rest = self._resting.get(sink)
            if sink in self._delivering or (rest is not None and self._now_us < rest.until_us):
                continue
            # A sink that is new where the first epochs are gone begins with all rows of the oldest kept.
            whole = sink not in self._cursors and head.floor > 0
            following = head.floor if whole else self._cursors.get(sink, -1) + 1
            if following <= head.epoch:
                self._delivering[sink] = following
                found.append(Deliver(sink, following, whole))
        if (self.policy.compact or self._everything) and self._compacting is None and not self._merged:
            places = self.live.places() if self._everything else sorted(self.live.touched, key=str)
            known = [
                p
                for p in places
                if self._tables is None or p[0] in self._tables or p[0] in self._turns.tables
            ]
            jobs = plan_merges(
                (r for place in known for r in self.live.at(place)),
                fan_in=self.policy.fan_in,
                unit_bytes=self.policy.unit_bytes,
                everything=self._everything,
            )
            self.live.touched = {(job.table, job.bucket) for job in jobs}
            self._everything = self._everything and bool(jobs)
            if jobs:
                self._compacting = Compact(jobs[0], self.token, head.epoch, together(jobs))
                found.append(self._compacting)
        due = head.epoch >= self._collect_at and head.floor > 0
        if self.policy.collect and due and not self._collecting and not self._merged:
            self._collecting = True
            spare = min([head.epoch, *([self._compacting.epoch] if self._compacting else [])])
            found.append(Collect(head, spare, self.token))
        return found

    def _on_deliver_failed(self, sink: str, epoch: int, error: MillpondError) -> list[Instruction]:
        if isinstance(error, DataError):  # the pond's own files are wrong, not the target
            return [Halt(error)]
        if not self._was_delivering(sink, epoch):
            return []
        before = self._resting.get(sink)
        tries = 1 if before is None else before.tries + 1
        rest_us = min(self.policy.sink_rest_us_max, self.policy.sink_rest_us * 2 ** min(tries - 1, 20))
        self._resting[sink] = Rest(error, tries, self._now_us + rest_us)
        return []

    def _was_delivering(self, sink: str, epoch: int) -> bool:
        """Is it what we wait for?  Not where the sink was dropped or detached meanwhile."""
        if self._delivering.get(sink) != epoch:
            return False
        del self._delivering[sink]
        return sink in self._attached

    def _on_delivered(self, sink: str, epoch: int) -> list[Instruction]:
        if not self._was_delivering(sink, epoch):
            return []
        self._resting.pop(sink, None)
        self._cursors[sink] = epoch
        self._moved += 1
        if epoch < self._head().epoch:
            self._delivering[sink] = epoch + 1
            return [Deliver(sink, epoch + 1)]
        return []

    @property
    def compacting(self) -> MergeJob | None:
        """The merge that is running, if one is."""
        now = self._compacting
        return None if now is None else now.job

    @property
    def behind(self) -> Mapping[str, int]:
        """The sinks that have epochs to hear of, and the last that each was told."""
        head = self.head
        cursors = {sink: self._cursors.get(sink, -1) for sink in self._attached}
        return {s: e for s, e in cursors.items() if head is not None and e < head.epoch}

    @property
    def _attached(self) -> tuple[str, ...]:
        """The sinks that get what epochs change."""
        detached = () if self.head is None else self.head.detached
        return tuple(sink for sink in self._sinks if sink not in detached)

    @property
    def cursors(self) -> Mapping[str, int]:
        """By sink, the last epoch that it was shown."""
        return dict(self._cursors)  # asked by other threads too

    @property
    def delivering(self) -> bool:
        return bool(self._delivering)

    @property
    def delivering_sinks(self) -> tuple[str, ...]:
        return tuple(sorted(dict(self._delivering)))  # asked by other threads too

    @property
    def busy_beside(self) -> bool:
        return (
            bool(self._delivering) or self._compacting is not None or self._collecting or bool(self._merged)
        )

    def compact_everything(self) -> None:
        """Merge until every table is one run, whatever the policy says."""
        self._everything = True

    @property
    def merging(self) -> bool:
        return self._everything or self._compacting is not None or bool(self._merged)

    @property
    def failed_sinks(self) -> Mapping[str, MillpondError]:
        """Sinks whose last delivery failed, until one succeeds."""
        return {sink: rest.error for sink, rest in dict(self._resting).items()}  # asked by other threads too

    def retry_sink(self, sink: str) -> None:
        """Try a failed sink again at once."""
        self._resting.pop(sink, None)

    # -- small things ----------------------------------------------------------------

    def _head(self) -> Manifest:
        if self.head is None:
            raise InternalError("the coordinator has no head yet")
        return self.head

    def _drafted(self) -> PutManifest:
        if self._draft is None:
            raise InternalError("a put was answered that was never asked for")
        return self._draft


def fill_refused(fill: Fill, why: str) -> dict[str, str]:
    return {"refused": f"inbox {fill.entry}: change refused: {why}"}


def _may_pass(error: MillpondError) -> bool:
    """Is it worth trying again?"""
    return isinstance(error, UnavailableError | InternalError) and not isinstance(error, ReadOnlyError)


def is_empty(manifest: Manifest) -> bool:
    """Does an epoch show nothing new in any view?"""
    return manifest.kind not in ("rollback", "change") and not any(r.kind == "delta" for r in manifest.added)


def require_parallelism(n: Any) -> int:
    """A parallelism that can work, or a clear error.

    >>> require_parallelism(7)
    7
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= 32768:
        raise InvalidError(
            "parallelism must be a whole number from 1 to 32768", detail=f"got {n!r}", hint="for example 4"
        )
    return n
