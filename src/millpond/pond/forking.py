"""Forks a pond: finds the store of the fork, and checks that the program may run there."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from typing import Any

from millpond.plan.side_effects import require_for_fork
from millpond.pond.components import Components
from millpond.state.manifest.fork import fork
from millpond.state.store.location import options_for, uri_of
from millpond.state.store.location import store_options as options_of
from millpond.state.store.store import open_store


def fork_pond(
    components: Components,
    path: str | os.PathLike[str],
    epoch: int | str | None,
    store_options: Mapping[str, Any] | None,
) -> int:
    """Start a new pond at `path` with the state of an epoch; returns that epoch."""
    uri = uri_of(path)
    if store_options is None:
        store_options = options_for(uri, components.store.uri, components.options)
    child = open_store(uri, **options_of(uri, components.settings, store_options))
    with components.reader.pinned(epoch) as snapshot:
        plan = components.reader.plan_of(snapshot.manifest)
        require_for_fork(plan, components.worker.trust)
        fork(
            components.store,
            child,
            snapshot.epoch,
            pond=uuid.uuid4().hex,
            now_us=components.clock.now_us(),
            sinks=plan.sinks,
        )
        return snapshot.epoch
