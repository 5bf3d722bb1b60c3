"""The shell: executes the coordinator's instructions, one at a time.

All I/O of the coordinator is here and in what it calls: storage, sources, the engine, sinks.  Each
instruction is answered with an event.  The process may die between any two of them, and the simulator kills
it at every storage call.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from millpond.clock import Clock
from millpond.engine.change.changer import Changer
from millpond.engine.change.programs import release_plan
from millpond.engine.coordinator.compactor import compact, merge_small
from millpond.engine.coordinator.epoch_runner import EpochRunner
from millpond.engine.coordinator.inbox_polling import open_epoch
from millpond.engine.coordinator.phase_times import PhaseTimes
from millpond.engine.coordinator.polling import Polling
from millpond.engine.coordinator.protocol import (
    ChangePlan,
    Collect,
    Collected,
    Compact,
    Compacted,
    CompactFailed,
    Deliver,
    Delivered,
    Event,
    HeadRead,
    Instruction,
    PollSources,
    PutLost,
    PutManifest,
    PutUnknown,
    PutWon,
    Ran,
    ReadBack,
    ReadBackDone,
    ReadHead,
    RunBackfillChunk,
    RunEpoch,
    Unanswered,
)
from millpond.engine.coordinator.running_program import RunningProgram
from millpond.engine.coordinator.sink_delivery import deliver
from millpond.engine.coordinator.worker_preparing import WorkerPreparing
from millpond.engine.engine import Engine
from millpond.engine.missing_files import missing_file_error
from millpond.engine.task.full_row_retry import Epochs
from millpond.engine.task.worker import Worker
from millpond.errors import InternalError, MillpondError, UnavailableError
from millpond.plan.levels import Levels
from millpond.plan.nodes import Plan
from millpond.sinks.writing import SinkWriters
from millpond.state.manifest import history
from millpond.state.manifest.garbage import Facts, collect
from millpond.state.manifest.listing import Listing
from millpond.state.manifest.manifest import Manifest, encode_page, manifest_name, run_id
from millpond.state.manifest.pins import DamagedPinError
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.store.parallel_requests import in_parallel
from millpond.state.store.store import MissingError, Put

log = logging.getLogger("millpond.pond")


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
        vectorize_user_code: bool = True,
        options: Mapping[str, Any] | None = None,
        changer: Changer | None = None,
    ) -> None:
        self.worker = worker
        self.store = worker.store
        self.engine = engine
        self.clock = clock
        self.checks = checks
        self.vectorize_user_code = vectorize_user_code
        self.options = dict(options or {})
        self.changer = changer or Changer(worker, engine, checks=checks, options=options)
        self._polling = Polling(worker, clock)
        self._epochs = Epochs(engine)
        self._writers = SinkWriters()
        self._times = PhaseTimes()
        self._preparing = WorkerPreparing(worker, engine, self.options)
        self._use(RunningProgram.of(catalog, plan, levels))
        self._head: Manifest | None = None
        self._facts: Facts = {}  # what garbage collections have read from manifests

    def _use(self, program: RunningProgram) -> None:
        self._program = program
        self._runner = EpochRunner(
            self.worker,
            self.engine,
            self._epochs,
            program,
            checks=self.checks,
            vectorize_user_code=self.vectorize_user_code,
            options=self.options,
        )

    @property
    def plan(self) -> Plan:
        return self._program.plan

    @property
    def catalog(self) -> str:
        return self._program.catalog

    def perform(self, instruction: Instruction) -> Event:
        started = time.perf_counter()
        event = self._perform(instruction)
        self._measure(instruction, event, time.perf_counter() - started)
        if isinstance(event, Ran):
            metrics = {**event.outcome.metrics, **self._times.take()}
            return Ran(replace(event.outcome, metrics=metrics))
        return event

    def _measure(self, instruction: Instruction, event: Event, seconds: float) -> None:
        match instruction, event:
            case PollSources(), _:
                self._times.restart("admit")
                self._times.add("admit", seconds)
            case PutManifest(), _:
                self._times.add("commit", seconds)
            case Deliver(), Delivered():
                self._times.delivered(event.sink, seconds, event.rows, event.bytes)

    def _perform(self, instruction: Instruction) -> Event:
        match instruction:
            case ReadHead() | PollSources() | ReadBack():
                return self._ask(instruction)
            case RunEpoch():
                return self._runner.run(instruction)
            case ChangePlan():
                return self._change(instruction)
            case RunBackfillChunk():
                return self.changer.run_chunk(instruction, self.plan)
            case PutManifest():
                return self._put(instruction)
            case Deliver():
                return deliver(
                    instruction, self._program, self.worker, self._head, self._writers, self._preparing
                )
            case Compact():
                return self._compact(instruction)
            case Collect():
                return self._collect(instruction)
        raise InternalError("no such instruction", detail=repr(instruction))

    # -- reading ----------------------------------------------------------------

    def _ask(self, instruction: ReadHead | PollSources | ReadBack) -> Event:
        """Execute an instruction that only reads; if it fails, it may be repeated."""
        try:
            return self._answer(instruction)
        except MissingError as error:
            text = missing_file_error(self.store, self._head, error)
            if not isinstance(text, UnavailableError):
                raise text from error
            return Unanswered(instruction, text)
        except UnavailableError as error:
            return Unanswered(instruction, error)
        except OSError as error:
            detail = f"{type(error).__name__}: {error}"
            return Unanswered(
                instruction, UnavailableError("the storage of the pond is unavailable", detail=detail)
            )

    def _answer(self, instruction: ReadHead | PollSources | ReadBack) -> Event:
        match instruction:
            case ReadHead():
                return self.read_head()
            case PollSources():
                if self._head is None:
                    raise InternalError("sources are polled before there is a head")
                return self._polling.poll(instruction, self._program, self._head)
            case ReadBack(epoch):
                return ReadBackDone(history.find_manifest(self.store, epoch))

    def read_head(self) -> HeadRead:
        head = history.read_head(self.store)
        try:
            return HeadRead(None) if head is None else open_epoch(self.worker, head)
        except MissingError as error:
            now = history.read_head(self.store)
            if head is None or now is None or now.epoch != head.epoch:
                raise  # the pond has a newer head: the instruction is repeated
            raise missing_file_error(self.store, head, error) from error

    def snapshot(self, manifest: Manifest) -> Snapshot:
        return Snapshot(self.store, manifest, self.worker.pages, self.worker.open_file)

    # -- the chain --------------------------------------------------------------

    def _change(self, ask: ChangePlan) -> Event:
        return self.changer.change(ask, Plan() if ask.begins else self.plan)

    def _put(self, ask: PutManifest) -> Event:
        try:
            in_parallel(lambda page: self.store.put_new(page[0], encode_page(page[1])), ask.pages)
            outcome = self.store.put_new(manifest_name(ask.manifest.epoch), ask.manifest.encode())
        except UnavailableError as error:
            return PutUnknown(error)
        return PutWon() if outcome is Put.WON else PutLost()

    def committed(self, manifest: Manifest) -> None:
        """Continue from this manifest, which is the new head, and with its program."""
        if manifest.catalog is not None and manifest.catalog != self.catalog:
            self._use(RunningProgram.of(manifest.catalog, *self.worker.plan(manifest.catalog)))
        for name in {manifest.catalog, None if manifest.backfill is None else manifest.backfill.catalog}:
            if name is not None:
                release_plan(self.worker, name)
        self.changer.committed(manifest)
        self._head = manifest

    def close_sinks(self, busy: Collection[str] = ()) -> None:
        """Close the connections of sinks, except those that are still busy."""
        self._writers.close_all(busy)

    # -- beside the chain, in threads -------------------------------------------

    def _compact(self, ask: Compact) -> Event:
        specs = {**self._program.specs, **self.changer.specs}
        spec = specs.get(ask.job.table)
        if spec is None:  # of a step that the plan no longer has: its runs stay unchanged
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
            self._close_ended_files()

    def _missing_input(self, ask: Compact, error: MissingError) -> MillpondError:
        """Why a file is missing for a merge: its inputs may have been replaced and collected meanwhile."""
        head = self._head
        try:
            listed = set() if head is None else {run_id(r) for r in Listing.of(head, self.worker.pages).all()}
        except UnavailableError:
            return error
        wanted = {run_id(ref) for job in (ask.job, *ask.also) for ref in job.refs}
        return missing_file_error(self.store, head, error) if wanted <= listed else error

    def _close_ended_files(self) -> None:
        """Close files that merges opened and that no live run needs any more."""
        head = self._head
        if head is None or not self.worker.crowded:
            return
        # Pages may have been collected meanwhile, or storage may be unavailable: the next merge tries again.
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
            pass  # the next collection finds these files again
        except DamagedPinError as error:  # epochs continue, but the pond grows
            log.warning("nothing is collected: %s; %s", error.message, error.hint)
        return Collected(ask.head.floor)
