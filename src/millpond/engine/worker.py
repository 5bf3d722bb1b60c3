"""What one process keeps between tasks: opened files, decoded pages, plans.

Nothing here is state (law 4): every entry is immutable content under a name
that is never used twice, so a cache can be lost, or be in another process,
and nothing changes but time.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from millpond.engine.parts import Part, parts
from millpond.engine.together import Together, together
from millpond.plan import codec
from millpond.plan.levels import Levels, cut
from millpond.plan.near import NOWHERE, Near
from millpond.plan.nodes import Plan
from millpond.state.listing import Listing, PageCache
from millpond.state.packed import PackedFile
from millpond.state.pins import Pin
from millpond.state.plan_file import read_plan
from millpond.state.store import Store, open_store
from millpond.state.trust import Trust

FILES_OPEN = 2048
PLANS_MAX = 64  # programs that are kept in memory
FILES_SPARE = 64  # open files that may be of no use to the newest epoch


class Worker:
    """The caches of one process for one store; for any number of threads."""

    def __init__(
        self, store: Store, roots: dict[str, Store] | None = None, trust: Trust | None = None
    ) -> None:
        self.store = store
        self.trust = trust or Trust(store)  # of code that is stored in the pond
        self.pages = PageCache(store)
        self._files: OrderedDict[str, PackedFile] = OrderedDict()
        # As they were read, or as this process defined them; those that were used last are behind.
        self._plans: OrderedDict[str, Plan] = OrderedDict()
        self._runnable: dict[str, Plan] = {}
        self.plan_pins: dict[str, Pin] = {}  # of plans that this process saved, and nothing names yet
        self._levels: dict[tuple[str, bool, Near], Levels] = {}
        self._parts: dict[tuple[str, int], tuple[Part, ...]] = {}
        self._together: dict[tuple[str, int, bool, Near, Part | None], Together] = {}
        self._roots = roots or {}
        self._room = FILES_SPARE  # files that may be open before it is asked which of them are of use
        self._lock = threading.Lock()

    def open_file(self, name: str) -> PackedFile:
        found = self._files.get(name)
        if found is not None and len(self._files) < FILES_OPEN // 2:
            return found  # nothing will be let go for its age: no need to note that it was used
        with self._lock:
            found = self._files.get(name)
            if found is not None:
                self._files.move_to_end(name)
                return found
        opened = PackedFile.open(name, self.store_of(name).map(local_name(name)))
        with self._lock:
            found = self._files.setdefault(name, opened)
            while len(self._files) > FILES_OPEN:
                self._files.popitem(last=False)
        return found

    @property
    def crowded(self) -> bool:
        """Have enough files been opened since the last trim for another to be worth it?"""
        return len(self._files) > self._room

    def trim(self, listing: Listing) -> None:
        """Let go of files that an epoch does not name: a merged file that is open keeps its disk."""
        if not self.crowded:
            return
        live = listing.files()
        with self._lock:
            for name in [n for n in self._files if n not in live]:
                del self._files[name]
            self._room = FILES_SPARE + len(self._files)

    def store_of(self, name: str) -> Store:
        """A fork's runs may lie in its parent: ``<uri>!<name>``."""
        uri, mark, _ = name.rpartition("!")
        if not mark:
            return self.store
        if uri not in self._roots:
            self._roots[uri] = open_store(uri)
        return self._roots[uri]

    def description(self, catalog: str) -> Plan:
        """A plan to read by: user code in it is not loaded, unless it is this process's own."""
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

    def plan(self, catalog: str, whole: bool = False, near: Near = NOWHERE) -> tuple[Plan, Levels]:
        """A plan to run; this loads the code that is stored in it."""
        self._used(catalog)
        plan = self._runnable.get(catalog)
        if plan is None:
            plan = self._runnable[catalog] = codec.with_code(self.description(catalog))
        levels = self._levels.get((catalog, whole, near))
        if levels is None:
            levels = self._levels[catalog, whole, near] = cut(plan, whole, near)
        return plan, levels

    def parts(self, catalog: str, count: int) -> tuple[Part, ...]:
        """What so many tasks can run apart."""
        found = self._parts.get((catalog, count))
        if found is None:
            found = self._parts[catalog, count] = parts(self.plan(catalog)[0], count)
        return found

    def together(
        self, catalog: str, level: int, whole: bool, near: Near = NOWHERE, part: Part | None = None
    ) -> Together:
        """What the steps of a level ask together."""
        found = self._together.get((catalog, level, whole, near, part))
        if found is None:
            plan, levels = self.plan(catalog, whole, near)
            found = together(plan, levels if part is None else part.of(levels), level)
            self._together[catalog, level, whole, near, part] = found
        return found

    def know_plan(self, catalog: str, plan: Plan) -> None:
        """The driver already holds the plan, with its live objects."""
        self.forget_plan(catalog)
        self._plans[catalog] = plan
        self._forget_old_plans()

    def _forget_old_plans(self) -> None:
        """Programs change: those that were used last are kept in memory, others are read again."""
        while len(self._plans) > PLANS_MAX:
            self.forget_plan(next(iter(self._plans)))

    def forget_plan(self, catalog: str) -> None:
        self._plans.pop(catalog, None)
        self._runnable.pop(catalog, None)
        self._levels = {key: found for key, found in self._levels.items() if key[0] != catalog}
        self._parts = {key: found for key, found in self._parts.items() if key[0] != catalog}
        self._together = {key: found for key, found in self._together.items() if key[0] != catalog}


def local_name(name: str) -> str:
    return name.rpartition("!")[2]


_workers: dict[tuple[int, str], Worker] = {}


def worker_for(uri: str, make: Callable[[], Store] | None = None, **options: Any) -> Worker:
    """The worker of this process for a store; made anew after a fork."""
    key = (os.getpid(), uri)
    found = _workers.get(key)
    if found is None:
        store = make() if make else open_store(uri, **options)
        found = Worker(store, trust=Trust(store, given=True))  # whoever sends tasks was asked
        _workers[key] = found
    return found
