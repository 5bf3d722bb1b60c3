"""The caches of one process between tasks: open files, decoded pages, plans.

Nothing here is state (law 4): every entry is immutable content under a name
that is never reused, so a cache can be lost, or be in another process, and only
the time that a task takes changes.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millpond.engine.task.optimizer import optimize
from millpond.engine.task.plan_parts import PlanPart, parts
from millpond.engine.task.spec import EpochSpec
from millpond.engine.task.task_plan import TaskPlan, unoptimized
from millpond.plan import codec
from millpond.plan.levels import Levels, cut
from millpond.plan.local_lookup import NO_LOCAL_LOOKUPS, LocalLookups
from millpond.plan.nodes import Plan
from millpond.state.manifest.listing import Listing, PageCache
from millpond.state.manifest.pins import Pin
from millpond.state.plan_file import read_plan
from millpond.state.runs import run_names
from millpond.state.runs.open_files import OpenFiles
from millpond.state.runs.packed import PackedFile
from millpond.state.store.disk_cache import folder_of_host
from millpond.state.store.store import Store, open_store
from millpond.state.store.waiting_store import waiting_store
from millpond.state.trust import Trust

PLANS_MAX = 64  # programs in the cache


class Worker:
    """The caches of one process for one store; thread-safe."""

    def __init__(
        self,
        store: Store,
        roots: dict[str, Store] | None = None,
        trust: Trust | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.store = store
        self.trust = trust or Trust(store)  # in code that is stored in the pond
        self.pages = PageCache(store)
        self._files = OpenFiles(store, roots, options)
        # As read from the store, or as this process defined them; the most recently used are last.
        self._plans: OrderedDict[str, Plan] = OrderedDict()
        self._runnable: dict[str, Plan] = {}
        self.plan_pins: dict[str, Pin] = {}  # of plans that this process saved and nothing names yet
        self._levels: dict[tuple[str, bool, LocalLookups], Levels] = {}
        self._parts: dict[tuple[str, int], tuple[PlanPart, ...]] = {}
        self._task_plans: dict[tuple[str, Any], TaskPlan] = {}
        self._lock = threading.Lock()

    def open_file(self, name: str) -> PackedFile:
        return self._files.open(name)

    def has_open(self, name: str) -> bool:
        return self._files.has(name)

    @property
    def crowded(self) -> bool:
        """Have enough files been opened since the last trim to make another one worthwhile?"""
        return self._files.crowded

    def trim(self, listing: Listing) -> None:
        """Close files that an epoch does not name."""
        if self.crowded:
            self._files.trim(listing.files())

    def store_of(self, name: str) -> Store:
        """The store of a file; the runs of a fork may be in its parent: ``<uri>!<name>``."""
        return self._files.store_of(name)

    def description(self, catalog: str) -> Plan:
        """A plan for reading: its user code is not loaded, unless this process defined the plan."""
        plan = self._used(catalog)
        if plan is None:
            plan = self._plans[catalog] = codec.read(
                read_plan(self.store, catalog), self.trust.guard(catalog)
            )
            self._forget_old_plans()
        return plan

    def _used(self, catalog: str) -> Plan | None:
        with self._lock:
            if catalog in self._plans:
                self._plans.move_to_end(catalog)
            return self._plans.get(catalog)

    def plan(
        self, catalog: str, full_rows: bool = False, local_lookups: LocalLookups = NO_LOCAL_LOOKUPS
    ) -> tuple[Plan, Levels]:
        """A plan for running; this loads the code that is stored in it."""
        self._used(catalog)
        plan = self._runnable.get(catalog)
        if plan is None:
            plan = self._runnable[catalog] = codec.with_code(self.description(catalog))
        levels = self._levels.get((catalog, full_rows, local_lookups))
        if levels is None:
            levels = self._levels[catalog, full_rows, local_lookups] = cut(plan, full_rows, local_lookups)
        return plan, levels

    def parts(self, catalog: str, count: int) -> tuple[PlanPart, ...]:
        """The parts of a plan for this many independent tasks."""
        known = self._parts.get((catalog, count))
        if known is None:
            known = self._parts[catalog, count] = parts(self.plan(catalog)[0], count)
        return known

    def task_plan(
        self, spec: EpochSpec, level: int, part: PlanPart | None = None, single_task: bool = False
    ) -> TaskPlan:
        """The physical plan of a task; cached for each program and way to run an epoch."""
        key = (spec.catalog, (level, spec.full_rows, spec.local_lookups, part, single_task, spec.passes_off))
        known = self._task_plans.get(key)
        if known is None:
            plan, levels = self.plan(spec.catalog, spec.full_rows, spec.local_lookups)
            first = unoptimized(plan, levels, level, single_task=single_task, part=part)
            known = self._task_plans[key] = optimize(first, spec.passes_off)
        return known

    def know_plan(self, catalog: str, plan: Plan) -> None:
        """Cache a plan that this process defined, with its live objects."""
        self.forget_plan(catalog)
        self._plans[catalog] = plan
        self._forget_old_plans()

    def _forget_old_plans(self) -> None:
        """Evict the least recently used plans."""
        while len(self._plans) > PLANS_MAX:
            self.forget_plan(next(iter(self._plans)))

    def forget_plan(self, catalog: str) -> None:
        self._plans.pop(catalog, None)
        self._runnable.pop(catalog, None)
        self._levels = {key: levels for key, levels in self._levels.items() if key[0] != catalog}
        self._parts = {key: levels for key, levels in self._parts.items() if key[0] != catalog}
        self._task_plans = {key: levels for key, levels in self._task_plans.items() if key[0] != catalog}


def local_name(name: str) -> str:
    return run_names.split_pond(name)[1]


_workers: dict[tuple[int, str], Worker] = {}


def worker_for(uri: str, make: Callable[[], Store] | None = None, **options: Any) -> Worker:
    """The worker of this process for a store; a forked process makes a new one."""
    key = (os.getpid(), uri)
    known = _workers.get(key)
    if known is None:
        store = make() if make else open_store_here(uri, options)
        # The sender was asked to confirm trust.
        known = Worker(store, trust=Trust(store, is_trusted=True), options=options)
        _workers[key] = known
    return known


def open_store_here(uri: str, options: Mapping[str, Any]) -> Store:
    """Open the store of a task: with the cache folder of this host, and waiting for it from the start on."""
    own_options = dict(options)
    if "cache" in own_options:
        own_options["cache"] = str(folder_of_host(Path(str(own_options["cache"]))))
    store = open_store(uri, **own_options)
    waiting = waiting_store(store)
    if waiting is not None:
        waiting.answered = True  # to the driver: the address is right
    return store
