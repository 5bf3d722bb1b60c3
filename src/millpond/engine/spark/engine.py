"""The Spark engine: runs the levels of an epoch as one Spark job.

It uses the user's own session after checking its settings, or makes one.
State is not bound to an executor (law 4), so executors may be added and removed.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from millpond import tuning
from millpond.engine.engine import collect_reports
from millpond.engine.spark import credential_files
from millpond.engine.spark.chain import LevelFn, SparkChain
from millpond.engine.spark.executor_requests import ExecutorRequests
from millpond.engine.spark.executors import ExecutorWatch, OnWait, core_count, executor_count
from millpond.engine.spark.masters import is_local_master
from millpond.engine.spark.preferred_hosts import HostPlacement
from millpond.engine.spark.session import check_session, is_running, make_session
from millpond.engine.spark.store_access import check_store_access
from millpond.engine.spark.warm_up import Rehearsal, warm
from millpond.engine.task.frames import Raw
from millpond.engine.task.level import LevelTask
from millpond.engine.task.single_task import run_all_levels
from millpond.engine.task.spec import EpochSpec, Report
from millpond.state.store import shared_credentials
from millpond.state.store.shared_credentials import by_reference

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

    def __init__(self, session: Any = None, *, on_wait: OnWait | None = None, **options: Any) -> None:
        self._own = session is None and not is_running()  # a session that the user started is the user's
        if session is None:
            session = make_session(**options)
        self.session = session
        self._context = session.sparkContext
        self._on_cluster = not is_local_master(self._context.master)
        if self._context not in _ready:
            for advice in check_session(session, on_wait):
                warnings.warn(advice, stacklevel=3)
        # On a cluster it is asked again at every use: executors come and go.
        self._cores = core_count(self._context)
        self.chain = SparkChain(session)
        self._watch = ExecutorWatch(self._context, self.chain.is_busy, on_wait) if self._on_cluster else None
        requests = ExecutorRequests(self._context) if self._on_cluster else None
        self.executors = requests if requests is not None and requests.supported else None
        self._placement = HostPlacement(self._context) if self._on_cluster else None
        self._checked: set[str] = set()  # stores that the executors have opened
        if self._context not in _ready:
            self._rehearse()
            _ready.add(self._context)

    @property
    def default_parallelism(self) -> int:
        """The number of cores; on a cluster, those of the executors that are registered now."""
        if self._on_cluster and executor_count(self._context):
            self._cores = core_count(self._context)
        return self._cores

    def shared(self, uri: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options with which tasks open the store; InvalidError if an executor cannot read it."""
        store_options = by_reference(options)
        if shared_credentials.OPTION in store_options:
            credential_files.share(self._context, store_options[shared_credentials.OPTION])
        if self._on_cluster and uri not in self._checked:
            check_store_access(self.chain, uri, store_options, self.default_parallelism)
            self._checked.add(uri)
        return store_options

    def _rehearse(self) -> None:
        """Run an exchange between all cores, so that workers and JVM are warm for the first epoch."""
        warm()  # the driver writes rows, too
        cores = min(self.default_parallelism, REHEARSE_MAX)
        self.chain.run([Rehearsal(cores), Rehearsal(1)], [cores, cores], description="millpond rehearsal")

    @property
    def placement(self) -> tuple[str, ...]:
        return () if self._placement is None else self._placement.last

    @placement.setter
    def placement(self, hosts: tuple[str, ...]) -> None:
        if self._placement is not None:
            self._placement.last = hosts

    def run(self, spec: EpochSpec) -> list[Report]:
        title = f"millpond epoch {spec.epoch}"
        one = self.single_task_rows_max and len(spec.parallelism) > 1 and set(spec.parallelism) == {1}
        one = one and "single_task" not in spec.passes_off
        # With as many tasks in each level, task t of all levels has the same hash range, and the same host.
        ahead = not self._on_cluster or (bool(self.placement) and len(set(spec.parallelism)) == 1)
        depth = len(spec.parallelism)
        levels: list[LevelFn] = [LevelTask(spec, level, ahead and level == 0) for level in range(depth)]
        if one or spec.in_parts:
            levels = [SingleTaskJob(spec)]
        hosts_of = None if self._placement is None else self._placement.hosts
        frames = self.chain.run(levels, spec.parallelism[: len(levels)], description=title, hosts_of=hosts_of)
        return collect_reports(spec, frames)

    def map(self, function: Callable[[bytes], bytes], items: Sequence[bytes]) -> list[bytes]:
        # One core stays free for the chain.
        return self.chain.map(function, items, min(len(items), max(1, self.default_parallelism - 1)))

    def cancel(self) -> None:
        self.chain.cancel()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        if self._own:
            self.session.stop()
