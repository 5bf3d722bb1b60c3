"""The manifests of a pond, in order: finding the newest, reading any."""

from __future__ import annotations

import itertools

from millpond.errors import DataError, InvalidError
from millpond.state.manifest import Manifest, epoch_of, manifest_name
from millpond.state.store import MissingError, Store

PREFIX = "manifests/"


def epochs(store: Store) -> list[int]:
    return [epoch_of(name) for name in store.list(PREFIX) if name[len(PREFIX) :].isdecimal()]


def read_manifest(store: Store, epoch: int) -> Manifest:
    """The manifest of an epoch that must be there."""
    name = manifest_name(epoch)
    try:
        raw = store.get(name)
    except MissingError as missing:
        raise InvalidError(
            f"epoch {epoch} is not in this pond",
            detail=_kept(store),
            hint="ask for a retained epoch, or keep more of them with retain_epochs",
            epoch=epoch,
        ) from missing
    return _decoded(epoch, raw)


def find_manifest(store: Store, epoch: int) -> Manifest | None:
    try:
        return _decoded(epoch, store.get(manifest_name(epoch)))
    except MissingError:
        return None


def _decoded(epoch: int, raw: bytes) -> Manifest:
    name = manifest_name(epoch)
    found = Manifest.decode(raw, name=name)
    if found.epoch != epoch:
        raise DataError(
            f"{name} holds another epoch",
            detail=f"it is the manifest of epoch {found.epoch}",
            hint="the file was copied or renamed: restore it from a backup",
            epoch=epoch,
        )
    return found


def read_head(store: Store) -> Manifest | None:
    """The newest manifest, or None for a pond that does not exist yet.

    A gap in the chain, or a token below its parent's, is a damaged pond.
    """
    for last_look in (False, True):
        found = epochs(store)
        if not found:
            return None
        head = read_manifest(store, found[-1])
        gaps = [e + 1 for e, after in itertools.pairwise((-1, *found)) if after != e + 1]
        gaps = [max(g, head.floor) for g in gaps]
        gaps = [g for g in gaps if g not in found]
        if not gaps:
            return head
        # A listing made while old manifests were being collected may show a gap: look again.
        if last_look:
            raise DataError(
                f"the manifest of epoch {gaps[0]} is missing",
                detail=f"manifests exist up to epoch {found[-1]}, the floor is {head.floor}",
                hint="restore the file from a copy of the pond; do not delete files under manifests/",
                epoch=gaps[0],
            )
    return head


def newer_head(store: Store, known: Manifest | None) -> Manifest | None:
    """The newest manifest, found from one that was the newest before: the cost follows what came since.

    `known` must be pinned: manifests after a pinned one are not collected, so none is missing on the way.
    """
    if known is None:
        return read_head(store)
    head = known
    while (found := find_manifest(store, head.epoch + 1)) is not None:
        head = found
    if head is known and store.size(manifest_name(known.epoch)) is None:
        return read_head(store)  # collected long ago, and those after it as well
    return head


def _kept(store: Store) -> str:
    found = epochs(store)
    return f"epochs {found[0]} to {found[-1]} are retained" if found else "the pond has no epochs"
