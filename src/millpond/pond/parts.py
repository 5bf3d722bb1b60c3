"""What a pond is made of, from when it is opened until it is closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millpond.clock import Clock
from millpond.engine.worker import Worker
from millpond.flow.builder import Builder
from millpond.plan.nodes import Plan
from millpond.plan.versions import versioned
from millpond.serve.reader import Reader
from millpond.settings import Settings
from millpond.state import history
from millpond.state.manifest import Manifest
from millpond.state.store import Store


@dataclass(frozen=True)
class Parts:
    store: Store
    settings: Settings
    clock: Clock
    worker: Worker
    builder: Builder  # what this process defines
    reader: Reader
    options: Mapping[str, Any] = field(repr=False)  # of the store, for those who open it elsewhere
    parallelism: int | None = None
    standby: bool = False
    take_over: bool = False

    def head(self) -> Manifest | None:
        """The newest manifest; None before the first epoch."""
        return history.read_head(self.store)

    def defined(self, otherwise: Plan) -> Plan:
        """The plan that this process defined, if it did, with the ids that `otherwise` has for its steps."""
        return versioned(otherwise, self.builder.plan).plan if self.builder.plan.nodes else otherwise
