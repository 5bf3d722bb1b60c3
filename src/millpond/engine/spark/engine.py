"""The Spark engine: runs the levels of an epoch as one Spark job.

It uses the user's own session after checking its settings, or makes one.
State is not bound to an executor (law 4), so executors may be added and removed.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from millpond import tuning
from millpond.engine.engine import collect_reports
from millpond.engine.spark.chain import SparkChain
from millpond.engine.spark.session import check_session, make_session
from millpond.engine.spark.warm_up import Rehearsal, warm
from millpond.engine.task.frames import Raw
from millpond.engine.task.level import LevelTask
from millpond.engine.task.single_task import run_all_levels
from millpond.engine.task.spec import EpochSpec, Report

REHEARSE_MAX = 64  # the most tasks of the rehearsal: one per core, or some of the cores of a large cluster

_ready: weakref.WeakSet[Any] = weakref.WeakSet()  # contexts that were checked and rehearsed


class SingleTaskJob:
    """A picklable function that runs all levels of an epoch in one task, without a shuffle."""

    def __init__(self, spec: EpochSpec) -> None:
        self.spec = spec

    def __call__(self, task: int, incoming: Iterator[Raw]) -> Iterator[tuple[int, Raw]]:
        from millpond.engine.task.worker import worker_for

        worker = worker_for(self.spec.store, **self.spec.options)
        return ((0, frame) for frame in run_all_levels(self.spec, worker, task))


class SparkEngine:
    single_task_rows_max = tuning.ROWS_PER_TASK

    def __init__(self, session: Any = None, **options: Any) -> None:
        self._own = session is None
        if session is None:
            session = make_session(**options)
        self.session = session
        self.default_parallelism = max(1, int(session.sparkContext.defaultParallelism))
        if session.sparkContext not in _ready:
            for advice in check_session(session):
                warnings.warn(advice, stacklevel=3)
        self.chain = SparkChain(session)
        if session.sparkContext not in _ready:
            self._rehearse()
            _ready.add(session.sparkContext)

    def _rehearse(self) -> None:
        """Run an exchange between all cores, so that workers and JVM are warm for the first epoch."""
        warm()  # the driver writes rows, too
        cores = min(self.default_parallelism, REHEARSE_MAX)
        self.chain.run([Rehearsal(cores), Rehearsal(1)], [cores, cores], description="millpond rehearsal")

    def run(self, spec: EpochSpec) -> list[Report]:
        told = f"millpond epoch {spec.epoch}"
        one = self.single_task_rows_max and len(spec.parallelism) > 1 and set(spec.parallelism) == {1}
        one = one and "single_task" not in spec.passes_off
        if one or spec.in_parts:
            frames = self.chain.run([SingleTaskJob(spec)], spec.parallelism[:1], description=told)
            return collect_reports(spec, frames)
        levels = [LevelTask(spec, level) for level in range(len(spec.parallelism))]
        return collect_reports(spec, self.chain.run(levels, spec.parallelism, description=told))

    def map(self, function: Callable[[bytes], bytes], items: Sequence[bytes]) -> list[bytes]:
        # One core stays free for the chain.
        return self.chain.map(function, items, min(len(items), max(1, self.default_parallelism - 1)))

    def cancel(self) -> None:
        self.chain.cancel()

    def close(self) -> None:
        if self._own:
            self.session.stop()
