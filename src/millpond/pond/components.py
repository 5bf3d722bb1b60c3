"""The components of an open pond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millpond.clock import Clock
from millpond.engine.task.worker import Worker
from millpond.flow.builder import Builder
from millpond.plan.nodes import Plan
from millpond.plan.step_versions import versioned
from millpond.secret_references import secrets_from
from millpond.serve.reader import Reader
from millpond.serve.source_lag import source_lag
from millpond.serve.watermark_progress import watermark_progress
from millpond.settings import Settings
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest
from millpond.state.secret_files import SecretFiles
from millpond.state.store.location import is_local
from millpond.state.store.store import Store
from millpond.state.trust import Trust


@dataclass(frozen=True)
class Components:
    store: Store
    settings: Settings
    clock: Clock
    worker: Worker
    builder: Builder  # the plan that this process defines
    reader: Reader
    options: Mapping[str, Any] = field(repr=False)  # options to open the store in another process
    parallelism: int | None = None
    standby: bool = False
    take_over: bool = False

    def head(self) -> Manifest | None:
        """The newest manifest; None before the first epoch."""
        return history.read_head(self.store)

    @property
    def poll_s(self) -> float:
        """How long a feed of changes waits before it asks for a new epoch again."""
        return 0.01 if is_local(self.store.uri) else 0.1

    def defined(self, otherwise: Plan) -> Plan:
        """The plan that this process defined, with the step ids of `otherwise`; else `otherwise`."""
        return versioned(otherwise, self.builder.plan).plan if self.builder.plan.nodes else otherwise

    def source_lag(self, plan: Plan) -> pa.Table:
        """How far sources are behind; `plan` is that of a pond without an epoch."""
        head = self.head()
        with secrets_from(SecretFiles(self.store).value):
            return source_lag(plan if head is None else self.reader.plan_of(head), head)

    def watermarks(self, plan: Plan) -> pa.Table:
        """How far event time has come; `plan` is that of a pond without an epoch."""
        if self.head() is None:
            return watermark_progress(plan, None, None)
        with self.reader.pinned(None) as snapshot:
            return watermark_progress(
                self.reader.plan_of(snapshot.manifest), snapshot.manifest, snapshot.listing
            )


def new_components(
    store: Store,
    settings: Settings,
    clock: Clock,
    *,
    trust: bool,
    options: Mapping[str, Any],
    parallelism: int | None,
    standby: bool,
    take_over: bool,
) -> Components:
    """The components of a pond that was just opened: nothing is defined yet, and nothing runs."""
    worker = Worker(store, trust=Trust(store, trust), options=options)
    reader = Reader(worker, clock=clock, reader_ms=settings.reader_ms, store_options=options)
    return Components(
        store, settings, clock, worker, Builder(), reader, options, parallelism, standby, take_over
    )
