"""The Spark engine: the levels of an epoch as one Spark job.

It takes the user's own session after checking its settings, or makes one.
State has no home (law 4), so executors may come and go.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from millpond.engine.alone import run_alone
from millpond.engine.engine import collect_reports
from millpond.engine.frames import Raw
from millpond.engine.level import LevelTask
from millpond.engine.readiness import Rehearsal, warm
from millpond.engine.spark_chain import SparkChain
from millpond.engine.spark_session import check_session, make_session
from millpond.engine.spec import EpochSpec, Report

REHEARSE_MAX = 64  # tasks of the first small job: one for each core, on a large cluster for some of them

_ready: weakref.WeakSet[Any] = weakref.WeakSet()  # contexts that were checked and have rehearsed


class WholeChain:
    """A picklable function: all levels of an epoch in one task, without a shuffle between."""

    def __init__(self, spec: EpochSpec) -> None:
        self.spec = spec

    def __call__(self, task: int, incoming: Iterator[Raw]) -> Iterator[tuple[int, Raw]]:
        from millpond.engine.worker import worker_for

        worker = worker_for(self.spec.store, **self.spec.options)
        return ((0, frame) for frame in run_alone(self.spec, worker, task))


class SparkEngine:
    rows_alone = 30_000

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
        """An exchange between all cores: workers and JVM have done it before when the first epoch comes."""
        warm()  # the driver writes rows as well
        cores = min(self.default_parallelism, REHEARSE_MAX)
        self.chain.run([Rehearsal(cores), Rehearsal(1)], [cores, cores], description="millpond rehearsal")

    def run(self, spec: EpochSpec) -> list[Report]:
        told = f"millpond epoch {spec.epoch}"
        one = self.rows_alone and len(spec.parallelism) > 1 and set(spec.parallelism) == {1}
        if one or spec.apart:
            frames = self.chain.run([WholeChain(spec)], spec.parallelism[:1], description=told)
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
