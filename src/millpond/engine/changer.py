"""What the shell does to change the program of a pond: at once, or as a fill beside it.

A change whose new steps have little to take in is made here and now, for the
next commit (`engine.backfill`).  One that takes more than a chunk is a fill
(`engine.filling`), of which every call does one chunk; but not where its plan
does not follow, nor at a take-over, which has no other program to go on with.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from millpond.engine.backfill import OnProgress, Setting, StoppedError, backfill, errors_taken_back
from millpond.engine.engine import Engine
from millpond.engine.filling import Filling
from millpond.engine.programs import program_of, save_plan, with_live_parts
from millpond.engine.protocol import (
    Changed,
    ChangeFailed,
    ChangePlan,
    Event,
    FillBegun,
    FillMore,
    FillMoved,
    Program,
)
from millpond.engine.worker import Worker
from millpond.errors import InvalidError, MillpondError, UnavailableError
from millpond.operators.state_scan import StateScan
from millpond.plan.backfill import BackfillPlan, backfill_plan
from millpond.plan.change import PlanChange, plan_change
from millpond.plan.nodes import Plan
from millpond.state.manifest import Manifest
from millpond.state.retention import LATE
from millpond.state.table_spec import TableSpec

BACKFILL_BYTES = 256 << 20  # of rows that a backfill takes in at once


class Changer:
    def __init__(
        self,
        worker: Worker,
        engine: Engine,
        *,
        bytes_max: int = BACKFILL_BYTES,
        checks: bool = False,
        options: Mapping[str, Any] | None = None,
        on_progress: OnProgress | None = None,
        stopped: Callable[[], bool] = lambda: False,
        from_now: frozenset[str] = frozenset(),
    ) -> None:
        self.worker = worker
        self.engine = engine
        self.bytes_max = bytes_max
        self.checks = checks
        self.options = dict(options or {})
        self.on_progress = on_progress
        self.stopped = stopped
        self.from_now = from_now  # steps that get no rows of the past when they come
        self._filling: tuple[str, Filling] | None = None  # by the catalog that it makes

    @property
    def specs(self) -> Mapping[str, TableSpec]:
        """The tables of what is being filled."""
        filling = self._filling
        return {} if filling is None else filling[1].specs

    def change(self, ask: ChangePlan, plan: Plan) -> Event:
        """Make what a wanted plan has beyond that of today, or begin to."""
        with _told() as failed:
            wanted, change = self._wanted(ask.catalog, plan)
            from_now = not self.from_now.isdisjoint(change.new)
            found = backfill_plan(plan, change.plan, change.new, ask.base.positions, from_now=from_now)
            require_late_rows(found, ask.base)
            if ask.entry is not None and change.new and found.follows:
                filling = self._made(change, plan, ask.base)
                fill = filling.begun(ask)
                if fill is not None:
                    self._filling = ask.catalog, filling
                    return FillBegun(fill)
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
                self.options,
                self.on_progress,
                self.stopped,
            )
            filled = backfill(setting, found, change.new)
            metrics = {"backfill": dict(filled.metrics)} if change.new else {}
            ended = errors_taken_back(self.worker, ask.base, ask.token, ask.epoch, change.gone)
            return Changed(
                self._program(ask.catalog, wanted, change),
                (*filled.runs, *ended),
                change.gone,
                change.tables_gone,
                filled.counts,
                filled.watermarks,
                filled.positions,
                {**metrics, **_came_and_went(change)},
            )
        return failed[0]

    def more(self, ask: FillMore, plan: Plan) -> Event:
        """One more chunk of what is being filled, or the last."""
        with _told() as failed:
            catalog = ask.fill.catalog
            wanted, change = self._wanted(catalog, plan)
            if self._filling is None or self._filling[0] != catalog:
                self._filling = catalog, self._made(change, plan, ask.base)
            done = self._filling[1].more(ask)
            if isinstance(done, FillMoved):
                return done
            ended = errors_taken_back(self.worker, ask.base, ask.token, ask.epoch, change.gone)
            return Changed(
                self._program(catalog, wanted, change),
                (*done.runs, *ended),
                change.gone,
                change.tables_gone | done.gone,
                done.counts,
                done.watermarks,
                done.positions,
                {"backfill": dict(done.metrics), **_came_and_went(change)},
                done.drops,
            )
        return failed[0]

    def committed(self, manifest: Manifest) -> None:
        """What is filled no longer is forgotten."""
        if manifest.filling is None and self._filling is not None:
            self._filling[1].forget()
            self._filling = None

    def _wanted(self, catalog: str, plan: Plan) -> tuple[Plan, PlanChange]:
        wanted = with_live_parts(self.worker.plan(catalog)[0], plan)
        return wanted, plan_change(plan, wanted)

    def _made(self, change: PlanChange, plan: Plan, base: Manifest) -> Filling:
        found = backfill_plan(plan, change.plan, change.new, base.positions)
        if not found.follows:
            raise InvalidError(
                "what is being filled cannot follow this program", hint="create the view again"
            )
        return Filling(
            self.worker,
            self.engine,
            change,
            found,
            bytes_max=self.bytes_max,
            checks=self.checks,
            options=self.options,
            on_progress=self.on_progress,
        )

    def _program(self, catalog: str, wanted: Plan, change: PlanChange) -> Program:
        """The program to go on with: as it was asked for, where nothing is remembered beside it."""
        if change.plan is wanted:
            self.worker.know_plan(catalog, wanted)
        else:
            catalog = save_plan(self.worker, change.plan)
        return program_of(catalog, change.plan)


def require_late_rows(found: BackfillPlan, base: Manifest) -> None:
    """Refuse to fill what late rows are needed for that are no longer kept: they would count as on time."""
    for node in found.plan.nodes.values():
        if not isinstance(node.operator, StateScan) or not node.operator.table.name.endswith(LATE):
            continue
        mark = node.operator.table.name.removesuffix(LATE)
        if dropped := base.counts.get(f"late_dropped/{mark}", 0):
            raise InvalidError(
                f"a new view over {mark!r} cannot be filled: late rows of it are no longer kept",
                detail=f"{dropped} late rows were dropped, and would count as on time",
                hint="keep them longer with late_keep_ms and late_rows_max; for this view,"
                " build on a view of the rows that were on time, or begin with new rows (backfill=False)",
                step=mark,
            )


def _came_and_went(change: PlanChange) -> dict[str, list[str]]:
    return {"came": sorted(change.new), "went": sorted(change.gone)}


@contextlib.contextmanager
def _told() -> Iterator[list[ChangeFailed]]:
    """What goes wrong with a change of the program, as an event."""
    failed: list[ChangeFailed] = []
    try:
        yield failed
    except StoppedError as error:
        failed.append(ChangeFailed(error, stopped=True))
    except MillpondError as error:
        failed.append(ChangeFailed(error))
    except OSError as error:
        told = f"{type(error).__name__}: {error}"
        failed.append(ChangeFailed(UnavailableError("the program could not be changed", detail=told)))
    except MemoryError:
        hint = "take in less at once: epoch_rows_max and epoch_bytes_max bound a chunk of a backfill"
        failed.append(ChangeFailed(InvalidError("a backfill does not fit into memory", hint=hint)))
