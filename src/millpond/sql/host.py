"""What SQL needs of the pond that it runs over.

Law: `sql/` reaches the pond only through `Host`, so it depends neither on how a pond is built nor on the
engine that runs it.  `pond/sql_host.py` implements it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from millpond.clock import Clock
from millpond.plan.nodes import Plan
from millpond.plan.sink_check import SinkStatus
from millpond.settings import Settings
from millpond.state.manifest.manifest import Manifest
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.store.store import Store
from millpond.state.tables.table_spec import TableSpec

EpochOrName = int | str | None  # an epoch, the name of a savepoint, or the newest epoch


class BackfillStatus(Protocol):
    """How far a running backfill is; `total` is an upper estimate."""

    @property
    def steps(self) -> tuple[str, ...]: ...
    @property
    def rows(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def chunks(self) -> int: ...


class EpochChanges(Protocol):
    """What one epoch changed in a view; `table` has the view's columns and the weight `_w`."""

    @property
    def epoch(self) -> int: ...
    @property
    def table(self) -> pa.Table: ...


class EpochFacts(Protocol):
    """What SHOW EPOCHS shows of an epoch."""

    @property
    def epoch(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def when(self) -> datetime.datetime: ...
    @property
    def rows(self) -> int | None: ...
    @property
    def ms(self) -> float | None: ...
    @property
    def note(self) -> str | None: ...


@dataclass(frozen=True)
class Job:
    """Work in the background, as SHOW JOBS shows it."""

    kind: str
    name: str | None
    state: str
    done: int | None
    total: int | None
    unit: str
    note: str | None


class Host(Protocol):
    """A pond, as SQL sees it."""

    # -- what it is made of ---------------------------------------------------------

    @property
    def store(self) -> Store:
        """The storage of the pond."""

    @property
    def settings(self) -> Settings:
        """The settings that the pond was opened with."""

    @property
    def clock(self) -> Clock:
        """The clock that statements take their time from."""

    # -- the program ----------------------------------------------------------------

    def program(self) -> tuple[Plan, str | None]:
        """The plan of now and the name of its catalog; no name while it has never run."""

    def is_changing(self) -> bool:
        """Is the caller inside `with pond.changing()` of a running pond?"""

    def change(
        self, plan: Plan, *, on_progress: Callable[[Any], None] | None = None, base: str | None = None
    ) -> int:
        """Commit another plan, and return its epoch; ConflictError if the catalog is no longer `base`."""

    def create_first_epoch(self) -> None:
        """Run what is defined for the first time, so that there is an epoch to read."""

    # -- rows to write --------------------------------------------------------------

    def insert(self, scan: str, rows: pa.Table) -> int:
        """Put rows for a table into the inbox under their stored names; the number of the entry."""

    def row_entry(self, scan: str, rows: pa.Table) -> tuple[dict[str, Any], bytes]:
        """The args and the payload of an entry that inserts rows, which is not yet in the inbox."""

    def append(self, kind: str, args: Mapping[str, Any], payload: bytes = b"") -> int:
        """Put an entry into the inbox, durable on return; its number."""

    @property
    def last_written(self) -> int | None:
        """The number of the newest inbox entry that statements over this host appended."""

    def wait_executed(self, number: int) -> None:
        """Return once an inbox entry has been executed, by this process or by the one that runs the pond."""

    def epoch_of(self, number: int) -> int:
        """The epoch that executed an inbox entry."""

    def flush(self, timeout_s: float) -> int:
        """Return once all earlier inbox entries are in a committed epoch; that epoch."""

    # -- epochs to read -------------------------------------------------------------

    def find_head(self) -> Manifest | None:
        """The newest manifest; None before the first epoch."""

    def head(self) -> Manifest:
        """The newest manifest; InvalidError before the first epoch."""

    def watermarks(self) -> pa.Table:
        """How far event time has come, by step, source and partition."""

    def source_lag(self) -> pa.Table:
        """How far each partition of the sources is behind its end."""

    def shedding(self) -> pa.Table:
        """The share of rows that each view of a source that may shed rows was computed from."""

    def shed(self, source: str, target_lag: str | None, **options: Any) -> None:
        """Set when a source sheds rows; without a target it does not."""

    def scaling(self) -> pa.Table:
        """The decisions of the autoscaler, with their reasons."""

    def plan_of(self, manifest: Manifest) -> Plan:
        """The plan that an epoch ran."""

    def pinned(self, epoch: EpochOrName = None) -> AbstractContextManager[Snapshot]:
        """One epoch, readable until the block ends."""

    def pinned_range(self, first: int, last: int) -> AbstractContextManager[tuple[Snapshot, Snapshot]]:
        """The first and the last of a range of epochs, all readable until the block ends."""

    def changes(self, view: str, since: int | None, *, follow: bool) -> Iterator[EpochChanges]:
        """The changes of each epoch after `since`; with `follow` it waits for more."""

    def epochs(self) -> Sequence[EpochFacts]:
        """The newest epochs that can be read, newest last."""

    def diff(self, view: str, e1: int | str, e2: int | str) -> pa.Table:
        """What changed in a view between two epochs or savepoints, consolidated, with the weight `_w`."""

    # -- what the pond knows about itself ---------------------------------------------

    def system_relations(self) -> Mapping[str, pa.Schema]:
        """The relations of schema `millpond` that `system_rows` can give, and their columns."""

    def system_rows(self, name: str, snapshot: Snapshot) -> Iterator[pa.Table]:
        """The rows of one of these relations at an epoch."""

    def state_table(self, snapshot: Snapshot, step: str, name: str) -> tuple[TableSpec, list[str]]:
        """The table of a state of a step, and the columns that users see; InvalidError if there is none."""

    def state_batches(self, snapshot: Snapshot, spec: TableSpec, keys: pa.Table | None) -> Iterator[pa.Table]:
        """The live rows of a state, of some keys or of all; untyped values stay pickled."""

    # -- savepoints, sinks, jobs ----------------------------------------------------

    def savepoints(self) -> Mapping[str, int]:
        """The epochs that have a name."""

    def savepoint(self, name: str) -> None:
        """Name the newest epoch."""

    def drop_savepoint(self, name: str) -> None:
        """Remove the name of an epoch."""

    def attach_sink(self, name: str, *, replay: bool) -> None:
        """Deliver changes to a detached sink again; with `replay` also those since it was detached."""

    def sinks(self) -> Sequence[SinkStatus]:
        """Every sink of the program: what it promises, and how far it is."""

    def detach_sink(self, name: str, *, pause: bool = False) -> None:
        """Deliver nothing to a sink until it is attached; `pause` only says how that is called."""

    def backfill_progress(self) -> BackfillStatus | None:
        """How far the backfill is that this process runs; None where it runs none."""

    def background_jobs(self) -> Iterator[Job]:
        """The compaction and the late deliveries of the runner in this process."""
