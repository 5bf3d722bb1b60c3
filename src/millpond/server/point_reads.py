"""Answers prepared queries that read the row of one key, without parsing, binding or opening anything.

The plan of a query belongs to one program (the catalog that a manifest names), and the files of a table to
one epoch.  Both are kept until another one is read.

Law: it gives the row that the query gives at the newest epoch, or None: then the query runs as any other.
A row is read in the event loop only from local files: those are mapped, and reading one is quicker than
waking a thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.sql.host import Host
from millpond.sql.reads.point_plan import NotThisPlanError, PointPlan, point_plan
from millpond.sql.session import SqlSession
from millpond.sql.text.parameters import for_duckdb, marks
from millpond.sql.text.parse import SqlFragment, readable
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.store.location import is_local
from millpond.state.tables.key_rows import KeyRows

PLANS_MAX = 1024
TABLES_MAX = 64  # whose files are kept open


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
    """The columns of the row that was found, one value each; None if there is none."""

    plan: PointPlan
    epoch: int
    columns: Sequence[pa.Array] | None


class PointReads:
    """The plans and open tables of one server; thread-safe."""

    def __init__(self, uri: str) -> None:
        self.in_loop = is_local(uri) or uri.startswith("memory:")
        self._host: Host | None = None
        self._plans: OrderedDict[str, PlannedRead] = OrderedDict()  # by text
        self._tables: OrderedDict[str, tuple[int, KeyRows]] = OrderedDict()
        self._lock = threading.Lock()

    def planned(self, session: SqlSession, fragment: SqlFragment) -> PlannedRead:
        """The plan of a statement in the program of now; this may parse the text."""
        self._host = session.host
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

    def read(self, known: PlannedRead, params: Sequence[Any]) -> PointRow | None:
        """The row of a key at the newest epoch; None if the program or the types of values are others."""
        if known.plan is None or known.catalog is None or self._host is None:
            return None
        try:
            key = known.plan.key_of(params)
        except NotThisPlanError:
            return None
        with self._host.pinned() as snapshot:
            if snapshot.manifest.catalog != known.catalog:
                return None
            columns = None
            if key is not None:
                columns = self._table(snapshot, known.plan).find(key, known.plan.columns)
            return PointRow(known.plan, snapshot.epoch, columns)

    def _table(self, snapshot: Snapshot, plan: PointPlan) -> KeyRows:
        name = plan.spec.name
        with self._lock:
            kept = self._tables.get(name)
        if kept is not None and kept[0] == snapshot.epoch:
            return kept[1]
        made = snapshot.key_rows(plan.spec)
        with self._lock:
            self._tables[name] = snapshot.epoch, made
            self._tables.move_to_end(name)
            while len(self._tables) > TABLES_MAX:
                self._tables.popitem(last=False)
        return made


def _plan(session: SqlSession, fragment: SqlFragment) -> PointPlan | None:
    if fragment.word(0) != "SELECT" or any(fragment.has(n, "AS", "OF") for n in range(len(fragment))):
        return None
    numbers = [which for _, _, which in marks(fragment.tokens, None)]
    if not all(isinstance(which, int) for which in numbers):
        return None
    nothing: list[Any] = [None] * max((int(which) for which in numbers), default=0)
    return point_plan(session.catalog, readable(for_duckdb(fragment, nothing)[0]))
