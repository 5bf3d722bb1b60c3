"""Answers prepared queries that read the row of one key, without parsing, binding or opening anything.

The plan of a query belongs to one program (the catalog that a manifest names); it is kept until another one
is read.

Law: it gives the row that the query gives at the newest epoch, or None: then the query runs as any other.
The event loop reads rows only from files that are open and local: they are mapped, and reading one is
quicker than waking a thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millpond.serve.newest_keys import NewestKeys
from millpond.sql.reads.point_plan import NotThisPlanError, PointPlan, point_plan
from millpond.sql.session import SqlSession
from millpond.sql.text.duckdb_text import readable
from millpond.sql.text.parameters import for_duckdb, marks
from millpond.sql.text.parse import SqlFragment
from millpond.state.manifest.manifest import Manifest
from millpond.state.runs.cells import Cell
from millpond.state.store.location import is_local
from millpond.state.tables.key_rows import KeyRows

PLANS_MAX = 1024


@dataclass(frozen=True)
class PlannedRead:
    """The plan of a statement in one program; without one, the statement is no point read."""

    catalog: str | None
    plan: PointPlan | None

    @property
    def plan_types(self) -> tuple[str, ...]:
        return () if self.plan is None else self.plan.types


@dataclass(frozen=True)
class PointRow:
    """The cells of the row that was found; None if there is none."""

    plan: PointPlan
    epoch: int
    cells: Sequence[Cell] | None


class NotOpenError(Exception):
    """The table is not open at the newest epoch, or its files are not local."""


class PointReads:
    """The plans and open tables of one server; thread-safe."""

    def __init__(self, uri: str) -> None:
        self._is_local = is_local(uri) or uri.startswith("memory:")
        self._keys: NewestKeys | None = None
        self._plans: OrderedDict[str, PlannedRead] = OrderedDict()  # by text
        self._lock = threading.Lock()

    def planned(self, session: SqlSession, fragment: SqlFragment) -> PlannedRead:
        """The plan of a statement in the program of now; this may parse the text."""
        if self._keys is None:
            self._keys = NewestKeys(session.host.pinned)
        catalog, text = session.host.program()[1], fragment.sql
        with self._lock:
            known = self._plans.get(text)
            if known is not None and known.catalog == catalog:
                self._plans.move_to_end(text)
                return known
        with session.lock:
            made = PlannedRead(catalog, _plan(session, fragment))
        with self._lock:
            self._plans[text] = made
            while len(self._plans) > PLANS_MAX:
                self._plans.popitem(last=False)
        return made

    def open(self, known: PlannedRead) -> None:
        """Open the table of a statement at the newest epoch; this reads files."""
        if known.plan is not None and self._keys is not None:
            self._keys.open(known.plan.spec)

    def committed(self, manifest: Manifest) -> None:
        """This process has committed an epoch; called in the thread of the pipeline."""
        if self._keys is not None:
            self._keys.committed(manifest)

    def read(self, known: PlannedRead, params: Sequence[Any], *, in_loop: bool) -> PointRow | None:
        """The row of a key at the newest epoch; None if the program or the types of values are others.

        In the event loop no file but small manifests is read: NotOpenError if one would have to be.
        """
        plan, keys = known.plan, self._keys
        if plan is None or known.catalog is None or keys is None:
            return None
        try:
            key = plan.key_of(params)
        except NotThisPlanError:
            return None
        opened: tuple[Manifest, KeyRows] | None = None
        if self._is_local or not in_loop:
            opened = keys.ready(plan.spec)
            if opened is None:
                keys.follow()
                opened = keys.ready(plan.spec)
        if opened is None:
            if in_loop:
                raise NotOpenError
            opened = keys.open(plan.spec)
        if opened is None or opened[0].catalog != known.catalog:
            return None
        cells = None if key is None else opened[1].find(key, plan.columns)
        return PointRow(plan, opened[0].epoch, cells)


def _plan(session: SqlSession, fragment: SqlFragment) -> PointPlan | None:
    if fragment.word(0) != "SELECT" or any(fragment.has(n, "AS", "OF") for n in range(len(fragment))):
        return None
    numbers = [which for _, _, which in marks(fragment.tokens, None)]
    if not all(isinstance(which, int) for which in numbers):
        return None
    nothing: list[Any] = [None] * max((int(which) for which in numbers), default=0)
    return point_plan(session.catalog, readable(for_duckdb(fragment, nothing)[0]))
