"""Runs one epoch for the shell: sizes it, runs the levels, and merges the reports of its tasks.

Law 3: results do not depend on the number of tasks, which is chosen by how long the last epoch took.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond import tuning
from millpond.control.admission import spread
from millpond.engine.change.backfill import write_errors
from millpond.engine.coordinator.inbox_polling import INBOX, by_scan
from millpond.engine.coordinator.protocol import EpochOutcome, Ran, RunEpoch, RunFailed
from millpond.engine.coordinator.running_program import RunningProgram
from millpond.engine.engine import Engine, PlacingEngine
from millpond.engine.error_rows import SETTLED
from millpond.engine.error_rows import settled as settled_errors
from millpond.engine.missing_files import missing_file_error
from millpond.engine.task import watermarks
from millpond.engine.task.full_row_retry import Epochs
from millpond.engine.task.optimizer import passes_off
from millpond.engine.task.settled_watermarks import settled
from millpond.engine.task.spec import EpochSpec, Report
from millpond.engine.task.worker import Worker
from millpond.errors import InternalError, MillpondError, UnavailableError
from millpond.operators.source_traits import RestoresSplits
from millpond.plan.local_lookup import NO_LOCAL_LOOKUPS, LocalLookups, find_local_lookups
from millpond.plan.moved_steps import moved_by
from millpond.plan.user_code import user_codes
from millpond.sources.source import Advance, Split
from millpond.state.manifest.listing import Listing
from millpond.state.manifest.manifest import PLACED, Manifest
from millpond.state.retention import ERRORS
from millpond.state.runs import run_names
from millpond.state.runs.packed_writer import PackedWriter
from millpond.state.runs.run_ref import RunRef
from millpond.state.store.store import MissingError
from millpond.state.tables.error_rows import ERRORS_SPEC


def cache_totals(reports: Sequence[Report]) -> dict[str, dict[str, int]]:
    """What the disk caches of all tasks did: files found, files fetched and their bytes."""
    counters = [r.metrics["cache"] for r in reports if "cache" in r.metrics]
    if not counters:
        return {}
    return {"cache": {name: sum(one[name] for one in counters) for name in counters[0]}}


class EpochRunner:
    """Runs the epochs of one program."""

    def __init__(
        self,
        worker: Worker,
        engine: Engine,
        epochs: Epochs,
        program: RunningProgram,
        *,
        checks: bool,
        vectorize_user_code: bool,
        options: Mapping[str, Any],
    ) -> None:
        self._worker = worker
        self._engine = engine
        self._epochs = epochs
        self._program = program
        self._checks = checks
        self._vectorize_user_code = vectorize_user_code
        self._options = dict(options)
        self._depths: dict[tuple[frozenset[str], LocalLookups], int] = {}  # see `_depth`
        self._each = tuning.ROWS_PER_USER_CALL if user_codes(program.plan) else 1
        self._took: list[int] = []  # how long each task of the last epoch took, in microseconds

    def run(self, ask: RunEpoch) -> Ran | RunFailed:
        started = time.perf_counter()
        engine = self._engine
        if isinstance(engine, PlacingEngine) and not engine.placement:
            engine.placement = _placed_before(ask.base)
        try:
            spec = self._spec(ask)
            reports = self._epochs.run(spec) if ask.admitted or ask.due or ask.arrivals else []
            outcome = self._outcome(ask, spec, reports)
        except MissingError as error:
            return RunFailed(missing_file_error(self._worker.store, ask.base, error))
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
        by_step = by_scan({step: self._restored(step, splits) for step, splits in ask.admitted.items()})
        rows = {step: sum(s.rows for s in of_step) for step, of_step in by_step.items()}
        tasks = self._tasks(ask, sum(rows.values()))
        off = passes_off()
        parts = self._parts(ask) if tasks == 1 and off.isdisjoint({"plan_parts", "single_task"}) else 1
        may_be_local = parts == 1 and "local_lookup" not in off  # parts exchange nothing anyway
        local_lookups = find_local_lookups(self._program.plan, rows) if may_be_local else NO_LOCAL_LOOKUPS
        moved = [s.step for scan in ask.arrivals for s in self._program.levels.watermarks.fed_by(scan)]
        due = [self._program.step_of_table[table] for table in ask.due]
        # Windows may read from in front of the watermark step that closes them.
        depth = self._depth([*by_step, *due, *moved, *ask.arrivals], local_lookups)
        splits = sum(len(s) for step, s in by_step.items() if step not in local_lookups.shared)
        first = max(1, min(tasks, splits))
        whole = self._program.levels.watermarks.whole
        parallelism = (parts,) * depth if parts > 1 else (first, *[tasks] * (depth - 1))
        return EpochSpec(
            self._worker.store.uri,
            self._program.catalog,
            ask.epoch,
            ask.token,
            ask.now_us,
            parallelism,
            spread(by_step, 1) * parts if parts > 1 else spread(by_step, first, local_lookups.shared, whole),
            ask.base.pages,
            ask.base.recent,
            ask.base.gone,
            ask.base.watermarks,
            ask.base.roots,
            self._checks,
            options=self._options,
            in_parts=parts > 1,
            local_lookups=local_lookups,
            vectorize_user_code=self._vectorize_user_code,
            log_buckets=ask.log_buckets,
            arrivals=ask.arrivals,
        )

    def _restored(self, step: str, splits: tuple[Split, ...]) -> tuple[Split, ...]:
        """The splits; the source makes those that are read again if they carried data."""
        source = self._program.sources.get(step)
        if not isinstance(source, RestoresSplits):
            return splits
        return tuple(
            replace(source.again(s.what), sample=s.sample, recovers=True) if s.recovers else s for s in splits
        )

    def _parts(self, ask: RunEpoch) -> int:
        """The number of parts in which the plan runs, for an epoch with few rows but many steps."""
        most = min(ask.parallelism, self._engine.default_parallelism)
        if most == 1 or sum(self._before(ask)) < tuning.PLAN_PARTS_US:
            return 1
        while most > (parts := len(self._worker.parts(self._program.catalog, most))):
            most = parts
        return most

    def _tasks(self, ask: RunEpoch, rows: int) -> int:
        """The number of tasks of an epoch.

        The fixed cost of a step is paid in every task, so one task processes a few rows faster than several.
        Rows in time buckets count, too, as any epoch may close them.  If the last epoch was slow, all tasks
        are used.
        """
        single_task_rows_max = self._engine.single_task_rows_max
        before = self._before(ask)
        if not single_task_rows_max or self._checks or not before:
            return ask.parallelism
        if max(before) > tuning.QUICK_TASK_US + tuning.QUICK_STEP_US * len(self._program.plan.nodes):
            return ask.parallelism
        rows = self._each * (rows + ask.waiting // tuning.WAITING_ROWS_PER_ROW)
        return max(1, min(ask.parallelism, -(-rows // single_task_rows_max)))

    def _before(self, ask: RunEpoch) -> list[int]:
        """How long tasks took when any last ran: a commit of merges or cursors runs none."""
        return self._took or ask.base.metrics.get("tasks_us") or []

    def _depth(self, active: Iterable[str], local_lookups: LocalLookups) -> int:
        """The number of levels to run: those that active steps reach, by their rows or the time they move."""
        first = frozenset(step for step in active if step in self._program.plan.nodes)
        if (first, local_lookups) not in self._depths:
            reached = moved_by(self._program.plan, first, self._program.levels.watermarks.heard_by)
            levels = (
                self._worker.plan(self._program.catalog, local_lookups=local_lookups)[1]
                if local_lookups.lookups
                else self._program.levels
            )
            self._depths[first, local_lookups] = 1 + max((levels.level_of[s] for s in reached), default=0)
        return self._depths[first, local_lookups]

    def _outcome(self, ask: RunEpoch, spec: EpochSpec, reports: list[Report]) -> EpochOutcome:
        observed: watermarks.Observed = {}
        counts: dict[str, int] = {}
        drops: dict[str, int] = {}
        runs: list[RunRef] = []
        steps_us: dict[str, int] = {}
        ran: dict[str, dict[str, int]] = {}  # by method: the steps that ran with it, and their output rows
        rows = written = 0
        for report in reports:
            watermarks.hear(observed, report.watermarks)
            runs.extend(report.runs)
            for name, count in report.counts.items():
                counts[name] = counts.get(name, 0) + count
            for table, bucket in report.drops:
                if drops.setdefault(table, bucket) != bucket:
                    raise InternalError(
                        "tasks disagree on which buckets have expired",
                        detail=f"table {table!r}: bucket {bucket} and {drops[table]}",
                        epoch=ask.epoch,
                    )
            for way, steps in report.metrics["ran"].items():
                gave = ran.setdefault(way, {})
                for step, count in steps.items():
                    gave[step] = gave.get(step, 0) + count
            for step, us in report.metrics["steps_us"].items():
                steps_us[step] = steps_us.get(step, 0) + us
            rows += report.metrics["rows_in"]
            written += report.metrics["bytes_written"]
        advances: dict[str, Advance] = {}
        for step in sorted({*ask.admitted, *ask.rejects}):
            admitted, bad = ask.admitted.get(step, ()), ask.rejects.get(step, ())
            splits = tuple(s for s in admitted if not s.recovers)  # the position is past the others already
            if not splits and not bad:
                continue
            if step == INBOX:
                numbers = [int(s.what["entry"]) for s in splits] + [int(number) for number, _ in bad]
                advances[step] = Advance(max(numbers) + 1)
            else:
                advances[step] = self._program.sources[step].advance(
                    ask.base.positions.get(step), splits, bad
                )
        if any(report.metrics.get("errors_ended") for report in reports):
            fresh = [r for r in runs if r.table == ERRORS]
            runs = [*(r for r in runs if r.table != ERRORS), *self._settled(ask, fresh)]
        runs.extend(self._driver_rows(ask, advances, counts))
        metrics = {
            "rows": rows,
            "bytes_written": written,
            "tasks": list(spec.parallelism),
            "steps_us": steps_us,
            "ran": ran,
            **({"passes_off": sorted(spec.passes_off)} if spec.passes_off else {}),
            "tasks_us": [r.metrics["us"] for r in reports],
            "levels_us": _levels_us(reports),
            "sources": {
                step: [sum(s.rows for s in splits), sum(s.bytes for s in splits)]
                for step, splits in by_scan(ask.admitted).items()
            },
            **cache_totals(reports),
            **_hosts(reports),
            **self._placed(),
        }
        watermark_states = settled(
            ask.base.watermarks, observed, ask.arrivals, ask.now_us, self._program.levels.watermarks
        )
        return EpochOutcome(tuple(runs), drops, counts, watermark_states, advances, metrics)

    def _placed(self) -> dict[str, Any]:
        placed = self._engine.placement if isinstance(self._engine, PlacingEngine) else ()
        return {PLACED: _numbered(placed)} if placed else {}

    def _driver_rows(
        self, ask: RunEpoch, advances: Mapping[str, Advance], counts: dict[str, int]
    ) -> list[RunRef]:
        """Write the rows that the coordinator adds to the epoch: sources' own tables, rejected input."""
        writer = PackedWriter()
        for step, advance in advances.items():
            if advance.seen is not None and advance.seen.num_rows:
                spec = self._program.sources[step].table(step)
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
        name = run_names.new_name(ask.token, ask.epoch, run_names.COORDINATOR)
        run_names.put_run(self._worker.store, name, buffers)
        return [i.ref(name, lo=ask.epoch, hi=ask.epoch, kind="delta") for i in infos]

    def _settled(self, ask: RunEpoch, fresh: Sequence[RunRef]) -> tuple[RunRef, ...]:
        """Move retractions of error rows to the buckets of their rows; drop them if those were dropped."""
        stored = Listing.of(ask.base, self._worker.pages).runs(ERRORS)
        moved = settled_errors(self._worker, fresh, stored, ask.log_buckets.get(ERRORS))
        return write_errors(self._worker, moved, ask.token, ask.epoch, task=SETTLED)


def _hosts(reports: Sequence[Report]) -> dict[str, Any]:
    """Where each task ran, in the order of `tasks_us`: names, and the number of the name of each task.

    Nothing if all tasks ran on one host.
    """
    hosts = _numbered([str(r.metrics.get("host", "")) for r in reports])
    return {"hosts": hosts} if len(hosts["names"]) > 1 else {}


def _numbered(hosts: Sequence[str]) -> dict[str, Any]:
    """The distinct names of hosts, and for each task the index of its host.

    >>> _numbered(["b", "a", "b"])
    {'names': ['a', 'b'], 'of': [1, 0, 1]}
    """
    names = sorted(set(hosts))
    places = {name: n for n, name in enumerate(names)}
    return {"names": names, "of": [places[host] for host in hosts]}


def _placed_before(head: Manifest) -> tuple[str, ...]:
    """The placement that the newest manifest has: its hosts have the runs in their caches."""
    placed = head.metrics.get(PLACED)
    return tuple(placed["names"][n] for n in placed["of"]) if placed else ()


def _levels_us(reports: Sequence[Report]) -> list[list[int]]:
    """By level: how long its slowest task took, and all its tasks together."""
    took: dict[int, list[int]] = {}
    for report in reports:
        took.setdefault(report.level, []).append(report.metrics["us"])
    return [[max(took[level]), sum(took[level])] for level in sorted(took)]
