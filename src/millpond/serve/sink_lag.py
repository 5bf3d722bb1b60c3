"""How far a sink is behind, by what the manifests say."""

from __future__ import annotations

from millpond.engine.coordinator import is_empty
from millpond.state import history
from millpond.state.manifest import Manifest
from millpond.state.store import Store

LOOKED_AT = 16  # epochs: one that is further behind than this is behind by all of them


def epochs_behind(store: Store, head: Manifest, cursor: int) -> int:
    """Epochs after the cursor that may have something to show; others need neither delivery nor cursor."""
    behind = head.epoch - cursor
    if behind > LOOKED_AT:
        return behind
    count = 0
    for epoch in range(head.epoch, cursor, -1):
        manifest = head if epoch == head.epoch else history.find_manifest(store, epoch)
        count += manifest is None or not is_empty(manifest)
    return count
