"""The shell: it carries out the coordinator's instructions, one at a time.

All I/O of the chain is here: storage, sources, the engine, sinks.  Each
instruction is answered with an event; a crash between any two is a crash that
recovery must survive, and the simulator puts one at every place.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond.clock import Clock
from millpond.control.admission import spread
from millpond.engine import watermarks
from millpond.engine.append_sinks import behind_what_was_shown, is_append_only, refusal, shown_only
from millpond.engine.backfill import errors_taken_back, write_errors
from millpond.engine.blame import blamed
from millpond.engine.changer import Changer
from millpond.engine.compactor import compact, merge_small
from millpond.engine.engine import Engine
from millpond.engine.error_rows import SETTLED, settled
from millpond.engine.missing import told_missing
from millpond.engine.programs import program_of, release_plan, save_plan
from millpond.engine.protocol import (
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
    FillMore,
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
    RunEpoch,
    RunFailed,
    Unanswered,
)
from millpond.engine.spec import EpochSpec, Report
from millpond.engine.view_changes import all_rows, read_by, sink_changes
from millpond.engine.whole import Epochs
from millpond.engine.worker import Worker
from millpond.errors import (
    DataError,
    InternalError,
    InvalidError,
    MillpondError,
    UnavailableError,
)
from millpond.operators.materialize import ERRORS_SPEC
from millpond.operators.scan import Scan
from millpond.operators.user_code import ENDINGS, is_interrupt
from millpond.plan.change import restored, same_program, upstream
from millpond.plan.codec import with_code
from millpond.plan.levels import Levels
from millpond.plan.near import NOWHERE, Near, near_lookups
from millpond.plan.nodes import Plan
from millpond.plan.tables import table_specs
from millpond.plan.user_codes import user_codes, with_operators
from millpond.sources.source import Advance, Poll, Source, Split
from millpond.sources.unavailable import named
from millpond.state import history, inbox
from millpond.state.garbage import Facts, collect
from millpond.state.listing import Listing, live_runs
from millpond.state.manifest import Manifest, encode_page, is_kept, manifest_name, run_id
from millpond.state.packed import PackedWriter
from millpond.state.pins import DamagedPinError
from millpond.state.retention import ERRORS
from millpond.state.run_ref import RunRef
from millpond.state.snapshot import Snapshot
from millpond.state.store import MissingError, Put

log = logging.getLogger("millpond.pond")

APART_US = 20_000  # of all tasks: above it steps that have nothing in common are run beside each other
QUICK_US, QUICK_STEP_US = 200_000, 10_000  # of a task: below it another task would not help
WAITING_PER_ROW = 8  # rows that wait for time cost as much as one that comes: they are added up already
ROWS_PER_CALL = 10  # rows for DuckDB or numpy cost as much as one for a user's function
INBOX = "inbox"  # the step under which the inbox is polled, admitted and kept in positions
TABLE_KEY, ROWS_KEY = "table", "rows"  # in the args of an inbox entry: for which table, how many


class Shell:
    def __init__(
        self,
        worker: Worker,
        engine: Engine,
        plan: Plan,
        levels: Levels,
        catalog: str,
        clock: Clock,
        *,
        checks: bool = False,
        options: Mapping[str, Any] | None = None,
        changer: Changer | None = None,
    ) -> None:
        self.worker = worker
        self.store = worker.store
        self.engine = engine
        self._epochs = Epochs(engine)
        self.clock = clock
        self.checks = checks
        self.options = dict(options or {})
        self.changer = changer or Changer(worker, engine, checks=checks, options=options)
        self._go_on_with(catalog, plan, levels)
        self._head: Manifest | None = None
        self._facts: Facts = {}  # what collections have read of manifests
        self._seen: dict[str, tuple[str, pa.Table]] = {}  # step -> (nonce it is true for, rows)

    def _go_on_with(self, catalog: str, plan: Plan, levels: Levels) -> None:
        self.catalog = catalog
        self.plan = plan
        self.levels = levels
        self.specs = table_specs(plan)
        self.sources: dict[str, Source] = {
            n.step: n.operator.source for n in plan.nodes.values() if isinstance(n.operator, Scan)
        }
        self._owners = {t.name: n.step for n in plan.nodes.values() for t in n.binding.tables}
        self._depths: dict[tuple[frozenset[str], Near], int] = {}  # see `_depth`
        self._each = ROWS_PER_CALL if user_codes(plan) else 1
        self._took: list[int] = []  # what each task of the last epoch took, in microseconds

    def perform(self, instruction: Instruction) -> Event:
        match instruction:
            case ReadHead() | PollSources() | ReadBack():
                try:
                    return self._ask(instruction)
                except MissingError as error:
                    told = told_missing(self.store, self._head, error)
                    if not isinstance(told, UnavailableError):
                        raise told from error
                    return Unanswered(instruction, told)
                except UnavailableError as error:
                    return Unanswered(instruction, error)
                except OSError as error:
                    detail = f"{type(error).__name__}: {error}"
                    return Unanswered(
                        instruction, UnavailableError("the storage of the pond is unavailable", detail=detail)
                    )
            case RunEpoch():
                return self._run(instruction)
            case ChangePlan():
                return self._change(instruction)
            case FillMore():
                return self.changer.more(instruction, self.plan)
            case PutManifest():
                return self._put(instruction)
            case Deliver():
                return self._deliver(instruction)
            case Compact():
                return self._compact(instruction)
            case Collect():
                return self._collect(instruction)
        raise InternalError("no such instruction", detail=repr(instruction))

    # -- reading ----------------------------------------------------------------

    def _ask(self, instruction: ReadHead | PollSources | ReadBack) -> Event:
        match instruction:
            case ReadHead():
                return self.read_head()
            case PollSources():
                return self._poll(instruction)
            case ReadBack(epoch):
                return ReadBackDone(history.find_manifest(self.store, epoch))

    def read_head(self) -> HeadRead:
        head = history.read_head(self.store)
        try:
            return HeadRead(None) if head is None else self._opened(head)
        except MissingError as error:
            now = history.read_head(self.store)
            if head is None or now is None or now.epoch != head.epoch:
                raise  # the pond has moved on: it is asked again
            raise told_missing(self.store, head, error) from error

    def _opened(self, manifest: Manifest) -> HeadRead:
        pages = {p.name: self.worker.pages.read(p.name) for p in manifest.pages}
        runs = live_runs(manifest.pages, manifest.recent, manifest.gone, self.worker.pages)
        return HeadRead(manifest, tuple(runs), pages)

    def snapshot(self, manifest: Manifest) -> Snapshot:
        return Snapshot(self.store, manifest, self.worker.pages, self.worker.open_file)

    # -- one epoch ----------------------------------------------------------------

    def _poll(self, ask: PollSources) -> Polled:
        head = self._head
        if head is None:
            raise InternalError("sources are polled before there is a head")
        polls: dict[str, Poll] = {}
        for step, source in sorted(self.sources.items()):
            if getattr(source, "inbox", False):
                continue
            seen = self._seen_rows(step, source, head)
            with blamed(step, head.epoch + 1), named(step):
                polls[step] = source.poll(ask.positions.get(step), seen, ask.max_rows)
        command, rollback, program = self._poll_inbox(ask, polls)
        cleared: tuple[RunRef, ...] = ()
        if command and command[0].kind == "clear_errors":
            command, cleared = self._cleared(head, command[0])
        return Polled(self.clock.now_us(), polls, command, rollback, program, cleared)

    def _cleared(self, head: Manifest, asked: Command) -> tuple[tuple[Command], tuple[RunRef, ...]]:
        """What ends the error rows of the steps of one view."""
        name = asked.args.get("view")
        if name is None:
            return (asked,), ()
        view = self.plan.views.get(name) if isinstance(name, str) else None
        if view is None:
            return (replace(asked, args={**asked.args, "refused": f"there is no view {name!r}"}),), ()
        steps = frozenset(upstream(self.plan, [view.step]))
        return (asked,), errors_taken_back(self.worker, head, head.token, head.epoch + 1, steps)

    def _poll_inbox(
        self, ask: PollSources, polls: dict[str, Poll]
    ) -> tuple[tuple[Command, ...], HeadRead | None, Program | None]:
        """What comes first: some entries with rows, some that no table can take, or one command.

        The inbox is one source however many tables there are: it is admitted in its own order, so that no
        entry is passed over.
        """
        splits: list[Split] = []
        rejects: list[tuple[str, str]] = []
        entries = inbox.beyond(self.store, int(ask.positions.get(INBOX, 0)))
        for entry in entries:
            if entry.kind == inbox.LOGIC:
                if not splits and not rejects:  # over the state that all before it left
                    from millpond.engine.turns import made_split, stretch  # SQL is loaded where it is used

                    assert self._head is not None
                    made, refused = made_split(self.plan, self.snapshot(self._head), stretch(entries))
                    splits += [] if made is None else [made]
                    rejects += refused
                break
            if entry.kind != "rows":
                if splits or rejects:
                    break
                target = program = None
                try:
                    target = self._rollback_target(entry)
                    program = None if target is None else self._program_of(target)
                    self._require_behind_no_sink(entry, target)
                except (InvalidError, DataError) as error:  # that epoch cannot be had: this one goes on
                    told = f"{error.message}, {error.detail}"
                    target, entry = None, replace(entry, args={**entry.args, "refused": told})
                return (Command(entry.number, entry.kind, entry.args),), target, program
            reason = self._refusal(entry)
            if reason is None and not rejects:
                what = {"entry": entry.number, **entry.args}
                rows = int(entry.args[ROWS_KEY])
                splits.append(Split(what, rows, len(entry.payload), blob=entry.name))
            elif reason is not None and not splits:
                rejects.append((str(entry.number), reason))
            else:
                break
        polls[INBOX] = Poll(tuple(splits), tuple(rejects))
        return (), None, None

    def _refusal(self, entry: inbox.Entry) -> str | None:
        """Why a table cannot read an entry with rows, if so: another process may know another plan."""
        source = self.sources.get(str(entry.args.get(TABLE_KEY)))
        if not getattr(source, "inbox", False):
            return f"the pond has no table {entry.args.get(TABLE_KEY)!r}"
        try:
            with pa.ipc.open_stream(entry.payload) as stream:  # nothing is copied
                rows = stream.read_all()
                rows.validate()
        except (pa.ArrowException, OSError) as broken:
            return f"its rows cannot be read: {broken}"
        if not source.takes(rows.schema):  # type: ignore[union-attr]
            shown = ", ".join(f"{f.name} {f.type}" for f in rows.schema)
            return f"its rows have other columns than the table: {shown}"
        if entry.args.get(ROWS_KEY) != rows.num_rows:
            return f"it says that it has {entry.args.get(ROWS_KEY)!r} rows, and has {rows.num_rows}"
        weights = rows.column("_w")
        odd = pa.compute.not_equal(pa.compute.abs(weights), 1)
        if weights.null_count or pa.compute.any(odd).as_py():
            return "a weight of its rows is neither 1 nor -1"
        if source.append_only and pa.compute.min(weights).as_py() == -1:  # type: ignore[union-attr]
            return "the table is append-only, and the entry deletes"
        return None

    def _rollback_target(self, entry: inbox.Entry) -> HeadRead | None:
        """The epoch that a rollback names, if that is kept."""
        epoch = entry.args.get("epoch")
        head = self._head
        if entry.kind != "rollback" or head is None or not isinstance(epoch, int) or not is_kept(head, epoch):
            return None
        target = history.find_manifest(self.store, epoch)
        return None if target is None else self._opened(target)

    def _require_behind_no_sink(self, entry: inbox.Entry, target: HeadRead | None) -> None:
        """InvalidError when an append-only sink has shown more than the epoch to go back to."""
        if target is None or target.manifest is None or self._head is None or entry.args.get("force") is True:
            return
        head, then = self.snapshot(self._head), self.snapshot(target.manifest)
        found = behind_what_was_shown(head, then, self._plan_of)
        if found:
            raise refusal(found, target.manifest.epoch)

    def _program_of(self, target: HeadRead) -> Program | None:
        """The program to go on with from an older epoch; None for that of today.

        InvalidError when the code of today cannot read the state of that epoch.
        """
        manifest = target.manifest
        if manifest is None or manifest.catalog is None or manifest.catalog == self.catalog:
            return None
        then = with_operators(self.worker.description(manifest.catalog))
        plan = with_code(restored(then, self.plan))
        if same_program(plan, self.plan):
            return None
        return program_of(save_plan(self.worker, plan, self.catalog), plan)

    def _change(self, ask: ChangePlan) -> Event:
        return self.changer.change(ask, Plan() if ask.begins else self.plan)

    def _run(self, ask: RunEpoch) -> Event:
        started = time.perf_counter()
        try:
            spec = self._spec(ask)
            reports = self._epochs.run(spec) if ask.admitted or ask.due else []
            outcome = self._outcome(ask, spec, reports)
        except MissingError as error:
            return RunFailed(told_missing(self.store, ask.base, error))
        except MillpondError as error:
            return RunFailed(error)
        except OSError as error:
            return RunFailed(
                UnavailableError("an epoch could not run", detail=f"{type(error).__name__}: {error}")
            )
        self._took = outcome.metrics["tasks_us"] or self._took
        metrics = {**outcome.metrics, "ms": round((time.perf_counter() - started) * 1000, 3)}
        return Ran(replace(outcome, metrics=metrics))

    def _spec(self, ask: RunEpoch) -> EpochSpec:
        by_step = _by_step(ask.admitted)
        rows = {step: sum(s.rows for s in given) for step, given in by_step.items()}
        tasks = self._tasks(ask, sum(rows.values()))
        apart = self._parts(ask) if tasks == 1 else 1
        near = near_lookups(self.plan, rows) if apart == 1 else NOWHERE  # a part exchanges nothing anyway
        depth = self._depth([*by_step, *(self._owners[table] for table in ask.due)], near)
        splits = sum(len(s) for step, s in by_step.items() if step not in near.shared)
        first = max(1, min(tasks, splits))
        parallelism = (apart,) * depth if apart > 1 else (first, *[tasks] * (depth - 1))
        return EpochSpec(
            self.store.uri,
            self.catalog,
            ask.epoch,
            ask.token,
            ask.now_us,
            parallelism,
            spread(by_step, 1) * apart if apart > 1 else spread(by_step, first, near.shared),
            ask.base.pages,
            ask.base.recent,
            ask.base.gone,
            ask.base.watermarks,
            ask.base.roots,
            self.checks,
            options=self.options,
            apart=apart > 1,
            near=near,
            log_buckets=ask.log_buckets,
        )

    def _parts(self, ask: RunEpoch) -> int:
        """In how many parts the plan is run, where an epoch's rows are few but its steps are many."""
        most = min(ask.parallelism, self.engine.default_parallelism)
        if most == 1 or sum(self._before(ask)) < APART_US:
            return 1
        while most > (found := len(self.worker.parts(self.catalog, most))):
            most = found
        return most

    def _tasks(self, ask: RunEpoch, rows: int) -> int:
        """How many tasks share an epoch.

        What a step costs before its first row it costs in every task, so a few rows are done sooner by one.
        Those that wait for time count too: any epoch may close them. Not where the last was slow.
        """
        alone = self.engine.rows_alone
        before = self._before(ask)
        if not alone or self.checks or not before:
            return ask.parallelism
        if max(before) > QUICK_US + QUICK_STEP_US * len(self.plan.nodes):
            return ask.parallelism
        rows = self._each * (rows + ask.waiting // WAITING_PER_ROW)
        return max(1, min(ask.parallelism, -(-rows // alone)))

    def _before(self, ask: RunEpoch) -> list[int]:
        """What tasks took when any last ran: a commit of merges or cursors runs none."""
        return self._took or ask.base.metrics.get("tasks_us") or []

    def _depth(self, active: Iterable[str], near: Near) -> int:
        """How many levels have anything to do: those that rows of the active steps can reach."""
        first = frozenset(step for step in active if step in self.plan.nodes)
        if (first, near) not in self._depths:
            reached = set(first)
            for node in self.plan.topological():
                if any(i in reached for i in node.inputs):
                    reached.add(node.step)
            levels = self.worker.plan(self.catalog, near=near)[1] if near.lookups else self.levels
            self._depths[first, near] = 1 + max((levels.level_of[s] for s in reached), default=0)
        return self._depths[first, near]

    def _outcome(self, ask: RunEpoch, spec: EpochSpec, reports: list[Report]) -> Outcome:
        marks = dict(ask.base.watermarks)
        counts: dict[str, int] = {}
        drops: dict[str, int] = {}
        runs: list[RunRef] = []
        steps_us: dict[str, int] = {}
        rows = written = 0
        for report in reports:
            watermarks.merge(marks, report.watermarks)
            runs.extend(report.runs)
            for name, count in report.counts.items():
                counts[name] = counts.get(name, 0) + count
            for table, bucket in report.drops:
                if drops.setdefault(table, bucket) != bucket:
                    raise InternalError(
                        "tasks disagree on what is over",
                        detail=f"table {table!r}: bucket {bucket} and {drops[table]}",
                        epoch=ask.epoch,
                    )
            for step, us in report.metrics["steps_us"].items():
                steps_us[step] = steps_us.get(step, 0) + us
            rows += report.metrics["rows_in"]
            written += report.metrics["bytes_written"]
        advances: dict[str, Advance] = {}
        for step in sorted({*ask.admitted, *ask.rejects}):
            splits, bad = ask.admitted.get(step, ()), ask.rejects.get(step, ())
            if step == INBOX:
                numbers = [int(s.what["entry"]) for s in splits] + [int(number) for number, _ in bad]
                advances[step] = Advance(max(numbers) + 1)
            else:
                advances[step] = self.sources[step].advance(ask.base.positions.get(step), splits, bad)
        if any(report.metrics.get("errors_ended") for report in reports):
            fresh = [r for r in runs if r.table == ERRORS]
            runs = [*(r for r in runs if r.table != ERRORS), *self._settled(ask, fresh)]
        runs.extend(self._driver_rows(ask, advances, counts))
        metrics = {
            "rows": rows,
            "bytes_written": written,
            "tasks": list(spec.parallelism),
            "steps_us": steps_us,
            "tasks_us": [r.metrics["us"] for r in reports],
        }
        return Outcome(tuple(runs), drops, counts, marks, advances, metrics)

    def _driver_rows(
        self, ask: RunEpoch, advances: Mapping[str, Advance], counts: dict[str, int]
    ) -> list[RunRef]:
        """What the coordinator itself adds to the epoch: sources' own tables, rejected input."""
        writer = PackedWriter()
        for step, advance in advances.items():
            if advance.seen is not None and advance.seen.num_rows:
                spec = self.sources[step].table(step)
                assert spec is not None
                writer.add(spec, advance.seen)
        bad = [
            {"step": step, "row": what, "reason": reason}
            for step, rows in ask.rejects.items()
            for what, reason in rows
        ]
        if bad:
            rows = pa.Table.from_pylist(bad, schema=ERRORS_SPEC.schema)
            writer.add(ERRORS_SPEC, rows, bucket=ask.log_buckets.get(ERRORS))
            for row in bad:
                counts[f"errors/{row['step']}"] = counts.get(f"errors/{row['step']}", 0) + 1
        buffers, infos = writer.finish()
        if not infos:
            return []
        name = f"runs/{ask.token}/{ask.epoch:016d}-d-0-{os.urandom(8).hex()}"
        if self.store.put_new(name, buffers) is not Put.WON:
            raise InternalError("a random run name was already taken", detail=name)
        return [i.ref(name, lo=ask.epoch, hi=ask.epoch, kind="delta") for i in infos]

    def _settled(self, ask: RunEpoch, fresh: Sequence[RunRef]) -> tuple[RunRef, ...]:
        """Error rows that are taken back end where they lie, and nowhere if they were dropped."""
        held = Listing.of(ask.base, self.worker.pages).runs(ERRORS)
        found = settled(self.worker, fresh, held, ask.log_buckets.get(ERRORS))
        return write_errors(self.worker, found, ask.token, ask.epoch, task=SETTLED)

    # -- commit ---------------------------------------------------------------------

    def _put(self, ask: PutManifest) -> Event:
        try:
            for name, refs in ask.pages:
                self.store.put_new(name, encode_page(refs))
            outcome = self.store.put_new(manifest_name(ask.manifest.epoch), ask.manifest.encode())
        except UnavailableError as error:
            return PutUnknown(error)
        return PutWon() if outcome is Put.WON else PutLost()

    def committed(self, manifest: Manifest) -> None:
        """The coordinator knows that this manifest is the head."""
        if manifest.catalog is not None and manifest.catalog != self.catalog:
            self._go_on_with(manifest.catalog, *self.worker.plan(manifest.catalog))
        for name in {manifest.catalog, None if manifest.filling is None else manifest.filling.catalog}:
            if name is not None:
                release_plan(self.worker, name)
        self.changer.committed(manifest)
        self._head = manifest

    def _seen_rows(self, step: str, source: Source, head: Manifest) -> pa.Table | None:
        spec = source.table(step)
        if spec is None:
            return None
        held = self._seen.get(step)
        if held is not None and held[0] == head.nonce:
            return held[1]
        fresh = [r for r in head.added if r.table == spec.name and r.kind == "delta"]
        if held is not None and held[0] == head.parent_nonce and head.kind == "epoch":
            rows = held[1]
            if fresh:
                added = self.snapshot(head).changes(spec, spec.schema.names).select(spec.schema.names)
                rows = pa.concat_tables([rows, added])
        else:
            rows = self.snapshot(head).scan(spec, spec.schema.names)
        self._seen[step] = (head.nonce, rows)
        return rows

    # -- beside the chain ---------------------------------------------------------------

    def _deliver(self, ask: Deliver) -> Event:
        node = self.plan.sinks.get(ask.sink)
        if node is None:
            gone = UnavailableError("the sink was dropped", detail=ask.sink)
            return DeliverFailed(ask.sink, ask.epoch, gone)
        try:
            manifest = history.read_manifest(self.store, ask.epoch)
            delta = self._to_deliver(manifest, ask.sink, ask.whole)
            if delta is not None and manifest.kind == "rollback" and is_append_only(node.sink):
                delta = shown_only(delta)  # it was forced
        except MissingError as error:
            return DeliverFailed(ask.sink, ask.epoch, told_missing(self.store, self._head, error))
        except MillpondError as error:
            return DeliverFailed(ask.sink, ask.epoch, error)
        try:
            if delta is not None and delta.num_rows:
                node.sink.deliver(manifest.pond, ask.epoch, delta)
        except MillpondError as error:  # its kind says who must act
            told = type(error)(
                f"sink {ask.sink!r} failed: {error.message}",
                detail=error.detail,
                hint=error.hint,
                epoch=ask.epoch,
            )
            told.__cause__ = error
            return DeliverFailed(ask.sink, ask.epoch, told)
        except (Exception, *ENDINGS) as error:  # of a user's sink: kept and shown, the chain goes on
            if is_interrupt(error):
                raise
            wrapped = UnavailableError(
                f"sink {ask.sink!r} failed",
                detail=f"{type(error).__name__}: {error}",
                hint=getattr(error, "hint", None),
                epoch=ask.epoch,
            )
            wrapped.__cause__ = error
            return DeliverFailed(ask.sink, ask.epoch, wrapped)
        return Delivered(ask.sink, ask.epoch)

    def _to_deliver(self, manifest: Manifest, sink: str, whole: bool) -> pa.Table | None:
        """What a sink is told of an epoch, by the program of that epoch."""
        snapshot = self.snapshot(manifest)
        if not whole:
            return sink_changes(snapshot, sink, self._plan_of)
        held = read_by(self._plan_of(manifest), sink)
        return None if held is None else all_rows(snapshot, held)

    def _plan_of(self, manifest: Manifest) -> Plan:
        if manifest.catalog is None or manifest.catalog == self.catalog:
            return self.plan
        return self.worker.description(manifest.catalog)

    def _compact(self, ask: Compact) -> Event:
        specs = {**self.specs, **self.changer.specs}
        spec = specs.get(ask.job.table)
        if spec is None:  # a table of a step that the plan no longer has: leave its runs as they are
            return CompactFailed(ask.job, UnavailableError("no such table", detail=ask.job.table))
        try:
            if ask.also:
                jobs = [(job, specs[job.table]) for job in (ask.job, *ask.also) if job.table in specs]
                (_, added), *also = merge_small(jobs, self.worker, ask.token, ask.epoch)
                return Compacted(ask.job, added, tuple(also))
            added = compact(ask.job, spec, self.worker, self.engine, ask.token, ask.epoch, self.options)
            return Compacted(ask.job, added)
        except MissingError as error:
            return CompactFailed(ask.job, self._missing_input(ask, error))
        except MillpondError as error:
            return CompactFailed(ask.job, error)
        finally:
            self._let_go()

    def _missing_input(self, ask: Compact, error: MissingError) -> MillpondError:
        """Why a merge misses a file: what it merges may have ended and been collected since it was asked."""
        head = self._head
        try:
            listed = set() if head is None else {run_id(r) for r in Listing.of(head, self.worker.pages).all()}
        except UnavailableError:
            return error
        wanted = {run_id(ref) for job in (ask.job, *ask.also) for ref in job.refs}
        return told_missing(self.store, head, error) if wanted <= listed else error

    def _let_go(self) -> None:
        """Of files that merges here have opened and that are over."""
        head = self._head
        if head is None or not self.worker.crowded:
            return
        # Pages may have been collected since, or the store may rest: the next merge tries again.
        with contextlib.suppress(UnavailableError):
            self.worker.trim(Listing.of(head, self.worker.pages))

    def _collect(self, ask: Collect) -> Event:
        try:
            collect(
                self.store,
                ask.head,
                spare_from=ask.spare_from,
                token=ask.token,
                now_us=self.clock.now_us(),
                pages=self.worker.pages,
                facts=self._facts,
            )
        except UnavailableError:
            pass  # what cannot be deleted now is found again by the next collection
        except DamagedPinError as error:  # of no concern to the chain, but the pond grows
            log.warning("nothing is collected: %s; %s", error.message, error.hint)
        return Collected(ask.head.floor)


def _by_step(admitted: Mapping[str, Sequence[Split]]) -> dict[str, list[Split]]:
    """Splits by the scan that reads them: those of the inbox go to their tables."""
    found: dict[str, list[Split]] = {}
    for step, splits in admitted.items():
        for split in splits:
            found.setdefault(str(split.what[TABLE_KEY]) if step == INBOX else step, []).append(split)
    return found
