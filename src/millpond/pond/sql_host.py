"""The pond as SQL sees it: implements `sql/host.py`.

Law: it only forwards.  What users can call goes to the methods of `Pond`, so that SQL and Python make the
same checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.clock import Clock
from millpond.engine.change.backfill import Progress
from millpond.plan.nodes import Plan
from millpond.plan.sink_check import SinkStatus
from millpond.pond.inbox_client import InboxClient
from millpond.secret_references import secrets_from
from millpond.serve import state_inspection
from millpond.serve.epoch_summaries import EpochSummary
from millpond.serve.reader import Delta
from millpond.serve.system_relations import RELATIONS, Known
from millpond.settings import Settings
from millpond.sql.host import EpochOrName, Job
from millpond.sql.session import SqlSession
from millpond.state.manifest.manifest import Manifest
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.secret_files import SecretFiles
from millpond.state.store.store import Store
from millpond.state.tables.table_spec import TableSpec

if TYPE_CHECKING:
    from millpond.pond.api import Pond


class SqlHost:
    def __init__(self, pond: Pond, inbox: InboxClient) -> None:
        self._pond = pond
        self._components = inbox.components
        self._execution = inbox.execution
        self._inbox = inbox
        self._last_written: int | None = None

    @property
    def store(self) -> Store:
        return self._components.store

    @property
    def settings(self) -> Settings:
        return self._components.settings

    @property
    def clock(self) -> Clock:
        return self._components.clock

    def program(self) -> tuple[Plan, str | None]:
        runner, builder = self._execution.runner, self._components.builder
        if runner is not None:
            return runner.shell.plan, runner.shell.catalog
        if builder.plan.nodes and not builder.sealed:
            return builder.plan, None  # defined in this process and not run yet
        head = self._components.head()
        return (Plan(), None) if head is None else (self._components.reader.plan_of(head), head.catalog)

    def is_changing(self) -> bool:
        builder = self._components.builder
        return self._execution.runner is not None and bool(builder.plan.nodes) and not builder.sealed

    def change(
        self, plan: Plan, *, on_progress: Callable[[Any], None] | None = None, base: str | None = None
    ) -> int:
        return self._pond.change(plan, on_progress=on_progress, base=base)

    def create_first_epoch(self) -> None:
        self._execution.boot_now()

    def insert(self, scan: str, rows: pa.Table) -> int:
        self._last_written = number = self._inbox.rows(scan, rows, 1)
        return number

    def row_entry(self, scan: str, rows: pa.Table) -> tuple[dict[str, Any], bytes]:
        return self._inbox.row_entry(scan, rows)

    def append(self, kind: str, args: Mapping[str, Any], payload: bytes = b"") -> int:
        self._last_written = number = self._inbox.put(kind, args, payload)
        return number

    @property
    def last_written(self) -> int | None:
        return self._last_written

    def wait_executed(self, number: int) -> None:
        self._inbox.wait_executed(number)

    def epoch_of(self, number: int) -> int:
        return self._inbox.epoch_of(number)[0]

    def flush(self, timeout_s: float) -> int:
        return self._pond.flush(timeout_s)

    def find_head(self) -> Manifest | None:
        return self._components.head()

    def head(self) -> Manifest:
        return self._components.reader.head()

    def watermarks(self) -> pa.Table:
        return self._pond.watermarks()

    def source_lag(self) -> pa.Table:
        return self._pond.source_lag()

    def shedding(self) -> pa.Table:
        return self._pond.shedding()

    def shed(self, source: str, target_lag: str | None, **options: Any) -> None:
        self._pond.shed(source, target_lag, **options)

    def scaling(self) -> pa.Table:
        return self._pond.scaling()

    def plan_of(self, manifest: Manifest) -> Plan:
        return self._components.reader.plan_of(manifest)

    def pinned(self, epoch: EpochOrName = None) -> AbstractContextManager[Snapshot]:
        return self._components.reader.pinned(epoch)

    def pinned_range(self, first: int, last: int) -> AbstractContextManager[tuple[Snapshot, Snapshot]]:
        return self._components.reader.pinned_range(first, last)

    def changes(self, view: str, since: int | None, *, follow: bool) -> Iterator[Delta]:
        return self._pond.changes(view, since, follow=follow)

    def epochs(self) -> Sequence[EpochSummary]:
        return self._pond.epochs()

    def diff(self, view: str, e1: int | str, e2: int | str) -> pa.Table:
        return self._components.reader.diff(view, e1, e2)

    def system_relations(self) -> Mapping[str, pa.Schema]:
        return {name: schema for name, (schema, _) in RELATIONS.items()}

    def system_rows(self, name: str, snapshot: Snapshot) -> Iterator[pa.Table]:
        head = self._components.head()
        is_newest = head is None or head.epoch <= snapshot.epoch
        plan, seen = self.plan_of(snapshot.manifest), self._components.reader.epoch_rows
        known = Known(snapshot, plan, is_newest, self._pond.sinks, seen)
        with secrets_from(SecretFiles(self.store).value):
            yield from RELATIONS[name][1](known)

    def state_table(self, snapshot: Snapshot, step: str, name: str) -> tuple[TableSpec, list[str]]:
        return state_inspection.state_table(self.plan_of(snapshot.manifest), step, name)

    def state_batches(self, snapshot: Snapshot, spec: TableSpec, keys: pa.Table | None) -> Iterator[pa.Table]:
        plan = self.plan_of(snapshot.manifest)
        if keys is None:
            return state_inspection.state_batches(snapshot, plan, spec)
        return iter([state_inspection.rows_of_keys(snapshot, plan, spec, keys)])

    def savepoints(self) -> Mapping[str, int]:
        return self._pond.savepoints()

    def savepoint(self, name: str) -> None:
        self._pond.savepoint(name)

    def drop_savepoint(self, name: str) -> None:
        self._pond.drop_savepoint(name)

    def attach_sink(self, name: str, *, replay: bool) -> None:
        self._pond.attach_sink(name, replay=replay)

    def sinks(self) -> Sequence[SinkStatus]:
        return self._pond.sinks()

    def detach_sink(self, name: str, *, pause: bool = False) -> None:
        self._inbox.switch_sink(name, attach=False, pause=pause)

    def backfill_progress(self) -> Progress | None:
        return self._pond._listeners.progress

    def background_jobs(self) -> Iterator[Job]:
        runner = self._execution.runner
        if runner is None:
            return
        coordinator = runner.coordinator
        merge, head, failed = coordinator.compacting, coordinator.head, coordinator.sink_errors
        if merge is not None:
            runs = f"{len(merge.refs)} runs"
            yield Job("compaction", merge.table, "running", None, merge.bytes, "bytes", runs)
        newest = None if head is None else head.epoch
        for sink, at in sorted(coordinator.behind.items()):
            state = "failed" if sink in failed else "behind"
            note = failed[sink].message if sink in failed else None
            yield Job("delivery", sink, state, at, newest, "epochs", note)


def new_session(pond: Pond, inbox: InboxClient) -> SqlSession:
    """A session that runs statements over a pond."""
    return SqlSession(SqlHost(pond, inbox))
