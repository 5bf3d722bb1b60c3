"""Polls the inbox: returns some entries with rows, some that no table can read, or one command.

The inbox is one source for all tables: it is admitted in its own order, so that no entry is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from millpond.engine.change.backfill import errors_taken_back
from millpond.engine.change.programs import program_of, save_plan
from millpond.engine.coordinator.append_sinks import refusal, sinks_that_would_retract
from millpond.engine.coordinator.protocol import Command, HeadRead, ProgramSummary
from millpond.engine.coordinator.running_program import RunningProgram
from millpond.engine.task.worker import Worker
from millpond.errors import DataError, InvalidError
from millpond.operators.source_traits import ReadsInbox
from millpond.plan.change import restored, same_program
from millpond.plan.codec import with_code
from millpond.plan.nodes import upstream
from millpond.plan.user_code import with_operators
from millpond.sources.source import Poll, Split
from millpond.state import inbox, request_ids
from millpond.state.manifest import history
from millpond.state.manifest.listing import live_runs
from millpond.state.manifest.manifest import Manifest, is_retained
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.runs.run_ref import RunRef

INBOX = "inbox"  # the step under which the inbox is polled, admitted and stored in positions
TABLE_KEY, ROWS_KEY = "table", "rows"  # in the args of an inbox entry: its table, and its number of rows


@dataclass(frozen=True)
class InboxPoll:
    rows: Poll = field(default_factory=lambda: Poll(()))
    command: Command | None = None
    rollback_to: HeadRead | None = None
    program: ProgramSummary | None = None
    cleared: tuple[RunRef, ...] = ()
    command_waits: bool = False  # is there a command among the entries that were read?
    end: int = 0  # the number after the last entry that was read


def poll_inbox(worker: Worker, program: RunningProgram, head: Manifest, position: int) -> InboxPoll:
    """The next entries of the inbox after a position."""
    entries = inbox.beyond(worker.store, position)
    polled = _first(worker, program, head, entries)
    waits = any(entry.kind not in inbox.ROW_KINDS for entry in entries)
    return replace(polled, command_waits=waits, end=position + len(entries))


def _first(
    worker: Worker, program: RunningProgram, head: Manifest, entries: Sequence[inbox.Entry]
) -> InboxPoll:
    """The first of these entries that can be executed together."""
    splits: list[Split] = []
    rejects: list[tuple[str, str]] = []
    executed: Mapping[str, int] = head.clients
    checked = {o.scan for o in program.plan.objects.values() if o.is_checked}
    for entry in entries:
        if entry.kind in (inbox.LOGIC, inbox.TRANSACTION):
            if not splits and not rejects:  # it is computed from the state after all earlier entries
                return _executed(worker, program, head, entries)
            break
        if entry.kind != inbox.ROW_ENTRY:
            if splits or rejects:
                break
            return _command(worker, program, head, entry)
        table = entry.args.get(TABLE_KEY)  # of a malformed entry: anything
        in_order = isinstance(table, str) and table in checked
        if in_order and (splits or rejects):
            break
        request = request_ids.request_of(entry.args)
        counts = request is None or not request_ids.is_repeated(worker.store, executed, request, entry.number)
        reason = _refusal(program, entry) if counts else None
        if counts and reason is None and request is not None:
            counts = request_ids.claim(worker.store, request, entry.number)
        if not counts:
            if splits or rejects:
                break
            return InboxPoll(command=Command(entry.number, inbox.DUPLICATE, entry.args))
        if reason is None and in_order:
            return _executed(worker, program, head, entries)
        if reason is None and not rejects:
            what = {"entry": entry.number, **entry.args}
            splits.append(Split(what, int(entry.args[ROWS_KEY]), len(entry.payload), blob=entry.name))
            executed = request_ids.executed_after(executed, [entry.args])
        elif reason is not None and not splits:
            rejects.append((str(entry.number), reason))
        else:
            break
    return InboxPoll(Poll(tuple(splits), tuple(rejects)))


def _executed(
    worker: Worker, program: RunningProgram, head: Manifest, entries: Sequence[inbox.Entry]
) -> InboxPoll:
    """The rows that the first entries change, computed from the state after all earlier ones."""
    from millpond.engine.coordinator.inbox_changes import (  # SQL is imported only if needed
        executed_in_one_epoch,
        made_splits,
    )

    entries_of_epoch = executed_in_one_epoch(program.plan, entries)
    made, refused = made_splits(program.plan, _snapshot(worker, head), entries_of_epoch)
    request = request_ids.request_of(entries[0].args) if entries[0].kind == inbox.ROW_ENTRY else None
    if request is not None and made:  # the commit that has its rows has its id
        first = replace(made[0], what={**made[0].what, **request_ids.args_of(request)})
        made = (first, *made[1:])
    return InboxPoll(Poll(made, refused))


def _refusal(program: RunningProgram, entry: inbox.Entry) -> str | None:
    """Why a table cannot read an entry with rows, or None: its sender may use another plan."""
    source = program.sources.get(str(entry.args.get(TABLE_KEY)))
    if not isinstance(source, ReadsInbox):
        return f"the pond has no table {entry.args.get(TABLE_KEY)!r}"
    try:
        with pa.ipc.open_stream(entry.payload) as stream:  # nothing is copied
            rows = stream.read_all()
            rows.validate()
    except (pa.ArrowException, OSError) as broken:
        return f"its rows cannot be read: {broken}"
    if not source.takes(rows.schema):
        shown = ", ".join(f"{f.name} {f.type}" for f in rows.schema)
        return f"its rows have other columns than the table: {shown}"
    if entry.args.get(ROWS_KEY) != rows.num_rows:
        return f"it says that it has {entry.args.get(ROWS_KEY)!r} rows, and has {rows.num_rows}"
    weights = rows.column("_w")
    odd = pa.compute.not_equal(pa.compute.abs(weights), 1)
    if weights.null_count or pa.compute.any(odd).as_py():
        return "a weight of its rows is neither 1 nor -1"
    if source.append_only and pa.compute.min(weights).as_py() == -1:
        return "the table is append-only, and the entry deletes"
    return None


# -- commands, with what the coordinator needs from storage to execute them -----------------


def _command(worker: Worker, program: RunningProgram, head: Manifest, entry: inbox.Entry) -> InboxPoll:
    command = Command(entry.number, entry.kind, entry.args)
    match entry.kind:
        case "rollback":
            try:
                return _rollback(worker, program, head, command)
            except (InvalidError, DataError) as error:  # that epoch cannot be restored
                return InboxPoll(command=_refused(command, f"{error.message}, {error.detail}"))
        case "clear_errors":
            return _clear_errors(worker, program, head, command)
        case _:
            return InboxPoll(command=command)


def _refused(command: Command, reason: str) -> Command:
    return replace(command, args={**command.args, "refused": reason})


def _rollback(worker: Worker, program: RunningProgram, head: Manifest, command: Command) -> InboxPoll:
    """The epoch to restore and its program; raises InvalidError if that is not possible."""
    epoch = command.args.get("epoch")
    if not isinstance(epoch, int) or not is_retained(head, epoch):
        return InboxPoll(command=command)
    target = history.find_manifest(worker.store, epoch)
    if target is None:
        return InboxPoll(command=command)
    opened = open_epoch(worker, target)
    older = _program_of(worker, program, target)
    if command.args.get("force") is not True:
        before, after = _snapshot(worker, head), _snapshot(worker, target)
        sinks = sinks_that_would_retract(before, after, lambda m: program.plan_of(m, worker))
        if sinks:
            raise refusal(sinks, target.epoch)
    return InboxPoll(command=command, rollback_to=opened, program=older)


def _program_of(worker: Worker, program: RunningProgram, target: Manifest) -> ProgramSummary | None:
    """The program of an older epoch; None if it is the running one.

    Raises InvalidError if today's code cannot read the state of that epoch.
    """
    if target.catalog is None or target.catalog == program.catalog:
        return None
    then = with_operators(worker.description(target.catalog))
    plan = with_code(restored(then, program.plan))
    if same_program(plan, program.plan):
        return None
    return program_of(save_plan(worker, plan, program.catalog), plan)


def _clear_errors(worker: Worker, program: RunningProgram, head: Manifest, command: Command) -> InboxPoll:
    """The runs that retract the error rows of one view; clearing all views needs none."""
    name = command.args.get("view")
    if name is None:
        return InboxPoll(command=command)
    view = program.plan.views.get(name) if isinstance(name, str) else None
    if view is None:
        return InboxPoll(command=_refused(command, f"there is no view {name!r}"))
    steps = frozenset(upstream(program.plan, [view.step]))
    cleared = errors_taken_back(worker, head, head.token, head.epoch + 1, steps)
    return InboxPoll(command=command, cleared=cleared)


def open_epoch(worker: Worker, manifest: Manifest) -> HeadRead:
    """A manifest with its live runs and pages."""
    names = [p.name for p in manifest.pages]
    pages = dict(zip(names, worker.pages.read_all(names), strict=True))
    runs = live_runs(manifest.pages, manifest.recent, manifest.gone, worker.pages)
    return HeadRead(manifest, tuple(runs), pages)


def _snapshot(worker: Worker, manifest: Manifest) -> Snapshot:
    return Snapshot(worker.store, manifest, worker.pages, worker.open_file)


def by_scan(by_step: Mapping[str, Sequence[Split]]) -> dict[str, list[Split]]:
    """Splits by the scan that reads them: those of the inbox go to their tables."""
    merged: dict[str, list[Split]] = {}
    for step, splits in by_step.items():
        for split in splits:
            merged.setdefault(str(split.what[TABLE_KEY]) if step == INBOX else step, []).append(split)
    return merged
