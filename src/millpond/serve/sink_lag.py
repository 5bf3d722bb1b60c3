"""Computes how far a sink is behind, from the manifests."""

from __future__ import annotations

from millpond.engine.coordinator.sink_deliveries import is_empty
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest
from millpond.state.store.store import Store

LOOKED_AT = 16  # in epochs: a sink that is further behind is reported as behind by all of them


def epochs_behind(store: Store, head: Manifest, cursor: int) -> int:
    """Count the epochs after the cursor that may have changes; others need neither delivery nor cursor."""
    behind = head.epoch - cursor
    if behind > LOOKED_AT:
        return behind
    count = 0
    for epoch in range(head.epoch, cursor, -1):
        manifest = head if epoch == head.epoch else history.find_manifest(store, epoch)
        count += manifest is None or not is_empty(manifest)
    return count
