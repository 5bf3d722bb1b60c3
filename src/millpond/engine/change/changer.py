"""Changes the program of a pond for the shell: directly, or by a backfill in chunks between epochs.

A change whose new steps read few rows is made directly, for the next commit (`change.backfill`).  A larger
one is a long backfill (`change.long_backfill`); every call runs one chunk of it.  A takeover waits for its
change even if that is long, as it has no other program to run; so does a change whose plan cannot follow
(`plan.backfill`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from millpond.engine.change.backfill import (
    BackfillStoppedError,
    OnProgress,
    Setting,
    backfill,
    errors_taken_back,
)
from millpond.engine.change.long_backfill import LongBackfill
from millpond.engine.change.programs import program_of, save_plan, with_running_objects
from millpond.engine.coordinator.protocol import (
    BackfillBegun,
    BackfillChunkDone,
    ChangeFailed,
    ChangePlan,
    Event,
    PlanChanged,
    ProgramSummary,
    RunBackfillChunk,
)
from millpond.engine.engine import Engine
from millpond.engine.task.worker import Worker
from millpond.errors import InvalidError, MillpondError, UnavailableError
from millpond.operators.state_scan import StateScan
from millpond.plan.backfill import BackfillPlan, backfill_plan
from millpond.plan.change import PlanChange, plan_change
from millpond.plan.nodes import Plan
from millpond.state.manifest.manifest import Manifest
from millpond.state.retention import LATE
from millpond.state.tables.table_spec import TableSpec

BACKFILL_BYTES = 256 << 20  # of a chunk, at most


class Changer:
    def __init__(
        self,
        worker: Worker,
        engine: Engine,
        *,
        bytes_max: int = BACKFILL_BYTES,
        checks: bool = False,
        vectorize_user_code: bool = True,
        options: Mapping[str, Any] | None = None,
        on_progress: OnProgress | None = None,
        stopped: Callable[[], bool] = lambda: False,
        from_now: frozenset[str] = frozenset(),
    ) -> None:
        self.worker = worker
        self.engine = engine
        self.bytes_max = bytes_max
        self.checks = checks
        self.vectorize_user_code = vectorize_user_code
        self.options = dict(options or {})
        self.on_progress = on_progress
        self.stopped = stopped
        self.from_now = from_now  # new steps that start without past rows
        self._running: tuple[str, LongBackfill] | None = None  # with the catalog of the new plan

    @property
    def specs(self) -> Mapping[str, TableSpec]:
        """The tables that are being backfilled."""
        return {} if self._running is None else self._running[1].specs

    def change(self, ask: ChangePlan, plan: Plan) -> Event:
        """Compute the state of the new steps of the wanted plan, or begin a long backfill."""
        with _failures_as_events() as failed:
            wanted, change = self._wanted(ask.catalog, plan)
            from_now = not self.from_now.isdisjoint(change.new)
            planned = backfill_plan(plan, change.plan, change.new, ask.base.positions, from_now=from_now)
            require_late_rows(planned, ask.base)
            if ask.entry is not None and change.new and planned.incremental:
                long = self._long_backfill(change, plan, ask.base)
                progress = long.begin(ask)
                if progress is not None:
                    self._running = ask.catalog, long
                    return BackfillBegun(progress)
            setting = Setting(
                self.worker,
                self.engine,
                ask.base,
                ask.epoch,
                ask.token,
                ask.now_us,
                ask.parallelism,
                ask.rows_max,
                self.bytes_max,
                self.checks,
                self.vectorize_user_code,
                self.options,
                self.on_progress,
                self.stopped,
            )
            result = backfill(setting, planned, change.new)
            metrics = {"backfill": dict(result.metrics)} if change.new else {}
            ended = errors_taken_back(self.worker, ask.base, ask.token, ask.epoch, change.gone)
            return PlanChanged(
                self._program(ask.catalog, wanted, change),
                (*result.runs, *ended),
                change.gone,
                change.tables_gone,
                result.counts,
                result.watermarks,
                result.positions,
                {**metrics, **_new_and_gone(change)},
            )
        return failed[0]

    def run_chunk(self, ask: RunBackfillChunk, plan: Plan) -> Event:
        """Run the next chunk of a long backfill, or its last one."""
        with _failures_as_events() as failed:
            catalog = ask.progress.catalog
            wanted, change = self._wanted(catalog, plan)
            if self._running is None or self._running[0] != catalog:
                self._running = catalog, self._long_backfill(change, plan, ask.base)
            done = self._running[1].run_chunk(ask)
            if isinstance(done, BackfillChunkDone):
                return done
            ended = errors_taken_back(self.worker, ask.base, ask.token, ask.epoch, change.gone)
            return PlanChanged(
                self._program(catalog, wanted, change),
                (*done.runs, *ended),
                change.gone,
                change.tables_gone | done.gone,
                done.counts,
                done.watermarks,
                done.positions,
                {"backfill": dict(done.metrics), **_new_and_gone(change)},
                done.drops,
            )
        return failed[0]

    def committed(self, manifest: Manifest) -> None:
        """Forget a long backfill that has ended."""
        if manifest.backfill is None and self._running is not None:
            self._running[1].forget()
            self._running = None

    def _wanted(self, catalog: str, plan: Plan) -> tuple[Plan, PlanChange]:
        wanted = with_running_objects(self.worker.plan(catalog)[0], plan)
        return wanted, plan_change(plan, wanted)

    def _long_backfill(self, change: PlanChange, plan: Plan, base: Manifest) -> LongBackfill:
        planned = backfill_plan(plan, change.plan, change.new, base.positions)
        if not planned.incremental:
            raise InvalidError(
                "the running backfill cannot follow this program", hint="create the view again"
            )
        return LongBackfill(
            self.worker,
            self.engine,
            change,
            planned,
            bytes_max=self.bytes_max,
            checks=self.checks,
            vectorize_user_code=self.vectorize_user_code,
            options=self.options,
            on_progress=self.on_progress,
        )

    def _program(self, catalog: str, wanted: Plan, change: PlanChange) -> ProgramSummary:
        """The program to run: the requested one, unless the change retains more than that."""
        if change.plan is wanted:
            self.worker.know_plan(catalog, wanted)
        else:
            catalog = save_plan(self.worker, change.plan)
        return program_of(catalog, change.plan)


def require_late_rows(planned: BackfillPlan, base: Manifest) -> None:
    """Refuse a backfill that needs late rows which were dropped: it would treat them as on time."""
    for node in planned.plan.nodes.values():
        if not isinstance(node.operator, StateScan) or not node.operator.table.name.endswith(LATE):
            continue
        mark = node.operator.table.name.removesuffix(LATE)
        if dropped := base.counts.get(f"late_dropped/{mark}", 0):
            raise InvalidError(
                f"a new view over {mark!r} cannot be backfilled: its late rows are no longer kept",
                detail=f"{dropped} late rows were dropped, and would count as on time",
                hint="keep them longer with late_keep_ms and late_rows_max; for this view,"
                " build on a view of the rows that were on time, or begin with new rows (backfill=False)",
                step=mark,
            )


def _new_and_gone(change: PlanChange) -> dict[str, list[str]]:
    return {"came": sorted(change.new), "went": sorted(change.gone)}


@contextlib.contextmanager
def _failures_as_events() -> Iterator[list[ChangeFailed]]:
    """Turn errors of a change into events."""
    failed: list[ChangeFailed] = []
    try:
        yield failed
    except BackfillStoppedError as error:
        failed.append(ChangeFailed(error, stopped=True))
    except MillpondError as error:
        failed.append(ChangeFailed(error))
    except OSError as error:
        text = f"{type(error).__name__}: {error}"
        failed.append(ChangeFailed(UnavailableError("the program could not be changed", detail=text)))
    except MemoryError:
        hint = "take in less at once: epoch_rows_max and epoch_bytes_max bound a chunk of a backfill"
        failed.append(ChangeFailed(InvalidError("a backfill does not fit into memory", hint=hint)))
